"""The driver's sessions on a mock clock: opening, heartbeats, cadences, and coming back."""

from itertools import pairwise
from random import Random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.device.agent import SETTLED_S, Agent, machine_time_s
from actors.device.device import Device
from actors.device.device_rules import DeviceState
from actors.device.memory_journal import JournalDisk, MemoryJournal
from actors.device.reconnect_rules import CAP_S, RESTART_S, SUPERSEDED_S
from actors.device.wire import OUTBOX_FRAMES_MAX
from schemas.canonical import digest
from schemas.closes import NodeClose
from schemas.errors import Code, envelope
from schemas.frames import Announce, Auth, CmdAck, ErrorFrame, Heartbeat, HeartbeatAck, Resume, ResumeOk, Telemetry
from schemas.manifest import Accepted, accept
from tests.actors.device.conftest import World
from tests.actors.device.gateway import wall_ms
from tests.actors.device.node import SUBSCRIBE, T0_MS, TOKEN, cid
from tests.actors.device.test_reconnect_rules import Fixed
from tests.schemas.attested import SESSION, known
from tests.schemas.examples import NODE_ID

# ---- a session -------------------------------------------------------------------------------------------------------


async def test_a_session_opens_with_a_manifest_that_a_gateway_accepts(autojump_clock: MockClock, world: World) -> None:
    world.start()
    peer = await world.gateway.accept()
    auth = await peer.authenticate()
    assert (auth.token, auth.node_id) == (TOKEN, NODE_ID)
    announce = await peer.accept()
    assert isinstance(accept(announce.manifest, SESSION, known(), None, peer.now_ms), Accepted)


async def test_a_device_knows_its_state(autojump_clock: MockClock, nursery: trio.Nursery, world: World) -> None:
    journal = MemoryJournal(JournalDisk())
    connect = world.gateway.connect
    agent = Agent(world.device(), journal=journal, connect=connect, wall_ms=wall_ms, rng=Random(1))
    states = [agent.state]
    nursery.start_soon(agent.run)
    await world.gateway.accept_live()
    await wait_all_tasks_blocked()
    assert [*states, agent.state] == [DeviceState.CONNECTING, DeviceState.LIVE]


async def test_ids_of_frames_increase_whatever_the_wall_clock_does(
    autojump_clock: MockClock, nursery: trio.Nursery, world: World
) -> None:
    clock = Random(7)

    def stepping_ms() -> int:
        return T0_MS + clock.choice((0, 0, 1, -1, 3_600_000, -3_600_000, -T0_MS, -2 * T0_MS))

    connect = world.gateway.connect
    journal = MemoryJournal(JournalDisk())
    nursery.start_soon(Agent(world.device(), journal=journal, connect=connect, wall_ms=stepping_ms, rng=Random(1)).run)
    ids: list[str] = []
    for _ in range(5):
        peer = await world.gateway.accept()
        ids += [frame.msg_id for frame in (await peer.authenticate(), await peer.accept(), await peer.expect(Resume))]
        peer.send(ResumeOk(msg_id=cid(0), epoch=1, confirmed_through=None, replayed=0, expired=0))
        for number in range(len(ids), len(ids) + 5):
            ids.append((await peer.call(number)).msg_id)
        ids.append((await peer.call(len(ids), SUBSCRIBE, {"interval_ms": 1000})).msg_id)
        for _ in range(5):
            ids.append((await peer.expect(Telemetry)).msg_id)
        peer.close(1011)
    assert ids == sorted(set(ids))


async def test_heartbeats_are_on_time(autojump_clock: MockClock, world: World) -> None:
    world.start()
    peer = await world.gateway.accept_live()
    times = []
    for _ in range(5):
        sent_at, heartbeat = await peer.expect_timed(Heartbeat)
        peer.answer(heartbeat)
        times.append(sent_at - peer.opened_at)
    assert times == [25.0, 50.0, 75.0, 100.0, 125.0]


async def test_clock_that_is_ahead_of_trios_changes_no_deadline(autojump_clock: MockClock, world: World) -> None:
    world.options = {"now": lambda: trio.current_time() + 4096.0}
    world.start()
    peer = await world.gateway.accept_live()
    sent_at, _ = await peer.expect_timed(Heartbeat)
    assert sent_at - peer.opened_at == 25.0


def test_clock_of_the_machine_does_not_stand_still() -> None:
    assert 0 <= machine_time_s() <= machine_time_s()


