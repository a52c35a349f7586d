"""Processes that share a log and take ledgers from each other: money is spent once, and nobody waits for ever."""

from collections.abc import Callable, Sequence

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.ledger import ledger_owner
from actors.ledger.events import Charged, Event, Opened, Released, Reserved, Settlement, decode
from actors.ledger.ledger import Agent
from actors.ledger.ledger_owner import LedgerOwner, Terms
from actors.ledger.owned_ledger import Answer
from actors.ledger.rules import Budget, Exceeded
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import AppendRefused, BlindEvents, Part, RefusalReason, StoreFailedError, Then

AGENT, OTHER = Agent("acme", "agent_1"), Agent("acme", "agent_2")
BUDGET = Budget(100)
LATER_MS = 60_000


class Process:
    def __init__(self, disk: MemoryDisk, name: str, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore(disk)
        self.now_ms = 0
        self.owner = LedgerOwner(self.store, name, lambda: self.now_ms)

    async def reserve(self, key: str, micros: int = 40, agent: Agent = AGENT) -> Answer | Exceeded:
        with trio.fail_after(30):
            terms = Terms(micros, BUDGET)
            answer = await self.owner.reserve(agent, key, "tool", lambda _: terms, LATER_MS)
            return Answer.RESERVED if isinstance(answer, int) else answer


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def history(disk: MemoryDisk, agent: Agent = AGENT) -> list[Event]:
    return [decode(event.data) for event in disk.streams[agent.stream].events]


async def test_two_processes_never_spend_the_same_money(disk: MemoryDisk) -> None:
    one, two = Process(disk, "p1"), Process(disk, "p2")
    assert await one.reserve("a") is Answer.RESERVED
    assert await two.reserve("b") is Answer.RESERVED  # by force
    assert await one.reserve("c", 10) is Answer.MOVED
    assert one.owner.account(AGENT) is None
    assert one.owner.takeovers_lost == 1
    assert await one.reserve("c", 21) == Exceeded(100, 80, None)  # taken back, and read again
    assert await one.reserve("c", 20) is Answer.RESERVED
    assert [event.id for event in history(disk) if isinstance(event, Opened)] == ["p1", "p2", "p1"]


async def test_many_at_once_in_processes_that_fight_for_one_ledger(disk: MemoryDisk) -> None:
    processes = [Process(disk, f"p{number}") for number in range(3)]
    reserved: list[str] = []

    async def ask(process: Process, key: str) -> None:
        while True:
            answer = await process.reserve(key, 3)
            if answer is not Answer.MOVED:
                break
        if answer is Answer.RESERVED:
            reserved.append(key)

    async with trio.open_nursery() as nursery:
        for number in range(60):
            nursery.start_soon(ask, processes[number % 3], str(number))
    assert len(reserved) == 33
    assert sorted(event.id for event in history(disk) if isinstance(event, Reserved)) == sorted(reserved)


async def test_a_settlement_goes_to_the_log_within_a_second(disk: MemoryDisk) -> None:
    process = Process(disk, "p1")
    await process.reserve("a")
    await process.reserve("b")
    assert process.owner.settle(AGENT, "a", is_charged=True)
    assert process.owner.settle(AGENT, "b", is_charged=False)
    process.owner.look()
    await wait_all_tasks_blocked()
    assert len(history(disk)) == 3
    process.now_ms = 1_000
    process.owner.look()
    await wait_all_tasks_blocked()
    assert history(disk)[-2:] == [Charged(0, "a"), Released(0, "b")]
    assert not process.owner.settle(OTHER, "a", is_charged=True)


async def test_what_a_process_left_is_charged_by_the_next_owner_when_its_time_is_over(disk: MemoryDisk) -> None:
    one, two = Process(disk, "p1"), Process(disk, "p2")
    await one.reserve("a")
    one.store.crash()
    await two.reserve("b")
    two.owner.settle(AGENT, "b", is_charged=False)
    two.now_ms = LATER_MS
    two.owner.look()
    await wait_all_tasks_blocked()
    two.now_ms += 1_000
    two.owner.look()
    await wait_all_tasks_blocked()
    assert Charged(LATER_MS, "a") in history(disk)
    assert not disk.streams[AGENT.stream].open_items


class Slow(MemoryStore):
    """Says what became of an append when the test lets it."""

    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__(disk)
        self.on_its_way: list[Callable[[], object]] = []

    def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
        self.on_its_way.append(lambda: MemoryStore.submit(self, parts, then, blind_events))
        return None


async def test_who_stops_waiting_owes_nothing(disk: MemoryDisk) -> None:
    process = Process(disk, "p1", store := Slow(disk))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.reserve, "a")
        await wait_all_tasks_blocked()
        (open_it,) = store.on_its_way
        open_it()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    store.on_its_way[1]()
    await wait_all_tasks_blocked()
    process.now_ms = 1_000
    process.owner.look()
    store.on_its_way[2]()
    await wait_all_tasks_blocked()
    assert history(disk) == [Opened(0, "p1"), Reserved(0, "a", "tool", 40, None, LATER_MS), Released(0, "a")]
    assert not disk.streams[AGENT.stream].open_items


