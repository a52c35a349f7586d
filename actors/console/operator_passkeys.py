"""Passkeys of operators, driven: decided one after the other, made durable, then true for everybody.

Whoever is cancelled meanwhile has it written all the same, and what it says is true. If the stream cannot be read at
the start, nobody signs in with a passkey and none is added; links go on. Verifying what a passkey signs, sessions and
answers to requests are for others.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec
import structlog
import trio

from actors.console import passkey_rules
from actors.console.passkey_events import (
    Event,
    OperatorPasskey,
    Passkeys,
    decode,
    decode_snapshot,
    encode,
    encode_snapshot,
    evolve,
)
from actors.console.passkey_rules import Decision, Trouble
from actors.log.store import AppendAnswer, Appended, LogStore, Part, UnreadableError
from actors.supervision.crash_report import report

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

SNAPSHOT_EVENTS = 64  # since the last snapshot; then there is another
STREAM = "console"


class OperatorPasskeys:
    def __init__(self, store: LogStore, passkeys_max: int, wall_ms: Callable[[], int]) -> None:
        """`passkeys_max`: of all operators; the next one is refused."""
        self._store = store
        self._passkeys_max = passkeys_max
        self._wall_ms = wall_ms
        self._passkeys: Passkeys = {}
        self._is_readable = True
        self._events = 0  # since the last snapshot
        self._version = 0  # of the stream, as far as it was read
        self._turn = trio.Lock()

    async def load(self) -> None:
        """Once, at the start."""
        try:
            loaded = await self._store.load(STREAM)
            passkeys = {} if loaded.snapshot is None else decode_snapshot(loaded.snapshot.data)
            for recorded in loaded.events:
                passkeys = evolve(passkeys, decode(recorded.data))
        except (msgspec.MsgspecError, UnicodeDecodeError, UnreadableError) as error:
            log.error("console_passkeys_unreadable", causes=report(error))
            self._is_readable = False
            return
        self._passkeys, self._events, self._version = passkeys, len(loaded.events), loaded.version

    def __iter__(self) -> Iterator[OperatorPasskey]:
        """In the order of their ids, and so of their registration. Those whose time is up are there until another one
        is written."""
        return iter(tuple(self._passkeys.values()))

    def get(self, passkey_id: str) -> OperatorPasskey | None:
        return self._passkeys.get(passkey_id)

    def find(self, credential_id: bytes) -> OperatorPasskey | None:
        return passkey_rules.of_credential(self._passkeys, credential_id)

    def handle_of(self, sub: str) -> bytes | None:
        """What authenticators know this operator by; None: none does yet."""
        return passkey_rules.handle_of(self._passkeys, sub)

    async def add(self, new: OperatorPasskey) -> Trouble | None:
        return await self._record(lambda now_ms: passkey_rules.add(self._passkeys, new, self._passkeys_max, now_ms))

    async def use(self, passkey_id: str, sign_count: int) -> Trouble | None:
        """It has signed, with this count."""
        return await self._record(lambda now_ms: passkey_rules.use(self._passkeys, passkey_id, sign_count, now_ms))

    async def remove(self, passkey_id: str, by: str) -> Trouble | None:
        return await self._record(lambda now_ms: passkey_rules.remove(self._passkeys, passkey_id, by, now_ms))

    async def _record(self, decide: Callable[[int], Decision]) -> Trouble | None:
        """Decide on what is true now, write it, and let it be true."""
        async with self._turn:
            decided = decide(self._wall_ms())
            if isinstance(decided, Trouble):
                return decided
            if not self._is_readable:
                return Trouble.NOT_WRITTEN
            with trio.CancelScope(shield=True):  # else the next one would decide on what is no longer true
                trouble = await self._write(decided)
        return trouble

    async def _write(self, events: Sequence[Event]) -> Trouble | None:
        return None if isinstance(await self._append(events), Appended) else Trouble.NOT_WRITTEN

    async def _append(self, events: Sequence[Event]) -> AppendAnswer:
        """And let it be true, if it is written."""
        at_ms = events[0].at_ms
        answer = await self._store.append(Part(STREAM, self._expected, at_ms, tuple(map(encode, events))))
        if not isinstance(answer, Appended):
            return answer
        self._apply(events, answer.version)
        if self._events >= SNAPSHOT_EVENTS:
            part = Part(STREAM, self._expected, at_ms, snapshot=encode_snapshot(self._passkeys))
            if isinstance(await self._store.append(part), Appended):  # else the next event brings another
                self._events = 0
        return answer

    def _apply(self, events: Sequence[Event], version: int) -> None:
        for event in events:
            self._passkeys = evolve(self._passkeys, event)
        self._events += len(events)
        self._version = version

    @property
    def _expected(self) -> int | None:
        """The version at which the stream is written: any, as nobody else writes to it."""
        return None
