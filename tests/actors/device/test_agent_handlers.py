"""Handlers under the agent: stopped, broken, stuck or exiting, they cost their command and nothing else."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import actors.device.agent as agent_module
from actors.device.agent import Agent
from actors.device.memory_journal import MemoryJournal
from schemas.frames import CmdAck, Heartbeat
from tests.actors.device.conftest import World
from tests.actors.device.gateway import wall_ms
from tests.actors.device.node import ECHO, ECHO_SLOTS, HANDLER_S, SNAPSHOT, SUBSCRIBE, cid, result_of
from tests.actors.device.omissions import UntruthfulExecution, agent_with, rules_with
from tests.actors.device.test_agent_commands import Slow, live, said


async def test_a_handler_is_stopped_after_its_time(autojump_clock: MockClock, world: World) -> None:
    world.handlers[ECHO] = Slow(60)
    peer = await live(world)
    began = trio.current_time()
    assert said(await peer.call(1)) == (cid(1), False, "E_DEADLINE_EXCEEDED", True)
    assert trio.current_time() - began == HANDLER_S


async def test_a_cancelled_handler_acks_when_it_has_stopped(autojump_clock: MockClock, world: World) -> None:
    async def slow_to_stop(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.5)

    world.handlers[ECHO] = slow_to_stop
    peer = await live(world)
    peer.command(1)
    await trio.sleep(1.0)
    peer.cancel(1)
    sent_at, ack = await peer.expect_timed(CmdAck)
    assert said(ack) == (cid(1), False, "E_INTERNAL", True)
    assert sent_at == 1.5


async def test_a_handler_that_finishes_although_it_was_stopped_is_believed(
    autojump_clock: MockClock, world: World
) -> None:
    async def stubborn(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        with trio.CancelScope(shield=True):
            await trio.sleep(HANDLER_S + 1)
        return result_of()

    world.handlers[ECHO] = stubborn
    peer = await live(world)
    assert said(await peer.call(1)) == (cid(1), True, None, None)


async def raises(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    await trio.lowlevel.checkpoint()
    raise RuntimeError("broken")


async def raises_group(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(raises, {})
    raise AssertionError("not reached")


async def raises_when_stopped(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        await trio.sleep_forever()
    finally:
        raise RuntimeError("broken")


async def returns_nonsense(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    await trio.lowlevel.checkpoint()
    return {"message": "hello"}


async def returns_nothing(_arguments: Mapping[str, Any]) -> Any:
    await trio.lowlevel.checkpoint()


class NotEvenAnError(BaseException):
    """As asyncio's CancelledError is, say."""


async def exits(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    await trio.lowlevel.checkpoint()
    raise SystemExit(3)


async def raises_no_exception(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    await trio.lowlevel.checkpoint()
    raise NotEvenAnError


async def exits_in_a_group(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exits, {})
        nursery.start_soon(raises, {})
    raise AssertionError("not reached")


BROKEN = [raises, raises_group, exits, raises_no_exception, exits_in_a_group, returns_nonsense, returns_nothing]


@pytest.mark.parametrize("handler", BROKEN)
async def test_a_handler_that_crashes_fails_its_command_and_nothing_else(
    autojump_clock: MockClock, world: World, handler: Any
) -> None:
    world.handlers[ECHO] = handler
    peer = await live(world)
    assert said(await peer.call(1)) == (cid(1), False, "E_INTERNAL", True)
    assert (await peer.call(2, SNAPSHOT, {})).ok
    assert world.failure is None


async def test_a_handler_that_crashes_when_it_is_stopped_was_stopped(autojump_clock: MockClock, world: World) -> None:
    world.handlers[ECHO] = raises_when_stopped
    peer = await live(world)
    assert said(await peer.call(1)) == (cid(1), False, "E_DEADLINE_EXCEEDED", True)


async def test_ctrl_c_in_a_handler_stops_the_agent(
    autojump_clock: MockClock, nursery: trio.Nursery, world: World
) -> None:
    async def interrupted(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        await trio.lowlevel.checkpoint()
        raise KeyboardInterrupt

    world.handlers[ECHO] = interrupted
    connect = world.gateway.connect
    agent = Agent(world.device(), journal=MemoryJournal(world.disk), connect=connect, wall_ms=wall_ms, rng=Random(1))

    async def call() -> None:
        (await world.gateway.accept_live()).command(1)

    nursery.start_soon(call)
    with pytest.raises(BaseExceptionGroup) as raised:
        await agent.run()
    assert raised.value.subgroup(KeyboardInterrupt) is not None


async def test_agent_that_is_stopped_is_stopped_whatever_its_handlers_raise_then(
    autojump_clock: MockClock, world: World
) -> None:
    async def exits_when_stopped(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise SystemExit(3)

    world.handlers[ECHO] = exits_when_stopped
    process = world.start()
    peer = await world.gateway.accept_live()
    peer.command(1)
    await trio.sleep(0.1)
    process.cancel()
    await wait_all_tasks_blocked()
    assert peer.wire.said_goodbye == (1000, "normal")
    assert world.failure is None


async def test_a_result_that_fits_no_frame_is_a_failure(
    autojump_clock: MockClock, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "RESULT_BYTES_MAX", 50)
    peer = await live(world)
    assert said(await peer.call(1)) == (cid(1), False, "E_INTERNAL", True)


@pytest.mark.parametrize("handler", BROKEN)
async def test_a_sampler_that_crashes_costs_frames_and_nothing_else(
    autojump_clock: MockClock, world: World, handler: Any
) -> None:
    world.handlers[SUBSCRIBE] = handler
    peer = await live(world)
    assert (await peer.call(1, SUBSCRIBE, {"interval_ms": 1000})).ok
    assert (await peer.call(2)).ok
    await peer.expect(Heartbeat)


async def test_a_sampler_that_hangs_is_given_up_and_tried_again(autojump_clock: MockClock, world: World) -> None:
    tries: list[float] = []

    async def hangs_twice(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        tries.append(trio.current_time())
        if len(tries) < 3:
            await trio.sleep_forever()
        return await world.device().handlers[SNAPSHOT]({})  # unsound for a frame: only the times matter here

    world.handlers[SUBSCRIBE] = hangs_twice
    peer = await live(world)
    await peer.call(1, SUBSCRIBE, {"interval_ms": 1500})
    await trio.sleep(10.0)
    assert tries[:4] == [0.0, 3.0, 6.0, 7.5]


async def test_no_more_than_max_concurrency_run_at_once(autojump_clock: MockClock, world: World) -> None:
    slow = world.handlers[ECHO] = Slow(1.0)
    peer = await live(world)
    for number in range(1, ECHO_SLOTS + 3):
        peer.command(number, arguments={"message": str(number)})
    for _ in range(ECHO_SLOTS + 2):
        assert (await peer.expect(CmdAck)).ok
    assert slow.began == [
        *((0.0, str(number)) for number in range(1, ECHO_SLOTS + 1)),
        *((1.0, str(number)) for number in range(ECHO_SLOTS + 1, ECHO_SLOTS + 3)),
    ]


async def test_an_omission_of_the_simulation_reaches_the_rules(autojump_clock: MockClock, world: World) -> None:
    world.agent_class = agent_with(rules_with(UntruthfulExecution))
    world.handlers[ECHO] = raises
    peer = await live(world)
    assert said(await peer.call(1)) == (cid(1), False, "E_INTERNAL", False)
