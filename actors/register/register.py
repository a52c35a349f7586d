"""The register, driven: decided, made durable, then true for everybody; one thing after the other.

One stream for all nodes: its events are what happened, its open items the members as they are. Whoever is cancelled
while something is being written has it written all the same.
"""

from bisect import insort
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import structlog
import trio

from actors.bus.directory import LocalDirectory
from actors.log.store import Appended, LogStore, OpenItem, Part
from actors.register.events import Event, Member, decode_member, encode
from actors.register.register_rules import Decide, Refusal, Roll, Trouble, refuses_login
from actors.supervision.crash_report import report
from schemas.closes import NodeClose

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_STREAM = "register"
_COVERED = b"{}"  # the snapshot: the members are the state, and they are open items


async def _nothing() -> None:
    await trio.lowlevel.checkpoint()


class Register:
    def __init__(self, store: LogStore, directory: LocalDirectory) -> None:
        self.roll = Roll()
        self._store = store
        self._directory = directory
        self.ids: list[str] = []
        """Of all members, sorted. Not a copy: use it before the next await."""
        self._version = 0
        self._unreadable: set[str] = set()  # members of whom nobody knows whether they are revoked
        self._turn = trio.Lock()

    async def load(self) -> None:
        """Once, at start."""
        loaded = await self._store.load(_STREAM)
        self._version = loaded.version
        for item in loaded.open_items:
            try:
                self._put(decode_member(item.data))
            except msgspec.MsgspecError as error:  # damaged, or of a newer version: that node's trouble alone
                log.error("register_unreadable", node_id=item.key, causes=report(error))
                self._unreadable.add(item.key)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.roll)

    def find(self, node_id: str) -> Member | None:
        return self.roll.find(node_id)

    def refuses_login(self, node_id: str, jti: str, issued_at_ms: int, now_ms: int) -> NodeClose | None:
        """What there is against a token of this node that is good in itself."""
        if node_id in self._unreadable:
            return NodeClose.INTERNAL
        return refuses_login(self.roll.find(node_id), jti, issued_at_ms, now_ms)

    async def record(
        self, decide: Decide, at_ms: int, before: Callable[[], Awaitable[None]] = _nothing
    ) -> tuple[Event, ...] | Refusal:
        """Decide on what is true now, do what has to come `before` it is written, write it, and let it be true."""
        async with self._turn:
            decided = decide(self.roll)
            if isinstance(decided, Refusal) or not decided:
                return decided if isinstance(decided, Refusal) else ()
            await before()
            with trio.CancelScope(shield=True):  # else the next one would decide on what is no longer true
                written = await self._write(tuple(decided), at_ms)
        return written

    async def _write(self, events: tuple[Event, ...], at_ms: int) -> tuple[Event, ...] | Refusal:
        members = self.roll.after(events)
        part = Part(
            stream=_STREAM,
            expected_version=self._version,
            at_ms=at_ms,
            events=tuple(map(encode, events)),
            opened=tuple(OpenItem(node_id, encode(member)) for node_id, member in members.items()),
            snapshot=_COVERED,
        )
        answer = await self._store.append(part)
        if not isinstance(answer, Appended):
            return Refusal(Trouble.NOT_WRITTEN)
        self._version = answer.version
        for member in members.values():
            self._put(member)
        return events

    def _put(self, member: Member) -> None:
        if self.roll.find(member.node_id) is None:
            insort(self.ids, member.node_id)
        self.roll.put(member)
        self._directory.label(member.identity, member.labels)