async def test_another_etag_makes_the_node_announce_again(autojump_clock: MockClock, world: World) -> None:
    world.start()
    peer = await world.gateway.accept()
    await peer.authenticate()
    announce = await peer.accept()
    await peer.expect(Resume)
    heartbeat = await peer.expect(Heartbeat)
    assert heartbeat.manifest_etag == digest(announce.manifest)
    ack = HeartbeatAck(
        msg_id=cid(0), in_reply_to=heartbeat.msg_id, manifest_etag=None, now_ms=peer.now_ms, confirmed_through=None
    )
    peer.send(ack)
    assert (await peer.expect(Announce)).manifest == announce.manifest


async def test_a_manifest_is_renewed_before_half_of_its_life(autojump_clock: MockClock, world: World) -> None:
    world.life_ms = 40_000
    world.start()
    peer = await world.gateway.accept_live()
    sent_at, announce = await peer.expect_timed(Announce)
    assert sent_at - peer.opened_at == 18.0
    assert announce.manifest["issued_at_ms"] == T0_MS + 18_000


async def test_a_refused_manifest_is_announced_again(autojump_clock: MockClock, world: World) -> None:
    world.start()
    peer = await world.gateway.accept()
    await peer.authenticate()
    refused = await peer.expect(Announce)
    peer.send(ErrorFrame(msg_id=cid(0), in_reply_to=refused.msg_id, error=envelope(Code.ATTESTATION_FAILED)))
    again = await peer.accept()
    assert again.manifest["issued_at_ms"] == T0_MS + 3000


async def test_cadence_ticks_are_exact_and_stop_when_cancelled(autojump_clock: MockClock, world: World) -> None:
    world.start()
    peer = await world.gateway.accept_live()
    await trio.sleep(0.3)
    peer.command(1, SUBSCRIBE, {"interval_ms": 3000})
    assert (await peer.expect(CmdAck)).result == {}
    times = []
    for _ in range(8):
        sent_at, telemetry = await peer.expect_timed(Telemetry)
        assert telemetry.in_reply_to == cid(1)
        assert telemetry.frame["ts_ms"] == T0_MS + round(sent_at * 1000)
        times.append(sent_at)
    assert times == [0.3 + 3.0 * tick for tick in range(8)]
    peer.cancel(1)
    await peer.expect(Heartbeat)  # and no more frames before it


async def test_a_cadence_is_not_resumed(autojump_clock: MockClock, world: World) -> None:
    world.start()
    peer = await world.gateway.accept_live()
    peer.command(1, SUBSCRIBE, {"interval_ms": 1000})
    await peer.expect(CmdAck)
    await peer.expect(Telemetry)
    peer.close(1012)
    peer = await world.gateway.accept_live()
    await peer.expect(Heartbeat)


# ---- ends ------------------------------------------------------------------------------------------------------------


async def test_garbage_is_answered_with_4400_and_a_new_session(autojump_clock: MockClock, world: World) -> None:
    world.start()
    peer = await world.gateway.accept_live()
    peer.wire.to_node.send_nowait(b"{")
    await world.gateway.accept_live()
    assert peer.wire.said_goodbye == (4400, "bad_frame")


async def test_silence_is_answered_with_4408_and_a_new_session(autojump_clock: MockClock, world: World) -> None:
    world.start()
    peer = await world.gateway.accept_live()
    await world.gateway.accept_live()
    assert peer.wire.said_goodbye == (4408, "timeout")
    assert 85.0 <= trio.current_time() - peer.opened_at <= 85.5


async def test_a_wire_that_takes_nothing_is_given_up(autojump_clock: MockClock, world: World) -> None:
    world.start()
    peer = await world.gateway.accept_live()
    peer.wire.takes_frames = False
    for number in range(OUTBOX_FRAMES_MAX + 2):
        peer.command(number, "sys.no.such.tool")
    await world.gateway.accept_live()
    assert peer.wire.said_goodbye == (NodeClose.TOO_LARGE.value.code, NodeClose.TOO_LARGE.value.reason)


async def test_a_stopped_device_says_goodbye(autojump_clock: MockClock, world: World) -> None:
    process = world.start()
    peer = await world.gateway.accept_live()
    process.cancel()
    await wait_all_tasks_blocked()
    assert peer.wire.said_goodbye == (1000, "normal")
    assert len(world.gateway.dialled_at) == 1


# ---- coming back -----------------------------------------------------------------------------------------------------


