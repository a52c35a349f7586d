"""The ledgers that this process owns, where several share a log. The rules are `owned_ledger`; this reads and appends.

A ledger is taken when it is first asked for here, whoever had it before: who asks decides that (`actors.bus`: nobody
answered for it, or not in time). It is given up when the log says that another process has it.

Cancellation: whoever waits for a reservation may stop waiting. If it becomes durable all the same, and nobody waits for
it any more, it is released at once.
"""

from dataclasses import dataclass, field
from typing import Protocol

import structlog
import trio

from actors.ledger.ledger import Agent, Ledger, UnreadableLedgerError, restored
from actors.ledger.owned_ledger import Answer, OwnedLedger
from actors.ledger.rules import Budget, Exceeded
from actors.log.store import AppendAnswer, Appended, LogStore, Part, StoreFailedError, UnreadableError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

OWNED_MAX = 10_000  # ledgers in memory; beyond it, those at rest are read again when they are needed
LOOK_EVERY_S = 0.5  # for settlements that have waited long enough, and for what is overdue


class Clock(Protocol):
    def __call__(self) -> int:
        """Milliseconds since 1970."""


@dataclass(slots=True, eq=False)
class _Asked:
    """A reservation on its way to the log, and how many wait for it."""

    waiting: int = 0
    answer: Answer | StoreFailedError | None = None
    answered: trio.Event = field(default_factory=trio.Event)


class LedgerOwner:
    def __init__(self, store: LogStore, process: str, now_ms: Clock) -> None:
        self._store = store
        self._process = process
        self._now_ms = now_ms
        self._owned: dict[Agent, OwnedLedger] = {}
        self._asked: dict[tuple[Agent, str], _Asked] = {}
        self._unreadable: set[Agent] = set()
        self.takeovers_lost = 0  # ledgers that another process has taken from this one

    def __len__(self) -> int:
        return len(self._owned)

    def account(self, agent: Agent) -> Ledger | None:
        """What the log has of it, and what is on its way there, if this process owns it."""
        owned = self._owned.get(agent)
        return None if owned is None else owned.ledger

    async def reserve(
        self, agent: Agent, key: str, tool: str, micros: int, budget: Budget, settle_by_ms: int
    ) -> Answer | Exceeded:
        """Set a price aside durably, in a ledger that is this process's from now on.

        `REFUSED` also when the ledger cannot be read. Raises StoreFailedError.
        """
        owned = await self._own(agent)
        if owned is None:
            return Answer.REFUSED
        answer = owned.reserve(key, tool, micros, budget, self._now_ms(), settle_by_ms)
        if answer is not None:
            return answer
        asked = self._asked.setdefault((agent, key), _Asked())
        self._write(agent, owned)
        asked.waiting += 1
        try:
            await asked.answered.wait()
        finally:
            asked.waiting -= 1
        if isinstance(asked.answer, StoreFailedError):
            raise asked.answer
        assert asked.answer is not None
        return asked.answer

    def settle(self, agent: Agent, key: str, *, is_charged: bool) -> bool:
        """Not waited for. False: the ledger is not this process's, so ask whose it is; or nobody settles it, and it is
        charged when its time is over."""
        owned = self._owned.get(agent)
        if owned is None:
            return False
        owned.settle(key, self._now_ms(), is_charged=is_charged)
        self._write(agent, owned)
        return True

    async def run(self) -> None:
        """For as long as the process lives: write what nothing else writes."""
        while True:
            await trio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        now_ms = self._now_ms()
        for agent, owned in list(self._owned.items()):
            deadline_ms = owned.next_deadline_ms
            if deadline_ms is not None:
                if deadline_ms <= now_ms:
                    owned.charge_overdue(now_ms)
                self._write(agent, owned)

    # ---- taking, writing, losing ------------------------------------------------------------------------------------

    async def _own(self, agent: Agent) -> OwnedLedger | None:
        owned = self._owned.get(agent)
        if owned is not None or agent in self._unreadable:
            return owned
        try:
            ledger = restored(agent, await self._store.load(agent.stream))
        except UnreadableLedgerError:
            self._unreadable.add(agent)
            log.error("ledger_unreadable", tenant=agent.tenant, sub=agent.sub)
            return None
        except UnreadableError:  # the log's trouble: the next call may have better luck
            return None
        # Another task may have read it meanwhile, and may have decided on it: that one counts.
        owned = self._owned.setdefault(agent, OwnedLedger(self._process, ledger))
        self._make_room(agent)
        return owned

    def _make_room(self, wanted: Agent) -> None:
        if len(self._owned) > OWNED_MAX:
            at_rest = [agent for agent, owned in self._owned.items() if owned.is_at_rest and agent != wanted]
            for agent in at_rest[: OWNED_MAX // 10]:
                del self._owned[agent]

    def _write(self, agent: Agent, owned: OwnedLedger) -> None:
        """Submit what is due, if nothing is on its way; else that brings it along when it is answered."""
        part = owned.next_part(self._now_ms())
        if part is None:
            return

        def then(answer: AppendAnswer | StoreFailedError, part: Part = part) -> None:
            if isinstance(answer, StoreFailedError):
                self._failed(agent, answer)
            else:
                self._answered(agent, owned, part, answer)

        refused = self._store.submit((part,), then)
        if refused is not None:
            self._answered(agent, owned, part, refused)

    def _answered(self, agent: Agent, owned: OwnedLedger, part: Part, answer: AppendAnswer) -> None:
        for key, said in owned.answered(part, answer).items():
            asked = self._asked.pop((agent, key), None)
            if said is Answer.RESERVED and (asked is None or not asked.waiting):
                owned.settle(key, self._now_ms(), is_charged=False)
            if asked is not None:
                asked.answer = said
                asked.answered.set()
        if isinstance(answer, Appended):
            self._write(agent, owned)  # what has come meanwhile; after a refusal the next look is soon enough
        elif owned.is_lost and self._owned.get(agent) is owned:
            del self._owned[agent]
            self.takeovers_lost += 1

    def _failed(self, agent: Agent, error: StoreFailedError) -> None:
        """The process stops; nobody may wait until then."""
        for whose, asked in list(self._asked.items()):
            if whose[0] == agent:
                del self._asked[whose]
                asked.answer = error
                asked.answered.set()
