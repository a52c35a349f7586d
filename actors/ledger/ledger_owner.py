"""The ledgers that this process owns, where several share a log. The rules are `owned_ledger`; this reads and appends.

A ledger is taken when it is first asked for here, whoever had it before: who asks decides that (`actors.engine`: nobody
answered for it, or not in time). It is given up when the log says that another process has it, or to make room.

Cancellation: whoever waits for a reservation may stop waiting. If it becomes durable all the same, and nobody waits for
it any more, it is released at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import structlog
import trio

from actors.ledger.events import Settlement
from actors.ledger.ledger import Agent, Ledger, UnreadableLedgerError, restored
from actors.ledger.owned_ledger import Answer, OwnedLedger
from actors.ledger.rules import Budget, Exceeded
from actors.log.store import AppendAnswer, Appended, LogStore, Part, StoreFailedError, UnreadableError
from actors.log_throttle import LogThrottle

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

OWNED_MAX = 10_000  # ledgers in memory; beyond it, those at rest are read again when they are needed
COMPLAIN_EVERY_S = 10.0  # of ledgers that the log does not give
LOOK_EVERY_S = 0.5  # for settlements that have waited long enough, and for what is overdue

D = TypeVar("D")


class Terms(NamedTuple):
    """What something costs an agent, and what it may spend."""

    micros: int
    budget: Budget


class Clock(Protocol):
    def __call__(self) -> int:
        """Milliseconds since 1970."""


class Watcher(Protocol):
    """Whoever wants to know which ledgers are this process's. Neither waits nor raises."""

    def came(self, agent: Agent) -> None:
        """It is being taken: from now on this process can be asked."""

    def opened(self, agent: Agent) -> None:
        """The log has it."""

    def went(self, agent: Agent, unsettled: Sequence[Settlement]) -> None:
        """It is somebody else's, who has this to settle; or it is at rest."""


class Nobody:
    """A `Watcher` that wants to know nothing."""

    def came(self, agent: Agent) -> None: ...

    def opened(self, agent: Agent) -> None: ...

    def went(self, agent: Agent, unsettled: Sequence[Settlement]) -> None: ...


@dataclass(slots=True, eq=False)
class _Asked:
    """A reservation on its way to the log, and how many wait for it."""

    waiting: int = 0
    answer: Answer | StoreFailedError | None = None
    answered: trio.Event = field(default_factory=trio.Event)


@dataclass(slots=True, eq=False)
class _Mine:
    owned: OwnedLedger
    opened_or_lost: trio.Event = field(default_factory=trio.Event)


