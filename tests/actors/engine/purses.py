"""Processes that share a log and pay from one purse, in memory; and a policy that is only a price and a budget."""

from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from actors.bus.purse import (
    Account,
    Agreed,
    Denied,
    Granted,
    Guess,
    Look,
    NotGiven,
    NotNow,
    Order,
    OverBudget,
    RateLeft,
    Stands,
    TooOften,
)
from actors.engine.engine_purse import EnginePurse
from actors.engine.memory_messages import MemoryBroker, MemoryMessages
from actors.engine.settings import DEFAULT_PURSE, PurseSettings
from actors.ledger.events import Event, decode
from actors.ledger.ledger import Agent
from actors.ledger.rules import Budget, LedgerState, evolve
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.node.moment import Moment

AGENT = Agent("acme", "agent_1")
WALL_MS = 1_790_000_000_000
ANSWER_MS, SETTLE_MS = 5_000, 60_000


def moment() -> Moment:
    return Moment(trio.current_time(), WALL_MS + round(trio.current_time() * 1000))


@dataclass
class Prices:
    """A `Judge`: each tool costs what its name ends with, and an agent may call so often, ever."""

    budget: Budget = field(default_factory=lambda: Budget(100))
    calls_max: int | None = None
    gives: bool = True
    calls: int = 0

    def judge(self, order: Order, account: Account, now: Moment) -> Agreed | Denied:
        if not self.gives:
            return NotGiven()
        micros = int(order.tool.rpartition(".")[2])
        exceeded = account.exceeded_by(micros, self.budget, now.wall_ms)
        if exceeded is not None:
            return OverBudget(exceeded, micros, self.left)
        over = self._take()
        return Agreed(micros, self.budget, self.left) if over is None else over

    def guessed(self, guess: Guess, now: Moment) -> TooOften | None:
        del guess, now
        return self._take()

    def stands(self, look: Look, account: Account, now: Moment) -> Stands | NotGiven:
        del look
        return Stands(account.spent(self.budget, now.wall_ms), self.left) if self.gives else NotGiven()

    def _take(self) -> TooOften | None:
        if self.calls_max is not None and self.calls >= self.calls_max:
            return TooOften(self.left[0], self.left)
        self.calls += 1
        return None

    @property
    def left(self) -> tuple[RateLeft, ...]:
        if self.calls_max is None:
            return ()
        return (RateLeft("rate-1", self.calls_max, 1, max(0, self.calls_max - self.calls), 1_000, 1),)


class Process:
    """One of several gateways."""

    def __init__(self, shared: "Several", name: str) -> None:
        self.name = name
        self.messages = MemoryMessages(shared.broker)
        self.commit_s = 0.0
        self.store = MemoryStore(shared.disk, before_commit=self._commit)
        self.prices = shared.prices
        self.purse = EnginePurse(self.store, self.messages, name, moment, self.prices, shared.settings)
        self.life = trio.CancelScope()

    async def _commit(self) -> None:
        await trio.sleep(self.commit_s)

    async def run(self) -> None:
        with self.life:
            await self.purse.run()

    def kill(self) -> None:
        self.life.cancel()
        self.messages.die()
        self.store.crash()

    def order(self, key: str, micros: int = 40, agent: Agent = AGENT) -> Order:
        now_ms = moment().wall_ms
        return Order(*agent, f"tool.{micros}", key, now_ms + ANSWER_MS, now_ms + SETTLE_MS)

    async def reserve(self, key: str, micros: int = 40, agent: Agent = AGENT) -> Granted | Denied | NotNow:
        with trio.fail_after(30):
            return await self.purse.reserve(self.order(key, micros, agent))

    def charge(self, key: str, command: str | None = None) -> None:
        self.purse.charge(self.order(key), command)

    def release(self, key: str) -> None:
        self.purse.release(self.order(key))


class Several:
    def __init__(
        self,
        nursery: trio.Nursery,
        settings: PurseSettings = DEFAULT_PURSE,
        delay_s: Callable[[], float] = lambda: 0.001,
    ) -> None:
        self.nursery, self.settings = nursery, settings
        self.broker, self.disk, self.prices = MemoryBroker(delay_s), MemoryDisk(), Prices()

    def process(self, name: str) -> Process:
        process = Process(self, name)
        self.nursery.start_soon(process.run)
        return process

    def processes(self, count: int) -> list[Process]:
        return [self.process(f"p{number}") for number in range(1, count + 1)]

    def history(self, agent: Agent = AGENT) -> list[Event]:
        stream = self.disk.streams.get(agent.stream)
        return [] if stream is None else [decode(event.data) for event in stream.events]

    def state(self, agent: Agent = AGENT) -> LedgerState:
        state = LedgerState()
        for event in self.history(agent):
            evolve(state, event)
        return state
