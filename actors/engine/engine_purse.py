"""Paying where a ledger may be in another process: find whose it is, ask there, and settle afterwards.

The ledger of an agent is where it is used: a process that finds nobody serving it takes it, and so does one that hears
nothing from its owner for `purse_timeout_ms`. What is asked there and what is asked here is the same (`_answer`).

Charges and releases are asked for, not waited for. They go to whoever has the ledger by then, in batches; if that
cannot be found in time, what was reserved is charged when it is overdue.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import structlog
import trio

from actors.bus.purse import (
    Agreed,
    Denied,
    Granted,
    Guess,
    Judge,
    Look,
    NotGiven,
    NotNow,
    Order,
    OverBudget,
    RateLeft,
    Stands,
    TooOften,
)
from actors.engine.messages import Messages, NoReply, Reply
from actors.engine.purse_desk import PurseDesk, as_settled
from actors.engine.purse_rules import IS_LATE, Next, after
from actors.engine.purse_wire import MOVED, Fine, Question, Said, Settle, Settled, Sorry, encode, said_of, subject_of
from actors.engine.settings import DEFAULT_PURSE, PurseSettings
from actors.ledger.events import Settlement
from actors.ledger.ledger import PREFIX, Agent, Ledger, UnreadableLedgerError, agent_of, restored
from actors.ledger.ledger_owner import Terms
from actors.ledger.ledgers import LedgerStore
from actors.ledger.owned_ledger import Answer
from actors.ledger.rules import Exceeded
from actors.log.store import UnreadableError
from actors.node.moment import Moment

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_REFUSED = Sorry(NotNow.REFUSED)
Take = Callable[[Agent], Awaitable[Said | None]]
"""What to do about a ledger that nobody has: the answer, or None when it is this process's from now on."""


@dataclass(frozen=True, slots=True)
class _Owed:
    settled: Settled
    until_ms: int


