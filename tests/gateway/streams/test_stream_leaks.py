"""Nothing is left of a stream, however its client goes, and however many have come and gone."""

import gc
import resource
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from actors.stream.actor import StreamActor
from actors.supervision.stop_ladder import Stage
from gateway.streams.stream_socket import StreamSocket
from schemas.closes import NodeClose
from tests.gateway.streams.site import (
    SLOW,
    SMALL_RCVBUF,
    Agent,
    Node,
    Site,
    event,
    files,
    request,
    site,
    tasks,
    until,
)

pytestmark = pytest.mark.usefixtures("transport")

PATIENT = replace(SLOW, close_s_max=1000.0)
"""Whoever waits for an acknowledgement that cannot come fails the test."""


@pytest.mark.parametrize("how", ["hang_up", "reset"])
async def test_client_that_is_gone_is_not_waited_for(how: str) -> None:
    async with site(PATIENT) as here:
        node = await here.node()
        agent = await here.subscribe()
        getattr(agent, how)()
        await here.no_streams()
        assert node.cancelled == [node.cadences[0].msg_id]


# ---- how clients go ------------------------------------------------------------------------------------------------

MOMENTS = [
    "connected",
    "half_asked",
    "asked",
    "opened",
    "while_a_frame_is_published",
    "after_a_frame",
    "with_unread_frames",
    "stalled",
    "after_its_own_half_close",
    "after_the_close_event",
    "while_others_are_served",
]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("how", ["hang_up", "reset"])
async def test_client_may_go_at_any_moment(how: str, moment: str) -> None:
    async with site(PATIENT) as here:
        node = await here.node()
        listener = await here.subscribe()
        node.begin()
        agent = await here.connect(SMALL_RCVBUF)
        await get_to(moment, here, node, agent)
        getattr(agent, how)()
        if moment == "while_others_are_served":
            node.publish(cpu_pct=1.0)
        if moment == "after_the_close_event":
            await here.no_streams()
            return
        others = 20 if moment == "while_others_are_served" else 0
        await until(lambda: here.door.connections == 0 and len(here.streams.registry) == 1 + others)
        assert (len(node.cadences), node.cancelled) == (1, [])
        last = node.publish(cpu_pct=99.0)
        while await listener.event() != last:
            pass


async def get_to(moment: str, here: Site, node: Node, agent: Agent) -> None:
    if moment == "connected":
        return
    if moment == "half_asked":
        await agent.send(request()[:-5])
        await until(lambda: here.door.connections == 1)
        return
    await agent.send(request())
    if moment == "asked":
        await until(lambda: here.door.connections == 1)
        return
    await agent.head()
    stream = here.newest
    match moment:
        case "while_a_frame_is_published":
            node.publish()
        case "after_a_frame":
            node.publish()
            await agent.event()
            await here.acked()
        case "with_unread_frames":
            node.publish(), node.publish()
            await here.acked()
        case "stalled":
            await here.stall(node, stream)
        case "after_its_own_half_close":
            agent.half_close()
            await until(lambda: stream.rules.closed is not None)
        case "after_the_close_event":
            node.actor.close(NodeClose.NORMAL)
        case "while_others_are_served":
            for _ in range(20):
                await here.subscribe()
            node.publish()  # more than are served at once: they wait for the fan-out


async def test_stream_that_has_ended_is_freed_without_a_search_for_cycles() -> None:
    async with site() as here:
        await here.node()
        agent = await here.subscribe()
        left = weakref.WeakSet[object]([here.newest.handle])
        gc.disable()
        try:
            agent.half_close()
            assert await agent.close_code() == 1000
            agent.hang_up()
            await here.no_streams()
            await until(lambda: not left)
        finally:
            gc.enable()


# ---- bugs of our own -----------------------------------------------------------------------------------------------


async def test_crash_while_reading_ends_that_stream_alone_without_a_close_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site(crashes=["stream"]) as here:
        node = await here.node()
        agent, other = await here.subscribe(), await here.subscribe()
        broken = next(iter(here.streams.registry))._outlet  # noqa: SLF001
        on_readable = StreamSocket.on_readable

        def fail(outlet: StreamSocket) -> None:
            if outlet is broken:
                raise ValueError("a bug")
            on_readable(outlet)

        monkeypatch.setattr(StreamSocket, "on_readable", fail)
        await agent.send(b"x")
        await until(lambda: len(here.streams.registry) == 1)
        assert b"event" not in await everything(agent)
        node.begin()
        node.publish()
        assert await other.event() == event()


