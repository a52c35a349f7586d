"""A node's actor across sessions: resume, supersession, and a log in trouble."""

from dataclasses import replace
from functools import partial

import trio
from trio.testing import MockClock
from ulid import ULID

from actors.bus.bus import Failed, Succeeded
from actors.log.memory_store import MemoryDisk
from actors.node.moment import Moment
from actors.node.settings import NodeSettings
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.frames import AnnounceAck, AuthOk, Cmd, Heartbeat, ResumeOk
from schemas.frames import Outcome as Reported
from tests.actors.node.calling import Caller, live
from tests.actors.node.harness import Gateway, ScriptedNode, echo_of, now, until
from tests.schemas.examples import ECHO_CAPABILITY, NODE_ID

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
    await again.services.directory.load()
    await trio.sleep(5)
    second = await live(again, nursery_of_actors)
    resume_ok = await second.connection.next(ResumeOk)
    assert (resume_ok.replayed, resume_ok.expired, resume_ok.confirmed_through) == (0, 1, cmd.msg_id)
    assert not any(isinstance(frame, Cmd) for frame in second.connection.sent)


async def test_command_whose_arguments_went_with_the_process_is_not_sent_again_and_expires(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    first = await live(gateway, nursery_of_actors)
    Caller(first, nursery_of_actors)
    await first.connection.next(Cmd)
    gateway.store.crash()
    again = Gateway(gateway.store.disk)
    await again.services.directory.load()
    second = await live(again, nursery_of_actors)
    resume_ok = await second.connection.next(ResumeOk)
    assert (resume_ok.replayed, resume_ok.expired) == (0, 1)
    last = again.store.disk.streams[f"node/{NODE_ID}"].events[-1].data
    assert b"command_expired@2" in last
    assert b"arguments_gone" in last
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
        assert outcome.code is Code.NODE_OFFLINE
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
    await again.services.directory.load()
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
    assert len(node.actor._limits) == 1  # noqa: SLF001


async def test_caller_behind_a_manifest_that_cannot_be_kept_is_told(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    await trio.sleep(1)  # so that it is another manifest
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
    assert gateway.counts["ack_not_recorded"] == 1


async def test_ack_that_cannot_be_recorded_ends_the_session_so_that_the_node_reports_it_again(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    Caller(node, nursery_of_actors)
    cmd = await node.connection.next(Cmd)
    gateway.store.disk.is_full = True
    node.ack(cmd)
    await until(lambda: node.connection.closed is not None)
    assert node.connection.closed is NodeClose.INTERNAL
    gateway.store.disk.is_full = False
    outcome = Reported(in_reply_to=cmd.msg_id, ok=True, result=echo_of(cmd), begun=True)
    await live(gateway, nursery_of_actors, last_cmd=cmd.msg_id, outcomes=[outcome])
    assert gateway.store.disk.streams[f"node/{NODE_ID}"].open_items == {}


async def test_complete_resume_that_our_log_takes_long_to_record_is_no_timeout_of_the_node(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await node.connection.next(AuthOk)
    node.announce()
    await node.connection.next(AnnounceAck)
    gateway.store._before_commit = partial(trio.sleep, 11)  # noqa: SLF001
    node.resume()
    await node.connection.next(ResumeOk)
    assert node.connection.closed is None


async def test_manifest_that_our_log_takes_long_to_keep_is_no_timeout_of_the_node(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await node.connection.next(AuthOk)
    gateway.store._before_commit = partial(trio.sleep, 11)  # noqa: SLF001
    node.announce()
    await node.connection.next(AnnounceAck)
    node.resume()
    await node.connection.next(ResumeOk)


async def test_superseded_session_neither_judges_nor_keeps_a_manifest(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    await trio.sleep(1)
    before = gateway.services.directory.find(NODE_ID)
    node.actor.close(NodeClose.SUPERSEDED)
    node.announce()
    await trio.sleep(1)
    assert gateway.services.directory.find(NODE_ID) is not before  # it went
    record = gateway.services.directory.find(NODE_ID)
    assert record is not None
    assert before is not None
    assert record.accepted is before.accepted


async def test_ids_of_all_frames_increase_across_sessions_though_our_clock_steps_back(
    autojump_clock: MockClock, nursery_of_actors: trio.Nursery
) -> None:
    gateway, step_ms = Gateway(), 0

    def stepping() -> Moment:
        moment = now()
        return Moment(moment.mono_s, moment.wall_ms - step_ms)

    gateway.services = replace(gateway.services, now=stepping)
    first = await live(gateway, nursery_of_actors)
    await trio.sleep(40)
    first.say(Heartbeat(msg_id=first.msg_id(), manifest_etag=None))
    first.connection.hang_up()
    step_ms = 30_000
    second = await live(gateway, nursery_of_actors)
    ids = [frame.msg_id for node in (first, second) for frame in node.connection.sent]
    assert ids == sorted(ids)


async def test_caller_that_leaves_before_its_command_is_decided_takes_it_back(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    stream = gateway.store.disk.streams[f"node/{NODE_ID}"]
    gateway.store._before_commit = partial(trio.sleep, 1)  # noqa: SLF001
    Caller(node, nursery_of_actors)
    await trio.testing.wait_all_tasks_blocked()
    second = Caller(node, nursery_of_actors)  # waits for the first one's append
    await trio.testing.wait_all_tasks_blocked()
    second.scope.cancel()
    await trio.sleep(4)
    assert len([event for event in stream.events if b"command_queued" in event.data]) == 1
    assert len(gateway.services.calls) == 1


async def test_more_bytes_than_may_wait_for_the_log_close_with_4429(
    autojump_clock: MockClock, nursery_of_actors: trio.Nursery
) -> None:
    gateway = Gateway(settings=NodeSettings(inbox_bytes_max=1000))
    node = await live(gateway, nursery_of_actors)
    gateway.store._before_commit = trio.sleep_forever  # noqa: SLF001
    Caller(node, nursery_of_actors)
    await trio.testing.wait_all_tasks_blocked()  # its append is under way
    cmd = Cmd(msg_id="01HZXC0000000000000000ZZZZ", tool="x.y.z.w", arguments={}, deadline_at_ms=1)
    for _ in range(10):
        node.ack(cmd, {"message": "x" * 200})
    assert node.connection.closed is NodeClose.RATE_LIMITED


async def test_log_that_refuses_the_epoch_closes_with_1011(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    gateway.store.disk.is_full = True
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await until(lambda: node.connection.closed is not None)
    assert node.connection.closed is NodeClose.INTERNAL
