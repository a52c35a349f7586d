"""Cadences of a node's actor: one upstream for all listeners, and how they end."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.bus.bus import Failed
from actors.node.settings import NodeSettings
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.frames import AnnounceAck, AuthOk, CmdCancel, ErrorFrame, ResumeOk, Telemetry
from tests.actors.node.calling import SUBSCRIBE, live
from tests.actors.node.harness import Gateway, ScriptedNode, until
from tests.schemas.examples import FRAME, METRICS_CAPABILITY, NODE_ID

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


async def test_frames_and_drops_of_a_node_are_counted_across_its_sessions(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    counts = None
    for session in (1, 2):
        node = await live(gateway, nursery_of_actors)
        assert not isinstance(node.actor.attach(SUBSCRIBE, 1000, Recorder()), Failed)
        (cmd,) = await node.commands(1)
        node.ack(cmd, {})
        telemetry(node, cmd.msg_id)
        telemetry(node, cmd.msg_id)  # too soon
        telemetry(node, cmd.msg_id, cpu_pct="hot")
        telemetry(node, node.msg_id())  # of no cadence
        counts = gateway.services.kept_of(NODE_ID).counts
        assert (counts.frames, counts.drops) == (session, 3 * session)
        node.connection.hang_up()
        await until(lambda node=node: not node.actor.is_live)  # type: ignore[misc]
    assert counts is not None
    assert (counts.calls, counts.last_call_ms) == (0, None)


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


async def test_cadence_that_is_not_acked_in_time_is_cancelled_on_the_node_which_may_yet_begin_it(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    cadence = node.actor.attach(SUBSCRIBE, 1000, Recorder())
    assert not isinstance(cadence, Failed)
    assert (await node.connection.next(CmdCancel)).in_reply_to == cadence.msg_id


async def test_node_that_reconnects_has_no_more_manifests_judged_than_its_rate(
    autojump_clock: MockClock, nursery_of_actors: trio.Nursery
) -> None:
    gateway = Gateway(settings=NodeSettings(manifests_burst=2, manifest_every_s=600))
    for number in range(3):
        node = ScriptedNode.alone(gateway)
        nursery_of_actors.start_soon(node.actor.run)
        await node.connection.next(AuthOk)
        await trio.sleep(1)  # each is another manifest
        node.announce()
        answer = await node.connection.next(AnnounceAck if number < 2 else ErrorFrame)
        node.connection.hang_up()
    assert isinstance(answer, ErrorFrame)
    assert answer.error["code"] == "E_RATE_LIMITED"
