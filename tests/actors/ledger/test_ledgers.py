"""Ledgers over a store: no two calls spend the same money, a restart forgets nothing, and hanging up costs none."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from actors.ledger.events import Charged, Event, Released, Reserved, decode, encode
from actors.ledger.ledger import Agent, Ledger, agent_of, command_key
from actors.ledger.ledgers import SNAPSHOT_EVERY_EVENTS, Ledgers, UnreadableLedgerError
from actors.ledger.rules import Budget, Exceeded, LedgerState, Spent
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import AppendAnswer, Appended, AppendRefused, BlindEvents, Conflict, Part, StoreFailedError, Then
from actors.node.history import CommandAcked, CommandQueued
from actors.node.history import Event as CommandEvent

AGENT, OTHER = Agent("acme", "agent_1"), Agent("evil", "agent_2")
NODE, OTHER_NODE = "n1", "n2"
BUDGET, PLENTY = Budget(100), Budget(10**9)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def queued(msg_id: str, agent: Agent = AGENT) -> CommandQueued:
    return CommandQueued(0, msg_id, "tool", agent.sub, agent.tenant, 5000)


async def opened(disk: MemoryDisk) -> tuple[Ledgers, Ledger]:
    ledgers = Ledgers(MemoryStore(disk))
    return ledgers, await ledgers.of(*AGENT)


class Nodes:
    """What nodes append, each to its own stream, with what it means to the ledgers."""

    def __init__(self, ledgers: Ledgers) -> None:
        self.ledgers = ledgers
        self.versions: dict[str, int] = {}
        self.answers: list[AppendAnswer | StoreFailedError] = []

    def submit(self, node_id: str, *events: CommandEvent, conflicts: bool = False) -> None:
        version = self.versions.setdefault(node_id, 0)
        part = Part(f"node/{node_id}", version + 99 if conflicts else version, 0, (b"event",) * len(events))
        if not conflicts:
            self.versions[node_id] += len(events)
        assert self.ledgers.submit(node_id, part, events, 0, self.answers.append) is None

    async def append(self, node_id: str, *events: CommandEvent) -> None:
        self.submit(node_id, *events)
        await wait_all_tasks_blocked()
        assert isinstance(self.answers[-1], Appended)


def history(disk: MemoryDisk, agent: Agent = AGENT) -> list[Event]:
    return [decode(event.data) for event in disk.streams[agent.stream].events]


# ---- whose it is ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tenant", ["acme", "a/b", "/", "a/", "ledger/x", " "])
def test_stream_has_the_name_of_its_agent_whatever_is_in_the_tenants(tenant: str) -> None:
    agent = Agent(tenant, "agent_6f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6")
    assert agent_of(agent.stream) == agent
    assert agent_of("node/x") is None


async def test_tenant_with_a_slash_has_one_ledger_and_is_charged_in_it(disk: MemoryDisk) -> None:
    agent = Agent("a/b", "agent_1")
    await Ledgers(MemoryStore(disk)).reserve(*agent, "left open", "tool", 7, BUDGET, 0)
    again = Ledgers(MemoryStore(disk))
    assert await again.start([], 9) == 1
    await wait_all_tasks_blocked()
    assert (await again.of(*agent)).state.open == {}


async def test_every_tenant_in_which_an_agent_has_a_ledger_is_found(disk: MemoryDisk) -> None:
    ledgers = Ledgers(MemoryStore(disk))
    for agent in (Agent("b", "agent_1"), Agent("a/c", "agent_1"), Agent("a", "agent_2"), Agent("d/agent_1", "agent_3")):
        await ledgers.reserve(*agent, "k", "tool", 1, BUDGET, 0)
    assert await Ledgers(MemoryStore(disk)).tenants_of("agent_1") == ["a/c", "b"]
    assert await ledgers.tenants_of("agent_4") == []


# ---- never overspent ------------------------------------------------------------------------------------------------


async def test_a_thousand_at_once_against_a_budget_for_a_hundred(disk: MemoryDisk) -> None:
    ledgers, _ = await opened(disk)
    paid: list[str] = []

    async def call(key: str) -> None:
        if await ledgers.reserve(*AGENT, key, "tool", 1, BUDGET, 0) is True:
            await trio.lowlevel.checkpoint()
            ledgers.charge(*AGENT, key, 1)
            paid.append(key)

    async with trio.open_nursery() as nursery:
        for number in range(1000):
            nursery.start_soon(call, str(number))
    await wait_all_tasks_blocked()
    assert len(paid) == 100
    _, again = await opened(disk)
    assert (again.state.used_micros, again.state.open) == (100, {})


async def test_hold_that_never_came_to_the_log_is_not_spent(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    disk.is_full = True
    assert await ledgers.reserve(*AGENT, "a", "tool", 100, BUDGET, 0) is False
    disk.is_full = False
    assert ledger.exceeded_by(100, BUDGET, 0) is None
    assert ledger.is_at_rest


async def test_what_is_spent_counts_holds_and_reservations_of_the_budgets_own_period(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    day, for_good = Budget(1000, 10), Budget(1000)
    assert ledger.spent(day, 0) == ledger.spent(for_good, 0) == Spent(0, 0)
    assert await ledgers.reserve(*AGENT, "old", "tool", 1, day, 5_000) is True
    assert await ledgers.reserve(*AGENT, "charged", "tool", 20, day, 15_000) is True
    ledgers.charge(*AGENT, "charged", 15_000)
    await wait_all_tasks_blocked()
    assert await ledgers.reserve(*AGENT, "open", "tool", 300, day, 15_000) is True
    assert ledger.hold("held", "tool", 400, day, 15_000) is None
    assert ledger.spent(day, 15_000) == Spent(720, 700)
    assert ledger.spent(for_good, 15_000) == Spent(721, 701)
    assert ledger.spent(day, 25_000) == Spent(0, 0), "the next period"
    exceeded = ledger.exceeded_by(1000, day, 15_000)
    assert exceeded is not None
    assert exceeded.used_micros == ledger.spent(day, 15_000).used_micros, "a refusal says the same"


async def test_release_gives_the_money_back(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    assert await ledgers.reserve(*AGENT, "a", "tool", 100, BUDGET, 0) is True
    assert await ledgers.reserve(*AGENT, "b", "tool", 1, BUDGET, 0) == Exceeded(100, 100, None)
    ledgers.release(*AGENT, "a", 1)
    await wait_all_tasks_blocked()
    assert ledger.exceeded_by(100, BUDGET, 0) is None


async def test_what_is_charged_is_summed_and_what_is_released_or_only_reserved_is_not(disk: MemoryDisk) -> None:
    ledgers, _ = await opened(disk)
    for key, micros in (("a", 3), ("b", 5), ("c", 7)):
        assert await ledgers.reserve(*AGENT, key, "tool", micros, BUDGET, 0) is True
    for _ in range(2):  # once is all it counts
        ledgers.charge(*AGENT, "a", 1)
        ledgers.release(*AGENT, "b", 1)
        await wait_all_tasks_blocked()
    assert ledgers.charged_micros == 3
    assert [type(event) for event in history(disk)] == [Reserved, Reserved, Reserved, Charged, Released]


async def test_reservation_is_the_same_however_often_it_is_asked_for(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    answers: list[Exceeded | bool] = []

    async def ask() -> None:
        answers.append(await ledgers.reserve(*AGENT, "a", "tool", 60, BUDGET, 0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
    await ask()
    assert (answers, ledger.state.used_micros, len(history(disk))) == ([True] * 3, 60, 1)


async def test_reservation_that_is_being_settled_is_not_given_again(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    assert await ledgers.reserve(*AGENT, "a", "tool", 30, BUDGET, 0) is True
    ledgers.release(*AGENT, "a", 1)
    assert await ledgers.reserve(*AGENT, "a", "tool", 30, BUDGET, 2) is False
    await wait_all_tasks_blocked()
    assert (ledger.is_at_rest, ledger.state.used_micros) == (True, 0)
    assert await ledgers.reserve(*AGENT, "a", "tool", 30, BUDGET, 3) is True


async def test_settlement_that_the_log_would_not_take_is_written_as_soon_as_it_takes_any(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    for key in ("a", "b"):
        await ledgers.reserve(*AGENT, key, "tool", 10, BUDGET, 0)
    disk.is_full = True
    ledgers.charge(*AGENT, "a", 1)
    ledgers.release(*AGENT, "b", 1)
    await wait_all_tasks_blocked()
    assert ledger.state.used_micros == 20
    disk.is_full = False
    await ledgers.reserve(*AGENT, "c", "tool", 10, BUDGET, 0)
    await wait_all_tasks_blocked()
    assert (list(ledger.state.open), ledger.state.used_micros) == (["c"], 20)


# ---- cancelled waiters ----------------------------------------------------------------------------------------------


async def test_reservation_whose_waiter_was_cancelled_is_released_when_it_is_durable(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    for number in range(3):
        with trio.CancelScope() as gone:
            gone.cancel()
            await ledgers.reserve(*AGENT, f"k{number}", "tool", 10, BUDGET, 0)
    await wait_all_tasks_blocked()
    assert disk.streams[AGENT.stream].open_items == {}
    assert (ledger.is_at_rest, ledger.state.used_micros, ledger.state.version) == (True, 0, 6)
    assert await Ledgers(MemoryStore(disk)).start([], 9) == 0, "nothing is left for the next start to charge"


async def test_reservation_that_another_still_waits_for_stands(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    answers: list[Exceeded | bool] = []
    gone = trio.CancelScope()

    async def wait_and_go() -> None:
        with gone:
            await ledgers.reserve(*AGENT, "k", "tool", 10, BUDGET, 0)

    async def wait() -> None:
        answers.append(await ledgers.reserve(*AGENT, "k", "tool", 10, BUDGET, 0))

    gone.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_and_go)
        nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    assert (answers, list(ledger.state.open)) == ([True], ["k"])


async def test_store_that_fails_is_told_to_who_waits(disk: MemoryDisk) -> None:
    store = MemoryStore(disk)
    store.fail(reaches_disk=True)
    with pytest.raises(StoreFailedError):
        await Ledgers(store).reserve(*AGENT, "k", "tool", 10, BUDGET, 0)


# ---- with commands --------------------------------------------------------------------------------------------------


async def test_reservation_rides_with_its_command_and_so_does_the_charge(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    nodes, key = Nodes(ledgers), command_key(NODE, "cmd")
    ledger.hold(key, "tool", 60, BUDGET, 5)
    await nodes.append(NODE, queued("cmd"), queued("free"))
    assert (ledger.holds, ledger.state.used_micros) == ({}, 60)
    await nodes.append(NODE, CommandAcked(6, "cmd"), CommandAcked(6, "free"))
    await nodes.append(NODE, CommandAcked(7, "cmd"))
    assert disk.streams[AGENT.stream].open_items == {}
    assert history(disk) == [Reserved(5, key, "tool", 60), Charged(0, key)]


async def test_command_that_is_settled_before_the_log_has_answered_for_its_reservation_is_charged(
    disk: MemoryDisk,
) -> None:
    """Its node's next session may have read it from the log by then."""
    ledgers, ledger = await opened(disk)
    ledger.hold(command_key(NODE, "cmd"), "tool", 60, BUDGET, 5)
    events: list[CommandEvent] = [queued("cmd"), CommandAcked(6, "cmd")]
    for version, event in enumerate(events):
        ledgers.submit(NODE, Part(f"node/{NODE}", version, 5, (b"event",)), [event], 5, lambda _: None)
    await wait_all_tasks_blocked()
    assert (ledger.state.open, ledger.state.used_micros) == ({}, 60)


