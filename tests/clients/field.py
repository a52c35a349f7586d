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
from gateway.identity.node_lives import Wanted
from gateway.identity.tokens import Scope, TokenClass
from gateway.main.server import Running, running
from gateway.main.settings import load
from gateway.mcp.views import FLEET, NAMED, View
from schemas.fleet_tools import KIND_TOOLS, LOOK_TOOLS
from schemas.manifest import NodeIdentity
from tests.clients.upstream import ODD

TENANT = "clients"
# Each node in the order of their ids: what an operator calls it, and its tags.
NODES: tuple[tuple[str | None, dict[str, str]], ...] = (
    ("pump-7", {"site": "lab", "role": "feed"}),
    ("pump-8", {"site": "roof"}),
    (None, {}),
    ("valve-1", {"site": "lab"}),
)
PAGE_ITEMS = 5  # so that even these few tools and resources come in pages
FLOOD = 40  # calls at once, more than a capability takes
PATIENCE_MS = 20_000
COMINGS_MAX = 100  # of the node that leaves for each client; one more waits for the rate of manifests
TOKEN_LIFE_S = 3600
ROOT = Path(__file__).parents[2]

# How the descriptions of our tools begin: their names differ from view to view.
WORDS = {
    "echo": "Send a short ASCII",
    "snapshot": "Read one sample",
    "subscribe": "Follow the node's",
    "find": "Find nodes of the fleet",
    "look": "What is known of one node",
}
NAME_RULE = "^[A-Za-z0-9_-]{1,64}$"  # of the clients that `/mcp` is not for
NAME_RULE_OF_MCP = "^[A-Za-z0-9_.-]{1,128}$"

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

    def plan(self, view: View) -> dict[str, Any]:
        """What a client is told before it begins."""
        first, second, unnamed, last = ids = [identity.node_id for identity in self.identities]
        is_fleet = view is FLEET
        own = len(KIND_TOOLS) + len(LOOK_TOOLS) if is_fleet else 3 * len(NODES)
        return {
            "url": f"http://{self.gateway.http}{view.path}",
            "tokens": self.tokens,
            "node": first,
            "node_name": NODES[0][0],
            "unnamed": unnamed,
            "leaver": last,
            "leaver_name": NODES[-1][0],
            "name_rule": NAME_RULE_OF_MCP if view is NAMED else NAME_RULE,
            "title": "Echo (any node)" if is_fleet else f"{NODES[0][0]}: echo",
            "title_of_unnamed": "Echo (any node)" if is_fleet else None,
            "tools_change": view.changes_with_nodes,
            "finds": [
                [{"name": "pump"}, [first, second]],
                [{"tag": "site=lab"}, [first, last]],
                [{"tag": ["site=lab", "role=feed"]}, [first]],
                [{"name": "pump", "tag": "site=lab", "state": "live", "kind": "system.echo"}, [first]],
                [{"limit": 3}, ids],  # so that it comes in pages
                [{"state": "away"}, []],
            ]
            if is_fleet
            else [],
            "resource": f"metrics://{first}",
            "words": WORDS,
            "odd": ODD,
            "tools_min": own + 3 + len(ODD),
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
        journal = FileJournal(self.folder / identity.node_id)
        try:
            async with trio.open_nursery() as nursery:
                dial = WebSocketDialer(nursery, f"ws://{self.gateway.device_address}/devices/connect")
                with scope:  # its connection outlives the agent: else its goodbye waits for an answer that nobody reads
                    await Agent(device, journal=journal, connect=dial, wall_ms=_wall_ms, rng=Random(0)).run()
                nursery.cancel_scope.cancel()
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
        "node.manifests_burst": COMINGS_MAX,
    }
    async with trio.open_nursery() as nursery:
        async with running(load(None, {}, flags)) as gateway:
            identities = await _enroll(gateway)
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
            while sum(actor.is_live for actor in gateway.devices.fleet.nodes) < len(NODES):  # noqa: ASYNC110
                await trio.sleep(0.02)
            with trio.fail_after(PATIENCE_MS / 1000):
                await ready.upstream_is_up()
            yield ready
        nursery.cancel_scope.cancel()


async def _enroll(gateway: Running) -> list[DeviceIdentity]:
    ids = sorted(str(ULID()).lower() for _ in NODES)
    wanted = [
        Wanted(NodeIdentity(node_id, TENANT), name, tags) for node_id, (name, tags) in zip(ids, NODES, strict=True)
    ]
    enrolled = await gateway.lives.enroll(wanted, "test")
    assert isinstance(enrolled, list), enrolled
    return [made.identity for made in enrolled]


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
