"""Paying at once: charged in the append that reserves, given back if it fails, and never more than the budget has."""

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from actors.ledger.events import Charged, Event, Refunded, Reserved, decode
from actors.ledger.ledger import Agent
from actors.ledger.ledgers import SNAPSHOT_EVERY_EVENTS, Ledgers
from actors.ledger.payments import PAYMENTS_AN_APPEND_MAX, PAYMENTS_WAITING_MAX
from actors.ledger.rules import Budget, Exceeded, LedgerState, evolve
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import AppendAnswer, AppendRefused, BlindEvents, Part, StoreFailedError, Then

AGENT = Agent("acme", "agent_1")
BUDGET = Budget(100)
DAILY = Budget(100, 86_400)
DAY_MS = 86_400_000


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


class CountingStore(MemoryStore):
    appends = 0

    def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
        self.appends += 1
        return super().submit(parts, then, blind_events)


def history(disk: MemoryDisk) -> list[Event]:
    return [decode(event.data) for event in disk.streams[AGENT.stream].events]


async def pay(ledgers: Ledgers, key: str, micros: int = 10, budget: Budget = BUDGET) -> Exceeded | bool:
    return await ledgers.pay(*AGENT, key, "tool", micros, budget, 0)


async def test_what_is_paid_for_is_reserved_and_charged_in_one_append(disk: MemoryDisk) -> None:
    store = CountingStore(disk)
    ledgers = Ledgers(store)
    assert await pay(ledgers, "a") is True
    ledgers.charge(*AGENT, "a", 1)
    await wait_all_tasks_blocked()
    assert store.appends == 1
    assert history(disk) == [Reserved(0, "a", "tool", 10), Charged(0, "a")]
    assert ledgers.charged_micros == 10
    assert (await ledgers.of(*AGENT)).is_at_rest


async def test_what_failed_is_given_back_and_was_never_charged(disk: MemoryDisk) -> None:
    ledgers = Ledgers(MemoryStore(disk))
    assert await pay(ledgers, "a", 100) is True
    assert isinstance(await pay(ledgers, "b"), Exceeded)
    ledgers.release(*AGENT, "a", 7)
    ledgers.release(*AGENT, "a", 8)
    ledgers.charge(*AGENT, "a", 9)
    await wait_all_tasks_blocked()
    assert history(disk)[2:] == [Refunded(7, "a", 100)]
    assert ledgers.charged_micros == 0
    assert await pay(ledgers, "b", 100) is True


async def test_what_is_given_back_counts_for_the_period_that_it_was_paid_in(disk: MemoryDisk) -> None:
    ledgers = Ledgers(MemoryStore(disk))
    assert await ledgers.pay(*AGENT, "old", "tool", 60, DAILY, DAY_MS) is True
    assert await ledgers.pay(*AGENT, "new", "tool", 50, DAILY, 2 * DAY_MS) is True
    ledgers.release(*AGENT, "old", 2 * DAY_MS)
    await wait_all_tasks_blocked()
    state = (await ledgers.of(*AGENT)).state
    assert (state.used(2 * DAY_MS), state.used_micros) == (50, 50)


async def test_all_that_is_to_be_paid_in_one_turn_goes_together_in_one_append(disk: MemoryDisk) -> None:
    store = CountingStore(disk)
    ledgers = Ledgers(store)
    said: list[Exceeded | bool] = []

    async def one(key: str) -> None:
        said.append(await pay(ledgers, key, 0))

    async with trio.open_nursery() as nursery:
        for number in range(PAYMENTS_AN_APPEND_MAX + 2):
            nursery.start_soon(one, str(number))
    assert said == [True] * (PAYMENTS_AN_APPEND_MAX + 2)
    assert store.appends == 2 + 1  # by their bound, and a snapshot


async def test_more_than_may_wait_is_refused_and_costs_nothing(disk: MemoryDisk) -> None:
    ledgers = Ledgers(MemoryStore(disk))
    said: list[Exceeded | bool] = []

    async def one(key: str) -> None:
        said.append(await pay(ledgers, key, 1, Budget(10**9)))

    async with trio.open_nursery() as nursery:
        for number in range(PAYMENTS_WAITING_MAX + 3):
            nursery.start_soon(one, str(number))
    assert (said.count(True), said.count(False)) == (PAYMENTS_WAITING_MAX, 3)
    assert (await ledgers.of(*AGENT)).state.used_micros == PAYMENTS_WAITING_MAX


