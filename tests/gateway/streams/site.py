"""A gateway with a real door on 127.0.0.1, nodes spoken by script, and agents with streams on sockets of their own.

Leaving the site checks that nothing is left of any stream: no actor, connection, task, file descriptor or cadence.
"""

import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing
from structlog.testing import capture_logs
from structlog.typing import EventDict

from actors.node.fleet import Fleet
from actors.node.services import Authenticated
from actors.node.settings import NodeSettings
from actors.stream.actor import StreamActor
from actors.stream.settings import StreamSettings
from actors.stream.streams import Streams
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage, StopSettings
from actors.supervision.supervisor import Supervisor
from gateway.api.feature import api_feature
from gateway.calls.tool_calls import ToolCalls
from gateway.identity.tokens import Verifier, jwks, key_id
from gateway.main.data_folder import DataFolder
from gateway.net.exchange import BODY_BYTES_MAX
from gateway.net.http1.door import Door
from gateway.net.http1.settings import DoorSettings
from gateway.net.pump import Pump
from gateway.net.router import Router
from gateway.streams.subscribe import Subscribe
from gateway.streams.subscriptions import Subscriptions
from schemas.closes import NodeClose, StreamClose
from schemas.frames import AnnounceAck, AuthOk, Cmd, CmdCancel, ResumeOk, Telemetry
from schemas.manifest import NodeIdentity
from schemas.sse import close_event, metric_event
from tests import transport
from tests.actors.node.harness import TOKEN_ID, FakeConnection, Gateway, ScriptedNode, now
from tests.gateway.api.client import KEY, new_id, token
from tests.gateway.api.operators import admin_of
from tests.schemas.attested import TENANT, leaf
from tests.schemas.examples import ACK_ID, FRAME, METRICS_CAPABILITY, NODE_ID

PATIENCE_S = 20.0
OTHER_NODE_ID = "01hzx9k3m4p7q8r9s0t1v2w3xz"
SMALL_RCVBUF = 2304  # the least that Linux grants: some frames, then the window is shut
STALL_S = 0.25  # longer than any delayed ACK: what is not acknowledged by then is not going to be
FAST = StreamSettings(ping_s=0.2, idle_s_max=0.5, close_s_max=0.5)
SLOW = StreamSettings(ping_s=100.0, idle_s_max=100.0, close_s_max=0.5)
"""Nothing happens by itself."""
_LEAFS = {NODE_ID: leaf(), OTHER_NODE_ID: leaf(OTHER_NODE_ID)}
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def frame(node_id: str = NODE_ID, **changes: Any) -> dict[str, Any]:
    return FRAME | {"node_id": node_id} | changes


def event(node_id: str = NODE_ID, **changes: Any) -> bytes:
    return metric_event(frame(node_id, **changes))


class Node(ScriptedNode):
    """One session of a node. It says nothing by itself."""

    def __init__(self, fleet: Fleet, node_id: str) -> None:
        self.node_id = node_id
        proved = Authenticated(NodeIdentity(node_id, TENANT), ACK_ID, TOKEN_ID, now().wall_ms + 86_400_000)
        connection = FakeConnection()
        actor, _ = fleet.start_session(proved, connection, lambda _: None)
        super().__init__(connection, actor)

    async def dial_in(self) -> None:
        await self.connection.next(AuthOk)
        capabilities = [METRICS_CAPABILITY | {"constraints": {"rate_limit_rps": 1000}}]
        self.announce(node_id=self.node_id, by=_LEAFS[self.node_id], capabilities=capabilities)
        await self.connection.next(AnnounceAck)
        self.resume()
        await self.connection.next(ResumeOk)

    @property
    def cadences(self) -> list[Cmd]:
        """The `subscribe` commands that it was sent."""
        return [sent for sent in self.connection.sent if isinstance(sent, Cmd)]

    @property
    def cancelled(self) -> list[str | None]:
        return [sent.in_reply_to for sent in self.connection.sent if isinstance(sent, CmdCancel)]

    def begin(self, cadence: int = -1) -> Cmd:
        """Acknowledge a cadence, the newest unless told otherwise."""
        cmd = self.cadences[cadence]
        self.ack(cmd, {})
        return cmd

    def publish(self, cadence: int = -1, **changes: Any) -> bytes:
        """A frame for a cadence; the event that it becomes."""
        told = frame(**{"node_id": self.node_id} | changes)
        self.say(Telemetry(msg_id=self.msg_id(), in_reply_to=self.cadences[cadence].msg_id, frame=told))
        return metric_event(told)


