"""From a node's WebSocket to an agent's stream, both on real sockets: what crosses, and what the kill switch does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import trio

from actors.stream.settings import StreamSettings
from actors.stream.streams import Streams
from gateway.api.feature import api_feature
from gateway.calls.tool_calls import ToolCalls
from gateway.identity.tokens import Scope, TokenClass, jwks
from gateway.main.clock import now
from gateway.net.http1.door import Door
from gateway.net.router import Router
from gateway.streams.subscribe import Subscribe
from gateway.streams.subscriptions import Subscriptions
from schemas.frames import Cmd, CmdAck, CmdCancel, Frame, Telemetry
from tests.gateway.api.client import AGENT
from tests.gateway.devices.site import KEY, MINT, Dialed, dial, open_site, token
from tests.gateway.devices.site import Site as DeviceSite
from tests.gateway.streams.site import OTHER_NODE_ID, Agent, event, frame, request, subscribe_tool, until

F = TypeVar("F", bound=Frame)


@dataclass
class Both:
    """A device side and a door over one fleet, one pump, one supervisor."""

    devices: DeviceSite
    streams: Streams
    port: int
    agents: list[Agent] = field(default_factory=list)

    async def subscribe(self, **fields: object) -> Agent:
        sock = trio.socket.socket()
        self.agents.append(Agent(sock))
        await sock.connect(("127.0.0.1", self.port))
        agent = token(sub=AGENT, token_class=TokenClass.AGENT_RUNTIME, scopes=[Scope.READ_ONLY])
        await self.agents[-1].send(request(agent=agent, **fields))  # type: ignore[arg-type]
        assert b" 200 OK" in await self.agents[-1].head()
        return self.agents[-1]


@asynccontextmanager
async def both() -> AsyncIterator[Both]:
    async with open_site() as devices:
        streams = Streams(devices.supervisor, devices.fleet, StreamSettings(close_s_max=0.5))
        streams.start()

        async def ready() -> bool:
            await trio.lowlevel.checkpoint()
            return True

        def new_id() -> str:
            return MINT.mint(now().wall_ms)

        directory = devices.fleet.services.directory
        calls = ToolCalls(directory, devices.fleet, new_id, now)
        subscribe = Subscribe(Subscriptions(calls, streams, new_id, now), devices.pump)
        keys = jwks([KEY.public_key()])
        app = Router(new_id, api_feature(devices.verifier, now, directory, calls, subscribe, keys, ready).routes)
        door = Door(devices.supervisor, app, body_bytes_max=lambda _: 65536)
        here = Both(devices, streams, await door.listen("127.0.0.1", 0))
        try:
            yield here
        finally:
            for agent in here.agents:
                agent.hang_up()
        await until(lambda: (len(streams.registry), door.connections) == (0, 0))


async def hear(node: Dialed, kind: type[F]) -> F:
    while True:
        said = await node.hear()
        if isinstance(said, kind):
            return said


async def begin(node: Dialed) -> Cmd:
    cmd = await hear(node, Cmd)
    await node.say(CmdAck(msg_id=node.msg_id(), in_reply_to=cmd.msg_id, ok=True, result={}))
    return cmd


async def publish(node: Dialed, cmd: Cmd) -> bytes:
    told = frame(node.identity.node_id)
    await node.say(Telemetry(msg_id=node.msg_id(), in_reply_to=cmd.msg_id, frame=told))
    return event(node.identity.node_id)


async def test_frame_crosses_from_the_nodes_socket_to_every_stream_and_the_last_one_cancels() -> None:
    async with both() as here, dial(here.devices) as node:
        await node.go_live(here.devices)
        agents = [await here.subscribe() for _ in range(20)]
        cmd = await begin(node)
        told = await publish(node, cmd)
        assert [await agent.event() for agent in agents] == [told] * 20
        for agent in agents:
            agent.half_close()
        assert [await agent.close_code() for agent in agents] == [1000] * 20
        assert (await hear(node, CmdCancel)).in_reply_to == cmd.msg_id
        await until(lambda: here.devices.pump.sockets == 1)  # the node's


async def test_kill_switch_of_a_node_ends_its_streams_with_4503_and_no_other() -> None:
    async with both() as here, dial(here.devices, node_id=OTHER_NODE_ID) as other:
        await other.go_live(here.devices)
        async with dial(here.devices) as node:
            await node.go_live(here.devices)
            agents = [await here.subscribe() for _ in range(20)]
            spared = await here.subscribe(tool=subscribe_tool(OTHER_NODE_ID))
            told = await publish(node, await begin(node))
            assert [await agent.event() for agent in agents] == [told] * 20
            await trio.aclose_forcefully(node.tcp)
        assert [await agent.close_code() for agent in agents] == [4503] * 20
        told = await publish(other, await begin(other))
        assert await spared.event() == told


async def test_newer_session_ends_the_streams_of_the_older_with_4503() -> None:
    async with both() as here, dial(here.devices) as node:
        await node.go_live(here.devices)
        agent = await here.subscribe()
        await begin(node)
        async with dial(here.devices) as newer:
            await newer.go_live(here.devices)
            assert await agent.close_code() == 4503
            assert (await node.close_code())[0] == 4409
            again = await here.subscribe()
            told = await publish(newer, await begin(newer))
            assert await again.event() == told


async def test_stop_says_1000_to_streams_before_nodes_are_told_to_come_back() -> None:
    async with both() as here, dial(here.devices) as node:
        await node.go_live(here.devices)
        agents = [await here.subscribe() for _ in range(20)]
        await begin(node)
        here.devices.supervisor.request_stop()
        assert [await agent.close_code() for agent in agents] == [1000] * 20
        assert (await node.close_code())[0] == 1012
