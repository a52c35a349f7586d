"""What a page of `tools/list` costs when 5,000 nodes are live, three tools each: a part of `bench.mcp`.

    python -m bench.mcp_lists [--nodes 5000]

No sockets: roster and manifests of made-up nodes, then the gateway's methods and the SDK's transport called in this
process. Every page of the list is asked for in its turn. Prints CPU milliseconds a page and the longest stretch without
a checkpoint, during which the event loop serves nobody else, as JSON.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from ulid import ULID

from actors.bus.local_directory import LocalDirectory
from actors.device.handlers import CAPABILITIES
from actors.log.memory_store import MemoryStore
from actors.log.store import answered
from actors.node.calls import PendingCalls
from actors.node.fleet import Fleet
from actors.node.services import NodeServices
from actors.node.settings import NodeSettings
from actors.supervision.supervisor import Supervisor
from gateway.calls.tool_calls import ToolCalls
from gateway.identity.tokens import Principal, Scope, TokenClass
from gateway.main.clock import now
from gateway.main.server import GC_THRESHOLDS
from gateway.mcp.binding import Binding
from gateway.mcp.lane import CALLER
from gateway.mcp.methods import Methods
from gateway.mcp.origins import security
from gateway.mcp.sessions import Sessions
from gateway.mcp.settings import McpSettings
from gateway.mcp.watch import Watches
from schemas.canonical import digest
from schemas.certificates import CertificateAuthority, KnownCertificates
from schemas.manifest import Accepted, NodeIdentity
from schemas.projection import project

TENANT = "bench"
WALKS = 5  # through the whole list
MODERN, LEGACY = "2026-07-28", "2025-11-25"
Ask = Callable[[str | None], Awaitable[dict[str, Any] | bytes]]  # a cursor → the page behind it, or it as JSON


async def made_up_fleet(nodes: int) -> Fleet:
    wall_ms = now().wall_ms
    authority = CertificateAuthority.make(Ed25519PrivateKey.generate(), wall_ms)
    store = MemoryStore()
    services = NodeServices(
        store=store,
        directory=LocalDirectory(store),
        calls=PendingCalls(),
        certificates=KnownCertificates(authority.certificate, ()),
        settings=NodeSettings(),
        now=now,
        entropy=os.urandom,
        count=lambda _: None,
    )
    for _ in range(nodes):
        node_id = str(ULID()).lower()
        manifest = {
            "node_id": node_id,
            "capabilities": list(CAPABILITIES),
            "issued_at_ms": wall_ms,
            "expires_at_ms": wall_ms + 24 * 3600 * 1000,
        }
        accepted = Accepted(manifest, digest(manifest), project(manifest))
        node = NodeIdentity(node_id, TENANT)
        await answered(partial(services.directory.announce, node, accepted, wall_ms))
        services.directory.came(node, 1, wall_ms)
    return Fleet(Supervisor(), services)


def principal(*scopes: Scope) -> Principal:
    return Principal("agent", TENANT, TokenClass.AGENT_RUNTIME, frozenset(scopes), str(ULID()), 0, 2**53)


class LongestStep(trio.abc.Instrument):
    """How long the event loop was held up at most."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.paused = False
        self._began_s = time.thread_time()

    def before_task_step(self, _: trio.lowlevel.Task) -> None:
        self._began_s = time.thread_time()

    def after_task_step(self, _: trio.lowlevel.Task) -> None:
        if not self.paused:
            self.ms = max(self.ms, (time.thread_time() - self._began_s) * 1000)


# ---- asking --------------------------------------------------------------------------------------------------------


def of_methods(methods: Methods, who: Principal) -> Ask:
    """Without the SDK: what is ours."""
    return lambda cursor: methods.handle(who, "tools/list", {} if cursor is None else {"cursor": cursor})