class Passed:
    """A `Watcher`: what was left to settle when the ledger went."""

    def __init__(self) -> None:
        self.unsettled: list[Settlement] = []

    def came(self, agent: Agent) -> None: ...

    def opened(self, agent: Agent) -> None: ...

    def went(self, agent: Agent, unsettled: Sequence[Settlement]) -> None:
        del agent
        self.unsettled += unsettled


async def test_what_nobody_waits_for_here_may_have_been_given_by_the_next_owner(
    disk: MemoryDisk, autojump_clock: MockClock
) -> None:
    going = trio.Event()
    one = Process(disk, "p1", MemoryStore(disk, before_answer=lambda: going.wait()))
    passed = Passed()
    one.owner = LedgerOwner(one.store, "p1", lambda: one.now_ms, passed)
    two = Process(disk, "p2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.owner.take, AGENT)
        going.set()
        await trio.sleep(1)
        going = trio.Event()
        with trio.move_on_after(1):
            await one.reserve("a")  # it is in the log, and the process is stopped before it hears so
        assert await two.reserve("a") is Answer.RESERVED
        going.set()
        await trio.sleep(1)
        one.now_ms = two.now_ms = 5_000
        one.owner.look()
        await trio.sleep(1)
    assert one.owner.takeovers_lost == 1
    assert passed.unsettled == []
    assert two.owner.settle(AGENT, "a", is_charged=True)
    two.now_ms += 5_000
    two.owner.look()
    await trio.sleep(1)
    assert [type(event) for event in history(disk) if event.id == "a"] == [Reserved, Charged]


async def test_two_who_ask_by_one_key_are_both_answered(disk: MemoryDisk) -> None:
    process = Process(disk, "p1")
    answers: list[Answer | Exceeded] = []

    async def ask() -> None:
        answers.append(await process.reserve("a"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
    assert answers == [Answer.RESERVED] * 2
    assert len(history(disk)) == 2


async def test_a_full_disk_is_a_refusal_and_settlements_are_tried_again(disk: MemoryDisk) -> None:
    process = Process(disk, "p1")
    await process.reserve("a")
    disk.is_full = True
    assert await process.reserve("b") is Answer.REFUSED
    process.owner.settle(AGENT, "a", is_charged=True)
    process.now_ms = 5_000
    process.owner.look()
    await wait_all_tasks_blocked()
    disk.is_full = False
    process.owner.look()
    await wait_all_tasks_blocked()
    assert history(disk)[-1] == Charged(0, "a")


class Overloaded(MemoryStore):
    """Refuses at once, after the first so many."""

    left = 2

    def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
        self.left -= 1
        return AppendRefused(RefusalReason.OVERLOADED) if self.left < 0 else super().submit(parts, then, blind_events)


async def test_a_queue_that_is_full_is_asked_again_at_the_next_look_and_not_before(disk: MemoryDisk) -> None:
    process = Process(disk, "p1", Overloaded(disk))
    await process.reserve("a")
    assert await process.reserve("b") is Answer.REFUSED
    process.owner.settle(AGENT, "a", is_charged=True)
    process.now_ms = 5_000
    process.owner.look()
    process.store.left = 1  # type: ignore[attr-defined]
    process.owner.look()
    await wait_all_tasks_blocked()
    assert history(disk)[-1] == Charged(0, "a")


async def test_a_store_that_fails_leaves_nobody_waiting(disk: MemoryDisk) -> None:
    process = Process(disk, "p1")
    process.store.fail(reaches_disk=False)
    with pytest.raises(StoreFailedError):
        await process.reserve("a")


async def test_a_ledger_that_cannot_be_read_is_its_agents_trouble_alone(disk: MemoryDisk) -> None:
    process = Process(disk, "p1")
    await MemoryStore(disk).append(Part(AGENT.stream, 0, 0, (b"{}",)))
    disk.unreadable.add(OTHER.stream)
    for _ in range(2):
        assert await process.reserve("a") is Answer.REFUSED
    assert await process.reserve("a", agent=OTHER) is Answer.REFUSED
    disk.unreadable.clear()
    assert await process.reserve("a", agent=OTHER) is Answer.RESERVED


async def test_ledgers_at_rest_leave_memory_and_are_read_again(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_owner, "OWNED_MAX", 10)
    process = Process(disk, "p1")
    await process.reserve("open")
    for number in range(20):
        await process.reserve("free", 101, Agent("acme", str(number)))  # exceeded: nothing is open
    assert len(process.owner) <= 10
    assert process.owner.account(AGENT) is not None  # something is reserved in it


async def test_the_task_looks_by_itself(disk: MemoryDisk, autojump_clock: MockClock) -> None:
    process = Process(disk, "p1")
    await process.reserve("a")
    process.owner.settle(AGENT, "a", is_charged=True)
    process.now_ms = 1_000
    is_written: Callable[[], bool] = lambda: isinstance(history(disk)[-1], Charged)  # noqa: E731
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.owner.run)
        await trio.sleep(1.0)
        assert is_written()
        nursery.cancel_scope.cancel()
