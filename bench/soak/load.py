"""Who uses the gateway: nodes that come and go, callers, streams of which some are never read, rooms, a policy that
is written anew. Everything is random by one seed, and everything ends and begins again."""

import json
import socket
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import trio
from trio_websocket import ConnectionClosed, HandshakeError, WebSocketConnection, open_websocket_url
from ulid import ULID

from actors.device.agent import Agent
from actors.device.device import standard_device
from actors.device.identity import DeviceIdentity, hw_fingerprint
from actors.device.memory_journal import JournalDisk, MemoryJournal
from actors.device.mock_sampler import MockSampler
from actors.device.websocket import WebSocketDialer
from gateway.commands.node_run import wall_ms
from gateway.identity.tokens import Scope, TokenClass
from gateway.main.data_folder import DataFolder

TENANT = "soak"
STALLED_SHARE = 0.1
STALLED_BUFFER_BYTES = 4096
ANSWER_S_MAX = 10.0
POLICY = '[[agents]]\nagent = "*"\ntools = ["**"]\nbudget = {budget}\n'


@dataclass
class Who:
    """What was made before the gateway started."""

    identities: list[DeviceIdentity]
    tokens: list[str]


def made(folder: Path, nodes: int, agents: int) -> Who:
    with DataFolder.hold(folder, wall_ms()) as held:
        ids = [held.enroll(str(ULID()).lower(), TENANT, str(ULID()), wall_ms()) for _ in range(nodes)]
        tokens = [
            held.mint(
                TokenClass.AGENT_RUNTIME,
                f"agent_{uuid.uuid4()}",
                TENANT,
                [Scope.READ_ONLY],
                86_400,
                str(ULID()),
                wall_ms(),
            )
            for _ in range(agents)
        ]
    return Who(ids, tokens)