class LedgerOwner:
    def __init__(self, store: LogStore, process: str, now_ms: Clock, watcher: Watcher | None = None) -> None:
        self._store = store
        self._process = process
        self._now_ms = now_ms
        self._watcher: Watcher = Nobody() if watcher is None else watcher
        self._mine: dict[Agent, _Mine] = {}
        self._asked: dict[tuple[Agent, str], _Asked] = {}
        self._unreadable: set[Agent] = set()
        self._unread = LogThrottle(COMPLAIN_EVERY_S)
        self._failure: StoreFailedError | None = None
        self._charged_micros = 0  # in ledgers that are no longer this process's
        self.takeovers_lost = 0  # ledgers that another process has taken from this one

    def __len__(self) -> int:
        return len(self._mine)

    def __contains__(self, agent: object) -> bool:
        return agent in self._mine

    @property
    def charged_micros(self) -> int:
        """By this process, since it began."""
        return self._charged_micros + sum(mine.owned.charged_micros for mine in self._mine.values())

    @property
    def is_settled(self) -> bool:
        """Whether the log has all that was decided here."""
        return all(mine.owned.is_written for mine in self._mine.values())

    def account(self, agent: Agent) -> Ledger | None:
        """What the log has of it, and what is on its way there, if this process owns it."""
        mine = self._mine.get(agent)
        return None if mine is None else mine.owned.ledger

    def is_opened(self, agent: Agent) -> bool:
        """Whether the log has said that it is this process's."""
        mine = self._mine.get(agent)
        return mine is not None and mine.owned.is_opened

    async def take(self, agent: Agent) -> bool:
        """Own it from now on, whoever did before; the log is told at once. False when it cannot be read."""
        mine = await self._own(agent)
        if mine is not None:
            self._write(agent, mine)
        return mine is not None

    async def reserve(
        self, agent: Agent, key: str, tool: str, terms: Callable[[Ledger], Terms | D], settle_by_ms: int
    ) -> int | Answer | Exceeded | D:
        """Set a price aside durably, in a ledger that is this process's from now on. The price, if it is reserved.

        `terms` are asked for when they are needed, not for a reservation that there is already; they may be a refusal.
        `REFUSED` also when the ledger cannot be read. Raises StoreFailedError.
        """
        mine = await self._own(agent)
        if mine is None:
            return Answer.REFUSED
        if not await self._opened(agent, mine):
            return Answer.MOVED
        owned = mine.owned
        if key in owned:
            agreed = Terms(owned.micros_of(key), Budget(0))
        else:
            found = terms(owned.ledger)
            if not isinstance(found, Terms):
                owned.say(self._now_ms())
                return found
            agreed = found
        answer = owned.reserve(key, tool, agreed.micros, agreed.budget, self._now_ms(), settle_by_ms)
        if answer is not None:
            self._write(agent, mine)
            return agreed.micros if answer is Answer.RESERVED else answer
        asked = self._asked.setdefault((agent, key), _Asked())
        self._write(agent, mine)
        asked.waiting += 1
        try:
            await asked.answered.wait()
        finally:
            asked.waiting -= 1
        if isinstance(asked.answer, StoreFailedError):
            raise asked.answer
        assert asked.answer is not None
        return agreed.micros if asked.answer is Answer.RESERVED else asked.answer

    async def ask(self, agent: Agent, question: Callable[[Ledger], D]) -> D | Answer:
        """Ask something that needs no append, of a ledger that is this process's as far as the log has told it."""
        mine = await self._own(agent)
        if mine is None:
            return Answer.REFUSED
        if not await self._opened(agent, mine):
            return Answer.MOVED
        mine.owned.say(self._now_ms())
        return question(mine.owned.ledger)

    async def _opened(self, agent: Agent, mine: _Mine) -> bool:
        """Wait until the log has told whether this process has the ledger: what was read may have been behind."""
        self._write(agent, mine)
        if not mine.owned.is_opened:
            await mine.opened_or_lost.wait()
        if self._failure is not None:
            raise self._failure
        return mine.owned.is_opened

    def settle(self, agent: Agent, key: str, *, is_charged: bool, command: str | None = None) -> bool:
        """Not waited for. False: the ledger is not this process's, so ask whose it is; or nobody settles it, and it is
        charged when its time is over."""
        mine = self._mine.get(agent)
        if mine is None:
            return False
        mine.owned.settle(key, self._now_ms(), is_charged=is_charged, command=command)
        self._write(agent, mine)
        return True

    def doubt(self, agent: Agent) -> None:
        """Somebody says that another process has it."""
        mine = self._mine.get(agent)
        if mine is not None:
            mine.owned.doubt()
            self._write(agent, mine)

    async def run(self) -> None:
        """For as long as the process lives: write what nothing else writes."""
        while True:
            await trio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self, *, hurry: bool = False) -> None:
        """`hurry`: this process is about to end, so that nothing may wait for anything to ride with."""
        now_ms = self._now_ms()
        for agent, mine in list(self._mine.items()):
            owned = mine.owned
            deadline_ms = owned.next_deadline_ms
            if deadline_ms is not None or not owned.is_opened:
                if deadline_ms is not None and deadline_ms <= now_ms:
                    owned.charge_overdue(now_ms)
                self._write(agent, mine, hurry=hurry)

    # ---- taking, writing, losing ------------------------------------------------------------------------------------

    async def _own(self, agent: Agent) -> _Mine | None:
        mine = self._mine.get(agent)
        if mine is not None or agent in self._unreadable:
            return mine
        try:
            ledger = restored(agent, await self._store.load(agent.stream))
        except UnreadableLedgerError:
            self._unreadable.add(agent)
            log.error("ledger_unreadable", tenant=agent.tenant, sub=agent.sub)
            return None
        except UnreadableError as error:  # the log's trouble: the next call may have better luck
            untold = self._unread.hit(self._now_ms() / 1000)
            if untold:
                log.error("ledger_not_read", tenant=agent.tenant, sub=agent.sub, reason=str(error), times=untold)
            return None
        mine = self._mine.get(agent)
        if mine is None:  # else another task has read it meanwhile, and may have decided on it: that one counts
            mine = self._mine[agent] = _Mine(OwnedLedger(self._process, ledger))
            mine.owned.open()
            self._watcher.came(agent)
            self._make_room(agent)
        return mine

    def _make_room(self, wanted: Agent) -> None:
        if len(self._mine) > OWNED_MAX:
            at_rest = [agent for agent, mine in self._mine.items() if mine.owned.is_at_rest and agent != wanted]
            for agent in at_rest[: OWNED_MAX // 10]:
                self._forget(agent, self._mine[agent])

    def _forget(self, agent: Agent, mine: _Mine) -> None:
        del self._mine[agent]
        self._charged_micros += mine.owned.charged_micros
        self._watcher.went(agent, mine.owned.unsettled)

    def _write(self, agent: Agent, mine: _Mine, *, hurry: bool = False) -> None:
        """Submit what is due, if nothing is on its way; else that brings it along when it is answered."""
        part = mine.owned.next_part(self._now_ms(), hurry=hurry)
        if part is None:
            return

        def then(answer: AppendAnswer | StoreFailedError, part: Part = part) -> None:
            if isinstance(answer, StoreFailedError):
                self._failed(agent, mine, answer)
            else:
                self._answered(agent, mine, part, answer)

        refused = self._store.submit((part,), then)
        if refused is not None:
            self._answered(agent, mine, part, refused)

    def _answered(self, agent: Agent, mine: _Mine, part: Part, answer: AppendAnswer) -> None:
        owned = mine.owned
        for key, said in owned.answered(part, answer).items():
            asked = self._asked.pop((agent, key), None)
            if said is Answer.RESERVED and (asked is None or not asked.waiting):
                owned.abandon(key, self._now_ms())
            if asked is not None:
                asked.answer = said
                asked.answered.set()
        if isinstance(answer, Appended):
            if not mine.opened_or_lost.is_set():
                mine.opened_or_lost.set()
                self._watcher.opened(agent)
            self._write(agent, mine)  # what has come meanwhile; after a refusal the next look is soon enough
        elif owned.is_lost:
            mine.opened_or_lost.set()
            if self._mine.get(agent) is mine:
                self.takeovers_lost += 1
                self._forget(agent, mine)

    def _failed(self, agent: Agent, mine: _Mine, error: StoreFailedError) -> None:
        """The process stops; nobody may wait until then."""
        self._failure = error
        mine.opened_or_lost.set()
        for whose, asked in list(self._asked.items()):
            if whose[0] == agent:
                del self._asked[whose]
                asked.answer = error
                asked.answered.set()
