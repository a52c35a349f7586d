"""What every purse does: that of one process, and one whose ledger is in another, in memory and over NATS."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import pytest
import trio
import trio.lowlevel

from actors.bus.purse import Denied, Granted, NotNow, Order, OverBudget
from actors.engine.engine_purse import EnginePurse
from actors.engine.memory_messages import MemoryBroker, MemoryMessages
from actors.engine.messages import Messages
from actors.engine.settings import PurseSettings
from actors.ledger.ledger import Agent
from actors.ledger.ledgers import LedgerBook, Ledgers, LedgerStore
from actors.ledger.rules import Exceeded, LedgerState
from actors.log.memory_store import MemoryDisk, MemoryStore
from gateway.engine.nats_messages import NatsMessages
from gateway.engine.server_run import ServerRun
from gateway.main.clock import now
from tests.actors.engine.purses import ANSWER_MS, SETTLE_MS, Prices
from tests.actors.log.shelves import NatsShelf, bounded

TEST_S_MAX = 30.0
_numbers = count()
PATIENT = PurseSettings(purse_timeout_ms=20_000)  # however busy this machine is, no owner is taken to have died


class Till(Protocol):
    """Where an agent pays, as a caller sees it."""

    @property
    def book(self) -> LedgerBook: ...

    async def reserve(self, agent: Agent, key: str, micros: int) -> Granted | Denied | NotNow: ...

    def charge(self, agent: Agent, key: str) -> None: ...

    def release(self, agent: Agent, key: str) -> None: ...

    async def flush(self, agent: Agent) -> None:
        """Wait until what was charged and released is written."""


@dataclass
class OneProcess:
    book: Ledgers
    prices: Prices

    async def reserve(self, agent: Agent, key: str, micros: int) -> Granted | Denied | NotNow:
        said = await self.book.reserve(*agent, key, "tool", micros, self.prices.budget, now().wall_ms)
        if isinstance(said, Exceeded):
            return OverBudget(said, micros)
        return Granted(micros) if said else NotNow.REFUSED

    def charge(self, agent: Agent, key: str) -> None:
        self.book.charge(*agent, key, now().wall_ms)

    def release(self, agent: Agent, key: str) -> None:
        self.book.release(*agent, key, now().wall_ms)

    async def flush(self, agent: Agent) -> None:
        ledger = await self.book.of(*agent)
        while ledger.in_flight:  # noqa: ASYNC110
            await trio.sleep(0.001)


@dataclass
class Elsewhere:
    """The ledger is in another process than the one that asks."""

    book: EnginePurse
    owner: EnginePurse

    def order(self, agent: Agent, key: str, micros: int = 0) -> Order:
        now_ms = now().wall_ms
        return Order(*agent, f"tool.{micros}", key, now_ms + ANSWER_MS, now_ms + SETTLE_MS)

    async def reserve(self, agent: Agent, key: str, micros: int) -> Granted | Denied | NotNow:
        if not self.owner.has(agent):
            await self.owner.reserve(self.order(agent, "free"))
        said = await self.book.reserve(self.order(agent, key, micros))
        assert self.owner.has(agent)
        assert not self.book.has(agent)
        return said

    def charge(self, agent: Agent, key: str) -> None:
        self.book.charge(self.order(agent, key))

    def release(self, agent: Agent, key: str) -> None:
        self.book.release(self.order(agent, key))

    async def flush(self, agent: Agent) -> None:
        del agent
        assert await self.book.flush(TEST_S_MAX)
        assert await self.owner.flush(TEST_S_MAX)


@pytest.fixture(params=["one process", "memory", "nats"])
def server(request: pytest.FixtureRequest) -> ServerRun | str:
    """Started outside of the trio run of a test."""
    run: ServerRun | str = request.getfixturevalue("nats_server") if request.param == "nats" else request.param
    return run


@pytest.fixture
async def till(server: ServerRun | str) -> AsyncIterator[Till]:
    prices = Prices()
    if server == "one process":
        yield OneProcess(Ledgers(MemoryStore()), prices)
        return
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        purses: list[EnginePurse] = []
        disk, broker, shelf = MemoryDisk(), MemoryBroker(), None
        prefix = f"purse{next(_numbers)}"
        if isinstance(server, ServerRun):
            shelf = NatsShelf(server)
        for name in ("asker", "owner"):
            store: LedgerStore = MemoryStore(disk)
            messages: Messages = MemoryMessages(broker)
            if shelf is not None:
                opened = await stack.enter_async_context(await shelf.open())
                store, messages = opened, NatsMessages(opened.link)
            purses.append(EnginePurse(store, messages, name, now, prices, PATIENT, prefix))
            nursery.start_soon(purses[-1].run)
        yield Elsewhere(*purses)
        nursery.cancel_scope.cancel()


@pytest.fixture
def agent() -> Agent:
    return Agent("acme/north", f"agent_{next(_numbers)}")


async def state(till: Till, agent: Agent) -> LedgerState:
    await till.flush(agent)
    return (await till.book.of(*agent)).state


@bounded
async def test_what_is_reserved_is_durable_and_counts(till: Till, agent: Agent) -> None:
    assert await till.reserve(agent, "a", 40) == Granted(40)
    assert await till.reserve(agent, "b", 60) == Granted(60)
    assert await till.reserve(agent, "c", 1) == OverBudget(Exceeded(100, 100, None), 1)
    ledger = await state(till, agent)
    assert (ledger.used_micros, set(ledger.open)) == (100, {"a", "b"})


@bounded
async def test_a_release_gives_back_and_a_charge_does_not(till: Till, agent: Agent) -> None:
    await till.reserve(agent, "a", 40)
    await till.reserve(agent, "b", 60)
    till.charge(agent, "a")
    till.release(agent, "b")
    ledger = await state(till, agent)
    assert (ledger.used_micros, ledger.open) == (40, {})
    assert till.book.charged_micros + (till.owner.charged_micros if isinstance(till, Elsewhere) else 0) == 40
    assert await till.reserve(agent, "c", 60) == Granted(60)


@bounded
async def test_the_first_word_counts_and_a_stranger_s_none(till: Till, agent: Agent) -> None:
    await till.reserve(agent, "a", 40)
    till.release(agent, "a")
    till.charge(agent, "a")
    till.charge(agent, "nobody made this")
    ledger = await state(till, agent)
    assert (ledger.used_micros, ledger.open) == (0, {})


@bounded
async def test_who_asks_again_by_one_key_has_one_reservation(till: Till, agent: Agent) -> None:
    for _ in range(3):
        assert await till.reserve(agent, "a", 40) == Granted(40)
    assert (await state(till, agent)).used_micros == 40


@bounded
async def test_many_at_once_stop_at_the_budget(till: Till, agent: Agent) -> None:
    said: list[object] = []

    async def reserve(key: str) -> None:
        said.append(await till.reserve(agent, key, 7))

    await till.reserve(agent, "first", 7)
    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(reserve, str(number))
    assert said.count(Granted(7)) == 13
    assert (await state(till, agent)).used_micros == 98


@bounded
async def test_a_caller_that_is_cancelled_leaves_nothing_behind(till: Till, agent: Agent) -> None:
    await till.reserve(agent, "a", 40)
    for number in range(4):
        with trio.CancelScope() as scope:
            scope.cancel()
            await till.reserve(agent, f"cancelled {number}", 10)
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(till.reserve, agent, f"soon {number}", 10)
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    ledger = await state(till, agent)
    assert (ledger.used_micros, set(ledger.open)) == (40, {"a"})
    assert await till.reserve(agent, "b", 60) == Granted(60)


@bounded
async def test_agents_and_tenants_have_a_ledger_each(till: Till, agent: Agent) -> None:
    others = [Agent("acme", agent.sub), Agent("acme.north", agent.sub), Agent("acme_2fnorth", agent.sub)]
    for each in (agent, *others):
        assert await till.reserve(each, "a", 100) == Granted(100)
    assert sorted(await till.book.tenants_of(agent.sub)) == sorted(each.tenant for each in (agent, *others))
