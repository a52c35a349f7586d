"""The pipeline over a fleet of scripted nodes, with both of its doors and a log that can be slow."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio

from actors.bus.local_directory import LocalDirectory
from actors.bus.purse import Guess
from actors.engine.engine_purse import EnginePurse
from actors.engine.memory_messages import MemoryBroker, MemoryMessages
from actors.ledger.ledgers import LedgerBook, Ledgers
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
from gateway.governance.policy_judge import PolicyJudge
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
        super().__init__(before_commit=self.wait)
        self.commit_s = self.load_s = 0.0
        self.elsewhere_s: float | None = None  # as `commit_s`, in another process; None: the same

    async def wait(self) -> None:
        await trio.sleep(self.commit_s)

    async def wait_elsewhere(self) -> None:
        await trio.sleep(self.commit_s if self.elsewhere_s is None else self.elsewhere_s)

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
    ledgers: LedgerBook
    client: Client
    methods: Methods
    calls: ToolCalls
    watches: Watches
    policy: Policy = field(default=DEFAULT)
    owner: EnginePurse | None = None  # of the agent's ledger, in another process; None: there is one process
    end_owner: Callable[[], None] = field(default=lambda: None)

    def rule(self, text: str) -> None:
        policy = parse(f'[[agents]]\nagent = "*"\n{text}')
        assert not isinstance(policy, PolicyFlaw), policy
        self.policy = policy

    async def spent(self) -> int:
        if self.owner is not None:
            await self.settled()
        ledger = await self.ledgers.of("acme", AGENT)
        await until(lambda: not ledger.in_flight)  # charges and releases are not waited for
        assert ledger.holds == {}, "nothing is held for good"
        return ledger.state.used_micros

    async def settled(self) -> None:
        """Wait until nothing is reserved."""
        while not (await self.ledgers.of("acme", AGENT)).is_at_rest:  # noqa: ASYNC110 (a log has no event)
            await trio.sleep(0.1)

    async def http(self, tool: str = ECHO, **arguments: Any) -> Response:
        return await self.client.call(tool, arguments, token())

    async def rpc(self, tool: str = ECHO, **arguments: Any) -> RpcError:
        with pytest.raises(RpcError) as denied:
            await self.methods.handle(principal(), "tools/call", {"name": tool, "arguments": arguments})
        assert denied.value.data["suggested_fix"]
        return denied.value


@asynccontextmanager
async def running_site(
    nursery: trio.Nursery, upstreams: UpstreamTools | None = None, *, pays_elsewhere: bool = False
) -> AsyncIterator[Site]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    store = SlowStore()
    ledgers, directory = Ledgers(store), LocalDirectory(store)
    services = replace(
        Gateway().services, store=store, directory=directory, ledgers=None if pays_elsewhere else ledgers
    )
    fleet = Fleet(supervisor, services)
    streams = Streams(supervisor, fleet)
    streams.start()

    def still_good(principal: Principal) -> bool:
        return one.client.verifier.still_good(principal, now().wall_ms) is None

    governor = Governor(lambda: one.policy, None if pays_elsewhere else ledgers, directory)
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
    if pays_elsewhere:
        broker, judge = MemoryBroker(), PolicyJudge(governor)
        purse = EnginePurse(store, MemoryMessages(broker), "here", now, judge)
        elsewhere = MemoryStore(store.disk, before_commit=store.wait_elsewhere)
        theirs = MemoryMessages(broker)
        one.owner, one.end_owner = EnginePurse(elsewhere, theirs, "elsewhere", now, judge), theirs.die
        governor.shared = one.ledgers = purse
        nursery.start_soon(purse.run)
        nursery.start_soon(one.owner.run)
        await one.owner.guess(Guess("acme", AGENT, "sys", "snapshot", now().wall_ms + 5_000))
        assert one.owner.owned == 1
    yield one
    supervisor.request_stop()
    if pays_elsewhere:
        nursery.cancel_scope.cancel()
