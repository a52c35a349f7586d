"""What a fleet leaves of a node that never comes back: no session, no open command, nobody who waits, no history."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import structlog
import trio
from trio.testing import MockClock

from actors.bus.bus import Failed, Outcome
from actors.ledger.ledger import command_key
from actors.ledger.ledgers import Ledgers
from actors.ledger.rules import Budget, Exceeded
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import Part
from actors.node.calls import PendingCall
from actors.node.command_rules import decide
from actors.node.fleet import Fleet
from actors.node.history import NodeState
from actors.node.intents import Intent, Issue, OpenSession
from actors.node.node_stream import part_of
from actors.supervision.supervisor import Supervisor
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.frames import AuthOk, Cmd
from tests.actors.node.calling import ECHO, Caller
from tests.actors.node.harness import TOKEN_ID, FakeConnection, Gateway, ScriptedNode, now, proved, until
from tests.schemas.attested import SESSION
from tests.schemas.examples import ACK_ID, NODE_ID

STREAM = f"node/{NODE_ID}"
SUB, TENANT, PRICE_MICROS = "agent_x", "acme", 7
NEWER = b'{"event":"session_opened@9","at_ms":1,"epoch":1,"session_id":"x"}'  # this version cannot read it


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
async def fleet(nursery: trio.Nursery, disk: MemoryDisk) -> AsyncIterator[Fleet]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    services = Gateway(disk).services
    yield Fleet(supervisor, replace(services, ledgers=Ledgers(MemoryStore(disk))))
    supervisor.request_stop()


async def gone(fleet: Fleet, node: ScriptedNode) -> None:
    node.connection.hang_up()
    await until(lambda: NODE_ID not in fleet.nodes)


async def left_open(fleet: Fleet, nursery: trio.Nursery) -> tuple[Caller, Cmd]:
    """A command that was sent and not answered, its node gone and its caller still there."""
    node = ScriptedNode.started_by(fleet)
    await node.go_live()
    caller = Caller(node, nursery)
    cmd = await node.connection.next(Cmd)
    await gone(fleet, node)
    return caller, cmd


@pytest.mark.parametrize("is_live", [False, True])
async def test_a_node_that_is_connected_is_not_forgotten(
    autojump_clock: MockClock, fleet: Fleet, disk: MemoryDisk, is_live: bool
) -> None:
    node = ScriptedNode.started_by(fleet)
    await node.connection.next(AuthOk)
    if is_live:
        await node.go_live()
    before = await fleet.services.store.read(STREAM)
    assert await fleet.forget(NODE_ID) is False
    assert await fleet.services.store.read(STREAM) == before != ()
    assert node.connection.closed is None
    await gone(fleet, node)
    assert await fleet.forget(NODE_ID) is True
    assert STREAM not in disk.streams


async def test_whoever_waits_for_a_forgotten_node_is_answered_at_once_and_its_history_is_gone(
    autojump_clock: MockClock, fleet: Fleet, disk: MemoryDisk, nursery: trio.Nursery
) -> None:
    caller, cmd = await left_open(fleet, nursery)
    asked_s = trio.current_time()
    assert caller.outcome is None
    assert await fleet.forget(NODE_ID) is True
    assert await caller.answer() == Failed(Code.INTERNAL, cmd.msg_id)  # it may have been done: nobody can tell
    assert trio.current_time() - asked_s < 1  # its deadline is 5 s away
    assert STREAM not in disk.streams
    assert NODE_ID not in fleet.services.kept


async def test_a_command_that_was_never_sent_is_answered_as_one_that_did_not_run(
    autojump_clock: MockClock, fleet: Fleet, disk: MemoryDisk
) -> None:
    wall_ms, state = now().wall_ms, NodeState()
    intents: list[Intent] = [OpenSession("s"), Issue(ACK_ID, ECHO, SUB, TENANT, wall_ms + 5000)]
    for epoch, intent in enumerate(intents):  # it never resumed
        decision = decide(state, intent, wall_ms, epoch=epoch)
        await fleet.services.store.append(part_of(NODE_ID, state, decision, wall_ms))
        state = decision.state
    assert list(disk.streams[STREAM].open_items) == [ACK_ID]
    call = PendingCall(ACK_ID, {"message": "x"}, now().mono_s + 5)
    fleet.services.calls.of(SESSION).add(call)
    assert await fleet.forget(NODE_ID) is True
    assert call.outcome == Failed(Code.NODE_OFFLINE, ACK_ID)


async def test_what_a_forgotten_nodes_commands_reserved_is_charged(
    autojump_clock: MockClock, fleet: Fleet, disk: MemoryDisk, nursery: trio.Nursery
) -> None:
    ledgers = fleet.services.ledgers
    assert ledgers is not None
    ledger = await ledgers.of(TENANT, SUB)
    node = ScriptedNode.started_by(fleet)
    await node.go_live()
    outcomes: list[Outcome] = []

    def hold(msg_id: str) -> Exceeded | None:
        return ledger.hold(command_key(NODE_ID, msg_id), ECHO, PRICE_MICROS, Budget(100), now().wall_ms)

    async def call() -> None:
        arguments, deadline_at_ms = {"message": "x"}, now().wall_ms + 5000
        outcomes.append(
            await node.actor.call(ECHO, arguments, sub=SUB, tenant=TENANT, deadline_at_ms=deadline_at_ms, hold=hold)
        )

    nursery.start_soon(call)
    cmd = await node.connection.next(Cmd)
    await gone(fleet, node)
    key = command_key(NODE_ID, cmd.msg_id)
    assert (set(ledger.state.open), ledger.state.used_micros) == ({key}, PRICE_MICROS)
    assert await fleet.forget(NODE_ID) is True
    await until(lambda: bool(outcomes))
    assert (ledger.state.open, ledgers.charged_micros) == ({}, PRICE_MICROS)
    again = await Ledgers(MemoryStore(disk)).of(TENANT, SUB)  # as the log has it
    assert (again.state.open, again.state.used_micros) == ({}, PRICE_MICROS)


async def test_forgetting_once_more_or_whom_nobody_knows_succeeds(
    autojump_clock: MockClock, fleet: Fleet, disk: MemoryDisk, nursery: trio.Nursery
) -> None:
    await left_open(fleet, nursery)
    for _ in range(3):
        assert await fleet.forget(NODE_ID) is True
    assert await fleet.forget("01hzx9k3m4p7q8r9s0t1v2w000") is True
    assert [name for name in disk.streams if name.startswith("node/")] == []


@pytest.mark.parametrize("is_of_a_newer_version", [False, True])
async def test_a_history_that_cannot_be_read_is_removed_all_the_same(
    autojump_clock: MockClock, fleet: Fleet, disk: MemoryDisk, is_of_a_newer_version: bool
) -> None:
    await fleet.services.store.append(Part(STREAM, 0, 0, (NEWER,)))
    if not is_of_a_newer_version:
        disk.unreadable.add(STREAM)
    with structlog.testing.capture_logs() as lines:
        assert await fleet.forget(NODE_ID) is True
    assert [line["event"] for line in lines] == ["history_unreadable"]
    assert STREAM not in disk.streams


async def test_a_log_that_refuses_loses_nothing_and_it_can_be_done_later(
    autojump_clock: MockClock, fleet: Fleet, disk: MemoryDisk, nursery: trio.Nursery
) -> None:
    caller, cmd = await left_open(fleet, nursery)
    before = await fleet.services.store.load(STREAM)
    disk.is_full = True
    assert await fleet.forget(NODE_ID) is False
    assert await fleet.services.store.load(STREAM) == before
    assert [item.key for item in before.open_items] == [cmd.msg_id]
    assert caller.outcome is None
    disk.is_full = False
    assert await fleet.forget(NODE_ID) is True
    assert await caller.answer() == Failed(Code.INTERNAL, cmd.msg_id)


async def test_a_log_that_does_not_take_the_removal_is_asked_again(
    autojump_clock: MockClock, fleet: Fleet, disk: MemoryDisk
) -> None:
    """Nothing is open, so that there is nothing to settle before."""
    node = ScriptedNode.started_by(fleet)
    await node.go_live()
    await gone(fleet, node)
    disk.is_full = True
    assert await fleet.forget(NODE_ID) is False
    assert len(await fleet.services.store.read(STREAM)) == 2
    disk.is_full = False
    assert await fleet.forget(NODE_ID) is True
    assert STREAM not in disk.streams


async def test_abandoned_calls_of_a_forgotten_node_are_not_remembered(
    autojump_clock: MockClock, fleet: Fleet, nursery: trio.Nursery
) -> None:
    caller, _ = await left_open(fleet, nursery)
    caller.scope.cancel()
    await trio.sleep(1)
    calls = fleet.services.calls.of(SESSION)
    assert calls.abandoned == 1
    assert await fleet.forget(NODE_ID) is True
    assert calls.abandoned == 0


# ---- ending a session -----------------------------------------------------------------------------------------------


def connected(fleet: Fleet, issued_at_ms: int) -> FakeConnection:
    connection = FakeConnection()
    fleet.start_session(replace(proved(), token_issued_at_ms=issued_at_ms), connection, lambda _: None)
    return connection


async def test_a_session_is_ended_for_the_given_reason(autojump_clock: MockClock, fleet: Fleet) -> None:
    connection = connected(fleet, 5)
    fleet.end("01hzx9k3m4p7q8r9s0t1v2w000", NodeClose.FORBIDDEN)  # of nobody here
    assert connection.closed is None
    fleet.end(NODE_ID, NodeClose.FORBIDDEN)
    assert connection.closed is NodeClose.FORBIDDEN


async def test_only_a_session_whose_own_token_is_over_is_ended(autojump_clock: MockClock, fleet: Fleet) -> None:
    connection, asked = connected(fleet, 5), list[tuple[str, int]]()

    def is_over(jti: str, issued_at_ms: int) -> bool:
        asked.append((jti, issued_at_ms))
        return len(asked) > 1

    fleet.end(NODE_ID, NodeClose.UNAUTHORIZED, is_over)
    assert connection.closed is None
    fleet.end(NODE_ID, NodeClose.UNAUTHORIZED, is_over)
    assert connection.closed is NodeClose.UNAUTHORIZED
    assert asked == [(TOKEN_ID, 5)] * 2


async def test_of_two_sessions_only_the_newest_is_judged(autojump_clock: MockClock, fleet: Fleet) -> None:
    connected(fleet, 5)
    newer = connected(fleet, 6)
    fleet.end(NODE_ID, NodeClose.UNAUTHORIZED, lambda _, issued_at_ms: issued_at_ms == 5)
    assert newer.closed is None
    fleet.end(NODE_ID, NodeClose.UNAUTHORIZED, lambda _, issued_at_ms: issued_at_ms == 6)
    assert newer.closed is NodeClose.UNAUTHORIZED