@dataclass
class Agent:
    """A client on a socket of its own, which reads only when it is told to."""

    sock: trio.socket.SocketType | transport.TlsClientSocket
    buffer: bytearray = field(default_factory=bytearray)

    async def send(self, data: bytes) -> None:
        sent = 0
        while sent < len(data):
            sent += await self.sock.send(data[sent:])

    async def _more(self) -> None:
        data = await self.sock.recv(4096)
        if not data:
            raise EOFError(bytes(self.buffer))
        self.buffer += data

    async def until(self, end: bytes) -> bytes:
        while end not in self.buffer:
            await self._more()
        size = self.buffer.index(end) + len(end)
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        return data

    async def head(self) -> bytes:
        return await self.until(b"\r\n\r\n")

    async def event(self) -> bytes:
        """The next event that is no ping."""
        while True:
            told = await self.until(b"\n\n")
            if told != b"event: ping\ndata: {}\n\n":
                return told

    async def answer(self) -> tuple[int, dict[str, Any]]:
        """Status and body of an answer that is no stream."""
        status, *lines = (await self.head()).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        while len(self.buffer) < int(headers["content-length"]):
            await self._more()
        return int(status.split()[1]), json.loads(self.buffer)

    async def rest(self) -> bytes:
        """Everything up to the end of file."""
        while data := await self.sock.recv(4096):
            self.buffer += data
        return bytes(self.buffer)

    async def close_code(self) -> int:
        """Of the close event, behind which there is nothing; frames and pings before it are skipped."""
        *_, last, nothing = (await self.rest()).split(b"\n\n")
        assert nothing == b""
        (code,) = (close.value.code for close in StreamClose if close_event(close) == last + b"\n\n")
        return code

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.sock.close()

    def hang_up(self) -> None:
        self.sock.close()


def request(
    tool: str | None = None,
    arguments: Any = None,
    agent: str | None = "",
    accept: str | None = "text/event-stream",
    version: str = "1.1",
    **headers: str,
) -> bytes:
    body = json.dumps({"tool": tool or subscribe_tool(), "arguments": {} if arguments is None else arguments}).encode()
    fields = {"host": "test", "content-length": str(len(body))} | {k.replace("_", "-"): v for k, v in headers.items()}
    if agent is not None:
        fields["authorization"] = f"Bearer {agent or token()}"
    if accept is not None:
        fields["accept"] = accept
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST /mcp/tools/call HTTP/{version}\r\n{lines}\r\n".encode() + body


def subscribe_tool(node_id: str = NODE_ID) -> str:
    return f"sys.{node_id}.metrics.subscribe"


@dataclass
class Site:
    supervisor: Supervisor
    fleet: Fleet
    streams: Streams
    pump: Pump
    door: Door
    port: int
    logged: list[EventDict]
    counts: Callable[[str], int]
    agents: list[Agent] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    async def connect(self, rcvbuf: int | None = None) -> Agent:
        sock = trio.socket.socket()
        if rcvbuf is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        await sock.connect(("127.0.0.1", self.port))
        self.agents.append(Agent(await transport.secured(sock)))
        return self.agents[-1]

    async def ask(self, **fields: Any) -> Agent:
        agent = await self.connect(fields.pop("rcvbuf", None))
        await agent.send(request(**fields))
        return agent

    async def subscribe(self, **fields: Any) -> Agent:
        """A stream that is open: the head has been read."""
        agent = await self.ask(**fields)
        assert (await agent.head()).startswith(b"HTTP/1.1 200 OK\r\n")
        return agent

    async def node(self, node_id: str = NODE_ID) -> Node:
        node = Node(self.fleet, node_id)
        await node.dial_in()
        self.nodes.append(node)
        return node

    @property
    def newest(self) -> StreamActor:
        return list(self.streams.registry)[-1]

    async def acked(self) -> None:
        """Until every open stream's client has acknowledged everything."""
        await until(lambda: not any(outstanding(stream) for stream in self.streams.registry))

    async def stall(self, node: Node, stream: StreamActor) -> int:
        """Publish until a frame is not acknowledged; how many that took. Its stream has one pending frame then."""
        for published in range(1, 100):
            node.publish()
            with trio.move_on_after(STALL_S):
                await until(lambda: outstanding(stream) == 0)
                continue
            return published
        raise AssertionError("the client's buffer has no end")

    async def no_streams(self) -> None:
        await until(lambda: len(self.streams.registry) == 0)

    def leftovers(self) -> dict[str, int]:
        left = {
            "streams": len(self.streams.registry),
            "tenants": len(self.streams._per_tenant),  # noqa: SLF001
            "agents": len(self.streams._per_agent),  # noqa: SLF001
            "audiences": len(self.streams._audiences),  # noqa: SLF001
            "fan_out": len(self.streams._fan_out._audiences),  # noqa: SLF001
            "connections": self.door.connections,
            "addresses": self.door._addresses.count,  # noqa: SLF001
            "sockets": self.pump.sockets,
            "cadences": sum(len(node.actor.cadences) for node in self.nodes),
        }
        return {what: count for what, count in left.items() if count}


