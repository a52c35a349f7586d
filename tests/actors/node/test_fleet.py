"""The fleet: sessions by node, and the sweep of what nobody finished."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from actors.log.store import Compacted
from actors.node.calls import Failed
from actors.node.fleet import COMPACT_EVERY_SWEEPS, RETENTION_MS, SWEEP_EVERY_S, Fleet
from actors.supervision.supervisor import Supervisor
from schemas.closes import NodeClose
from schemas.frames import AuthOk, Cmd
from tests.actors.node.harness import TOKEN_ID, Gateway, ScriptedNode, now, until
from tests.schemas.examples import NODE_ID

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
