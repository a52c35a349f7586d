"""A pipeline with a node and an upstream, and one token that asks for everything there is to ask for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import trio

from gateway.calls.upstreams.actor import Trouble, Upstream
from gateway.calls.upstreams.reach import Reach
from gateway.calls.upstreams.settings import UpstreamSettings
from gateway.calls.upstreams.tool_rules import UpstreamTool, listed
from gateway.calls.upstreams.upstreams import Upstreams, UpstreamTarget
from gateway.governance.policy.upstream_rules import UpstreamRules
from gateway.identity.tokens import Principal, Scope, TokenClass
from gateway.mcp.errors import RpcError
from schemas.frames import Cmd
from tests.actors.node.harness import ScriptedNode
from tests.gateway.api.client import AGENT, token
from tests.gateway.api.test_app import ECHO, SUBSCRIBE
from tests.gateway.calls.site import Site
from tests.schemas.examples import NODE_ID

TOKEN_ID = "01HZXC0000000000000000J0AA"
PRICE = 15_000
AGENT_OF = Principal(
    AGENT, "acme", TokenClass.AGENT_RUNTIME, frozenset({Scope.READ_ONLY, Scope.REVERSIBLE}), TOKEN_ID, 0, 2**50
)
RULES = UpstreamRules("up", frozenset({"acme"}), ("x",))


class FakeUpstream(Upstream):
    """Is up, has one tool, and answers after a second."""

    def __init__(self) -> None:
        self.rules = RULES
        self.calls = 0
        self.answer: dict[str, Any] | Trouble = {"content": [{"type": "text", "text": "done"}]}
        self.offer()

    def offer(self, **more: Any) -> None:
        tool = listed(RULES, {"name": "tool", "inputSchema": {"type": "object"}, **more}, UpstreamSettings())
        assert tool is not None
        self.tools = {tool.name: tool}

    is_up = True
    has_room = True

    def betrays(self, json: bytes) -> bool:
        del json
        return False

    async def call(self, tool: UpstreamTool, arguments: Any, reach: Reach) -> dict[str, Any] | Trouble:
        del tool, arguments
        self.calls += 1
        reach.sent = not isinstance(self.answer, Trouble)
        await trio.sleep(1)
        return self.answer


class FakeUpstreams(Upstreams):
    def __init__(self, upstream: FakeUpstream) -> None:
        self.upstream = upstream
        self._flat = {}

    def find(self, name: str) -> UpstreamTarget | None:
        prefix, _, own_name = name.partition(".")
        return UpstreamTarget(RULES, own_name, self.upstream) if prefix == RULES.name else None

    def _rules(self) -> dict[str, UpstreamRules]:
        return {RULES.name: RULES}

    def _of(self, tenant: str) -> Iterator[tuple[UpstreamRules, Upstream | None]]:
        if tenant in RULES.tenants:
            yield RULES, self.upstream


@dataclass
class Place:
    site: Site
    node: ScriptedNode
    upstream: FakeUpstream

    # Each ends with True when it was let through.

    async def call(self) -> bool:
        return (await self.site.client.call(ECHO, {"message": "x"}, token(jti=TOKEN_ID))).status == 200

    async def stream(self) -> bool:
        body = b'{"tool": "%b", "arguments": {}}' % SUBSCRIBE.encode()
        headers = {"authorization": f"Bearer {token(jti=TOKEN_ID)}", "accept": "text/event-stream"}
        opened = await self.site.client.request("POST", "/mcp/tools/call", body, headers, hangs_up_after_s=20)
        assert opened is not None
        assert opened.status in (200, 401)
        return opened.status == 200

    async def subscription(self) -> bool:
        watch = self.site.watches.open(AGENT_OF, frozenset())
        assert watch is not None
        try:
            await self.site.watches.subscribe(watch, f"metrics://{NODE_ID}")
        except RpcError:
            return False
        finally:
            watch.close()
        return True

    async def upstream_call(self) -> bool:
        answer = await self.site.client.call("up.tool", {}, token(jti=TOKEN_ID, scopes=list(AGENT_OF.scopes or ())))
        assert answer.status in (200, 401)
        return answer.status == 200

    @property
    def happened(self) -> bool:
        """Whether anything reached the node or the upstream."""
        return bool(self.upstream.calls) or any(isinstance(frame, Cmd) for frame in self.node.connection.sent)

    def revoke(self) -> None:
        self.site.client.verifier.revoke(TOKEN_ID)