class EnginePurse:
    """A `SharedPurse`. Run `run` for as long as the process lives, and `flush` when it is about to end."""

    def __init__(
        self,
        store: LedgerStore,
        messages: Messages,
        process: str,
        now: Callable[[], Moment],
        judge: Judge,
        settings: PurseSettings = DEFAULT_PURSE,
        prefix: str = "hg",
    ) -> None:
        self._store = store
        self._messages = messages
        self._now = now
        self._judge = judge
        self._settings = settings
        self._prefix = prefix
        self._desk = PurseDesk(store, messages, process, self._now_ms, settings, prefix)
        self._desk.answer, self._desk.on_lost = self._answer, self._pass_on
        self._owner = self._desk.owner
        self._owed: dict[Agent, dict[str, _Owed]] = {}
        self._owed_count = 0
        self._settling: set[Agent] = set()
        self._nursery: trio.Nursery | None = None
        self.unsettled = 0
        """Charges and releases that were dropped: what they were for is charged when it is overdue."""

    def _now_ms(self) -> int:
        return self._now().wall_ms

    async def run(self) -> None:
        async with trio.open_nursery() as self._nursery:
            try:
                self._nursery.start_soon(self._desk.run)
                for agent in self._owed:
                    self._start_settling(agent)
                await trio.sleep_forever()
            finally:  # before the nursery is closed
                self._nursery = None
                self._settling.clear()

    async def flush(self, s_max: float) -> bool:
        """Settle everything that waits; whether the log has it all. Nobody may ask for anything new."""
        with trio.move_on_after(s_max):
            while self._owed or not self._owner.is_settled:
                self._owner.look(hurry=True)
                await trio.sleep(self._settings.moved_ms / 1000)
            return True
        return False

    # ---- for people to read -----------------------------------------------------------------------------------------

    @property
    def charged_micros(self) -> int:
        """By this process, since it began."""
        return self._owner.charged_micros

    @property
    def owned(self) -> int:
        """Ledgers that this process has."""
        return len(self._owner)

    def has(self, agent: Agent) -> bool:
        """Whether it is this process's, as far as it knows."""
        return agent in self._owner

    @property
    def takeovers_lost(self) -> int:
        """Ledgers that another process has taken from this one."""
        return self._owner.takeovers_lost

    async def tenants_of(self, sub: str) -> list[str]:
        """Every tenant in which this agent has a ledger."""
        owners = map(agent_of, await self._store.names(PREFIX, f"/{sub}"))
        return [owner.tenant for owner in owners if owner is not None and owner.sub == sub]

    async def of(self, tenant: str, sub: str) -> Ledger:
        """The ledger as the log has it, whose ever it is. Raises UnreadableLedgerError."""
        agent = Agent(tenant, sub)
        return restored(agent, await self._store.load(agent.stream))

    # ---- SharedPurse ------------------------------------------------------------------------------------------------

    async def reserve(self, order: Order) -> Granted | Denied | NotNow:
        answer: Said | NotNow | None = None
        try:
            answer = await self._ask(order, self._own)
        finally:
            if answer is None or answer is NotNow.LATE:
                self._stop_waiting(order)
        match answer:
            case Granted() | OverBudget() | TooOften() | NotGiven() | NotNow():
                return answer
        return NotNow.REFUSED

    def _stop_waiting(self, order: Order) -> None:
        """It may be reserved by now, or may be yet."""
        if order.reserves:
            self.release(order)

    def charge(self, order: Order, command: str | None = None) -> None:
        self._settle(order, Settled(order.key, is_charged=True, command=command))

    def release(self, order: Order) -> None:
        self._settle(order, Settled(order.key, is_charged=False))

    async def guess(self, guess: Guess) -> TooOften | None:
        answer = await self._ask(guess, self._own)
        return answer if isinstance(answer, TooOften) else None

    async def look(self, look: Look) -> Stands | NotGiven | NotNow:
        answer = await self._ask(look, partial(self._read, look))
        return answer if isinstance(answer, Stands | NotGiven | NotNow) else NotNow.REFUSED

    # ---- whose it is ------------------------------------------------------------------------------------------------

    async def _ask(self, question: Order | Guess | Look, take: Take) -> Said | NotNow:
        """Whoever has the ledger, until somebody answers or nobody waits any more."""
        with trio.move_on_after(max(0.0, (question.answer_by_ms - self._now_ms()) / 1000)):
            answer = await self._find(Agent(question.tenant, question.sub), question, take)
            return answer.why if isinstance(answer, Sorry) else answer
        return NotNow.LATE

    async def _find(self, agent: Agent, question: Question, take: Take) -> Said:
        """Bounded by whoever asks."""
        data = encode(question)
        while True:
            if agent in self._owner:
                here = await self._answer(agent, question)
                if here is not None:
                    return here
                continue
            there = await self._ask_there(agent, data)
            if isinstance(there, Next):
                if there is Next.TAKE:
                    taken = await take(agent)
                    if taken is not None:
                        return taken
                elif there is Next.WAIT:
                    await trio.sleep(self._settings.again_ms / 1000)
                continue
            return there

    async def _ask_there(self, agent: Agent, data: bytes) -> Said | Next:
        has_moved = False
        silence_s = self._settings.purse_timeout_ms / 1000

        def on_interim(said: bytes) -> None:
            nonlocal has_moved
            has_moved = has_moved or said == MOVED
            rest_s = self._settings.moved_ms / 1000 if has_moved else silence_s
            patience.deadline = trio.current_time() + rest_s

        said: Reply | NoReply = NoReply.TIMED_OUT
        with trio.CancelScope(deadline=trio.current_time() + silence_s) as patience:
            said = await self._messages.ask(
                subject_of(self._prefix, agent), data, timeout_s=ASK_S_MAX, on_interim=on_interim
            )
        if isinstance(said, NoReply):
            return after(said, has_moved=has_moved)
        return said_of(said.data) or _REFUSED

    async def _own(self, agent: Agent) -> Said | None:
        return None if await self._owner.take(agent) else _REFUSED

    async def _read(self, look: Look, agent: Agent) -> Said:
        """Whoever only looks does not take it."""
        try:
            ledger = await self.of(*agent)
        except (UnreadableLedgerError, UnreadableError):
            return _REFUSED
        return self._judge.stands(look, ledger, self._now())

    # ---- what is asked of a ledger that is this process's -----------------------------------------------------------

    async def _answer(self, agent: Agent, question: Question) -> Said | None:
        """None: it is not, or no longer."""
        said: Said | Answer
        match question:
            case Order():
                return await (
                    self._reserve(agent, question) if question.reserves else self._only_judge(agent, question)
                )
            case Guess():
                said = await self._owner.ask(agent, lambda _: self._judge.guessed(question, self._now()) or Fine())
            case Look():
                said = await self._owner.ask(agent, lambda account: self._judge.stands(question, account, self._now()))
            case Settle():
                said = await self._owner.ask(agent, lambda _: self._settle_here(agent, question.items))
        return _unless(said) if isinstance(said, Answer) else said

    async def _reserve(self, agent: Agent, order: Order) -> Said | None:
        micros, rates = 0, tuple[RateLeft, ...]()

        def terms(account: Ledger) -> Terms | Denied | Granted:
            nonlocal micros, rates
            judged = self._judge.judge(order, account, self._now())
            if not isinstance(judged, Agreed):
                return judged
            micros, rates = judged.micros, judged.rates
            # What costs nothing is nothing for the log to remember.
            return Terms(micros, judged.budget) if micros else Granted(0, rates)

        said: int | Answer | Exceeded | Denied | Granted = await self._owner.reserve(
            agent, order.key, order.tool, terms, order.settle_by_ms
        )
        match said:
            case int():
                return Granted(said, rates)
            case Exceeded():
                return OverBudget(said, micros, rates)
            case Answer():
                return _unless(said)
        return said

    async def _only_judge(self, agent: Agent, order: Order) -> Said | None:
        judged: Agreed | Denied | Answer = await self._owner.ask(
            agent, lambda account: self._judge.judge(order, account, self._now())
        )
        match judged:
            case Agreed():
                return Granted(judged.micros, judged.rates)
            case Answer():
                return _unless(judged)
        return judged

    # ---- settling ---------------------------------------------------------------------------------------------------

    def _settle(self, order: Order, settled: Settled) -> None:
        """The first word counts."""
        agent = Agent(order.tenant, order.sub)
        if order.key in self._owed.get(agent, {}):
            return
        if self._owner.is_opened(agent) and agent not in self._owed:
            self._settle_here(agent, (settled,))
        else:
            self._owe(agent, settled)

    def _settle_here(self, agent: Agent, items: Sequence[Settled]) -> Fine:
        for one in items:
            self._owner.settle(agent, one.key, is_charged=one.is_charged, command=one.command)
        return Fine()

    def _pass_on(self, agent: Agent, unsettled: Sequence[Settlement]) -> None:
        """Another process has the ledger now: it is theirs to settle."""
        for event in unsettled:
            key, is_charged, command = as_settled(event)
            self._owe(agent, Settled(key, is_charged, command))

    def _owe(self, agent: Agent, settled: Settled) -> None:
        if self._owed_count >= self._settings.owed_max:
            self._drop(1)
            return
        self._owed.setdefault(agent, {})[settled.key] = _Owed(settled, self._now_ms() + self._settings.owed_ms)
        self._owed_count += 1
        self._start_settling(agent)

    def _start_settling(self, agent: Agent) -> None:
        if self._nursery is not None and agent not in self._settling:
            self._settling.add(agent)
            self._nursery.start_soon(self._settle_owed, agent)

    async def _settle_owed(self, agent: Agent) -> None:
        owed = self._owed[agent]
        while owed:
            batch = list(islice(owed.values(), self._settings.settle_events_max))
            question = Settle(agent.tenant, agent.sub, tuple(one.settled for one in batch))
            rest_s = max(0.0, (batch[0].until_ms - self._now_ms()) / 1000)
            with trio.move_on_after(rest_s) as patience:
                said = await self._find(agent, question, self._own)
                if isinstance(said, Sorry):
                    await trio.sleep(self._settings.again_ms / 1000)
                    continue
            if patience.cancelled_caught:
                now_ms = self._now_ms()
                batch = [one for one in batch if one.until_ms <= now_ms]
                self._drop(len(batch))
            for one in batch:
                del owed[one.settled.key]
            self._owed_count -= len(batch)
        del self._owed[agent]
        self._settling.discard(agent)

    def _drop(self, count: int) -> None:
        self.unsettled += count
        log.warning("reservations_left_unsettled", count=count)


ASK_S_MAX = 60.0  # for an answer, however often its owner says that it is working; whoever asks waits for less


def _unless(answer: Answer) -> Sorry | None:
    """What an owner says that has not reserved."""
    if answer is Answer.MOVED:
        return None
    return Sorry(NotNow.LATE) if IS_LATE[answer] else _REFUSED