class OverSdk:
    """The SDK's transport as the endpoint calls it, without door and token."""

    def __init__(self, manager: StreamableHTTPSessionManager, who: Principal, era: str) -> None:
        self._manager = manager
        self._who = who
        self._era = era
        self._session_id: str | None = None
        self._number = 0

    async def open_session(self) -> None:
        client = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        headers, _ = await self._post("initialize", client)
        self._session_id = headers[b"mcp-session-id"].decode()
        await self._post("notifications/initialized", None)

    async def __call__(self, cursor: str | None) -> bytes:
        """JSON, as it is or as an event of a stream."""
        params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
        if self._era == MODERN:
            prefix = "io.modelcontextprotocol"
            params["_meta"] = {f"{prefix}/protocolVersion": MODERN, f"{prefix}/clientCapabilities": {}}
        _, body = await self._post("tools/list", params)
        return body

    async def _post(self, method: str, params: dict[str, Any] | None) -> tuple[dict[bytes, bytes], bytes]:
        self._number += 1
        request: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            request |= {"id": self._number, "params": params}
        headers = {
            b"host": b"127.0.0.1",
            b"content-type": b"application/json",
            b"accept": b"application/json, text/event-stream",
        }
        if self._era == MODERN or self._session_id is not None:
            headers[b"mcp-protocol-version"] = self._era.encode()
        if self._era == MODERN:
            headers[b"mcp-method"] = method.encode()
        elif self._session_id is not None:
            headers[b"mcp-session-id"] = self._session_id.encode()
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"",
            "headers": list(headers.items()),
            CALLER: self._who,
        }
        body = json.dumps(request).encode()
        given = False
        answered: dict[bytes, bytes] = {}
        chunks: list[bytes] = []

        async def receive() -> MutableMapping[str, Any]:
            nonlocal given
            if given:
                await trio.sleep_forever()
            given = True
            await trio.lowlevel.checkpoint()
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            await trio.lowlevel.checkpoint()
            answered.update(message.get("headers", ()))
            chunks.append(message.get("body", b""))

        await self._manager.handle_request(scope, receive, send)
        return answered, b"".join(chunks)


async def cost(ask: Ask, tools_expected: int) -> dict[str, float]:
    """First for the longest step (and to warm up), then for the CPU time of a page, of which the median counts."""
    steps = LongestStep()
    trio.lowlevel.add_instrument(steps)
    pages = len(await _walk(ask, tools_expected, steps))
    trio.lowlevel.remove_instrument(steps)
    cpu_ms = [ms for _ in range(WALKS) for ms in await _walk(ask, tools_expected, steps)]
    return {"pages": pages, "cpu_ms_a_page": statistics.median(cpu_ms), "longest_step_ms": steps.ms}


async def _walk(ask: Ask, tools_expected: int, steps: LongestStep) -> list[float]:
    """Every page of the list; the CPU milliseconds of each."""
    cpu_ms: list[float] = []
    tools, cursor = 0, None
    while not cpu_ms or cursor is not None:
        began_s = time.process_time()
        answer = await ask(cursor)
        cpu_ms.append((time.process_time() - began_s) * 1000)
        # What a client does with the page is not the gateway's cost.
        await trio.lowlevel.checkpoint()
        steps.paused = True
        page = answer if isinstance(answer, dict) else json.loads(answer[answer.index(b"{") :])["result"]
        tools += len(page["tools"])
        cursor = page.get("nextCursor")
        await trio.lowlevel.checkpoint()
        steps.paused = False
    assert tools == tools_expected
    return cpu_ms


@asynccontextmanager
async def serving(fleet: Fleet, methods: Methods, settings: McpSettings) -> AsyncIterator[StreamableHTTPSessionManager]:
    watches = Watches(fleet.services.directory, fleet, settings, now, lambda: str(ULID()))
    binding = Binding(methods, watches, Sessions(settings.session_limits), Supervisor())
    manager = StreamableHTTPSessionManager(
        binding.make_server(), json_response=not binding.streams_answers, security_settings=security(None)
    )
    async with manager.run():
        yield manager


async def measure(nodes: int) -> dict[str, Any]:
    gc.set_threshold(*GC_THRESHOLDS)
    fleet = await made_up_fleet(nodes)
    settings = McpSettings()
    methods = Methods(
        fleet.services.directory, ToolCalls(fleet.services.directory, fleet, lambda: str(ULID()), now), now, settings
    )
    reader, nobody = principal(Scope.READ_ONLY), principal(Scope.REVERSIBLE)
    costs = {
        "ours alone": await cost(of_methods(methods, reader), 3 * nodes),
        "ours alone, nothing to show": await cost(of_methods(methods, nobody), 0),
    }
    async with serving(fleet, methods, settings) as manager:
        legacy = OverSdk(manager, reader, LEGACY)
        await legacy.open_session()
        costs[f"with the SDK, {MODERN}"] = await cost(OverSdk(manager, reader, MODERN), 3 * nodes)
        costs[f"with the SDK, {LEGACY}"] = await cost(legacy, 3 * nodes)
    return {"nodes": nodes, "tools": 3 * nodes, "page_items_max": settings.page_items_max, "costs": costs}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=5000)
    print(json.dumps(trio.run(measure, parser.parse_args().nodes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