async def test_waits_double_up_to_the_cap_and_start_over_after_a_session_that_lasted(
    autojump_clock: MockClock, world: World
) -> None:
    world.options = {"rng": Fixed(1.0)}
    world.gateway.refuse_next(9)
    world.start()
    peer = await world.gateway.accept_live()
    waits = [after - before for before, after in pairwise(world.gateway.dialled_at)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, CAP_S, CAP_S, CAP_S]
    await trio.sleep(SETTLED_S)
    peer.close(1011)
    began = trio.current_time()
    await world.gateway.accept()
    assert trio.current_time() - began == 0.5


async def test_session_that_ends_as_soon_as_it_is_live_is_as_good_as_a_failure(
    autojump_clock: MockClock, world: World
) -> None:
    world.options = {"rng": Fixed(1.0)}
    world.start()
    for _ in range(5):
        (await world.gateway.accept_live()).close(1011)
    waits = [after - before for before, after in pairwise(world.gateway.dialled_at)]
    assert waits == [0.5, 1.0, 2.0, 4.0]


async def test_waits_are_drawn_from_the_whole_range(autojump_clock: MockClock, world: World) -> None:
    world.gateway.refuse_next(150)
    world.start()
    await world.gateway.accept()
    waits = [after - before for before, after in pairwise(world.gateway.dialled_at)][10:]
    assert all(0 <= wait <= CAP_S for wait in waits)
    assert min(waits) < 0.1 * CAP_S
    assert max(waits) > 0.9 * CAP_S


@pytest.mark.parametrize("close", [NodeClose.FORBIDDEN, NodeClose.MANIFEST_REJECTED])
async def test_a_device_that_is_told_to_stay_away_does(
    autojump_clock: MockClock, world: World, close: NodeClose
) -> None:
    world.start()
    peer = await world.gateway.accept()
    await peer.expect(Auth)
    peer.close(close.value.code)
    await trio.sleep(3600)
    assert len(world.gateway.dialled_at) == 1
    assert world.stayed is not None
    assert close.value.reason in world.stayed.reason


async def test_a_superseded_device_comes_back_after_30_s(autojump_clock: MockClock, world: World) -> None:
    world.start()
    peer = await world.gateway.accept_live()
    peer.close(4409)
    began = trio.current_time()
    await world.gateway.accept()
    assert SUPERSEDED_S <= trio.current_time() - began <= SUPERSEDED_S + 0.5


async def test_after_a_restart_of_the_gateway_devices_spread_out(autojump_clock: MockClock, world: World) -> None:
    world.options = {"rng": Fixed(1.0)}
    world.start()
    peer = await world.gateway.accept_live()
    peer.close(1012)
    began = trio.current_time()
    await world.gateway.accept()
    assert trio.current_time() - began == RESTART_S


async def test_a_refused_token_is_replaced_by_a_newer_one(autojump_clock: MockClock, world: World) -> None:
    world.options = {"newer_token": lambda refused: "new" if refused == TOKEN else None}
    world.start()
    peer = await world.gateway.accept()
    assert (await peer.expect(Auth)).token == TOKEN
    peer.close(4401)
    peer = await world.gateway.accept()
    assert (await peer.expect(Auth)).token == "new"
    peer.close(4401)
    await trio.sleep(3600)
    assert world.stayed is not None
    assert "token" in world.stayed.reason
    assert len(world.gateway.dialled_at) == 2


async def test_without_anyone_to_ask_a_refused_token_is_the_end(autojump_clock: MockClock, world: World) -> None:
    world.start()
    peer = await world.gateway.accept()
    peer.close(4401)
    await wait_all_tasks_blocked()
    assert world.stayed is not None


async def test_a_tool_without_a_handler_is_a_mistake(world: World) -> None:
    device = world.device()
    with pytest.raises(ValueError, match="every tool"):
        Device(device.node_id, device.token, device.tools, {}, device.sign)


async def test_two_runs_of_one_seed_are_the_same(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    transcripts = []
    for _ in range(2):
        world = World(nursery)
        process = world.start()
        frames = []
        for _ in range(3):
            peer = await world.gateway.accept()
            frames.append((await peer.expect(Auth)).msg_id)
            peer.close(1011)
        process.cancel()
        times = world.gateway.dialled_at
        transcripts.append([round(time - times[0], 6) for time in times])
        assert len(set(frames)) == 3
    assert transcripts[0] == transcripts[1]
