"""A node's actor over an in-memory connection and log: calls, acks, limits, resumption, supersession."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock
from ulid import ULID

from actors.log.memory_store import MemoryDisk
from actors.node.calls import Failed, Outcome, Succeeded
from actors.node.settings import NodeSettings
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.frames import AnnounceAck, AuthOk, Cmd, CmdCancel, ErrorFrame, Heartbeat, HeartbeatAck, ResumeOk, Telemetry
from schemas.frames import Outcome as Reported
from tests.node.harness import Gateway, ScriptedNode, echo_of, now, until
from tests.schemas.examples import ECHO_CAPABILITY, ECHO_RESULT, FRAME, METRICS_CAPABILITY, NODE_ID

ECHO = f"sysecho.{NODE_ID}.echo.invoke"
SUBSCRIBE = f"sys.{NODE_ID}.metrics.subscribe"


@pytest.fixture
async def nursery_of_actors() -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


async def live(gateway: Gateway, nursery: trio.Nursery, **resume: Any) -> ScriptedNode:
    node = ScriptedNode.alone(gateway)
    nursery.start_soon(node.actor.run)
    await node.go_live(**resume)
    return node


class Caller:
    """A call under way in a task of its own."""

    def __init__(self, node: ScriptedNode, nursery: trio.Nursery, message: str = "ping", tool: str = ECHO) -> None:
        self.outcome: Outcome | None = None
        self.scope = trio.CancelScope()
        self._node, self._message, self._tool = node, message, tool
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        with self.scope:
            self.outcome = await self._node.actor.call(
                self._tool,
                {"message": self._message},
                sub="agent_x",
                tenant="acme",
                deadline_at_ms=now().wall_ms + 5000,
            )

    async def answer(self) -> Outcome:
        await until(lambda: self.outcome is not None)
        assert self.outcome is not None
        return self.outcome


async def test_session_goes_live_in_the_order_of_the_wire(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    assert [frame.type for frame in node.connection.sent] == ["auth_ok", "announce_ack", "resume_ok"]
    assert node.actor.is_live
    assert set(node.actor.tools) == {ECHO, SUBSCRIBE, f"sys.{NODE_ID}.metrics.snapshot"}


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


async def test_arguments_leave_the_log_with_the_ack_and_the_result_never_enters(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    caller = Caller(node, nursery_of_actors, message="MARK")
    cmd = await node.connection.next(Cmd)
    stream = gateway.store.disk.streams[f"node/{NODE_ID}"]
    assert b"MARK" in (stream.open_items[cmd.msg_id][1].arguments or b"")
    node.ack(cmd)
    await caller.answer()
    assert stream.open_items == {}
    assert not any(b"MARK" in event.data for event in stream.events)


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
    assert await caller.answer() == Failed(Code(code), cmd.msg_id)
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
    assert await caller.answer() == Failed(Code.INTERNAL, cmd.msg_id)
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
    node.ack(cmd)
    await until(lambda: gateway.counts["late_ack"] == 1)


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
    await again.world.manifests.load()
    retained = again.world.manifests.find(NODE_ID)
    assert retained is not None
    assert retained.tenant == "acme"
    assert {tool.name for tool in retained.accepted.tools} == set(node.actor.tools)
    assert list(again.world.manifests) == [retained]


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


# ---- resume and supersession ---------------------------------------------------------------------------------------


async def test_answer_that_comes_with_the_next_session_reaches_its_caller(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    first = await live(gateway, nursery_of_actors)
    caller = Caller(first, nursery_of_actors)
    cmd = await first.connection.next(Cmd)
    first.connection.hang_up()
    outcome = Reported(in_reply_to=cmd.msg_id, ok=True, result=echo_of(cmd), begun=True)
    await live(gateway, nursery_of_actors, last_cmd=cmd.msg_id, outcomes=[outcome])
    assert await caller.answer() == Succeeded(cmd.msg_id, echo_of(cmd))


async def test_command_that_did_not_begin_is_sent_again_under_its_id(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    first = await live(gateway, nursery_of_actors)
    caller = Caller(first, nursery_of_actors)
    cmd = await first.connection.next(Cmd)
    first.connection.hang_up()
    second = await live(gateway, nursery_of_actors)
    assert second.connection.sent[-1].type == "resume_ok"
    again = await second.connection.next(Cmd)
    assert (again.msg_id, again.arguments, again.deadline_at_ms) == (cmd.msg_id, cmd.arguments, cmd.deadline_at_ms)
    second.ack(again)
    assert isinstance(await caller.answer(), Succeeded)


async def test_command_survives_the_gateway_and_its_deadline_still_holds(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    first = await live(gateway, nursery_of_actors)
    Caller(first, nursery_of_actors)
    cmd = await first.connection.next(Cmd)
    gateway.store.crash()
    again = Gateway(gateway.store.disk)
    await again.world.manifests.load()
    await trio.sleep(5)
    second = await live(again, nursery_of_actors)
    resume_ok = await second.connection.next(ResumeOk)
    assert (resume_ok.replayed, resume_ok.expired, resume_ok.confirmed_through) == (0, 1, cmd.msg_id)
    assert not any(isinstance(frame, Cmd) for frame in second.connection.sent)


async def test_stale_session_closes_with_4409_and_writes_nothing_more(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    one, other = Gateway(disk), Gateway(disk)
    async with trio.open_nursery() as nursery:
        stale = await live(one, nursery)
        fresh = await live(other, nursery)
        assert fresh.actor.epoch == stale.actor.epoch + 1
        outcome = await Caller(stale, nursery).answer()
        assert isinstance(outcome, Failed)
        assert outcome.code is Code.INTERNAL
        assert stale.connection.closed is NodeClose.SUPERSEDED
        assert not any(isinstance(frame, Cmd) for frame in stale.connection.sent)
        nursery.cancel_scope.cancel()


async def test_last_cmd_more_than_a_day_ahead_closes_with_4400(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await node.connection.next(AuthOk)
    node.announce()
    await until(lambda: len(node.connection.sent) == 2)
    node.resume(last_cmd="7" + "Z" * 25)
    await until(lambda: node.connection.closed is not None)
    assert node.connection.closed is NodeClose.BAD_FRAME


async def test_caller_that_gives_up_while_the_node_is_away_has_its_command_cancelled_not_sent_again(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    first = await live(gateway, nursery_of_actors)
    caller = Caller(first, nursery_of_actors)
    await first.connection.next(Cmd)
    first.connection.hang_up()
    await trio.testing.wait_all_tasks_blocked()
    caller.scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    second = await live(gateway, nursery_of_actors)
    assert not any(isinstance(frame, Cmd) for frame in second.connection.sent)
    assert b"command_cancelled" in gateway.store.disk.streams[f"node/{NODE_ID}"].events[-1].data


async def test_ack_of_a_stale_session_is_dropped_and_its_caller_waits_for_the_newer_one(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    stale = await live(gateway, nursery_of_actors)
    caller = Caller(stale, nursery_of_actors)
    cmd = await stale.connection.next(Cmd)
    fresh = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(fresh.actor.run)
    await fresh.connection.next(AuthOk)
    stale.ack(cmd)
    await trio.testing.wait_all_tasks_blocked()
    assert stale.connection.closed is NodeClose.SUPERSEDED
    assert caller.outcome is None
    outcome = Reported(in_reply_to=cmd.msg_id, ok=True, result=echo_of(cmd), begun=True)
    await fresh.go_live(last_cmd=cmd.msg_id, outcomes=[outcome])
    assert await caller.answer() == Succeeded(cmd.msg_id, echo_of(cmd))


async def test_ids_go_above_what_the_log_and_the_node_have_seen(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    ahead = str(ULID.from_int((now().wall_ms + 3_600_000 << 80) + 7))
    first = await live(gateway, nursery_of_actors, last_cmd=ahead)
    Caller(first, nursery_of_actors)
    cmd = await first.connection.next(Cmd)
    assert cmd.msg_id > ahead
    first.connection.hang_up()
    again = Gateway(gateway.store.disk)  # another process: only the log remembers
    await again.world.manifests.load()
    second = await live(again, nursery_of_actors, last_cmd=cmd.msg_id)
    Caller(second, nursery_of_actors)
    assert (await second.connection.next(Cmd)).msg_id > cmd.msg_id


async def test_commands_that_still_run_take_their_slots_in_the_next_session(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    first = await live(gateway, nursery_of_actors)
    for _ in range(4):
        Caller(first, nursery_of_actors)
    cmds = await first.commands(4)
    first.connection.hang_up()
    running = [cmd.msg_id for cmd in cmds]
    second = await live(gateway, nursery_of_actors, last_cmd=max(running), running=running)
    refused = await Caller(second, nursery_of_actors).answer()
    assert isinstance(refused, Failed)
    assert refused.code is Code.RATE_LIMITED
    second.ack(cmds[0])
    await until(lambda: len(gateway.store.disk.streams[f"node/{NODE_ID}"].open_items) == 3)
    Caller(second, nursery_of_actors)
    assert len(await second.commands(1)) == 1


async def test_more_open_commands_than_a_node_may_have_are_refused(
    autojump_clock: MockClock, nursery_of_actors: trio.Nursery
) -> None:
    gateway = Gateway(settings=NodeSettings(open_commands_max=2))
    node = await live(gateway, nursery_of_actors)
    for _ in range(2):
        Caller(node, nursery_of_actors)
    await node.commands(2)
    await trio.testing.wait_all_tasks_blocked()
    refused = await Caller(node, nursery_of_actors).answer()
    assert isinstance(refused, Failed)
    assert refused.code is Code.RATE_LIMITED


async def test_capability_that_is_no_longer_announced_is_forgotten(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    for n in range(5):
        await trio.sleep(1)
        sent = len(node.connection.sent)
        node.announce(capabilities=[ECHO_CAPABILITY | {"cap_id": f"echo_{n}"}])
        await node.connection.next(AnnounceAck, after=sent)
    assert list(node.actor._limits) == [("system.echo", "echo_4")]  # noqa: SLF001


async def test_caller_behind_a_manifest_that_cannot_be_kept_is_told(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    started = trio.current_time()
    gateway.store.disk.is_full = True
    node.announce()
    outcome = await Caller(node, nursery_of_actors).answer()
    assert isinstance(outcome, Failed)
    assert trio.current_time() - started < 1.0
    assert node.connection.closed is NodeClose.INTERNAL


# ---- a log in trouble ----------------------------------------------------------------------------------------------


async def test_full_disk_refuses_the_call_and_the_session_goes_on(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    gateway.store.disk.is_full = True
    outcome = await Caller(node, nursery_of_actors).answer()
    assert isinstance(outcome, Failed)
    assert outcome.code is Code.INTERNAL
    gateway.store.disk.is_full = False
    caller = Caller(node, nursery_of_actors)
    node.ack(await node.connection.next(Cmd))
    assert isinstance(await caller.answer(), Succeeded)


async def test_ack_that_cannot_be_recorded_is_dropped_and_its_caller_told(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    caller = Caller(node, nursery_of_actors)
    cmd = await node.connection.next(Cmd)
    gateway.store.disk.is_full = True
    node.ack(cmd)
    assert await caller.answer() == Failed(Code.INTERNAL, cmd.msg_id)
    assert cmd.msg_id in gateway.store.disk.streams[f"node/{NODE_ID}"].open_items


async def test_log_that_refuses_the_epoch_closes_with_1011(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    gateway.store.disk.is_full = True
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await until(lambda: node.connection.closed is not None)
    assert node.connection.closed is NodeClose.INTERNAL


# ---- telemetry -----------------------------------------------------------------------------------------------------


class Recorder:
    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.ended = 0

    def on_frame(self, frame: Any) -> None:
        self.frames.append(frame)

    def on_cadence_end(self) -> None:
        self.ended += 1


def telemetry(node: ScriptedNode, msg_id: str, **changes: Any) -> None:
    node.say(Telemetry(msg_id=node.msg_id(), in_reply_to=msg_id, frame=FRAME | changes))


async def test_one_upstream_cadence_serves_every_listener(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    first, second = Recorder(), Recorder()
    cadence = node.actor.attach(SUBSCRIBE, 1000, first)
    assert node.actor.attach(SUBSCRIBE, 1000, second) is cadence
    assert not isinstance(cadence, Failed)
    (cmd,) = await node.commands(1)
    assert cmd.arguments == {"interval_ms": 1000}
    node.ack(cmd, {})
    telemetry(node, cmd.msg_id)
    assert first.frames == second.frames == [FRAME]
    node.actor.detach(cadence, first)
    assert not any(isinstance(frame, CmdCancel) for frame in node.connection.sent)
    node.actor.detach(cadence, second)
    node.actor.detach(cadence, second)
    assert [frame.in_reply_to for frame in node.connection.sent if isinstance(frame, CmdCancel)] == [cmd.msg_id]
    telemetry(node, cmd.msg_id)
    assert gateway.counts["telemetry_unasked"] == 1


async def test_cadence_is_in_no_log_and_takes_no_slot(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    version = gateway.store.disk.streams[f"node/{NODE_ID}"].version
    node.actor.attach(SUBSCRIBE, 1000, Recorder())
    (cmd,) = await node.commands(1)
    node.ack(cmd, {})
    await trio.testing.wait_all_tasks_blocked()
    assert gateway.store.disk.streams[f"node/{NODE_ID}"].version == version


async def test_listeners_hear_the_end_when_the_node_goes(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    listener = Recorder()
    node.actor.attach(SUBSCRIBE, 1000, listener)
    node.actor.close(NodeClose.SUPERSEDED)
    assert listener.ended == 1


@pytest.mark.parametrize("refused", [True, False])
async def test_cadence_refused_or_not_acked_in_time_ends(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery, refused: bool
) -> None:
    node = await live(gateway, nursery_of_actors)
    listener = Recorder()
    node.actor.attach(SUBSCRIBE, 1000, listener)
    (cmd,) = await node.commands(1)
    started = trio.current_time()
    if refused:
        node.fail(cmd, "E_INTERNAL", begun=False)
    await until(lambda: listener.ended == 1)
    assert trio.current_time() - started == pytest.approx(0.0 if refused else 5.0, abs=0.01)


async def test_cadence_whose_start_ends_the_session_is_refused_instead_of_hanging(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await live(gateway, nursery_of_actors)

    def break_down(_: bytes) -> bool:
        node.actor.close(NodeClose.TOO_LARGE)
        return False

    monkeypatch.setattr(node.connection, "send", break_down)
    listener = Recorder()
    assert node.actor.attach(SUBSCRIBE, 1000, listener) == Failed(Code.NODE_OFFLINE)


async def test_seventeenth_cadence_is_refused(autojump_clock: MockClock) -> None:
    with trio.fail_after(10):
        gateway = Gateway(settings=NodeSettings())
        async with trio.open_nursery() as nursery:
            node = ScriptedNode.alone(gateway)
            nursery.start_soon(node.actor.run)
            await node.connection.next(AuthOk)
            node.announce(capabilities=[METRICS_CAPABILITY | {"constraints": {"rate_limit_rps": 1000}}])
            await until(lambda: len(node.connection.sent) == 2)
            node.resume()
            await node.connection.next(ResumeOk)
            for n in range(16):
                assert not isinstance(node.actor.attach(SUBSCRIBE, 1000 + n, Recorder()), Failed)
            refused = node.actor.attach(SUBSCRIBE, 2000, Recorder())
            assert isinstance(refused, Failed)
            assert refused.code is Code.RATE_LIMITED
            nursery.cancel_scope.cancel()