async def test_cancelled_caller_owes_nothing_whether_it_was_on_its_way_or_waited(disk: MemoryDisk) -> None:
    ledgers = Ledgers(MemoryStore(disk))
    ledger = await ledgers.of(*AGENT)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pay, ledgers, "on its way", 30)
        while not ledger.in_flight:
            await trio.lowlevel.checkpoint()
        nursery.start_soon(pay, ledgers, "waits", 30)
        nursery.cancel_scope.cancel()
    await wait_all_tasks_blocked()
    assert [event.id for event in history(disk)] == ["on its way"] * 3
    assert (ledger.state.used_micros, ledger.is_at_rest) == (0, True)


@pytest.mark.parametrize("way", ["reserve", "pay"])
async def test_one_who_is_cancelled_in_the_very_turn_in_which_the_log_answers_owes_nothing(
    disk: MemoryDisk, way: str
) -> None:
    scope = trio.CancelScope()

    class Store(MemoryStore):
        def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
            def cancelled_just_before(answer: AppendAnswer | StoreFailedError) -> None:
                scope.cancel()
                then(answer)

            return super().submit(parts, cancelled_just_before, blind_events)

    ledgers = Ledgers(Store(disk))
    with scope:
        await getattr(ledgers, way)(*AGENT, "a", "tool", 40, BUDGET, 0)
    await wait_all_tasks_blocked()
    ledger = await ledgers.of(*AGENT)
    assert scope.cancelled_caught
    assert (ledger.state.used_micros, ledger.is_at_rest) == (0, True)


async def test_log_that_takes_nothing_leaves_nothing_held(disk: MemoryDisk) -> None:
    ledgers = Ledgers(MemoryStore(disk))
    assert await pay(ledgers, "a", 1) is True
    disk.is_full = True
    assert await pay(ledgers, "b", 99) is False
    ledgers.release(*AGENT, "a", 1)
    await wait_all_tasks_blocked()
    disk.is_full = False
    assert isinstance(await pay(ledgers, "c", 100), Exceeded)  # the refund is owed still
    assert await pay(ledgers, "d", 99) is True
    await wait_all_tasks_blocked()
    assert (await ledgers.of(*AGENT)).state.used_micros == 99  # and was written as soon as the log took anything


async def test_log_that_is_full_at_once_refuses_at_once(disk: MemoryDisk) -> None:
    class Full(MemoryStore):
        def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
            del parts, then, blind_events
            return AppendRefused(reason="overloaded")  # type: ignore[arg-type]

    ledgers = Ledgers(Full(disk))
    assert await pay(ledgers, "a") is False
    assert (await ledgers.of(*AGENT)).is_at_rest


async def test_log_that_fails_tells_whoever_pays(disk: MemoryDisk) -> None:
    class Failing(MemoryStore):
        def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
            del parts, blind_events
            trio.lowlevel.current_trio_token().run_sync_soon(then, StoreFailedError("lost"))
            return None

    with pytest.raises(StoreFailedError):
        await pay(Ledgers(Failing(disk)), "a")


@pytest.mark.parametrize("how", ["failed", "closed"])
async def test_log_that_is_over_when_it_is_to_be_written_to_tells_whoever_pays(disk: MemoryDisk, how: str) -> None:
    """Not the event loop, which would end in the middle of everything."""
    store = MemoryStore(disk)
    ledgers = Ledgers(store)
    await ledgers.prepare(*AGENT)
    if how == "failed":
        store.crash()
    else:
        await store.close()
    with pytest.raises((StoreFailedError, trio.ClosedResourceError)):
        await pay(ledgers, "a")
    ledger = ledgers.account(*AGENT)
    assert ledger is not None
    assert ledger.is_at_rest


@pytest.mark.parametrize("reaches_disk", [True, False])
async def test_log_that_fails_tells_those_too_who_waited_for_the_next_append(
    disk: MemoryDisk, *, reaches_disk: bool
) -> None:
    store = MemoryStore(disk)
    ledgers = Ledgers(store)
    ledger = await ledgers.of(*AGENT)
    told: list[str] = []

    async def one(key: str) -> None:
        with pytest.raises(StoreFailedError):
            await pay(ledgers, key)
        told.append(key)

    store.fail(reaches_disk=reaches_disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, "on its way")
        while not ledger.in_flight:
            await trio.lowlevel.checkpoint()
        nursery.start_soon(one, "waits")
    assert sorted(told) == ["on its way", "waits"]


async def test_all_are_told_though_nothing_can_be_given_back_to_one_of_them_any_more(disk: MemoryDisk) -> None:
    store = MemoryStore(disk, before_answer=lambda: trio.testing.wait_all_tasks_blocked(0.01))
    ledgers = Ledgers(store)
    ledger = await ledgers.of(*AGENT)
    said: list[Exceeded | bool] = []

    async def one(key: str) -> None:
        said.append(await pay(ledgers, key))

    async with trio.open_nursery() as nursery, trio.open_nursery() as gone:
        gone.start_soon(one, "gone")
        nursery.start_soon(one, "there")
        while not ledger.in_flight:
            await trio.lowlevel.checkpoint()
        gone.cancel_scope.cancel()
        await store.close()
    assert said == [True]


