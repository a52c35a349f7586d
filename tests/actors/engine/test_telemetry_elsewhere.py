"""Telemetry of nodes that another process has: what ends it, and what is left of it on either side."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from actors.bus.bus import Attachment, Failed
from actors.engine import bus_messages as wire
from actors.engine.settings import BusSettings
from schemas.errors import Code
from schemas.frames import Cmd, CmdCancel
from tests.actors.engine.gateways import MemoryEngine, Process, Recorder, sent, telemetry, until
from tests.actors.node.calling import SUBSCRIBE
from tests.actors.node.harness import ScriptedNode
from tests.schemas.examples import FRAME, NODE_ID

SUBJECT = wire.telemetry_subject(NODE_ID, "metrics", 1000)
PING_S, DEAD_S = 2.0, 15.0


@pytest.fixture
async def several() -> AsyncIterator[MemoryEngine]:
    async with trio.open_nursery() as processes:
        yield MemoryEngine(processes)
        processes.cancel_scope.cancel()


async def attach(process: Process, listener: Recorder, interval_ms: int = 1000) -> Attachment:
    attached = await process.bus.attach(NODE_ID, SUBSCRIBE, interval_ms, listener)
    assert not isinstance(attached, Failed), attached
    return attached


async def listening(several: MemoryEngine) -> tuple[Process, Process, ScriptedNode, Recorder, Cmd]:
    """Q listens to a node of P's."""
    owner, asker = await several.process("P"), await several.process("Q")
    node = await owner.session()
    await until(asker.is_told)
    listener = Recorder()
    await attach(asker, listener)
    (cmd,) = await node.commands(1)
    node.ack(cmd, {})
    return owner, asker, node, listener, cmd


async def test_two_processes_hear_each_frame_once(autojump_clock: MockClock, several: MemoryEngine) -> None:
    owner, _, node, first, cmd = await listening(several)
    third, second = await several.process("R"), Recorder()
    await attach(third, second)
    assert owner.engine.telemetry_for_others.cadences == 1
    for _ in range(2):
        await trio.sleep(1)
        telemetry(node, cmd)
    await trio.sleep(1)
    assert first.frames == second.frames == [FRAME, FRAME]
    assert len(sent(node, Cmd)) == 1


async def test_a_dead_owner_ends_its_streams_after_two_pings(autojump_clock: MockClock, several: MemoryEngine) -> None:
    owner, _, _, listener, _ = await listening(several)
    owner.die()
    began_s = trio.current_time()
    await until(lambda: listener.ended == 1)
    assert trio.current_time() - began_s <= 2 * PING_S + 0.1


async def test_a_stopped_owner_ends_its_streams_when_its_entry_ends(
    autojump_clock: MockClock, several: MemoryEngine
) -> None:
    owner, asker, node, listener, cmd = await listening(several)
    owner.stop()
    began_s = trio.current_time()
    await until(lambda: listener.ended == 1)
    assert 0.5 * DEAD_S < trio.current_time() - began_s <= DEAD_S + 0.1
    owner.go_on()
    telemetry(node, cmd)
    await trio.sleep(DEAD_S + 2 * PING_S)
    assert listener.frames == []
    assert owner.engine.telemetry_for_others.listeners == 0
    await until(asker.is_told)


async def test_a_node_that_is_back_elsewhere_ends_its_streams_at_once(
    autojump_clock: MockClock, several: MemoryEngine
) -> None:
    owner, _, node, listener, cmd = await listening(several)
    third = await several.process("R")
    owner.stop()  # it can say nothing of it
    await third.session()
    await trio.sleep(0.1)
    assert listener.ended == 1
    owner.go_on()
    telemetry(node, cmd)
    await trio.sleep(0.1)
    assert listener.frames == []


