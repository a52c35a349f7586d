"""The server under test: a whole gateway with one live node, and a publisher in place of that node's telemetry.

Streams are opened through the door with a real token. The node itself sends a frame a minute; what saturates comes from
the load, as stamps: each becomes a frame, given to the node's cadence where the reader of the node's socket would have
given it. From `Cadence.publish` on all is production code with every rule on.
"""

import tempfile
import uuid
from pathlib import Path
from random import Random

import msgspec
import trio
from ulid import ULID

from actors.device.agent import Agent
from actors.device.device import standard_device
from actors.device.identity import DeviceIdentity, hw_fingerprint
from actors.device.memory_journal import JournalDisk, MemoryJournal
from actors.device.mock_sampler import MockSampler
from actors.device.websocket import WebSocketDialer
from actors.node.actor import NodeActor
from bench.fanout.frame import frame, open_fifo, stamps
from bench.unlimited_policy import unlimited_policy
from gateway.commands.node_run import wall_ms
from gateway.identity.tokens import Scope, TokenClass
from gateway.main.server import Running, running
from gateway.main.settings import load
from gateway.observe.log_output import LogSettings, log_to

TENANT = "bench"
INTERVAL_MS = 60_000
LIMITS = {
    "door.connections_per_address_max": 20_000,
    "door.connections_max": 20_000,
    "stream.streams_per_agent_max": 20_000,
}


async def serve(fifo: str, pem: str | None) -> None:
    log_to(LogSettings(format="json"))  # as in production; the bench throws it away
    with tempfile.TemporaryDirectory() as folder:
        flags = {"data": folder, "http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"}
        flags["governance.policy"] = unlimited_policy(Path(folder))
        if pem is not None:
            flags |= {"http.tls_certificate": pem, "http.tls_key": pem}
        async with running(load(None, {}, flags | LIMITS)) as gateway, trio.open_nursery() as nursery:
            identity = gateway.folder.enroll(str(ULID()).lower(), TENANT, str(ULID()), wall_ms())
            nursery.start_soon(be_a_node, identity, gateway.device_address)
            node = await live(gateway, identity.node_id)
            print(gateway.http.rpartition(":")[2], request(gateway, node).hex(), flush=True)
            await publish(node, fifo)


async def be_a_node(identity: DeviceIdentity, address: str) -> None:
    device = standard_device(identity, hw_fingerprint("bench", None), MockSampler(1, wall_ms()), wall_ms)
    async with trio.open_nursery() as nursery:
        dial = WebSocketDialer(nursery, f"ws://{address}/devices/connect")
        await Agent(device, journal=MemoryJournal(JournalDisk()), connect=dial, wall_ms=wall_ms, rng=Random()).run()


async def live(gateway: Running, node_id: str) -> NodeActor:
    while True:
        node = gateway.devices.fleet.nodes.find(node_id)
        if node is not None and node.is_live:
            return node
        await trio.sleep(0.02)


def token_of(gateway: Running) -> str:
    """Of a new agent, which may read."""
    sub = f"agent_{uuid.uuid4()}"
    return gateway.folder.mint(TokenClass.AGENT_RUNTIME, sub, TENANT, [Scope.READ_ONLY], 3600, str(ULID()), wall_ms())


def request(gateway: Running, node: NodeActor) -> bytes:
    token = token_of(gateway)
    tool = f"sys.{node.identity.node_id}.metrics.subscribe"
    body = msgspec.json.encode({"tool": tool, "arguments": {"interval_ms": INTERVAL_MS}})
    head = (
        f"POST /mcp/tools/call HTTP/1.1\r\nHost: {gateway.http}\r\nAccept: text/event-stream\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def publish(node: NodeActor, fifo: str) -> None:
    async for data in trio.lowlevel.FdStream(open_fifo(fifo)):
        for stamp in stamps(data):
            # The bench stands where the node's reader does.
            for cadence in list(node.cadences._by_msg_id.values()):  # noqa: SLF001
                for listener in list(cadence.listeners):
                    listener.on_frame(frame(stamp, node.identity.node_id))


def main(fifo: str, pem: str | None = None) -> None:
    trio.run(serve, fifo, pem)
