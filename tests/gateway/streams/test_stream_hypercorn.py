"""The same rules over ASGI `send`: streams of HTTP/2, where hypercorn stands between a stream and its client."""

import json
from dataclasses import replace

import pytest
import trio

from actors.stream.actor import StreamActor
from actors.supervision.stop_ladder import StopSettings
from gateway.net.http1.settings import DoorSettings
from schemas.closes import NodeClose, StreamClose
from tests.gateway.streams.http2 import PING, Agent2
from tests.gateway.streams.site import FAST, SLOW, SMALL_RCVBUF, Node, Site, event, site, until


async def open_one(here: Site, window: int = 65_535) -> tuple[Node, Agent2, int]:
    node = await here.node()
    agent = Agent2(await here.connect(), window)
    stream_id = await agent.subscribe()
    await agent.opened(stream_id)
    return node, agent, stream_id


def logged_id(here: Site) -> str:
    """Of the one call that there was."""
    (line,) = [line for line in here.logged if line["event"] == "tool_call"]
    return str(line["correlation_id"])


def close(code: int, reason: str) -> bytes:
    return b'event: close\ndata: {"code":%d,"reason":"%b"}\n\n' % (code, reason.encode())


async def test_head_and_frames_are_those_of_any_stream() -> None:
    async with site() as here:
        node, agent, stream_id = await open_one(here)
        head = agent.heads[stream_id]
        assert head[b"content-type"] == b"text/event-stream; charset=utf-8"
        assert (head[b"cache-control"], head[b"x-accel-buffering"]) == (b"no-store", b"no")
        assert b"connection" not in head
        assert head[b"x-correlation-id"].decode() == logged_id(here)
        node.begin()
        for n in range(10):
            told = node.publish(cpu_pct=float(n))
            assert await agent.event(stream_id) == told


async def test_refusal_before_the_opening_is_a_status_and_an_envelope() -> None:
    async with site() as here:
        await here.node()
        agent = Agent2(await here.connect())
        stream_id = await agent.subscribe(accept="*/*")
        assert b"E_BAD_REQUEST" in await agent.rest(stream_id)
        assert agent.heads[stream_id][b":status"] == b"400"


async def test_pings_come_by_the_clock() -> None:
    async with site(FAST) as here:
        _, agent, stream_id = await open_one(here)
        while agent.told[stream_id] != PING * 3:
            await agent.read()


async def test_streams_of_one_connection_end_apart() -> None:
    async with site() as here:
        node, agent, first = await open_one(here)
        second = await agent.subscribe()
        await agent.opened(second)
        assert len(node.cadences) == 1
        node.begin()
        agent.h2.reset_stream(first)
        await agent.flush()
        await until(lambda: len(here.streams.registry) == 1)
        told = node.publish()
        assert await agent.event(second) == told
        agent.h2.reset_stream(second)
        await agent.flush()
        await until(lambda: node.cancelled == [node.cadences[0].msg_id])


async def test_client_that_vanishes_leaves_nothing_behind() -> None:
    async with site() as here:
        _, agent, _ = await open_one(here)
        await agent.subscribe()
        await until(lambda: len(here.streams.registry) == 2)
        agent.agent.reset()
        await here.no_streams()


async def test_node_that_goes_ends_the_streams_with_4503() -> None:
    async with site() as here:
        node, agent, first = await open_one(here)
        second = await agent.subscribe()
        await agent.opened(second)
        node.actor.close(NodeClose.NORMAL)
        for stream_id in (first, second):
            assert await agent.rest(stream_id) == close(4503, "device_offline")
            assert stream_id in agent.ended


async def test_stop_says_1000() -> None:
    async with site() as here:
        _, agent, stream_id = await open_one(here)
        here.supervisor.request_stop()
        assert await agent.rest(stream_id) == close(1000, "normal")


async def test_stream_past_the_tenants_quota_opens_and_is_closed_with_4429() -> None:
    async with site(replace(SLOW, streams_per_tenant_max=1)) as here:
        _, agent, _ = await open_one(here)
        over = await agent.subscribe()
        await agent.opened(over)
        assert await agent.rest(over) == close(4429, "rate_limited")


async def test_streams_of_one_agent_on_one_connection_are_counted_one_by_one() -> None:
    async with site(replace(SLOW, streams_per_agent_max=2)) as here:
        _, agent, _ = await open_one(here)
        await agent.opened(await agent.subscribe())
        over = await agent.subscribe()
        answer = await agent.rest(over)
        assert json.loads(answer)["code"] == "E_RATE_LIMITED"
        assert len(here.streams.registry) == 2


# ---- a client whose window is shut ---------------------------------------------------------------------------------