async def test_ledger_that_owes_a_refund_is_not_forgotten(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read again, it would not know of the refund that is written for the one that was forgotten."""
    monkeypatch.setattr("actors.ledger.ledgers.LEDGERS_MAX", 10)
    ledgers = Ledgers(MemoryStore(disk))
    assert await pay(ledgers, "a", 100) is True
    disk.is_full = True
    ledgers.release(*AGENT, "a", 1)
    await wait_all_tasks_blocked()
    for number in range(30):
        assert await ledgers.prepare("acme", f"agent_{number + 2}")
    assert (await ledgers.of(*AGENT)).state.used_micros == 100
    disk.is_full = False
    assert await ledgers.pay("acme", "agent_2", "b", "tool", 1, BUDGET, 0) is True
    await wait_all_tasks_blocked()
    assert await pay(ledgers, "c", 100) is True


async def test_process_that_dies_after_the_append_has_charged_for_what_may_have_begun(disk: MemoryDisk) -> None:
    assert await pay(Ledgers(MemoryStore(disk)), "a") is True
    again = Ledgers(MemoryStore(disk))
    assert await again.start([], 5) == 0  # nothing is left open
    assert (await again.of(*AGENT)).state.used_micros == 10


_step = st.one_of(
    st.tuples(st.just("open"), st.integers(0, 40)),
    st.tuples(st.just("fail"), st.integers(0, 40)),
    st.tuples(st.just("hang up"), st.integers(0, 40)),
    st.tuples(st.just("full"), st.just(0)),
    st.tuples(st.just("room"), st.just(0)),
    st.tuples(st.just("die"), st.just(0)),
    st.tuples(st.just("pause"), st.just(0)),
)


@settings(deadline=None)
@given(st.lists(_step, max_size=40))
def test_never_overspent_and_never_charged_for_what_failed(steps: list[tuple[str, int]]) -> None:
    """Streams that open, fail and are hung up on, at once, beside a disk that is full now and then and crashes."""

    async def main() -> None:
        disk = MemoryDisk()
        begun: dict[str, int] = {}
        ledgers = Ledgers(MemoryStore(disk))

        async def stream(key: str, what: str, micros: int) -> None:
            with trio.CancelScope() as scope:
                if what == "hang up":
                    scope.cancel()
                paid = await ledgers.pay(*AGENT, key, "tool", micros, BUDGET, 0)
                if paid is True:
                    if what == "open":
                        begun[key] = micros
                        ledgers.charge(*AGENT, key, 0)
                    else:
                        ledgers.release(*AGENT, key, 0)

        number = 0
        while number < len(steps):
            async with trio.open_nursery() as process:
                for what, micros in steps[number:]:
                    number += 1
                    if what == "die":
                        break
                    if what in ("full", "room"):
                        disk.is_full = what == "full"
                    elif what == "pause":
                        await wait_all_tasks_blocked()
                    else:
                        process.start_soon(stream, str(number), what, micros)
                        await trio.lowlevel.checkpoint()
                    state = LedgerState()
                    if AGENT.stream in disk.streams:
                        for event in disk.streams[AGENT.stream].events:
                            evolve(state, decode(event.data))
                    assert state.used_micros <= BUDGET.limit_micros
                else:
                    await wait_all_tasks_blocked()
                process.cancel_scope.cancel()
            if steps[number - 1][0] == "die":  # and what it still had to give back is not given back
                ledgers = Ledgers(MemoryStore(disk))
                await ledgers.start([], 0)
        disk.is_full = False
        await ledgers.pay(*AGENT, "last", "tool", 0, BUDGET, 0)
        await wait_all_tasks_blocked()
        used = (await ledgers.of(*AGENT)).state.used_micros
        assert used <= BUDGET.limit_micros
        assert used >= sum(begun.values())
        if "die" not in [what for what, _ in steps]:
            assert used == sum(begun.values())

    trio.run(main)


def test_snapshot_of_payments_says_what_their_events_say() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        ledgers = Ledgers(MemoryStore(disk))
        for number in range(SNAPSHOT_EVERY_EVENTS):
            assert await pay(ledgers, str(number), 1, Budget(10**9)) is True
            (ledgers.charge if number % 3 else ledgers.release)(*AGENT, str(number), 0)
        await wait_all_tasks_blocked()
        before = (await ledgers.of(*AGENT)).state
        again = await Ledgers(MemoryStore(disk)).of(*AGENT)
        assert again.snapshot_version > 0
        assert again.state == before

    trio.run(main)