def outstanding(stream: StreamActor) -> int:
    return stream._outlet.outstanding()  # noqa: SLF001


def server_socket(stream: StreamActor) -> socket.socket:
    sock: socket.socket = stream._outlet._sock  # type: ignore[attr-defined]  # noqa: SLF001
    return sock


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


async def until(condition: Callable[[], bool]) -> None:
    """Let the others run until it holds; whoever waits has a limit around it."""
    while not condition():  # noqa: ASYNC110  # no event tells what a kernel has acknowledged
        await trio.sleep(0.001)


@asynccontextmanager
async def site(
    settings: StreamSettings = SLOW,
    *,
    node_settings: NodeSettings | None = None,
    door_settings: DoorSettings | None = None,
    stop: StopSettings | None = None,
    folder: DataFolder | None = None,
    crashes: Collection[str] = (),
    patience_s: float = PATIENCE_S,
) -> AsyncIterator[Site]:
    """`crashes` names the actors that are to crash; no other may."""
    gateway = Gateway(settings=node_settings or NodeSettings(cadence_gap_min=0.0, frames_per_s_max=100_000))
    for known_leaf in _LEAFS.values():
        gateway.services.certificates.learn(known_leaf)
    with trio.fail_after(patience_s), capture_logs() as logged:
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor(stop=stop)
            await nursery.start(supervisor.run)
            services = gateway.services
            fleet, pump = Fleet(supervisor, services), Pump()
            streams = Streams(supervisor, fleet, settings)
            supervisor.start(ChildSpec(name="pump", run=pump.run, kind=Kind.PERMANENT, stage=Stage.CORE))
            streams.start()
            fleet.keep_deadlines()  # else the first node would, after the tasks have been counted
            key = KEY.public_key()
            verifier = folder.verifier if folder else Verifier({key_id(key): key}, issuer="test", audience="test")
            calls = ToolCalls(services.directory, fleet, new_id, now)
            subscribe = Subscribe(Subscriptions(calls, streams, new_id, now), pump)
            others = [admin_of(folder, fleet, streams).routes] if folder else []
            api = api_feature(verifier, now, services.directory, calls, subscribe, jwks([key]), _ready)
            app = Router(new_id, api.routes, *others)
            door = Door(
                supervisor,
                app,
                body_bytes_max=lambda _: BODY_BYTES_MAX,
                settings=door_settings,
                tls=transport.server(),
            )
            port = await door.listen("127.0.0.1", 0)
            here = Site(supervisor, fleet, streams, pump, door, port, logged, lambda what: gateway.counts[what])
            await trio.testing.wait_all_tasks_blocked()
            tasks_before, files_before = tasks(), files()
            try:
                yield here
            finally:
                for agent in here.agents:
                    agent.hang_up()
            for node in here.nodes:
                node.actor.close(NodeClose.NORMAL)
                node.connection.hang_up()
            try:
                await until(lambda: not here.leftovers() and files() <= files_before and tasks() <= tasks_before)
            except trio.Cancelled:
                print("left:", here.leftovers(), "files", files() - files_before, "tasks", tasks() - tasks_before)
                raise
            nursery.cancel_scope.cancel()
        pump.close()
    crashed = {entry["actor"] for entry in logged if entry["event"] == "actor_crashed"}
    assert crashed == set(crashes)
    assert [entry for entry in logged if entry["event"] in ("actor_end_failed", "request_failed")] == []


async def _ready() -> bool:
    await trio.lowlevel.checkpoint()
    return True