async def test_an_asker_that_dies_is_dropped_when_it_has_not_pinged_for_the_lease(
    autojump_clock: MockClock, several: MemoryEngine
) -> None:
    owner, asker, node, _, cmd = await listening(several)
    asker.die()
    await trio.sleep(DEAD_S - PING_S)
    assert owner.engine.telemetry_for_others.listeners == 1
    await trio.sleep(3 * PING_S)
    assert owner.engine.telemetry_for_others.listeners == 0
    assert [frame.in_reply_to for frame in sent(node, CmdCancel)] == [cmd.msg_id]


async def test_an_asker_that_was_stopped_for_too_long_learns_that_it_listens_no_more(
    autojump_clock: MockClock, several: MemoryEngine
) -> None:
    owner, asker, node, listener, _ = await listening(several)
    assert asker.messages is not None
    asker.messages.stop()
    await trio.sleep(2 * DEAD_S)
    assert owner.engine.telemetry_for_others.listeners == 0
    asker.messages.go_on()
    await until(lambda: listener.ended == 1)
    assert len(sent(node, CmdCancel)) == 1


async def test_a_lost_goodbye_is_made_up_for_by_the_next_ping(autojump_clock: MockClock, several: MemoryEngine) -> None:
    owner, asker, node, _, _ = await listening(several)
    other = Recorder()
    attached = await attach(asker, other, 5000)
    assert owner.engine.telemetry_for_others.listeners == 2
    several.broker.loses = lambda: True
    attached.detach()
    await trio.sleep(0.1)
    several.broker.loses = lambda: False
    assert owner.engine.telemetry_for_others.listeners == 2
    await trio.sleep(2 * PING_S)
    assert owner.engine.telemetry_for_others.listeners == 1
    assert len(sent(node, CmdCancel)) == 1


async def test_a_lost_end_is_made_up_for_by_the_next_ping(autojump_clock: MockClock, several: MemoryEngine) -> None:
    _, asker, node, _, _ = await listening(several)
    other = Recorder()
    await attach(asker, other, 5000)
    _, second = await node.commands(2)
    several.broker.loses = lambda: True
    node.fail(second, "E_RATE_LIMITED", begun=False)
    await trio.sleep(0.1)
    several.broker.loses = lambda: False
    assert other.ended == 0
    await trio.sleep(2 * PING_S)
    assert other.ended == 1


async def test_lost_pings_end_nothing(autojump_clock: MockClock, several: MemoryEngine) -> None:
    owner, _, node, listener, cmd = await listening(several)
    several.broker.loses = lambda: True
    await trio.sleep(DEAD_S - 2 * PING_S)
    several.broker.loses = lambda: False
    await trio.sleep(DEAD_S + PING_S)
    assert listener.ended == 0
    telemetry(node, cmd)
    await trio.sleep(0.1)
    assert listener.frames == [FRAME]
    assert owner.engine.telemetry_for_others.listeners == 1


async def test_frames_of_another_epoch_or_of_none_and_frames_that_make_no_sense_are_dropped(
    autojump_clock: MockClock,
    several: MemoryEngine,
) -> None:
    owner, _, node, listener, cmd = await listening(several)
    assert owner.messages is not None
    good = wire.encode(FRAME)
    for data, headers in [
        (good, {wire.EPOCH: "2"}),
        (good, {wire.EPOCH: "0"}),
        (good, {}),
        (good, {wire.EPOCH: "x"}),
        (b"", {wire.EPOCH: "1"}),
        (b"[]", {wire.EPOCH: "1"}),
        (b"", {wire.EPOCH: "1", wire.END: "99"}),
        (b"", {wire.EPOCH: "2", wire.END: "1"}),
    ]:
        owner.messages.publish(SUBJECT, data, headers)
    await trio.sleep(1)
    assert (listener.frames, listener.ended) == ([], 0)
    telemetry(node, cmd)
    await trio.sleep(0.1)
    assert listener.frames == [FRAME]


async def test_who_gives_up_while_it_asks_leaves_nothing_behind(
    autojump_clock: MockClock, several: MemoryEngine
) -> None:
    owner, asker = await several.process("P"), await several.process("Q")
    node = await owner.session()
    await until(asker.is_told)
    several.broker.delay_s = lambda: 0.2
    with trio.move_on_after(0.1):
        await attach(asker, Recorder())
    await trio.sleep(1)
    assert owner.engine.telemetry_for_others.cadences == 0
    assert len(sent(node, CmdCancel)) == len(sent(node, Cmd)) == 1
    assert not several.broker.listeners.get(SUBJECT)


