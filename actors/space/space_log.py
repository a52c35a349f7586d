"""What the log has of spaces: a stream for each, `space/{id}`, sealed under its key, and when spaces were last seen.

A stream has few events, and open items, so that a start finds it: `live`, and `end`, once the end was moved. That one
is an item because only the last counts: each move takes the place of the one before, so moving makes no stream longer.
What the events mean, and when to write them, is left to `space_rules` and `spaces`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from actors.log.store import (
    AppendAnswer,
    Appended,
    AppendRefused,
    LogStore,
    OpenItem,
    Part,
    RefusalReason,
    UnreadableError,
)
from actors.space import events
from actors.space.erasing import PREFIX
from actors.space.events import Event, Space, SpaceEndMoved, SpaceOpened
from actors.space.space_clock import SeenTime
from actors.space.store import SpaceStore
from schemas.echo.errors import EchoError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_LIVE = "live"
_END = "end"


@dataclass(frozen=True, slots=True)
class ReadSpace:
    """A space as its stream tells it, when its end was last written, and all that the stream has."""

    space: Space
    at_ms: int
    events: Sequence[Event]


class SpaceLog:
    def __init__(self, store: SpaceStore, stream_log: LogStore) -> None:
        self._store = store
        self._log = stream_log
        self._seen = SeenTime(stream_log)
        self._unnoted: Mapping[str, SpaceEndMoved] = {}
        self._is_noted = True

    async def space_ids(self) -> list[str]:
        """Of those that have a stream."""
        streams = await self._log.open_streams()
        return [stream.removeprefix(PREFIX) for stream in streams if stream.startswith(PREFIX)]

    async def read(self, space_id: str) -> ReadSpace | None:
        """None: nobody will ever open it again, so it is as good as over."""
        try:
            loaded = await self._log.load(PREFIX + space_id)
            moved = [item.data for item in loaded.open_items if item.key == _END]
            history: list[Event] = []
            space, at_ms = None, 0
            for body in [*(recorded.data for recorded in loaded.events), *moved]:
                unsealed = self._store.unseal(space_id, body)
                if unsealed is not None:
                    event = events.decode(unsealed)
                    history.append(event)
                    space = events.evolve(space, event)
                    if isinstance(event, SpaceOpened | SpaceEndMoved):  # of others nobody knows which came before it
                        at_ms = event.at_ms
        except (UnreadableError, ValueError):  # ValueError: what is in there is not an event of ours
            log.error("space_unreadable", space_id=space_id)
            return None
        return None if space is None else ReadSpace(space, at_ms, history)

    async def append(self, space_id: str, decided: Sequence[Event], *more: Part) -> EchoError | None:
        """None once it is durable. A cancelled caller only stops waiting."""
        return await self.append_together({space_id: decided}, *more)

    async def append_together(self, decided: Mapping[str, Sequence[Event]], *more: Part) -> EchoError | None:
        """What was decided of several spaces, and parts of others: all of it, or nothing."""
        at_ms = max([*(of_one[0].at_ms for of_one in decided.values()), *(part.at_ms for part in more)])
        fault = None if self._is_noted else await self.note_seen(at_ms)
        if fault is not None:
            return fault
        parts = [self._part(space_id, of_one) for space_id, of_one in decided.items()]
        whole = [*(part for part in parts if part is not None), *more]
        return EchoError.SPACE_NOT_FOUND if None in parts else fault_of(await self._log.append(*whole))

    async def read_seen_ms(self) -> int:
        """When spaces were last there. 0: never, or nobody can tell any more."""
        return await self._seen.read()

    async def note_start(self, now_ms: int, moved: Mapping[str, SpaceEndMoved]) -> None:
        """What a start found out: the ends of spaces, and the time that they count from, together or not at all.

        With one of them alone, the next start would take the same time off once more, or not at all. If the log refuses
        this, nothing else is written before it.
        """
        self._unnoted, self._is_noted = moved, False
        await self.note_seen(now_ms)

    async def note_seen(self, now_ms: int) -> EchoError | None:
        """That spaces are there now."""
        parts = [self._part(space_id, (event,)) for space_id, event in self._unnoted.items()]
        fault = fault_of(await self._seen.write(now_ms, *(part for part in parts if part is not None)))
        if fault is None:
            self._unnoted, self._is_noted = {}, True
        return fault

    def _part(self, space_id: str, decided: Sequence[Event]) -> Part | None:
        """None: there is no such space any more."""
        bodies: list[bytes] = []
        opened: list[OpenItem] = []
        for event in decided:
            sealed = self._store.seal(space_id, events.encode(event))
            if sealed is None:
                return None
            if isinstance(event, SpaceEndMoved):
                opened.append(OpenItem(_END, sealed))
            else:
                bodies.append(sealed)
            if isinstance(event, SpaceOpened):
                opened.append(OpenItem(_LIVE, b""))
        version = 0 if isinstance(decided[0], SpaceOpened) else None
        return Part(PREFIX + space_id, version, decided[0].at_ms, tuple(bodies), tuple(opened))


def fault_of(answer: AppendAnswer) -> EchoError | None:
    if isinstance(answer, Appended):
        return None
    is_crowded = isinstance(answer, AppendRefused) and answer.reason is RefusalReason.OVERLOADED
    return EchoError.OVERLOADED if is_crowded else EchoError.STORAGE_NOT_READY
