"""A whole gateway with mock nodes, a policy and an odd server behind it, and what clients may ask to happen there."""

import json
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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
from gateway.main.server import Running, running
from gateway.main.settings import load
from tests.clients.upstream import ODD

TENANT = "clients"
NODES = 4
PAGE_ITEMS = 5  # so that even these few tools and resources come in pages
FLOOD = 40  # calls at once, more than a capability takes
PATIENCE_MS = 20_000
TOKEN_LIFE_S = 3600
ROOT = Path(__file__).parents[2]

# How the descriptions of our tools begin: their names differ from view to view.
WORDS = {"echo": "Send a short ASCII", "snapshot": "Read one sample", "subscribe": "Follow the node's"}

_AGENTS = {who: f"agent_{uuid.uuid4()}" for who in ("all", "denied", "slow", "poor")}
_POLICY = f"""
[[agents]]
agent = "{_AGENTS["denied"]}"
tools = ["sysecho.**"]

[[agents]]
agent = "{_AGENTS["slow"]}"
tools = ["**"]
rates = [{{ tools = "**", calls = 1, per = "1d" }}]

[[agents]]
agent = "{_AGENTS["poor"]}"
tools = ["**"]
budget = 0.01

[[agents]]
agent = "*"
tools = ["**"]
price = 0

[[upstreams]]
name = "odd"
tenants = ["{TENANT}"]
command = {json.dumps([sys.executable, "-m", "tests.clients.upstream"])}
cwd = "{ROOT}"
"""


@dataclass
class Field:
    gateway: Running
    folder: Path
    nursery: trio.Nursery
    identities: list[DeviceIdentity]
    tokens: dict[str, str]
    _running: dict[str, tuple[trio.CancelScope, trio.Event]] = field(default_factory=dict)

    def plan(self, view: str) -> dict[str, Any]:
        """What a client is told before it begins."""
        first, last = self.identities[0].node_id, self.identities[-1].node_id  # in the order of the list
        return {
            "url": f"http://{self.gateway.http}{view}",
            "tokens": self.tokens,
            "node": first,
            "leaver": last,
            "resource": f"metrics://{first}",
            "words": WORDS,
            "odd": ODD,
            "tools_min": 3 + len(ODD) + (0 if view == "/mcp/fleet" else 3 * NODES),
            "pages_min": 3,
            "flood": FLOOD,
            "patience_ms": PATIENCE_MS,
        }

    async def upstream_is_up(self) -> None:
        headers = {"Authorization": f"Bearer {self.tokens['all']}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            while True:
                tools = (await http.get(f"http://{self.gateway.http}/mcp/tools?limit=1000")).json()["tools"]
                if any(tool["name"].startswith("odd.") for tool in tools):
                    return
                await trio.sleep(0.05)

    async def do(self, what: str) -> None:
        leaver = self.identities[-1]
        if what == "leave":
            scope, is_gone = self._running.pop(leaver.node_id)
            scope.cancel()
            await is_gone.wait()
        else:
            self.connect(leaver)

    def connect(self, identity: DeviceIdentity) -> None:
        scope, is_gone = self._running[identity.node_id] = trio.CancelScope(), trio.Event()
        self.nursery.start_soon(self._be_a_node, identity, scope, is_gone)

    async def _be_a_node(self, identity: DeviceIdentity, scope: trio.CancelScope, is_gone: trio.Event) -> None:
        fingerprint, sampler = hw_fingerprint("clients", None), MockSampler(0, _wall_ms())
        device = standard_device(identity, fingerprint, sampler, _wall_ms)
        with scope:
            journal = FileJournal(self.folder / identity.node_id)
            try:
                async with trio.open_nursery() as nursery:
                    dial = WebSocketDialer(nursery, f"ws://{self.gateway.device_address}/devices/connect")
                    await Agent(device, journal=journal, connect=dial, wall_ms=_wall_ms, rng=Random(0)).run()
            finally:
                journal.close()
                is_gone.set()


@asynccontextmanager
async def open_field(folder: Path) -> AsyncIterator[Field]:
    policy = folder / "policy.toml"
    policy.write_text(_POLICY)
    flags = {
        "data": str(folder / "data"),
        "http.listen": "127.0.0.1:0",
        "devices.listen": "127.0.0.1:0",
        "governance.policy": str(policy),
        "mcp.page_items_max": PAGE_ITEMS,
    }
    async with trio.open_nursery() as nursery:
        async with running(load(None, {}, flags)) as gateway:
            ids = sorted(str(ULID()).lower() for _ in range(NODES))
            identities = [gateway.folder.enroll(node_id, TENANT, str(ULID()), _wall_ms()) for node_id in ids]
            scopes = [Scope.READ_ONLY, Scope.REVERSIBLE]
            tokens = {
                who: gateway.folder.mint(
                    TokenClass.AGENT_RUNTIME, sub, TENANT, scopes, TOKEN_LIFE_S, str(ULID()), _wall_ms()
                )
                for who, sub in _AGENTS.items()
            }
            ready = Field(gateway, folder, nursery, identities, tokens)
            for identity in identities:
                ready.connect(identity)
            while sum(actor.is_live for actor in gateway.devices.fleet.nodes) < NODES:  # noqa: ASYNC110
                await trio.sleep(0.02)
            with trio.fail_after(PATIENCE_MS / 1000):
                await ready.upstream_is_up()
            yield ready
        nursery.cancel_scope.cancel()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
