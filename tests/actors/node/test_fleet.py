"""The fleet: sessions by node, and the sweep of what nobody finished."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import structlog
import trio
from trio.testing import MockClock

from actors.bus.bus import Failed
from actors.ledger.ledgers import Ledgers
from actors.log.store import Compacted, Loaded, OpenItem, Part, UnreadableError
from actors.node.fleet import COMPACT_EVERY_SWEEPS, RETENTION_MS, SWEEP_EVERY_S, Fleet
from actors.node.moment import Moment
from actors.node.node_stream import restore
from actors.node.services import Authenticated
from actors.supervision.supervisor import Supervisor
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.frames import AnnounceAck, AuthOk, Cmd, ResumeOk
from schemas.frames import Outcome as Reported
from schemas.manifest import NodeIdentity
from tests.actors.node.calling import Caller
from tests.actors.node.harness import TOKEN_ID, FakeConnection, Gateway, ScriptedNode, echo_of, now, until
from tests.schemas.attested import SESSION, leaf
from tests.schemas.examples import ACK_ID, NODE_ID

ECHO = f"sysecho.{NODE_ID}.echo.invoke"
STREAM = f"node/{NODE_ID}"


@pytest.fixture
async def fleet(nursery: trio.Nursery) -> AsyncIterator[Fleet]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    yield Fleet(supervisor, Gateway().services)
    supervisor.request_stop()


async def leave_a_command_open(fleet: Fleet, nursery: trio.Nursery) -> Cmd:
    """A command that was sent and never answered, its node gone."""
    node = ScriptedNode.started_by(fleet)
    await node.go_live()
    outcomes: list[object] = []

    async def call() -> None:
        deadline_at_ms = now().wall_ms + 5000
        outcomes.append(
            await node.actor.call(ECHO, {"message": "x"}, sub="a", tenant="acme", deadline_at_ms=deadline_at_ms)
        )

    nursery.start_soon(call)
    cmd = await node.connection.next(Cmd)
    node.connection.hang_up()
    await until(lambda: NODE_ID not in fleet.nodes)
    await until(lambda: bool(outcomes))
    assert isinstance(outcomes[0], Failed)
    return cmd


async def test_newer_session_takes_the_name_and_closes_the_older(autojump_clock: MockClock, fleet: Fleet) -> None:
    older = ScriptedNode.started_by(fleet)
    newer = ScriptedNode.started_by(fleet)
    assert older.connection.closed is NodeClose.SUPERSEDED
    assert fleet.nodes.find(NODE_ID) is newer.actor
    await newer.connection.next(AuthOk)
    await trio.testing.wait_all_tasks_blocked()
    assert fleet.nodes.find(NODE_ID) is newer.actor


async def test_revoked_token_ends_the_session_that_it_opened(autojump_clock: MockClock, fleet: Fleet) -> None:
    node = ScriptedNode.started_by(fleet)
    fleet.revoke("01HZXC0000000000000000J999")
    assert node.connection.closed is None
    fleet.revoke(TOKEN_ID)
    assert node.connection.closed is NodeClose.UNAUTHORIZED


async def test_sweep_leaves_a_command_in_doubt_for_a_day_and_then_calls_it_unknown(
    autojump_clock: MockClock, fleet: Fleet, nursery: trio.Nursery
) -> None:
    cmd = await leave_a_command_open(fleet, nursery)
    store = fleet.services.store
    await trio.sleep(24 * 3600 - 10)
    await fleet.sweep()
    assert [item.key for item in (await store.load(STREAM)).open_items] == [cmd.msg_id]
    await trio.sleep(20)
    await fleet.sweep()
    assert (await store.load(STREAM)).open_items == ()
    assert b"command_unknown" in (await store.read(STREAM))[-1].data


async def test_sweep_of_a_live_node_is_left_to_its_actor(
    autojump_clock: MockClock, fleet: Fleet, nursery: trio.Nursery
) -> None:
    await leave_a_command_open(fleet, nursery)
    await trio.sleep(24 * 3600 + 10)
    node = ScriptedNode.started_by(fleet)  # on its way: it has not said what became of the command
    await node.connection.next(AuthOk)
    await fleet.sweep()
    await trio.testing.wait_all_tasks_blocked()
    assert (await fleet.services.store.load(STREAM)).open_items == ()


async def test_damaged_history_of_one_node_does_not_stop_the_sweep(
    autojump_clock: MockClock, fleet: Fleet, nursery: trio.Nursery
) -> None:
    await leave_a_command_open(fleet, nursery)
    disk = fleet.services.store.disk  # type: ignore[attr-defined]
    disk.streams["node/01hzx9k3m4p7q8r9s0t1v2w000"] = disk.streams[STREAM].__class__(
        version=1, open_items=dict(disk.streams[STREAM].open_items)
    )
    await trio.sleep(25 * 3600)
    await fleet.sweep()
    assert (await fleet.services.store.load(STREAM)).open_items == ()


async def test_abandoned_call_is_forgotten_when_the_sweep_settles_its_command(
    autojump_clock: MockClock, fleet: Fleet, nursery: trio.Nursery
) -> None:
    node = ScriptedNode.started_by(fleet)
    await node.go_live()
    caller = Caller(node, nursery)
    await node.connection.next(Cmd)
    node.connection.hang_up()
    await until(lambda: NODE_ID not in fleet.nodes)
    caller.scope.cancel()
    await trio.sleep(1)
    calls = fleet.services.calls.of(SESSION)
    assert calls.abandoned == 1
    await trio.sleep(25 * 3600)
    await fleet.sweep()
    assert calls.abandoned == 0


async def test_history_that_a_newer_version_wrote_is_that_nodes_trouble_and_said_once(
    autojump_clock: MockClock, fleet: Fleet, nursery: trio.Nursery
) -> None:
    await leave_a_command_open(fleet, nursery)
    store, other = fleet.services.store, "node/01hzx9k3m4p7q8r9s0t1v2w000"
    event = b'{"event":"session_opened@9","at_ms":1,"epoch":1,"session_id":"x"}'
    await store.append(Part(other, 0, 0, (event,), opened=(OpenItem("k", b"{}"),)))
    with structlog.testing.capture_logs() as lines:
        fleet.start_sweeper()
        await trio.sleep(25 * 3600)
    assert [line["node_id"] for line in lines if line["event"] == "history_unreadable"] == [other.removeprefix("node/")]
    assert not [line for line in lines if line["event"] == "actor_crashed"]
    assert (await store.load(STREAM)).open_items == ()


async def test_node_whose_history_cannot_be_read_is_told_1011_each_time_and_the_log_once(
    autojump_clock: MockClock, fleet: Fleet
) -> None:
    store = fleet.services.store
    await store.append(Part(STREAM, 0, 0, (b'{"event":"session_opened@9","at_ms":1}',)))
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            node = ScriptedNode.started_by(fleet)
            await until(lambda node=node: node.connection.closed is not None)  # type: ignore[misc]
            assert node.connection.closed is NodeClose.INTERNAL
            await until(lambda: NODE_ID not in fleet.nodes)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["history_unreadable"]


async def test_sweeper_compacts_what_is_past_its_retention(
    autojump_clock: MockClock, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def compact(before_ms: int) -> Compacted:
        asked.append(now().wall_ms - before_ms)
        await trio.lowlevel.checkpoint()
        return Compacted(0, ())

    monkeypatch.setattr(fleet.services.store, "compact", compact)
    fleet.start_sweeper()
    await trio.sleep(SWEEP_EVERY_S * COMPACT_EVERY_SWEEPS * 2 + 1)
    assert asked == [RETENTION_MS] * 3


@pytest.mark.parametrize("is_live", [False, True])
async def test_history_of_a_quiet_node_is_cut_too(autojump_clock: MockClock, fleet: Fleet, is_live: bool) -> None:
    """Fewer events than a snapshot is taken at by itself."""
    node = ScriptedNode.started_by(fleet)
    await node.go_live()
    if not is_live:
        node.connection.hang_up()
        await until(lambda: NODE_ID not in fleet.nodes)
    store = fleet.services.store
    before = await store.load(STREAM)
    fleet.services = replace(fleet.services, now=lambda: Moment(0, now().wall_ms + RETENTION_MS + 1000))
    await fleet.compact()
    await trio.testing.wait_all_tasks_blocked()
    await fleet.compact()
    after = await store.load(STREAM)
    assert await store.read(STREAM) == ()
    assert (before.version, after.version) == (2, 2)
    assert restore(after).epoch == 1


async def test_session_that_was_superseded_before_it_had_its_epoch_takes_none_from_the_newer(
    autojump_clock: MockClock, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older one's first read is slow, and the newer one has opened meanwhile."""
    store, read = fleet.services.store, fleet.services.store.load
    delays = [1.0]

    async def load(stream: str) -> Loaded:
        found = await read(stream)
        if delays:
            await trio.sleep(delays.pop())
        return found

    monkeypatch.setattr(store, "load", load)
    older = ScriptedNode.started_by(fleet)
    await trio.testing.wait_all_tasks_blocked()
    newer = ScriptedNode.started_by(fleet)
    assert older.connection.closed is NodeClose.SUPERSEDED
    await newer.go_live()
    await trio.sleep(5)
    assert restore(await read(STREAM)).epoch == newer.actor.epoch
    newer.actor.sweep(snapshot=True)
    await trio.sleep(5)
    assert newer.connection.closed is None