async def overfill(here: Site, node: Node) -> int:
    """Publish until the stream is closed; how many frames it took."""
    stream = here.newest
    for published in range(1, 2000):
        node.publish()
        if stream.rules.closed is not None:
            return published
        for _ in range(4):  # for the request's task and hypercorn's
            await trio.lowlevel.checkpoint()
    raise AssertionError("there is no bound to what waits for this client")


async def test_client_whose_window_is_shut_is_closed_with_4413() -> None:
    async with site(replace(SLOW, close_s_max=100.0)) as here:
        node, agent, stream_id = await open_one(here, window=100)
        node.begin()
        stream = here.newest
        published = await overfill(here, node)
        assert stream.rules.closed is StreamClose.BACKPRESSURE
        agent.h2.increment_flow_control_window(100_000, stream_id)
        await agent.flush()
        assert await agent.rest(stream_id) == event() * (published - 1) + close(4413, "backpressure")


async def test_client_whose_window_stays_shut_for_long_is_closed_with_4408() -> None:
    async with site(replace(FAST, frames_pending_max=1000, close_s_max=100.0)) as here:
        node, agent, stream_id = await open_one(here, window=100)
        node.begin()
        stream = here.newest
        published = 0
        while stream._outlet.outstanding() == 0:  # noqa: SLF001
            node.publish()
            published += 1
            for _ in range(4):
                await trio.lowlevel.checkpoint()
        await until(lambda: stream.rules.closed is StreamClose.IDLE_TIMEOUT)
        agent.h2.increment_flow_control_window(100_000, stream_id)
        await agent.flush()
        told = await agent.rest(stream_id)
        assert told.count(event()) == published
        assert told.endswith(close(4408, "idle_timeout"))


async def test_client_whose_window_stays_shut_does_not_hold_up_a_stop() -> None:
    stop = StopSettings(streams_and_calls_s_max=0.3)
    async with site(replace(SLOW, close_s_max=1000.0), stop=stop) as here:
        node, _, _ = await open_one(here, window=100)
        node.begin()
        await overfill(here, node)
        here.supervisor.request_stop()
        await here.no_streams()


async def test_stream_that_was_given_up_ends_for_its_client_too() -> None:
    async with site(replace(SLOW, close_s_max=0.1)) as here:
        node, agent, stream_id = await open_one(here, window=100)
        second = await agent.subscribe()
        await agent.opened(second)
        agent.h2.increment_flow_control_window(1_000_000, second)
        await agent.flush()
        node.begin()
        stream = next(iter(here.streams.registry))
        while stream.rules.closed is None:
            node.publish()
            for _ in range(4):
                await trio.lowlevel.checkpoint()
        await until(lambda: len(here.streams.registry) == 1)
        agent.h2.increment_flow_control_window(1_000_000, stream_id)
        await agent.flush()
        # Its last words were still on our side: what comes without them is no proper end, but an end.
        assert (await agent.rest(stream_id)).startswith(event())


async def test_client_that_does_not_read_its_socket_is_closed_with_4413_and_its_connection_ends() -> None:
    door = DoorSettings(write_s_max=0.3)
    async with site(replace(SLOW, close_s_max=0.1), door_settings=door) as here:
        node = await here.node()
        agent = Agent2(await here.connect(SMALL_RCVBUF), 2**31 - 1)
        agent.h2.increment_flow_control_window(2**31 - 1 - 65_535)
        await agent.opened(await agent.subscribe())
        node.begin()
        stream = here.newest
        while stream.rules.closed is None:
            node.publish()
            for _ in range(4):
                await trio.lowlevel.checkpoint()
        assert stream.rules.closed is StreamClose.BACKPRESSURE
        await until(lambda: not here.leftovers().keys() & {"streams", "connections", "addresses"})


# ---- our own bugs --------------------------------------------------------------------------------------------------


def break_first(here: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first stream's next frame meets a bug."""
    broken = next(iter(here.streams.registry))
    offer = StreamActor.offer

    def fail(stream: StreamActor, event: bytes, size: int, now_s: float) -> None:
        if stream is broken:
            raise ValueError("a bug")
        offer(stream, event, size, now_s)

    monkeypatch.setattr(StreamActor, "offer", fail)


async def test_crash_of_one_stream_ends_it_without_a_close_event(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(crashes=["stream"]) as here:
        node, agent, first = await open_one(here)
        second = await agent.subscribe()
        await agent.opened(second)
        node.begin()
        break_first(here, monkeypatch)
        told = node.publish()
        assert await agent.event(second) == told
        assert await agent.rest(first) == b""
        assert (here.streams.crashes, here.streams.closes.total()) == (1, 0)
