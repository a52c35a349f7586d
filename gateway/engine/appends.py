"""Appends on their way: what was asked of the writer, and those that are published together."""

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from ulid import ULID

from actors.log.store import Appended, BlindEvents, Conflict, Part
from gateway.engine.nats_runs import Names
from gateway.engine.publishing import Flight, Target
from gateway.engine.unit_rules import Unit


class Request:
    """Something asked of the writer: an append, or other work to be done between rounds. Answered exactly once."""

    __slots__ = ("answer", "asked_s", "blind_events", "parts", "size_bytes", "streams", "then", "work")

    def __init__(
        self,
        parts: tuple[Part, ...],
        then: Callable[[Any], None],
        blind_events: BlindEvents = (),
        work: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.parts = parts
        self.then = then
        self.blind_events = blind_events
        self.work = work
        self.size_bytes = sum([part.size_bytes for part in parts]) + sum([len(data) for _, data in blind_events])
        self.answer: object = None
        self.asked_s = trio.current_time()
        self.streams = {part.stream for part in parts}
        self.streams.update([stream for stream, _ in blind_events])

    @property
    def is_one_message(self) -> bool:
        return len(self.parts) == 1 and not self.blind_events and self.parts[0].snapshot is None


class Taken:
    """A unit and the appends in it, each with what it is told if the unit lands."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.appends: list[tuple[Request, Appended | Conflict]] = []

    @property
    def requests(self) -> list[Request]:
        return [request for request, _ in self.appends]

    def flight(self, names: Names) -> Flight:
        unit_id = str(ULID())
        runs: list[Target] = []
        snapshots: list[Target] = []
        for stream, draft in self.unit.drafts.items():
            position = len(runs) + len(snapshots)
            runs.append(Target(position, names.runs_of(stream), draft.head.seq, draft.head.version + 1))
            if draft.snapshot is not None:
                snapshots.append(Target(position + 1, names.snapshot_of(stream), draft.head.snapshot_seq))
        messages = self.unit.outgoing(names, unit_id)
        return Flight(unit_id, messages, [*runs, *snapshots], min([request.asked_s for request in self.requests]))