async def test_who_stays_has_what_another_that_gave_up_had_asked_for(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    owner, asker = await several.process("P"), await several.process("Q")
    node = await owner.session()
    await until(asker.is_told)
    several.broker.delay_s = lambda: 0.2
    stays = Recorder()
    with trio.move_on_after(0.1):
        nursery.start_soon(attach, asker, stays)
        await attach(asker, Recorder())
    (cmd,) = await node.commands(1)
    node.ack(cmd, {})
    await trio.sleep(0.5)
    telemetry(node, cmd)
    await trio.sleep(0.5)
    assert stays.frames == [FRAME]
    assert len(sent(node, Cmd)) == 1


async def test_an_owner_that_does_not_answer_is_not_waited_for_for_ever(
    autojump_clock: MockClock, several: MemoryEngine
) -> None:
    owner, asker = await several.process("P"), await several.process("Q")
    node = await owner.session()
    await until(asker.is_told)
    owner.stop()
    refused = await asker.bus.attach(NODE_ID, SUBSCRIBE, 1000, Recorder())
    assert refused == Failed(Code.DEADLINE_EXCEEDED, is_known=False)
    owner.go_on()
    await trio.sleep(1)  # it hears of the question, and of the goodbye
    assert owner.engine.telemetry_for_others.cadences == 0
    assert len(sent(node, CmdCancel)) == len(sent(node, Cmd))


async def test_a_newer_session_elsewhere_is_asked_for_its_telemetry(
    autojump_clock: MockClock, several: MemoryEngine
) -> None:
    owner, asker, third = [await several.process(name) for name in ("P", "Q", "R")]
    node = await owner.session()
    await until(asker.is_told)
    assert asker.live is not None
    asker.live.lag_s = 0.3
    several.broker.delay_s = lambda: 0.5
    newer = await third.session()
    await attach(asker, Recorder())
    assert len(sent(newer, Cmd)) == 1
    assert sent(node, Cmd) == []


async def test_a_session_that_ends_while_it_is_asked_about_is_offline(
    autojump_clock: MockClock, several: MemoryEngine
) -> None:
    owner, asker = await several.process("P"), await several.process("Q")
    node = await owner.session()
    await until(asker.is_told)
    several.broker.delay_s = lambda: 0.5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_hang_up_later, node)
        refused = await asker.bus.attach(NODE_ID, SUBSCRIBE, 1000, Recorder())
    assert refused == Failed(Code.NODE_OFFLINE)
    await trio.sleep(2)
    assert owner.engine.telemetry_for_others.listeners == 0


async def _hang_up_later(node: ScriptedNode) -> None:
    await trio.sleep(0.1)
    node.connection.hang_up()


async def test_no_more_is_listened_to_than_the_limits_of_either_side(autojump_clock: MockClock) -> None:
    for settings in BusSettings(feeds_max=1), BusSettings(listeners_max=1):
        async with trio.open_nursery() as processes:
            several = MemoryEngine(processes, settings)
            _, asker, _, _, _ = await listening(several)
            refused = await asker.bus.attach(NODE_ID, SUBSCRIBE, 5000, Recorder())
            assert refused == Failed(Code.RATE_LIMITED, retry_after_ms=1000)
            await attach(asker, Recorder())  # to what is listened to already
            processes.cancel_scope.cancel()


async def test_a_bug_of_the_owner_is_these_listeners_alone(
    autojump_clock: MockClock, several: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, asker = await several.process("P"), await several.process("Q")
    await owner.session()
    await until(asker.is_told)

    async def fail(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(owner.fleet, "attach", fail)
        assert await asker.bus.attach(NODE_ID, SUBSCRIBE, 1000, Recorder()) == Failed(Code.INTERNAL)
    await attach(asker, Recorder())
