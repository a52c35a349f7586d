"""Publishing one thing until it is known what became of it: a unit of appends, tombstones, a snapshot.

Each attempt is the same messages, compare-and-set; the answers are judged by `jetstream_rules`, and what follows from
them is up to `attempt_rules`. Here is the waiting, and the one look that decides what became of it: the first run
behind where ours would be is either ours or somebody else's, and all messages of an atomic batch share its fate.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

import trio
from ulid import ULID

from actors.log.store import RefusalReason, StoreFailedError, UnreadableError
from gateway.engine.asking import ask_all, batched
from gateway.engine.attempt_rules import UNKNOWN_LIFE, Again, Attempts, End
from gateway.engine.jetstream_rules import API, NO_STREAM, Judged, Verdict, judge
from gateway.engine.link import Link
from gateway.engine.nats_reads import Reads
from gateway.engine.nats_runs import Names, Stored, versions_of
from gateway.engine.settings import EngineSettings
from gateway.engine.unit_rules import Outgoing, in_stream

_LOOKS_AT_ONCE = 64  # subjects that are looked at together


@dataclass(frozen=True, slots=True)
class Target:
    """Where one of the messages goes. Those of runs come first: what lies behind them says most."""

    position: int
    subject: str
    expected_seq: int
    next_version: int | None = None  # with which a run behind the expected one begins; None: this is no such run


@dataclass(slots=True, eq=False)
class Flight:
    """Messages that land together."""

    id: str
    messages: Sequence[Outgoing]
    targets: Sequence[Target]  # where its fate can be read: at least one
    asked_s: float  # when the first of those who wait for it began to


@dataclass(frozen=True, slots=True)
class Landed:
    last_seq: int


class Missed(Enum):
    """It did not land, and never will; or nobody can say any more."""

    CONFLICT = auto()
    OUT_OF_SIGHT = auto()  # what was behind the expected sequence is gone by now, ours perhaps with it


Outcome = Landed | Missed | RefusalReason


class _Tried(NamedTuple):
    judged: Judged
    life: int  # of the connection


@dataclass(slots=True)
class Publishing:
    link: Link
    reads: Reads
    names: Names
    limits: EngineSettings
    unknown_outcomes: int = field(default=0, init=False)  # attempts of which nobody knew at first what became of them

    async def publish(self, *flights: Flight) -> list[Outcome]:
        """All at once; how each of them ended. Raises `StoreFailedError` where the log is not ours."""
        tried = await self._try_all(flights)
        return [await self._settle(flight, first) for flight, first in zip(flights, tried, strict=True)]

    async def _try_all(self, flights: Sequence[Flight]) -> list[_Tried]:
        lasts = []
        for flight in flights:
            *others, last = in_stream(flight.messages, self.names.log, str(ULID()))
            for message in others:
                self.link.publish(*message)
            lasts.append(last)
        life = self.link.life
        answers = await ask_all(self.link, lasts, self.limits.attempt_s_max)
        if life != self.link.life:
            life = UNKNOWN_LIFE
        return [_Tried(judge(answer, self.names.log), life) for answer in answers]

    async def _settle(self, flight: Flight, tried: _Tried) -> Outcome:
        attempts = Attempts(flight.asked_s, self.limits.append_patience_s)
        while True:
            judged, life = tried
            self.unknown_outcomes += judged.verdict is Verdict.UNKNOWN
            step = attempts.after(judged.verdict, trio.current_time(), life)
            if step is End.LOOK:
                seen = await self._look(flight)
                if seen is not None:
                    return seen
                step = attempts.saw_nothing(trio.current_time())
            match step:
                case Again(wait_s):
                    await trio.sleep(random.uniform(*wait_s))
                    [tried] = await self._try_all([flight])
                case End.LANDED:
                    return Landed(judged.seq)
                case End.FOREIGN:
                    raise StoreFailedError(f"what takes our appends is not our log (code {judged.code})")
                case RefusalReason.UNREACHABLE:
                    await self._check_there()
                    return step
                case RefusalReason():
                    seen = await self._look(flight)  # whoever refuses it may not be the only one who was asked
                    return seen if isinstance(seen, Landed) else step
                case _:
                    return Missed.CONFLICT

    async def _look(self, flight: Flight) -> Landed | Missed | None:
        """Somebody has written to one of the subjects: we, or another. None: nobody is seen there."""
        for some in batched(flight.targets, _LOOKS_AT_ONCE):
            try:
                seen = await self.reads.behind([(target.subject, target.expected_seq) for target in some])
            except UnreadableError:
                return None
            for target, behind in zip(some, seen, strict=True):
                if behind is not None and behind.id == flight.id:
                    return Landed(behind.seq + len(flight.messages) - 1 - target.position)
                if behind is not None:
                    return Missed.OUT_OF_SIGHT if _hides_ours(behind, target) else Missed.CONFLICT
        return None

    async def _check_there(self) -> None:
        """Nobody takes appends. That there is no log is another matter than that nobody is there."""
        answer = await self.link.request(f"{API}STREAM.INFO.{self.names.log}", timeout_s=self.limits.read_s_max)
        if judge(answer, self.names.log).code == NO_STREAM:
            raise StoreFailedError("the log is gone from JetStream")


def _hides_ours(behind: Stored, target: Target) -> bool:
    """Whether a run of ours may have been before this one and be gone by now."""
    if target.next_version is None:
        return False
    try:
        return behind.is_tombstone or versions_of(behind)[0] != target.next_version
    except UnreadableError:
        return True