async def test_log_that_cannot_list_its_streams_does_not_end_the_gateway(
    autojump_clock: MockClock, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> tuple[str, ...]:
        await trio.lowlevel.checkpoint()
        raise UnreadableError("SQLITE_IOERR_READ")

    monkeypatch.setattr(fleet.services.store, "open_streams", broken)
    with structlog.testing.capture_logs() as lines:
        fleet.start_sweeper()
        await trio.sleep(3 * SWEEP_EVERY_S)
    assert {line["event"] for line in lines} == {"sweep_failed"}


async def test_one_node_that_cannot_be_read_does_not_keep_the_others_reservations_from_being_taken_up(
    autojump_clock: MockClock, fleet: Fleet, nursery: trio.Nursery
) -> None:
    await leave_a_command_open(fleet, nursery)
    store = fleet.services.store
    other = "node/01hzx9k3m4p7q8r9s0t1v2w000"
    await store.append(Part(other, 0, 1, (b"{}",), opened=(OpenItem("x", b"{}"),)))
    store.disk.unreadable.add(other)  # type: ignore[attr-defined]
    again = Fleet(Supervisor(), replace(fleet.services, ledgers=Ledgers(store)))  # type: ignore[arg-type]
    with structlog.testing.capture_logs() as lines:
        await again.settle_ledgers()
    assert [line["event"] for line in lines] == ["history_unreadable"]


async def test_stop_tells_callers_before_their_connections_are_cut(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    fleet = Fleet(supervisor, Gateway().services)
    node = ScriptedNode.started_by(fleet)
    await node.go_live()
    caller = Caller(node, nursery)
    cmd = await node.connection.next(Cmd)
    began_s = trio.current_time()
    supervisor.request_stop()
    assert await caller.answer() == Failed(Code.DEADLINE_EXCEEDED, cmd.msg_id)
    assert trio.current_time() - began_s < 4


async def test_node_that_another_tenant_has_now_gets_nothing_of_the_first_ones_calls(
    autojump_clock: MockClock, fleet: Fleet, nursery: trio.Nursery
) -> None:
    """Only an operator of an earlier version can have enrolled one id twice; and still."""
    node = ScriptedNode.started_by(fleet)
    await node.go_live()
    caller = Caller(node, nursery, message="SECRET")
    cmd = await node.connection.next(Cmd)
    node.connection.hang_up()
    await until(lambda: NODE_ID not in fleet.nodes)
    stranger = leaf(NODE_ID, "umbra")
    fleet.services.certificates.learn(stranger)
    connection = FakeConnection()
    proved = Authenticated(NodeIdentity(NODE_ID, "umbra"), ACK_ID, TOKEN_ID, now().wall_ms + 10**8)
    actor, _ = fleet.start_session(proved, connection, lambda _: None)
    other = ScriptedNode(connection, actor)
    await connection.next(AuthOk)
    other.announce(by=stranger)
    await connection.next(AnnounceAck)
    outcome = Reported(in_reply_to=cmd.msg_id, ok=True, result=echo_of(cmd), begun=True)
    other.resume(outcomes=[outcome], last_cmd=cmd.msg_id)
    await connection.next(ResumeOk)
    assert not [frame for frame in connection.sent if isinstance(frame, Cmd)]
    assert await caller.answer() == Failed(Code.DEADLINE_EXCEEDED, cmd.msg_id)
