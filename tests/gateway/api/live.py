"""A whole gateway on 127.0.0.1 with one real node, and clients of any address that write bytes by hand."""

import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import trio
from ulid import ULID

from actors.device.agent import Agent
from actors.device.device import standard_device
from actors.device.file_journal import FileJournal
from actors.device.identity import hw_fingerprint
from actors.device.mock_sampler import MockSampler
from actors.device.websocket import WebSocketDialer
from gateway.identity.tokens import Scope, TokenClass
from gateway.main.server import Running, running
from gateway.main.settings import load
from tests.gateway.api.client import AGENT

TENANT = "acme"


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """One connection."""

    stream: trio.SocketStream
    _got: bytearray = field(default_factory=bytearray)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def answer(self, *, to_head: bool = False) -> Answer | None:
        """The next response; None when the connection ends instead."""
        while b"\r\n\r\n" not in self._got:
            if not await self._more():
                return None
        head, _, rest = bytes(self._got).partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        status = int(first.split()[1])
        bodiless = to_head or status in (204, 304)
        length = 0 if bodiless else int(headers["content-length"])
        self._got = bytearray(rest)
        while len(self._got) < length:
            if not await self._more():
                return None
        body = bytes(self._got[:length])
        del self._got[:length]
        return Answer(status, headers, body)

    async def ask(self, data: bytes, *, to_head: bool = False) -> Answer | None:
        """Send it and take the answer; one that came before all was sent counts."""
        with contextlib.suppress(trio.BrokenResourceError):
            await self.send(data)
        return await self.answer(to_head=to_head)

    async def _more(self) -> bool:
        try:
            data = await self.stream.receive_some()
        except trio.BrokenResourceError:
            return False
        self._got += data
        return bool(data)


def request(method: str, path: str, token: str | None = None, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: test"]
    lines += [] if token is None else [f"Authorization: Bearer {token}"]
    lines += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True)
class Live:
    gateway: Running
    node_id: str

    @property
    def port(self) -> int:
        return int(self.gateway.http.rpartition(":")[2])

    @contextlib.asynccontextmanager
    async def client(self, address: str = "127.0.0.1") -> AsyncIterator[Client]:
        async with await trio.open_tcp_stream("127.0.0.1", self.port, local_address=address) as stream:
            yield Client(stream)

    def token(self, **changes: Any) -> str:
        fields: dict[str, Any] = {
            "token_class": TokenClass.AGENT_RUNTIME,
            "sub": AGENT,
            "tenant": TENANT,
            "scopes": [Scope.READ_ONLY],
            "life_s": 3600,
            "jti": str(ULID()),
            "now_ms": wall_ms(),
        } | changes
        return self.gateway.folder.mint(**fields)

    def tool(self, name: str = "sysecho.{}.echo.invoke") -> str:
        return name.format(self.node_id)

    def good_call(self) -> bytes:
        body = json.dumps({"tool": self.tool(), "arguments": {"message": "ping"}}).encode()
        return request("POST", "/mcp/tools/call", self.token(), body)


@contextlib.asynccontextmanager
async def live_gateway(
    folder: Path, device_token: Callable[[str], str] | None = None, /, **settings: Any
) -> AsyncIterator[Live]:
    """Stopped in order at the end. `device_token` makes the token of a node, where the gateway makes none."""
    given = {"data": str(folder / "data"), "http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0", **settings}
    async with running(load(None, {}, given)) as gateway:
        identity = gateway.folder.enroll(str(ULID()).lower(), TENANT, str(ULID()), wall_ms())
        if device_token is not None:
            identity = replace(identity, token=device_token(identity.node_id))
        device = standard_device(identity, hw_fingerprint("test", None), MockSampler(1, wall_ms()), wall_ms)
        journal = FileJournal(folder / "node")
        try:
            async with trio.open_nursery() as connections:
                dial = WebSocketDialer(connections, f"ws://{gateway.device_address}/devices/connect")
                agent = Agent(device, journal=journal, connect=dial, wall_ms=wall_ms, rng=Random(1))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(agent.run)
                    while not any(actor.is_live for actor in gateway.devices.fleet.nodes):  # noqa: ASYNC110
                        await trio.sleep(0.005)
                    yield Live(gateway, identity.node_id)
                    nursery.cancel_scope.cancel()
                connections.cancel_scope.cancel()  # only now: the agent still takes its leave
        finally:
            journal.close()
