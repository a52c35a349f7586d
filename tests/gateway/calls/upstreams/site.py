"""A whole gateway with a node, and upstreams that are real servers in processes of their own."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import trio

from gateway.identity.tokens import Scope
from tests.gateway.mcp.site import PATIENCE_S, TENANT, Site, site, until

ROOT = Path(__file__).parents[4]
SERVER = [sys.executable, "-m", "tests.gateway.calls.upstreams.server"]
SECRET = "hunter2-hunter2"
AGENTS = "[[agents]]\nagent = '*'\ntools = '**'\n"
BOTH = (Scope.READ_ONLY, Scope.REVERSIBLE)
QUICK = {"upstreams__retry_s_min": 0.05, "upstreams__retry_s_max": 0.2, "upstreams__relist_s_min": 0.05}


def by_stdio(name: str = "std", **more: Any) -> str:
    return _entry(name, **{"command": [*SERVER, "--stdio"], "cwd": str(ROOT), **more})


def by_http(port: int, name: str = "web", **more: Any) -> str:
    return _entry(name, url=f"http://127.0.0.1:{port}/mcp", **more)


def _entry(name: str, **values: Any) -> str:
    values = {"name": name, "tenants": [TENANT], **values}
    return "[[upstreams]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


@dataclass
class Front:
    """What an agent sees."""

    site: Site
    http: httpx2.AsyncClient
    token: str

    async def call(self, tool: str, **arguments: Any) -> httpx2.Response:
        return await self.http.post("/mcp/tools/call", json={"tool": tool, "arguments": arguments})

    async def mcp(self, tool: str, **arguments: Any) -> dict[str, Any]:
        async with self.site.client(self.token) as client:
            response = await client.modern("tools/call", name=tool, arguments=arguments)
            answer: dict[str, Any] = response.json()
            return answer

    async def tools(self, **query: Any) -> list[str]:
        return [tool["name"] for tool in (await self.http.get("/mcp/tools", params=query)).json()["tools"]]

    async def until_listed(self, tool: str) -> None:
        with trio.fail_after(PATIENCE_S):
            while tool not in await self.tools():  # noqa: ASYNC110  # what a client can see sets no event
                await trio.sleep(0.02)

    async def until_gone(self, tool: str) -> None:
        with trio.fail_after(PATIENCE_S):
            while tool in await self.tools():  # noqa: ASYNC110  # what a client can see sets no event
                await trio.sleep(0.02)

    async def spent_micros(self) -> int:
        ledger = await self.site.gateway.devices.ledgers.of(TENANT, "agent_6f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6")
        await until(lambda: ledger.is_at_rest)  # charges and releases are not waited for
        return ledger.state.used_micros


@contextlib.asynccontextmanager
async def front(folder: Path, policy: str, *scopes: Scope, **flags: Any) -> AsyncIterator[Front]:
    path = folder / "policy.toml"
    path.write_text(policy)
    async with site(folder, governance__policy=str(path), **{**QUICK, **flags}) as one:
        token = one.token(*(scopes or BOTH))
        headers = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(
            base_url=f"http://{one.gateway.http}", headers=headers, timeout=PATIENCE_S
        ) as http:
            yield Front(one, http, token)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def http_server(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Killed at the end, if it has not ended before."""
    process = subprocess.Popen(
        [*SERVER, "--http", str(port)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def children() -> list[int]:
    """The processes that upstreams are, with all that they have started."""
    found = []
    for child in psutil.Process(os.getpid()).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            is_of_others = (
                "--http" in child.cmdline() or child.name() == "nats-server"
            )  # tests of engine mode share one
            if not is_of_others:
                found.append(child.pid)
    return found
