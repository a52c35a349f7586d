"""Calls of nodes that another process has, while things go wrong between the two."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.bus.bus import Failed, Outcome, Succeeded
from actors.engine import bus_messages as wire
from actors.engine.messages import Reply
from actors.engine.settings import BusSettings
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.frames import AuthOk, Cmd, CmdCancel
from tests.actors.engine.gateways import Asked, MemoryEngine, Process, sent, until
from tests.actors.node.harness import ScriptedNode, now
from tests.schemas.examples import NODE_ID


@pytest.fixture
async def several() -> AsyncIterator[MemoryEngine]:
    async with trio.open_nursery() as processes:
        yield MemoryEngine(processes)
        processes.cancel_scope.cancel()


async def two(several: MemoryEngine) -> tuple[Process, Process, ScriptedNode]:
    owner, asker = await several.process("P"), await several.process("Q")
    node = await owner.session()
    await until(asker.is_told)
    return owner, asker, node


async def test_a_dead_process_has_done_nothing(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    owner, asker, _ = await two(several)
    owner.die()
    began_s = trio.current_time()
    assert await Asked(asker, nursery).answer() == Failed(Code.NODE_OFFLINE)
    assert trio.current_time() - began_s < 0.1


async def test_a_newer_session_elsewhere_is_asked_once_the_old_owner_has_done_nothing(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    owner, asker, node = await two(several)
    third = await several.process("R")
    for process in owner, asker, third:
        assert process.live is not None
    assert asker.live is not None
    asker.live.lag_s = 0.3  # it still believes in the old one when it asks
    several.broker.delay_s = lambda: 0.5
    newer = await third.session()
    asked = Asked(asker, nursery)
    (cmd,) = await newer.commands(1)
    newer.ack(cmd)
    assert isinstance(await asked.answer(), Succeeded)
    assert sent(node, Cmd) == []
    assert node.connection.closed is NodeClose.SUPERSEDED


async def test_a_node_that_has_come_here_meanwhile_is_asked_here(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    _, asker, _ = await two(several)
    several.broker.delay_s = lambda: 0.5
    asked = Asked(asker, nursery)
    await trio.sleep(0.1)
    newer = await asker.session()
    (cmd,) = await newer.commands(1)
    newer.ack(cmd)
    assert isinstance(await asked.answer(), Succeeded)


async def test_who_has_no_newer_session_is_told_that_the_node_is_away(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    _, asker, node = await two(several)
    assert asker.live is not None
    asker.live.lag_s = 1.0
    node.connection.hang_up()
    await trio.sleep(0.1)
    assert await Asked(asker, nursery).answer() == Failed(Code.NODE_OFFLINE)


async def test_a_stopped_owner_is_out_of_time_and_writes_nothing_when_it_goes_on(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    owner, asker, node = await two(several)
    owner.stop()
    asked = Asked(asker, nursery)
    assert await asked.answer() == Failed(Code.DEADLINE_EXCEEDED, is_known=False)
    assert asked.answered_s is not None
    owner.go_on()
    await trio.sleep(1)
    assert sent(node, Cmd) == []
    assert owner.engine.calls_for_others.serving == 0


async def test_an_owner_that_stops_has_named_the_command(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    owner, asker, node = await two(several)
    asked = Asked(asker, nursery)
    (cmd,) = await node.commands(1)
    await trio.sleep(0.2)
    assert asked.held == [cmd.msg_id]
    owner.stop()
    assert await asked.answer() == Failed(Code.DEADLINE_EXCEEDED, cmd.msg_id, is_known=False)


async def test_what_is_answered_at_once_is_not_named_before(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    owner, asker, node = await two(several)
    said: list[bytes] = []
    assert owner.messages is not None
    request = wire.CallAsked("c", NODE_ID, 1, "x", {}, "a", "acme", now().wall_ms + 1000)
    assert asker.messages is not None
    subject = wire.Subjects("hg", "P").call
    await asker.messages.ask(subject, wire.encode(request), timeout_s=1, on_interim=said.append)
    await trio.sleep(1)
    assert said == []
    assert sent(node, Cmd) == []


async def test_of_two_slow_calls_each_is_named(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    _, asker, node = await two(several)
    asked = [Asked(asker, nursery)]
    await trio.sleep(0.05)
    asked.append(Asked(asker, nursery))
    cmds = await node.commands(2)
    await trio.sleep(0.11)
    assert [each.held for each in asked] == [[cmd.msg_id] for cmd in cmds]


async def test_an_asker_that_is_cut_off_does_not_know(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    _, asker, node = await two(several)
    asked = Asked(asker, nursery)
    (cmd,) = await node.commands(1)
    await trio.sleep(0.2)
    assert asker.messages is not None
    asker.messages.cut_off()
    assert await asked.answer() == Failed(Code.DEADLINE_EXCEEDED, cmd.msg_id, is_known=False)
    assert await Asked(asker, nursery).answer() == Failed(Code.NODE_OFFLINE)
    assert len(sent(node, Cmd)) == 1


async def test_a_lost_answer_is_as_if_there_were_none(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    _, asker, node = await two(several)
    asked = Asked(asker, nursery)
    (cmd,) = await node.commands(1)
    several.broker.loses = lambda: True
    node.ack(cmd)
    assert await asked.answer() == Failed(Code.DEADLINE_EXCEEDED, is_known=False)


async def test_no_more_calls_are_served_at_once_than_the_limit(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with trio.open_nursery() as processes:
        owner, asker, node = await two(MemoryEngine(processes, BusSettings(calls_max=1)))
        first = Asked(asker, nursery)
        (cmd,) = await node.commands(1)
        refused = await Asked(asker, nursery).answer()
        assert refused == Failed(Code.RATE_LIMITED, retry_after_ms=1000)
        node.ack(cmd)
        assert isinstance(await first.answer(), Succeeded)
        again = Asked(asker, nursery)
        node.ack((await node.commands(2))[1])
        assert isinstance(await again.answer(), Succeeded)
        assert owner.engine.calls_for_others.serving == 0
        processes.cancel_scope.cancel()


async def test_an_asker_that_dies_leaves_its_call_to_its_deadline(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    owner, asker, node = await two(several)
    Asked(asker, nursery)
    await node.commands(1)
    asker.die()
    assert owner.engine.calls_for_others.serving == 1
    await trio.sleep(5.1)
    assert owner.engine.calls_for_others.serving == 0


async def test_a_question_that_comes_twice_is_served_once(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    _, asker, node = await two(several)
    assert asker.messages is not None
    tool = f"sysecho.{NODE_ID}.echo.invoke"
    arguments = {"message": "x"}
    request = wire.CallAsked("c", NODE_ID, 1, tool, arguments, "a", "acme", now().wall_ms + 1000)
    for _ in range(2):
        nursery.start_soon(_ask, asker, wire.Subjects("hg", "P").call, wire.encode(request))
    await trio.sleep(0.5)
    assert len(sent(node, Cmd)) == 1


async def _ask(process: Process, subject: str, data: bytes) -> None:
    assert process.messages is not None
    await process.messages.ask(subject, data, timeout_s=1.0)


async def test_messages_that_make_no_sense_harm_nobody(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    _, asker, node = await two(several)
    assert asker.messages is not None
    subjects = wire.Subjects("hg", "P")
    for data in b"", b"{}", b"\xff", b"[" * 20_000:
        for subject in subjects.call, subjects.attach, subjects.ping:
            nursery.start_soon(_ask, asker, subject, data)
        for subject in subjects.cancel, subjects.detach:
            asker.messages.publish(subject, data)
    await trio.sleep(2)
    asked = Asked(asker, nursery)
    (cmd,) = await node.commands(1)
    node.ack(cmd)
    assert isinstance(await asked.answer(), Succeeded)


async def test_an_answer_that_makes_no_sense_says_nothing_of_the_command(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, asker, node = await two(several)
    assert asker.messages is not None

    async def answer(*_: Any, on_interim: Callable[[bytes], None], **__: Any) -> Reply:
        await trio.lowlevel.checkpoint()
        on_interim(b"nonsense")
        return Reply(b"nonsense")

    monkeypatch.setattr(type(asker.messages), "ask", answer)
    assert await Asked(asker, nursery).answer() == Failed(Code.INTERNAL, is_known=False)
    assert sent(node, Cmd) == []


async def test_a_bug_of_the_owner_is_that_calls_alone(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, asker, node = await two(several)

    async def fail(*_: Any, **__: Any) -> Outcome:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(owner.fleet, "call", fail)
        assert await Asked(asker, nursery).answer() == Failed(Code.INTERNAL, is_known=False)
    asked = Asked(asker, nursery)
    node.ack((await node.commands(1))[0])
    assert isinstance(await asked.answer(), Succeeded)


async def test_a_process_that_stops_answers_what_it_has_and_takes_no_more(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    owner, asker, node = await two(several)
    asked = Asked(asker, nursery)
    (cmd,) = await node.commands(1)
    owner.engine.stop()
    assert await Asked(asker, nursery).answer() == Failed(Code.NODE_OFFLINE)
    node.ack(cmd)
    assert isinstance(await asked.answer(), Succeeded)
    await trio.sleep(0.1)
    assert not several.broker.servers.get(wire.Subjects("hg", "P").call)


async def test_a_session_that_is_superseded_elsewhere_ends_at_once_and_writes_nothing_more(
    autojump_clock: MockClock, several: MemoryEngine, nursery: trio.Nursery
) -> None:
    owner, asker, node = await two(several)
    asked = Asked(owner, nursery)
    await node.commands(1)
    newer = await asker.session()
    await until(lambda: node.connection.closed is NodeClose.SUPERSEDED)
    await until(lambda: owner.is_told(epoch=2))
    local = Asked(owner, nursery)  # by the old owner, to the new one
    (cmd,) = await newer.commands(1)
    newer.ack(cmd)
    assert isinstance(await local.answer(), Succeeded)
    outcome = await asked.answer()
    assert isinstance(outcome, Failed)
    assert outcome.code is Code.DEADLINE_EXCEEDED
    assert sent(newer, CmdCancel) == []


async def test_a_session_without_an_epoch_is_left_to_the_log(autojump_clock: MockClock, several: MemoryEngine) -> None:
    owner = await several.process("P")
    node = ScriptedNode.started_by(owner.fleet)
    owner.fleet.supersede(NODE_ID, 7)
    assert node.connection.closed is None
    await node.go_live()
    owner.fleet.supersede(NODE_ID, 1)
    assert node.connection.closed is None
    owner.fleet.supersede(NODE_ID, 2)
    assert node.connection.closed is NodeClose.SUPERSEDED


async def test_a_session_that_is_granted_elsewhere_and_never_goes_live_ends_the_older_one_at_once(
    autojump_clock: MockClock, several: MemoryEngine
) -> None:
    owner, asker, node = await two(several)
    newer = ScriptedNode.started_by(asker.fleet)
    await newer.connection.next(AuthOk)
    await until(lambda: node.connection.closed is NodeClose.SUPERSEDED)
    for process in owner, asker:
        await until(lambda process=process: process.is_told(live=False, epoch=2))  # type: ignore[misc]
    newer.connection.hang_up()
    await trio.sleep(1)
    again = await owner.session()
    assert again.actor.epoch == 3
    for process in owner, asker:
        await until(lambda process=process: process.is_told(epoch=3))  # type: ignore[misc]
