"""Ledgers over a store: no two calls spend the same money, a restart forgets nothing."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from actors.ledger.events import Charged, Reserved, decode
from actors.ledger.ledgers import Agent, Ledger, Ledgers, agent_of, blind_events_of
from actors.ledger.rules import Budget, Exceeded, LedgerState
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import Part
from actors.node.history import (
    CommandAcked,
    CommandQueued,
)

AGENT = Agent("acme", "agent_1")
BUDGET = Budget(100)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def queued(msg_id: str) -> CommandQueued:
    return CommandQueued(0, msg_id, "tool", AGENT.sub, AGENT.tenant, 5000)


async def opened(disk: MemoryDisk) -> tuple[Ledgers, Ledger]:
    ledgers = Ledgers(MemoryStore(disk))
    return ledgers, await ledgers.of(*AGENT)


def test_streams_have_the_names_of_their_agents() -> None:
    assert agent_of(AGENT.stream) == AGENT
    assert agent_of("node/x") is None


async def test_a_thousand_at_once_against_a_budget_for_a_hundred(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    paid: list[str] = []

    async def call(key: str) -> None:
        if ledger.hold(key, "tool", 1, BUDGET, 0) is None and await ledgers.reserve(ledger, key):
            await trio.lowlevel.checkpoint()
            await ledgers.charge(ledger, key, 1)
            paid.append(key)

    async with trio.open_nursery() as nursery:
        for number in range(1000):
            nursery.start_soon(call, str(number))
    assert len(paid) == 100
    _, again = await opened(disk)
    assert (again.state.used_micros, again.state.open) == (100, {})


async def test_hold_that_never_came_to_the_log_is_not_spent(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    disk.is_full = True
    assert ledger.hold("a", "tool", 100, BUDGET, 0) is None
    assert not await ledgers.reserve(ledger, "a")
    disk.is_full = False
    assert ledger.exceeded_by(100, BUDGET, 0) is None


async def test_release_gives_the_money_back(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    ledger.hold("a", "tool", 100, BUDGET, 0)
    await ledgers.reserve(ledger, "a")
    assert ledger.exceeded_by(1, BUDGET, 0) == Exceeded(100, 100, None)
    await ledgers.release(ledger, "a", 1)
    assert ledger.exceeded_by(100, BUDGET, 0) is None


async def test_reservation_rides_with_its_command_and_so_does_the_charge(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    store = MemoryStore(disk)
    ledger.hold("cmd", "tool", 60, BUDGET, 5)
    entries = ledgers.entries([queued("cmd"), queued("free")], 5)
    await store.append(Part("node/n", 0, 5, (b"queued",)), blind_events=blind_events_of(entries))
    ledgers.appended(entries)
    assert (ledger.holds, ledger.state.used_micros) == ({}, 60)
    entries = ledgers.entries([CommandAcked(6, "cmd"), CommandAcked(6, "free")], 6)
    await store.append(Part("node/n", 1, 6, (b"acked",)), blind_events=blind_events_of(entries))
    ledgers.appended(entries)
    assert ledgers.entries([CommandAcked(7, "cmd")], 7) == []
    assert (await store.load(AGENT.stream)).open_items == ()
    assert [decode(event.data) for event in await store.read(AGENT.stream)][-1] == Charged(6, "cmd")


async def test_command_that_is_queued_and_settled_in_one_append_is_reserved_and_charged(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    ledger.hold("cmd", "tool", 60, BUDGET, 5)
    entries = ledgers.entries([queued("cmd"), CommandAcked(5, "cmd")], 5)
    ledgers.appended(entries)
    assert [type(decode(data)) for _, data in blind_events_of(entries)] == [Reserved, Charged]
    assert (ledgers.charged_micros, ledger.state.open, ledger.is_at_rest) == (60, {}, True)


async def test_start_charges_what_was_left_over_but_for_commands_that_are_still_open(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    ledger.hold("call elsewhere", "tool", 10, BUDGET, 0)
    await ledgers.reserve(ledger, "call elsewhere")
    ledger.hold("cmd", "tool", 10, BUDGET, 0)
    entries = ledgers.entries([queued("cmd")], 0)
    await MemoryStore(disk).append(Part("node/n", 0, 0, (b"queued",)), blind_events=blind_events_of(entries))

    again, _ = await opened(disk)
    assert await again.start([("cmd", AGENT), ("without a price", AGENT)], 9) == 1
    ledger = await again.of(*AGENT)
    assert (set(ledger.state.open), ledger.state.used_micros) == ({"cmd"}, 20)
    assert await again.start([("cmd", AGENT)], 9) == 0
    assert again.entries([CommandAcked(10, "cmd")], 10) == [(await again.of(*AGENT), Charged(10, "cmd"))]


async def test_snapshot_and_history_give_the_same_state(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    for number in range(150):
        ledger.hold(str(number), "tool", 1, Budget(1000, 60), number * 1000)
        await ledgers.reserve(ledger, str(number))
        await ledgers.charge(ledger, str(number), number * 1000)
    await ledgers.snapshot(200_000)
    assert (await MemoryStore(disk).load(AGENT.stream)).snapshot is not None
    _, again = await opened(disk)
    assert again.state == ledger.state


async def test_what_is_charged_is_summed_and_what_is_released_or_only_reserved_is_not(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    for key, micros in (("a", 3), ("b", 5), ("c", 7)):
        assert ledger.hold(key, "tool", micros, BUDGET, 0) is None
        assert await ledgers.reserve(ledger, key)
    await ledgers.charge(ledger, "a", 1)
    await ledgers.charge(ledger, "a", 2)  # once is all it counts
    await ledgers.release(ledger, "b", 1)
    assert ledgers.charged_micros == 3


async def test_only_a_ledger_in_memory_is_there_without_waiting(disk: MemoryDisk) -> None:
    ledgers = Ledgers(MemoryStore(disk))
    assert ledgers.loaded(*AGENT) is None
    ledger = await ledgers.of(*AGENT)
    assert ledgers.loaded(*AGENT) is ledger


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "drop"]),
        st.sampled_from("abcd"),
        st.sampled_from([0, 3, 40]),
        st.sampled_from([None, 1, 2]),
        st.integers(0, 4000),
    ),
    max_size=40,
)


@given(STEPS)
def test_what_is_held_counts_in_its_period_and_for_good(steps: list[tuple[str, str, int, int | None, int]]) -> None:
    ledger = Ledger(AGENT, LedgerState())
    for what, key, micros, period_s, now_ms in steps:
        budget = Budget(100, period_s)
        window_ms = budget.window_ms(now_ms)
        held = sum(
            hold.micros
            for hold in ledger.holds.values()
            if window_ms is None or (hold.window_ms is not None and hold.window_ms >= window_ms)
        )
        expected = None if not micros or held + micros <= 100 else Exceeded(100, held, budget.resets_at_ms(now_ms))
        assert ledger.exceeded_by(micros, budget, now_ms) == expected
        if what == "hold":
            assert ledger.hold(key, "tool", micros, budget, now_ms) == expected
        else:
            ledger.drop(key)