async def test_command_that_is_queued_and_settled_in_one_append_is_reserved_and_charged(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    ledger.hold(command_key(NODE, "cmd"), "tool", 60, BUDGET, 5)
    await Nodes(ledgers).append(NODE, queued("cmd"), CommandAcked(5, "cmd"))
    assert [type(event) for event in history(disk)] == [Reserved, Charged]
    assert (ledgers.charged_micros, ledger.state.open, ledger.is_at_rest) == (60, {}, True)


async def test_two_nodes_with_the_same_msg_id_charge_each_its_own_caller(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    other, nodes = await ledgers.of(*OTHER), Nodes(ledgers)
    ledger.hold(command_key(NODE, "same"), "tool", 5, BUDGET, 0)
    other.hold(command_key(OTHER_NODE, "same"), "tool", 7, BUDGET, 0)
    await nodes.append(NODE, queued("same"))
    await nodes.append(OTHER_NODE, queued("same", OTHER))
    await nodes.append(NODE, CommandAcked(1, "same"))
    assert (ledger.state.open, len(other.state.open)) == ({}, 1)
    assert [type(event) for event in history(disk, OTHER)] == [Reserved]
    await nodes.append(OTHER_NODE, CommandAcked(1, "same"))
    assert (ledger.state.used_micros, other.state.used_micros, other.state.open) == (5, 7, {})


async def test_refused_append_of_a_command_costs_nothing(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    nodes = Nodes(ledgers)
    ledger.hold(command_key(NODE, "cmd"), "tool", 60, BUDGET, 0)
    nodes.submit(NODE, queued("cmd"), conflicts=True)
    await wait_all_tasks_blocked()
    assert isinstance(nodes.answers[-1], Conflict)
    ledgers.drop(NODE, "cmd", AGENT)
    assert (ledger.is_at_rest, ledger.exceeded_by(100, BUDGET, 0)) == (True, None)


# ---- starting again -------------------------------------------------------------------------------------------------


async def test_start_charges_what_was_left_over_but_for_commands_that_are_still_open(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    await ledgers.reserve(*AGENT, "call of an upstream", "tool", 10, BUDGET, 0)
    ledger.hold(command_key(NODE, "cmd"), "tool", 10, BUDGET, 0)
    await Nodes(ledgers).append(NODE, queued("cmd"))

    again, ledger = await opened(disk)
    assert await again.start([(NODE, "cmd", AGENT), (NODE, "without a price", AGENT)], 9) == 1
    await wait_all_tasks_blocked()
    assert (set(ledger.state.open), ledger.state.used_micros) == ({command_key(NODE, "cmd")}, 20)
    assert await again.start([(NODE, "cmd", AGENT)], 9) == 0
    assert again.entries(NODE, [CommandAcked(10, "cmd")], 10) == [(ledger, Charged(10, command_key(NODE, "cmd")))]
    assert again.entries(OTHER_NODE, [CommandAcked(10, "cmd")], 10) == []


async def test_reservation_of_an_earlier_form_is_taken_up_for_its_open_command(disk: MemoryDisk) -> None:
    """Such a log has the bare `msg_id` in it."""
    old = (
        encode(Reserved(0, "01CMD", "tool", 10)),
        encode(Reserved(0, "01DONE", "tool", 5)),
        encode(Charged(1, "01DONE")),
    )
    await MemoryStore(disk).append(Part(AGENT.stream, 0, 0, old))
    ledgers, ledger = await opened(disk)
    assert await ledgers.start([(NODE, "01CMD", AGENT)], 9) == 0
    await Nodes(ledgers).append(NODE, CommandAcked(10, "01CMD"))
    assert (ledger.state.open, ledger.state.used_micros, ledgers.charged_micros) == ({}, 15, 10)
    _, again = await opened(disk)
    assert again.state == ledger.state


async def test_ledger_that_cannot_be_read_is_its_agents_trouble_alone(disk: MemoryDisk) -> None:
    newer = b'{"event": "lent@1", "at_ms": 0, "id": "x"}'
    store = MemoryStore(disk)
    await store.append(Part(AGENT.stream, 0, 0, (newer,)))
    await Ledgers(store).reserve(*OTHER, "left open", "tool", 1, BUDGET, 0)
    ledgers = Ledgers(store)
    assert await ledgers.start([(NODE, "cmd", AGENT)], 9) == 1
    assert not await ledgers.prepare(*AGENT)
    assert await ledgers.reserve(*AGENT, "k", "tool", 1, BUDGET, 0) is False
    with pytest.raises(UnreadableLedgerError):
        await ledgers.of(*AGENT)


# ---- snapshots ------------------------------------------------------------------------------------------------------


class Counted(MemoryStore):
    """Counts the snapshots that it is asked to write."""

    snapshots = 0

    def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
        self.snapshots += sum(part.snapshot is not None for part in parts)
        return super().submit(parts, then, blind_events)


async def test_ledger_that_is_never_at_rest_is_snapshotted_as_the_log_has_it(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    nodes = Nodes(ledgers)
    ledger.hold("never submitted", "tool", 1, PLENTY, 0)
    await ledgers.reserve(*AGENT, "open all the time", "tool", 3, PLENTY, 0)
    for number in range(400):  # two of them are under way at any time
        ledger.hold(command_key(NODE, f"{number:03}"), "tool", 1, PLENTY, 0)
        nodes.submit(NODE, queued(f"{number:03}"))
        if number >= 2:
            nodes.submit(NODE, CommandAcked(0, f"{number - 2:03}"))
        await trio.lowlevel.checkpoint()
    await wait_all_tasks_blocked()
    snapshot = disk.streams[AGENT.stream].snapshot
    assert snapshot is not None
    assert snapshot.version >= SNAPSHOT_EVERY_EVENTS
    _, restored = await opened(disk)
    disk.streams[AGENT.stream].snapshot = None
    _, folded = await opened(disk)
    assert restored.state == folded.state == ledger.state


async def test_snapshot_is_written_once_for_a_version(disk: MemoryDisk) -> None:
    store = Counted(disk)
    ledgers = Ledgers(store)
    for number in range(130):
        await ledgers.reserve(*AGENT, str(number), "tool", 1, PLENTY, 0)
        ledgers.charge(*AGENT, str(number), 0)
        await wait_all_tasks_blocked()
    assert store.snapshots == 1
    for _ in range(5):
        await ledgers.snapshot(AGENT.stream, 0)
        await wait_all_tasks_blocked()
    assert store.snapshots == 2, "of the newest version, once"
    again = Ledgers(store)
    await again.snapshot(AGENT.stream, 0)
    assert store.snapshots == 2, "a restart knows what is there"


async def test_snapshot_behind_an_append_that_is_refused_is_not_written(disk: MemoryDisk) -> None:
    ledgers, ledger = await opened(disk)
    nodes = Nodes(ledgers)
    await ledgers.reserve(*AGENT, "a", "tool", 1, PLENTY, 0)
    ledger.hold(command_key(NODE, "cmd"), "tool", 1, PLENTY, 0)
    nodes.submit(NODE, queued("cmd"), conflicts=True)
    await ledgers.snapshot(AGENT.stream, 0)
    await wait_all_tasks_blocked()
    assert disk.streams[AGENT.stream].snapshot is None
    ledgers.drop(NODE, "cmd", AGENT)
    await ledgers.snapshot(AGENT.stream, 0)
    await wait_all_tasks_blocked()
    snapshot = disk.streams[AGENT.stream].snapshot
    assert snapshot is not None
    assert snapshot.version == 1


async def test_old_ledger_is_read_to_be_snapshotted_and_other_streams_are_left_alone(disk: MemoryDisk) -> None:
    await Ledgers(MemoryStore(disk)).reserve(*AGENT, "a", "tool", 1, PLENTY, 0)
    ledgers = Ledgers(MemoryStore(disk))
    await ledgers.snapshot(AGENT.stream, 0)
    await ledgers.snapshot("node/x", 0)
    await wait_all_tasks_blocked()
    assert disk.streams[AGENT.stream].snapshot is not None
    assert "node/x" not in disk.streams


# ---- in memory ------------------------------------------------------------------------------------------------------


async def test_only_a_ledger_in_memory_is_there_without_waiting(disk: MemoryDisk) -> None:
    ledgers = Ledgers(MemoryStore(disk))
    assert ledgers.account(*AGENT) is None
    ledger = await ledgers.of(*AGENT)
    assert ledgers.account(*AGENT) is ledger


async def test_ledger_that_was_just_read_is_not_the_one_to_go(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.ledger.ledgers.LEDGERS_MAX", 10)
    ledgers = Ledgers(MemoryStore(disk))
    for number in range(10):
        await ledgers.reserve("busy", f"agent_{number}", "k", "tool", 1, BUDGET, 0)
    for number in range(3):
        ledger = await ledgers.of("idle", f"agent_{number}")
        assert ledgers.account("idle", f"agent_{number}") is ledger
    assert ledgers.account("idle", "agent_0") is None


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


async def test_ledger_that_the_disk_does_not_give_refuses_its_agent_until_it_does(disk: MemoryDisk) -> None:
    disk.unreadable.add(AGENT.stream)
    ledgers = Ledgers(MemoryStore(disk))
    assert await ledgers.reserve(*AGENT, "k", "tool", 10, BUDGET, 0) is False
    assert await ledgers.reserve(*OTHER, "k", "tool", 10, BUDGET, 0) is True
    disk.unreadable.clear()
    assert await ledgers.reserve(*AGENT, "k", "tool", 10, BUDGET, 0) is True
