"""A node's actor over an in-memory connection and log: calls, acks, limits, manifests and time."""

import gc
import weakref
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from actors.bus.bus import Failed, Succeeded
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.frames import AuthOk, Cmd, CmdCancel, ErrorFrame, Heartbeat, HeartbeatAck, ResumeOk
from tests.actors.node.calling import ECHO, SUBSCRIBE, Caller, live
from tests.actors.node.harness import Gateway, ScriptedNode, echo_of, now, until
from tests.schemas.examples import ECHO_CAPABILITY, ECHO_RESULT, NODE_ID


async def test_session_goes_live_in_the_order_of_the_wire(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    assert [frame.type for frame in node.connection.sent] == ["auth_ok", "announce_ack", "resume_ok"]
    assert node.actor.is_live
    assert set(node.actor.tools) == {ECHO, SUBSCRIBE, f"sys.{NODE_ID}.metrics.snapshot"}


async def test_calls_of_a_node_are_counted_and_the_last_one_is_dated(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    counts = gateway.services.kept_of(NODE_ID).counts
    for calls in (1, 2):
        await trio.sleep(1)
        at_ms = now().wall_ms
        caller = Caller(node, nursery_of_actors)
        node.ack((await node.commands(calls))[-1])
        assert isinstance(await caller.answer(), Succeeded)
        assert (counts.calls, counts.last_call_ms) == (calls, at_ms)
    nothing = await node.actor.call("sysecho.x.y.z", {}, sub="agent_a", tenant="acme", deadline_at_ms=0)
    assert isinstance(nothing, Failed)
    assert counts.calls == 2
    (use,) = {use for key, use in node.actor.uses().items() if key == ("system.echo", "echo")}
    assert use.in_flight == 0


async def test_call_goes_out_as_cmd_and_comes_back_as_its_result(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    caller = Caller(node, nursery_of_actors)
    cmd = await node.connection.next(Cmd)
    assert (cmd.tool, cmd.arguments) == (ECHO, {"message": "ping"})
    assert cmd.deadline_at_ms - now().wall_ms in range(4990, 5001)
    node.ack(cmd)
    assert await caller.answer() == Succeeded(cmd.msg_id, echo_of(cmd))


async def test_cmd_is_written_only_after_its_events_are_durable(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    stream = gateway.store.disk.streams[f"node/{NODE_ID}"]
    before = stream.version
    Caller(node, nursery_of_actors)
    cmd = await node.connection.next(Cmd)
    assert [b"command_queued" in event.data or b"command_sent" in event.data for event in stream.events[before:]] == [
        True,
        True,
    ]
    assert cmd.msg_id in stream.open_items


async def test_arguments_and_results_never_enter_the_log(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    caller = Caller(node, nursery_of_actors, message="MARK")
    cmd = await node.connection.next(Cmd)
    stream = gateway.store.disk.streams[f"node/{NODE_ID}"]
    assert b"MARK" not in repr(stream).encode()
    node.ack(cmd)
    await caller.answer()
    assert stream.open_items == {}
    assert b"MARK" not in repr(gateway.store.disk).encode()


async def test_commands_of_one_batch_go_out_in_order_of_their_ids(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    callers = [Caller(node, nursery_of_actors, str(n)) for n in range(4)]
    cmds = await node.commands(4)
    assert [cmd.msg_id for cmd in cmds] == sorted(cmd.msg_id for cmd in cmds)
    for cmd in reversed(cmds):
        node.ack(cmd)
    for n, caller in enumerate(callers):
        outcome = await caller.answer()
        assert isinstance(outcome, Succeeded)
        assert outcome.result["message"] == str(n)


@pytest.mark.parametrize(
    ("code", "begun"), [("E_DEADLINE_EXCEEDED", True), ("E_INTERNAL", True), ("E_MANIFEST_INVALID", False)]
)
async def test_code_of_a_nodes_error_is_what_the_caller_gets(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery, code: str, begun: bool
) -> None:
    node = await live(gateway, nursery_of_actors)
    caller = Caller(node, nursery_of_actors)
    cmd = await node.connection.next(Cmd)
    node.fail(cmd, code, begun=begun)
    assert await caller.answer() == Failed(Code(code), cmd.msg_id, by_node=True)
    assert node.actor.is_live


@pytest.mark.parametrize(
    "result",
    [ECHO_RESULT | {"message": "other"}, ECHO_RESULT | {"node_id": NODE_ID[:-1] + "z"}, {"nonsense": True}],
    ids=["other text", "other node", "other shape"],
)
async def test_unbelievable_result_fails_the_call_and_never_the_session(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery, result: dict[str, Any]
) -> None:
    node = await live(gateway, nursery_of_actors)
    caller = Caller(node, nursery_of_actors)
    cmd = await node.connection.next(Cmd)
    node.ack(cmd, result)
    assert await caller.answer() == Failed(Code.INTERNAL, cmd.msg_id, by_node=True)
    assert node.actor.is_live


async def test_no_answer_in_5_s_is_deadline_exceeded_and_a_late_ack_settles_the_log_alone(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    started = trio.current_time()
    caller = Caller(node, nursery_of_actors)
    cmd = await node.connection.next(Cmd)
    assert await caller.answer() == Failed(Code.DEADLINE_EXCEEDED, cmd.msg_id)
    assert trio.current_time() - started == pytest.approx(5.0, abs=0.01)
    node.ack(cmd)
    await until(lambda: not gateway.store.disk.streams[f"node/{NODE_ID}"].open_items)
    await until(lambda: gateway.counts["late_ack"] == 1)  # its caller has given up
    node.ack(cmd)
    await until(lambda: gateway.counts["late_ack"] == 2)  # it is settled


async def test_late_acks_are_counted_each_and_logged_once_a_minute(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    caller = Caller(node, nursery_of_actors)
    cmd = await node.connection.next(Cmd)
    node.ack(cmd)
    await caller.answer()
    with structlog.testing.capture_logs() as lines:
        for late in (1, 2, 3):
            node.ack(cmd)
            await until(lambda late=late: gateway.counts["late_ack"] == late)  # type: ignore[misc]
        await trio.sleep(59.9)
        node.say(Heartbeat(msg_id=node.msg_id(), manifest_etag=None))
        await trio.sleep(0.1)
        node.ack(cmd)
        await until(lambda: gateway.counts["late_ack"] == 4)
    assert [line["late"] for line in lines if line["event"] == "late_ack"] == [1, 3]


async def test_caller_that_goes_away_sends_cmd_cancel(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    caller = Caller(node, nursery_of_actors)
    cmd = await node.connection.next(Cmd)
    caller.scope.cancel()
    cancel = await node.connection.next(CmdCancel)
    assert cancel.in_reply_to == cmd.msg_id
    node.fail(cmd, "E_INTERNAL", begun=False)
    await until(lambda: not gateway.store.disk.streams[f"node/{NODE_ID}"].open_items)
    events = gateway.store.disk.streams[f"node/{NODE_ID}"].events
    assert b"command_cancelled" in events[-1].data


async def test_ack_of_an_id_that_is_no_command_is_dropped_and_counted(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    node.ack(Cmd(msg_id="01HZXC0000000000000000ZZZZ", tool=ECHO, arguments={"message": "x"}, deadline_at_ms=1))
    await until(lambda: gateway.counts["ack_unknown"] == 1)
    assert node.actor.is_live


# ---- limits --------------------------------------------------------------------------------------------------------


async def test_more_than_max_concurrency_at_once_is_refused(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    for _ in range(4):
        Caller(node, nursery_of_actors)
    cmds = await node.commands(4)
    outcome = await Caller(node, nursery_of_actors).answer()
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.msg_id) == (Code.RATE_LIMITED, None)
    assert outcome.retry_after_ms is not None
    node.ack(cmds[0])
    await until(lambda: len(gateway.store.disk.streams[f"node/{NODE_ID}"].open_items) == 3)
    Caller(node, nursery_of_actors)
    assert len(await node.commands(5)) == 5


async def test_more_than_the_rate_is_refused_until_the_bucket_refills(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await node.connection.next(AuthOk)
    constraints = {"rate_limit_rps": 2, "max_concurrency": 100}
    node.announce(capabilities=[ECHO_CAPABILITY | {"constraints": constraints}])
    await until(lambda: len(node.connection.sent) == 2)
    node.resume()
    await node.connection.next(ResumeOk)
    for _ in range(2):
        Caller(node, nursery_of_actors)
    await node.commands(2)
    refused = await Caller(node, nursery_of_actors).answer()
    assert isinstance(refused, Failed)
    assert refused.code is Code.RATE_LIMITED
    await trio.sleep((refused.retry_after_ms or 0) / 1000)
    Caller(node, nursery_of_actors)
    assert len(await node.commands(3)) == 3


async def test_call_without_a_live_session_is_node_offline(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await node.connection.next(AuthOk)
    assert await Caller(node, nursery_of_actors).answer() == Failed(Code.NODE_OFFLINE)


async def test_call_on_an_expired_manifest_is_manifest_invalid(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await node.connection.next(AuthOk)
    node.announce(expires_at_ms=now().wall_ms + 10_000)
    await until(lambda: len(node.connection.sent) == 2)
    node.resume()
    await node.connection.next(ResumeOk)
    await trio.sleep(10)
    assert await Caller(node, nursery_of_actors).answer() == Failed(Code.MANIFEST_INVALID)


async def test_cmd_that_cannot_be_written_expires_at_once(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    node.connection.is_dead = True
    outcome = await Caller(node, nursery_of_actors).answer()
    assert isinstance(outcome, Failed)
    assert outcome.code is Code.NODE_OFFLINE
    assert b"command_expired" in gateway.store.disk.streams[f"node/{NODE_ID}"].events[-1].data


# ---- manifests, heartbeats, time -----------------------------------------------------------------------------------


async def test_manifest_survives_the_process(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    again = Gateway(gateway.store.disk)
    await again.services.directory.load()
    retained = again.services.directory.find(NODE_ID)
    assert retained is not None
    assert retained.tenant == "acme"
    assert {tool.name for tool in retained.accepted.tools} == set(node.actor.tools)
    assert list(again.services.directory) == [retained]


async def test_manifest_older_than_the_retained_one_is_refused_in_a_later_session(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    await live(gateway, nursery_of_actors)
    await trio.sleep(5)
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await node.connection.next(AuthOk)
    node.announce(issued_at_ms=now().wall_ms - 60_000)
    error = await node.connection.next(ErrorFrame)
    assert error.error["code"] == "E_ATTESTATION_FAILED"


async def test_heartbeat_confirms_what_is_final(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    caller = Caller(node, nursery_of_actors)
    cmd = await node.connection.next(Cmd)
    node.say(Heartbeat(msg_id=node.msg_id(), manifest_etag=None))
    assert (await node.connection.next(HeartbeatAck)).confirmed_through is None
    node.ack(cmd)
    await caller.answer()
    sent = len(node.connection.sent)
    node.say(Heartbeat(msg_id=node.msg_id(), manifest_etag=None))
    assert (await node.connection.next(HeartbeatAck, after=sent)).confirmed_through == cmd.msg_id


@pytest.mark.parametrize(
    ("token_s", "silent_s", "close"), [(86_400, 60, NodeClose.TIMEOUT), (30, 30, NodeClose.UNAUTHORIZED)]
)
async def test_session_ends_by_its_clock(
    autojump_clock: MockClock,
    gateway: Gateway,
    nursery_of_actors: trio.Nursery,
    token_s: float,
    silent_s: float,
    close: NodeClose,
) -> None:
    node = ScriptedNode.alone(gateway, token_s=token_s)
    started = trio.current_time()
    nursery_of_actors.start_soon(node.actor.run)
    await node.go_live()
    await until(lambda: node.connection.closed is not None)
    assert node.connection.closed is close
    assert trio.current_time() - started == pytest.approx(silent_s, abs=0.1)


async def test_session_without_a_resume_is_closed_after_10_s(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await node.connection.next(AuthOk)
    started = trio.current_time()
    await until(lambda: node.connection.closed is not None)
    assert node.connection.closed is NodeClose.TIMEOUT
    assert trio.current_time() - started == pytest.approx(10.0, abs=0.01)


async def test_session_that_has_ended_is_freed_without_a_search_for_cycles(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    caller = Caller(node, nursery_of_actors)
    node.ack(await node.connection.next(Cmd))
    await caller.answer()
    node.connection.hang_up()
    await trio.testing.wait_all_tasks_blocked()
    ended = weakref.ref(node.actor)
    gc.disable()
    try:
        del node.actor
        await trio.lowlevel.checkpoint()
        assert ended() is None
    finally:
        gc.enable()