@dataclass
class Load:
    http: str
    devices: str
    who: Who
    policy: Path
    rng: Random
    counts: Counter[str] = field(default_factory=Counter)
    took_ms: list[float] = field(default_factory=list)  # of calls since the last sample
    live: set[str] = field(default_factory=set)

    # ---- nodes ------------------------------------------------------------------------------------------------------

    async def node(self, identity: DeviceIdentity) -> None:
        """It comes, stays for a while and goes, by and by again."""
        while True:
            with trio.move_on_after(self.rng.uniform(20, 180)):
                device = standard_device(identity, hw_fingerprint("soak", None), MockSampler(1, wall_ms()), wall_ms)
                async with trio.open_nursery() as nursery:
                    dial = WebSocketDialer(nursery, f"ws://{self.devices}/devices/connect")
                    self.live.add(identity.node_id)
                    self.counts["nodes that came"] += 1
                    journal = MemoryJournal(JournalDisk())
                    await Agent(device, journal=journal, connect=dial, wall_ms=wall_ms, rng=Random()).run()
            self.live.discard(identity.node_id)
            await trio.sleep(self.rng.uniform(1, 10))

    # ---- calls and streams ------------------------------------------------------------------------------------------

    def _ask(self, token: str, tool: str, arguments: object, accept: str = "application/json") -> bytes:
        body = json.dumps({"tool": tool, "arguments": arguments}).encode()
        head = (
            f"POST /mcp/tools/call HTTP/1.1\r\nHost: {self.http}\r\nAccept: {accept}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def _dial(self, buffer_bytes: int | None = None) -> trio.SocketStream:
        host, _, port = self.http.rpartition(":")
        sock = trio.socket.socket()
        if buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        await sock.connect((host, int(port)))
        return trio.SocketStream(sock)

    async def caller(self, token: str) -> None:
        while True:
            try:
                async with await self._dial() as stream:
                    for _ in range(self.rng.randrange(1, 200)):
                        await self._call(stream, token)
                        await trio.sleep(self.rng.uniform(0, 0.1))
            except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
                self.counts[f"calls broken: {type(error).__name__}"] += 1
                await trio.sleep(0.5)

    async def _call(self, stream: trio.SocketStream, token: str) -> None:
        if not self.live:
            await trio.sleep(0.5)
            return
        node = self.rng.choice(sorted(self.live))
        began_s = time.perf_counter()
        with trio.fail_after(ANSWER_S_MAX):
            await stream.send_all(self._ask(token, f"sysecho.{node}.echo.invoke", {"message": "soak"}))
            status = await _answer(stream)
        self.counts[f"calls answered {status}"] += 1
        if status == 200:
            self.took_ms.append((time.perf_counter() - began_s) * 1000)

    async def stream(self, token: str) -> None:
        while True:
            if not self.live:
                await trio.sleep(0.5)
                continue
            await trio.sleep(self.rng.uniform(0.1, 2))
            node, is_stalled = self.rng.choice(sorted(self.live)), self.rng.random() < STALLED_SHARE
            ask = self._ask(token, f"sys.{node}.metrics.subscribe", {"interval_ms": 1000}, "text/event-stream")
            try:
                async with await self._dial(STALLED_BUFFER_BYTES if is_stalled else None) as connection:
                    await connection.send_all(ask)
                    if not (await connection.receive_some(4096)).startswith(b"HTTP/1.1 200"):
                        self.counts["streams refused"] += 1  # its node is not there yet, or no longer
                        await trio.sleep(1)
                        continue
                    self.counts["streams stalled" if is_stalled else "streams opened"] += 1
                    with trio.move_on_after(self.rng.uniform(5, 240)):
                        if is_stalled:
                            await trio.sleep_forever()
                        while data := await connection.receive_some(65_536):
                            self.counts["frames"] += data.count(b"event: metric")
            except (OSError, trio.BrokenResourceError) as error:
                self.counts[f"streams broken: {type(error).__name__}"] += 1

    # ---- rooms ------------------------------------------------------------------------------------------------------

    async def room(self) -> None:
        """A space: two in its room for a while, some values, then it is deleted or left to its end."""
        while True:
            try:
                await self._room()
                self.counts["rooms"] += 1
            except* (
                OSError,
                trio.BrokenResourceError,
                ConnectionClosed,
                HandshakeError,
                KeyError,
                ValueError,
            ) as errors:
                for error in _leaves(errors):
                    why = error.reason.code if isinstance(error, ConnectionClosed) and error.reason else ""
                    self.counts[f"rooms broken: {type(error).__name__} {why}"] += 1
            await trio.sleep(self.rng.uniform(0.5, 5))

    async def _room(self) -> None:
        async with await self._dial() as stream:
            host = f"Host: {self.http}\r\nAccept: application/json\r\n"
            body, form = b"ttl_seconds=60", "application/x-www-form-urlencoded"
            head = f"POST /spaces HTTP/1.1\r\n{host}Content-Type: {form}\r\nContent-Length: {len(body)}\r\n\r\n"
            await stream.send_all(head.encode() + body)
            space = json.loads((await _response(stream))[1])
            token = space["token"]
            url = f"ws://{self.http}/ws/s/{token}"
            async with (
                open_websocket_url(f"{url}?uid=a") as one,
                open_websocket_url(f"{url}?uid=b") as other,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._hear, one)
                nursery.start_soon(self._hear, other)
                for number in range(self.rng.randrange(5, 60)):
                    await one.send_message(json.dumps({"type": "msg", "data": {"n": number}}))
                    await trio.sleep(self.rng.uniform(0, 0.3))
                nursery.cancel_scope.cancel()
            head = (
                f"PUT /api/s/{token}/kv/a HTTP/1.1\r\n{host}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n"
            )
            await stream.send_all(head.encode() + b"42")
            await _response(stream)

    async def _hear(self, client: WebSocketConnection) -> None:
        while True:
            await client.get_message()
            self.counts["messages in rooms"] += 1

    # ---- operators --------------------------------------------------------------------------------------------------

    async def policies(self) -> None:
        budget = 1_000_000
        while True:
            await trio.sleep(self.rng.uniform(10, 30))
            budget += 1
            fresh = self.policy.with_suffix(".new")
            fresh.write_text(POLICY.format(budget=budget))
            fresh.replace(self.policy)
            self.counts["policies"] += 1


def _leaves(errors: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in errors.exceptions:
        yield from _leaves(error) if isinstance(error, BaseExceptionGroup) else (error,)


async def _answer(stream: trio.SocketStream) -> int:
    return (await _response(stream))[0]


async def _response(stream: trio.SocketStream) -> tuple[int, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await _more(stream)
    head, _, body = data.partition(b"\r\n\r\n")
    status = int(head[9:12])
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += await _more(stream)
    return status, body


async def _more(stream: trio.SocketStream) -> bytes:
    data = await stream.receive_some(65_536)
    if not data:
        raise trio.BrokenResourceError("the gateway closed the connection")
    return data
