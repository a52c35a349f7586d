"""A whole gateway in this process, a real node on it, and MCP clients that write requests by hand."""

import contextlib
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import trio
from ulid import ULID

from actors.device.agent import Agent
from actors.device.device import standard_device
from actors.device.file_journal import FileJournal
from actors.device.identity import DeviceIdentity, hw_fingerprint
from actors.device.mock_sampler import MockSampler
from actors.device.websocket import WebSocketDialer
from gateway.identity.tokens import Scope, TokenClass
from gateway.main.clock import now
from gateway.main.server import MakeBinding, Running, running
from gateway.main.settings import load
from gateway.mcp.binding import Binding

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
TENANT = "acme"
PATIENCE_S = 30


@dataclass
class Site:
    gateway: Running
    node_id: str
    nursery: trio.Nursery
    folder: Path

    @property
    def echo(self) -> str:
        return f"sysecho.{self.node_id}.echo.invoke"

    @property
    def url(self) -> str:
        return f"http://{self.gateway.http}/mcp"

    def token(self, *scopes: Scope, tenant: str = TENANT, life_s: int = 3600, jti: str | None = None) -> str:
        return self.gateway.folder.mint(
            TokenClass.AGENT_RUNTIME,
            "agent_6f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6",
            tenant,
            list(scopes or (Scope.READ_ONLY,)),
            life_s,
            jti or str(ULID()),
            now().wall_ms,
        )

    @contextlib.asynccontextmanager
    async def client(self, token: str | None = None, **headers: str) -> AsyncIterator["Client"]:
        fields = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        fields |= {"authorization": f"Bearer {token or self.token()}"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with httpx2.AsyncClient(headers=fields, timeout=PATIENCE_S) as http:
            yield Client(http, self.url)

    async def start_node(self) -> trio.CancelScope:
        """A real agent with made-up metrics; cancel the scope to end it."""
        identity = self.gateway.folder.enroll(str(ULID()).lower(), TENANT, str(ULID()), now().wall_ms)
        self.node_id = identity.node_id
        scope = trio.CancelScope()
        self.nursery.start_soon(self._be_a_node, identity, scope)
        await until(lambda: self.is_live(identity.node_id))
        return scope

    def is_live(self, node_id: str) -> bool:
        return node_id in self.gateway.devices.directory.live_ids(TENANT)

    async def _be_a_node(self, identity: DeviceIdentity, scope: trio.CancelScope) -> None:
        device = standard_device(
            identity, hw_fingerprint("test", None), MockSampler(1, now().wall_ms), lambda: now().wall_ms
        )
        journal = FileJournal(self.folder / identity.node_id)
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    dial = WebSocketDialer(nursery, f"ws://{self.gateway.device_address}/devices/connect")
                    await Agent(
                        device, journal=journal, connect=dial, wall_ms=lambda: now().wall_ms, rng=Random(1)
                    ).run()
        finally:
            journal.close()


class Client:
    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self.http = http
        self._url = url
        self._ids = 0

    async def post(self, body: Any, **headers: str) -> httpx2.Response:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(self._url, content=content, headers=fields)

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._ids += 1
        return {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}

    async def modern(self, method: str, **params: Any) -> httpx2.Response:
        return await self.post(*self.modern_request(method, **params))

    def modern_request(self, method: str, **params: Any) -> tuple[dict[str, Any]]:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        self.http.headers["mcp-protocol-version"] = MODERN
        self.http.headers["mcp-method"] = method
        self.http.headers.pop("mcp-name", None)
        if "name" in params or "uri" in params:
            self.http.headers["mcp-name"] = params.get("name") or params["uri"]
        return (self.request(method, {**params, "_meta": meta}),)

    async def initialize(self) -> httpx2.Response:
        """Open a session; its id goes with every later request."""
        info = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        response = await self.post(self.request("initialize", info))
        if response.status_code == 200:
            self.http.headers["mcp-session-id"] = response.headers["mcp-session-id"]
            self.http.headers["mcp-protocol-version"] = LEGACY
            done = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
            assert done.status_code == 202
        return response

    async def legacy(self, method: str, **params: Any) -> dict[str, Any]:
        response = await self.post(self.request(method, params))
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    @contextlib.asynccontextmanager
    async def news(self) -> AsyncIterator[trio.MemoryReceiveChannel[dict[str, Any]]]:
        """The session's own stream."""
        async with self.http.stream("GET", self._url) as response:
            assert response.status_code == 200
            async with arriving(response) as news:
                yield news

    @contextlib.asynccontextmanager
    async def listen(self, **notifications: Any) -> AsyncIterator[trio.MemoryReceiveChannel[dict[str, Any]]]:
        (body,) = self.modern_request("subscriptions/listen", notifications=notifications)
        async with self.http.stream("POST", self._url, content=json.dumps(body).encode()) as response:
            assert response.status_code == 200, await response.aread()
            async with arriving(response) as news:
                yield news


@contextlib.asynccontextmanager
async def arriving(response: httpx2.Response) -> AsyncIterator[trio.MemoryReceiveChannel[dict[str, Any]]]:
    """The messages of a stream. They are read by a task, so that the client's generators are unwound, not dropped."""
    send, receive = trio.open_memory_channel[dict[str, Any]](100)

    async def read() -> None:
        with send, contextlib.suppress(httpx2.HTTPError):
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    send.send_nowait(
                        json.loads(line.removeprefix("data: "))
                    )  # waits, and is cancelled, only inside them

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        yield receive
        nursery.cancel_scope.cancel()


async def until(condition: Any) -> None:
    with trio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  # several things of a whole gateway, none of which sets an event
            await trio.sleep(0.01)


@contextlib.asynccontextmanager
async def site(folder: Path, make_binding: MakeBinding = Binding, **flags: Any) -> AsyncIterator[Site]:
    """A gateway with one live node, for as long as the block lasts."""
    settings = load(
        None,
        {},
        {
            "data": str(folder / "data"),
            "http.listen": "127.0.0.1:0",
            "devices.listen": "127.0.0.1:0",
            **{name.replace("__", "."): value for name, value in flags.items()},
        },
    )
    os.environ.pop("HELIOGRAPH_TOKEN", None)
    async with trio.open_nursery() as nursery, running(settings, make_binding) as gateway:
        one = Site(gateway, "", nursery, folder)
        await one.start_node()
        with trio.fail_after(2 * PATIENCE_S):
            yield one
        nursery.cancel_scope.cancel()