@pytest.mark.parametrize("listeners", [2, 40])
@pytest.mark.parametrize("what", ["offer", "close"])
async def test_crash_while_served_ends_that_stream_alone_without_a_close_event(
    monkeypatch: pytest.MonkeyPatch, listeners: int, what: str
) -> None:
    async with site(crashes=["stream"]) as here:
        node = await here.node()
        agents = [await here.subscribe()]
        node.begin()  # it has five seconds for that, and so many handshakes may take as long
        agents += [await here.subscribe() for _ in range(listeners - 1)]
        broken = list(here.streams.registry)[1]
        whole = getattr(StreamActor, what)

        def fail(stream: StreamActor, *arguments: object) -> None:
            if stream is broken:
                raise ValueError("a bug")
            whole(stream, *arguments)

        monkeypatch.setattr(StreamActor, what, fail)
        crashed = agents.pop(1)
        if what == "offer":
            node.publish()
            assert [await agent.event() for agent in agents] == [event()] * len(agents)
        else:
            node.actor.close(NodeClose.NORMAL)
            assert [await agent.close_code() for agent in agents] == [4503] * len(agents)
        assert await everything(crashed) == b""
        monkeypatch.undo()


async def everything(agent: Agent) -> bytes:
    try:
        return await agent.rest()
    except OSError:  # reset, for what it had sent was not read
        return bytes(agent.buffer)


async def test_stream_that_cannot_be_started_any_more_leaves_nothing_behind() -> None:
    """The request was accepted, then a stop began: between the two no stream may be lost."""
    async with site() as here:
        node = await here.node()
        agent = await here.connect()
        await agent.send(request()[:-5])
        await until(lambda: here.door.connections == 1)
        here.supervisor.request_stop()
        await until(lambda: here.supervisor._asked >= {Stage.STREAMS})  # noqa: SLF001
        await agent.send(request()[-5:])
        with trio.move_on_after(1):
            await everything(agent)
        assert here.leftovers().get("streams", 0) == 0
        assert len(node.cadences) == len(node.cancelled)


# ---- many ----------------------------------------------------------------------------------------------------------

STREAMS = 10_000
AT_ONCE = 200
WARM_UP = 5


async def test_ten_thousand_streams_that_came_and_went_leave_nothing_behind(transport: str) -> None:
    """A third half-close, a third hang up, a third are reset; each has had a frame. Over TLS, which costs each a
    handshake, a tenth of them: too few to tell by the process's memory."""
    streams, at_once = (STREAMS, AT_ONCE) if transport == "plain" else (STREAMS // 10, AT_ONCE // 10)
    async with site(patience_s=120.0) as here:
        node = await here.node()
        asking = request()
        begun: tuple[int, int] | None = None
        gc.collect()  # of what tests before this one left, pumps with their epolls among it
        tasks_before, files_before = tasks(), files()
        for batch in range(streams // at_once):
            agents = [await open_quickly(here, asking) for _ in range(at_once)]
            await until(lambda: len(here.streams.registry) == at_once)
            assert (tasks() - tasks_before, here.door.connections) == (at_once, 0)
            node.begin()
            node.publish()
            for agent in agents:
                await agent.until(b"\n\n")
            for n, agent in enumerate(agents):
                (agent.half_close, agent.hang_up, agent.reset)[n % 3]()
            await here.no_streams()
            for agent in agents:
                agent.hang_up()
            here.agents.clear()
            assert (here.leftovers(), tasks(), files()) == ({}, tasks_before, files_before)
            here.logged.clear()
            node.connection.sent.clear()
            if batch == WARM_UP:  # caches and pools have their size by now
                begun = objects(), resident_bytes()
        assert begun is not None
        grown = streams - WARM_UP * at_once
        unswept = (
            0 if transport == "plain" else 2_000
        )  # trio sweeps its used deadlines by the thousand, two objects each
        assert objects() - begun[0] < grown / 2 + unswept
        assert transport == "tls" or resident_bytes() - begun[1] < grown * 200  # not even one small object for each


def objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def open_quickly(here: Site, asking: bytes) -> Agent:
    agent = await here.connect()
    await agent.send(asking)
    return agent
