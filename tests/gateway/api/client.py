"""An ASGI client in memory, and an application over a fleet of scripted nodes."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from actors.node.fleet import Fleet
from actors.stream.streams import Streams
from gateway.api.admin import Admin
from gateway.api.feature import api_feature
from gateway.calls.tool_calls import ToolCalls
from gateway.identity.tokens import Issuer, Scope, TokenClass, Verifier, jwks, key_id
from gateway.net.pump import Pump
from gateway.net.router import Router
from gateway.streams.subscribe import Subscribe
from gateway.streams.subscriptions import Subscriptions
from schemas.ulids import Mint
from tests.actors.node.harness import now

KEY = Ed25519PrivateKey.from_private_bytes(b"w" * 32)
ISSUER = Issuer(KEY, issuer="test", audience="test")
AGENT = "agent_6f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6"
_ids = Mint(lambda n: b"\x07" * n)


def new_id() -> str:
    return _ids.mint(now().wall_ms)


def token(**changes: Any) -> str:
    fields: dict[str, Any] = {
        "sub": AGENT,
        "tenant": "acme",
        "token_class": TokenClass.AGENT_RUNTIME,
        "scopes": [Scope.READ_ONLY],
        "jti": new_id(),
        "now_ms": now().wall_ms,
        "life_s": 3600,
    } | changes
    return ISSUER.mint(**fields)


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    def __init__(
        self, fleet: Fleet, streams: Streams, admin: Admin | None = None, calls: ToolCalls | None = None
    ) -> None:
        self.ready = True
        self.verifier = Verifier({key_id(KEY.public_key()): KEY.public_key()}, issuer="test", audience="test")
        directory = fleet.services.directory
        calls = calls or ToolCalls(directory, fleet, new_id, now)
        subscribe = Subscribe(Subscriptions(calls, streams, new_id, now), Pump())
        others = [] if admin is None else [admin.routes]
        keys = jwks([KEY.public_key()])
        api = api_feature(self.verifier, now, directory, calls, subscribe, keys, self._is_ready)
        self.app = Router(new_id, api.routes, *others)

    async def _is_ready(self) -> bool:
        await trio.lowlevel.checkpoint()
        return self.ready

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        hangs_up_after_s: float | None = None,
        before_body: Callable[[], None] = lambda: None,
        extensions: dict[str, Any] | None = None,
    ) -> Response | None:
        """None when the application had nothing to say, because the client was gone."""
        target, _, query = path.partition("?")
        sent: list[Any] = []
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if waiting:
                before_body()
                return waiting.pop(0)
            await trio.sleep(float("inf") if hangs_up_after_s is None else hangs_up_after_s)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await trio.lowlevel.checkpoint()
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": target,
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
            "extensions": extensions or {},
        }
        await self.app(scope, receive, send)
        if not sent:
            return None
        start, *bodies = sent
        answered = {name.decode(): value.decode() for name, value in start["headers"]}
        return Response(start["status"], answered, b"".join(part.get("body", b"") for part in bodies))

    async def get(self, path: str, agent: str | None = None, **headers: str) -> Response:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        response = await self.request("GET", path, headers=_with_token(fields, agent))
        assert response is not None
        return response

    async def call(self, tool: Any, arguments: Any, agent: str | None) -> Response:
        body = json.dumps({"tool": tool, "arguments": arguments}).encode()
        return await self.post(body, agent)

    async def post(self, body: bytes, agent: str | None) -> Response:
        response = await self.request("POST", "/mcp/tools/call", body, _with_token({}, agent))
        assert response is not None
        return response


def _with_token(headers: dict[str, str], agent: str | None) -> dict[str, str]:
    return headers if agent is None else {**headers, "authorization": f"Bearer {agent}"}
