"""The pipeline over a fleet of scripted nodes, with both of its doors and a log that can be slow."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio

from actors.bus.local_directory import LocalDirectory
from actors.ledger.ledgers import Ledgers
from actors.log.memory_store import MemoryStore
from actors.log.store import Loaded
from actors.node.fleet import Fleet
from actors.stream.streams import Streams
from actors.supervision.supervisor import Supervisor
from gateway.calls.tool_calls import ToolCalls
from gateway.calls.upstream_tools import UpstreamTools
from gateway.governance.governor import Governor
from gateway.governance.policy.policy import DEFAULT, Policy
from gateway.governance.policy.text import PolicyFlaw, parse
from gateway.identity.tokens import Principal
from gateway.mcp.errors import RpcError
from gateway.mcp.methods import Methods
from gateway.mcp.settings import McpSettings
from gateway.mcp.watch import Watches
from tests.actors.node.harness import Gateway, now, until
from tests.gateway.api.client import AGENT, Client, Response, new_id, token
from tests.gateway.api.test_app import ECHO
from tests.gateway.mcp.test_methods import principal


class SlowStore(MemoryStore):
    """Takes so long before it commits, and before it reads."""

    def __init__(self) -> None:
        super().__init__(before_commit=self._wait)
        self.commit_s = self.load_s = 0.0

    async def _wait(self) -> None:
        await trio.sleep(self.commit_s)

    async def load(self, stream: str) -> Loaded:
        await trio.sleep(self.load_s)
        return await super().load(stream)


class Anything:
    """A tool that everybody may call, with whatever arguments."""

    name = "local.tool"

    def denied(self, *_: object) -> None:
        return None

    def unready(self, *_: object) -> None:
        return None

    def flaw(self, *_: object) -> None:
        return None

    def takes(self, *_: object) -> bool:
        return True


@dataclass
class Site:
    fleet: Fleet
    store: SlowStore
    ledgers: Ledgers
    client: Client
    methods: Methods
    calls: ToolCalls
    watches: Watches
    policy: Policy = field(default=DEFAULT)

    def rule(self, text: str) -> None:
        policy = parse(f'[[agents]]\nagent = "*"\n{text}')
        assert not isinstance(policy, PolicyFlaw), policy
        self.policy = policy

    async def spent(self) -> int:
        ledger = await self.ledgers.of("acme", AGENT)
        await until(lambda: not ledger.in_flight)  # charges and releases are not waited for
        assert ledger.holds == {}, "nothing is held for good"
        return ledger.state.used_micros

    async def http(self, tool: str = ECHO, **arguments: Any) -> Response:
        return await self.client.call(tool, arguments, token())

    async def rpc(self, tool: str = ECHO, **arguments: Any) -> RpcError:
        with pytest.raises(RpcError) as denied:
            await self.methods.handle(principal(), "tools/call", {"name": tool, "arguments": arguments})
        assert denied.value.data["suggested_fix"]
        return denied.value


@asynccontextmanager
async def running_site(nursery: trio.Nursery, upstreams: UpstreamTools | None = None) -> AsyncIterator[Site]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    store = SlowStore()
    ledgers, directory = Ledgers(store), LocalDirectory(store)
    services = replace(Gateway().services, store=store, directory=directory, ledgers=ledgers)
    fleet = Fleet(supervisor, services)
    streams = Streams(supervisor, fleet)
    streams.start()

    def still_good(principal: Principal) -> bool:
        return one.client.verifier.still_good(principal, now().wall_ms) is None

    governor = Governor(lambda: one.policy, ledgers, directory)
    calls = ToolCalls(directory, fleet, new_id, now, governor, upstreams=upstreams, still_good=still_good)
    one = Site(
        fleet,
        store,
        ledgers,
        Client(fleet, streams, calls=calls),
        Methods(directory, calls, now),
        calls,
        Watches(directory, fleet, McpSettings(), now, new_id, calls),
    )
    yield one
    supervisor.request_stop()
