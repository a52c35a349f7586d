"""The routes that agents and scripts use, as one ASGI application.

    POST /mcp/tools/call             {"tool", "arguments"} → the result itself, a stream, or an error envelope
    /mcp                             the Model Context Protocol: `gateway/mcp`
    GET  /mcp/tools                  what the token may call, in pages (?cursor, ?limit)
    GET  /schemas/  /schemas/{id}    the published schemas; public, immutable, ETag = content hash
    GET  /devices  /devices/{id}/manifest   retained manifests of the token's tenant, ETag = manifest etag
    GET  /.well-known/jwks.json      the public keys of tokens
    GET  /healthz  /readyz           alive; able to serve
    GET  /metrics                    for Prometheus: `metrics.py`
    /admin/…                         for operators: `admin.py`

Which server speaks HTTP is not known here, nor who may call what (`gateway.identity`, `gateway.calls.tool_calls`).
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

import jiter
import msgspec

from actors.bus.directory import Directory
from actors.node.session_rules import Moment
from actors.stream.streams import Streams
from gateway.api.admin import Admin
from gateway.api.metrics import Metrics
from gateway.calls.answers import Answered, Reason, Refused
from gateway.calls.audit import OVER_HTTP, Origin, Via
from gateway.calls.catalogue import PAGE_TOOLS_DEFAULT, list_all_tools
from gateway.calls.tool_calls import ToolCalls
from gateway.calls.upstream_tools import UpstreamTools
from gateway.identity.tokens import Principal, TokenClass, TokenFault, Verifier
from gateway.mcp.endpoint import METADATA_PATH, McpEndpoint
from gateway.mcp.endpoint import PATH as MCP_PATH
from gateway.net.exchange import AsgiScope, BodyTooLarge, ClientGone, Exchange, Receive, Send
from gateway.net.pump import Pump
from gateway.observe.tracing import parse_traceparent
from gateway.streams.subscribe import Subscribe, asks_for_events, is_subscribe
from gateway.streams.subscriptions import Subscriptions
from schemas.errors import Code
from schemas.registry import REGISTRY, Schema

Handler: TypeAlias = Callable[[Exchange], Awaitable[None]]
ANY = "*"  # the handler looks at the method itself
IMMUTABLE = b"public, max-age=31536000, immutable"


class App:
    def __init__(
        self,
        directory: Directory,
        verifier: Verifier,
        jwks: Mapping[str, Any],
        new_id: Callable[[], str],
        now: Callable[[], Moment],
        is_ready: Callable[[], Awaitable[bool]],
        streams: Streams,
        pump: Pump,
        calls: ToolCalls,
        mcp: McpEndpoint | None = None,
        admin: Admin | None = None,
        metrics: Metrics | None = None,
        upstreams: UpstreamTools | None = None,
    ) -> None:
        self._upstreams = upstreams
        self._directory = directory
        self._verifier = verifier
        self._jwks = jwks
        self._new_id = new_id
        self._now = now
        self._is_ready = is_ready
        self._admin = admin
        self._calls = calls
        self._subscribe = Subscribe(Subscriptions(self._calls, streams, new_id, now), pump)
        self._routes: dict[str, tuple[str, Handler]] = {
            "/mcp/tools/call": ("POST", self._call),
            "/mcp/tools": ("GET", self._tools),
            "/schemas/": ("GET", self._schemas),
            "/devices": ("GET", self._devices),
            "/.well-known/jwks.json": ("GET", self._jwks_json),
            "/healthz": ("GET", self._healthz),
            "/readyz": ("GET", self._readyz),
        }
        if metrics is not None:
            self._routes["/metrics"] = ("GET", metrics.handle)
        if mcp is not None:
            self._routes[METADATA_PATH] = ("GET", mcp.metadata)
            self._routes[MCP_PATH] = (ANY, mcp.handle)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._refuse_websocket(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self._new_id)
        method, handler = self._routes.get(exchange.path) or self._route(exchange.path)
        try:
            if handler is None:
                await exchange.refuse_status(404, "No such route.", "GET /mcp/tools lists what there is to call.")
            elif method not in (exchange.method, ANY) and (exchange.method, method) != ("HEAD", "GET"):
                await exchange.refuse_method(method)
            else:
                await handler(exchange)
        except BodyTooLarge:
            await exchange.refuse_status(413, "The body is larger than 64 KiB.", "Send less in one request.")
        except ClientGone:
            return

    async def _refuse_websocket(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        async def send_before_upgrade(message: MutableMapping[str, Any]) -> None:
            await send({**message, "type": f"websocket.{message['type']}"})

        exchange = Exchange({**scope, "method": "GET"}, receive, send_before_upgrade, self._new_id)
        fix = "Ask without Upgrade. Nodes dial in elsewhere, at the address for devices."
        await exchange.refuse_status(404, "Nothing here speaks WebSocket.", fix)

    def _route(self, path: str) -> tuple[str, Handler | None]:
        """Of those that have a name in their path."""
        if self._admin is not None and path.startswith("/admin/"):
            return ANY, self._admin.handle
        if path.startswith("/schemas/"):
            return "GET", self._schema
        if path.startswith("/devices/") and path.endswith("/manifest"):
            return "GET", self._manifest
        return "", None

    async def _principal(self, exchange: Exchange) -> Principal | None:
        """Whom the token speaks for; None when the stranger has been turned away."""
        verdict = self._verifier.verify(exchange.bearer(), TokenClass.AGENT_RUNTIME, self._now().wall_ms)
        if isinstance(verdict, TokenFault):
            await exchange.refuse_stranger()
            return None
        return verdict

    # ---- tools ------------------------------------------------------------------------------------------------------

    async def _call(self, exchange: Exchange) -> None:
        principal = await self._principal(exchange)
        if principal is None:
            return
        body = exchange.body_now()
        if body is None:
            body = await exchange.body()
            # Once more: this body may have been long in coming, and a token revoked meanwhile must open nothing.
            principal = await self._principal(exchange)
            if principal is None:
                return
        request = _tool_and_arguments(body)
        if request is None:
            await exchange.refuse(
                Code.MANIFEST_INVALID,
                "The body is not a JSON object with tool and arguments.",
                'Send {"tool": NAME, "arguments": {...}} and nothing else.',
            )
            return
        tool, arguments = request
        parent = exchange.header(b"traceparent")
        origin = OVER_HTTP if parent is None else Origin(Via.HTTP, parse_traceparent(parent))
        answer: Answered | Refused | None
        if is_subscribe(tool) and asks_for_events(exchange.header(b"accept")):
            answer = await self._subscribe(exchange, principal, tool, arguments, origin)
        else:
            # A caller that hangs up cancels its call, and the node is told.
            answer = await exchange.unless_gone(
                lambda: self._calls.call_tool(principal, tool, arguments, origin=origin)
            )
        if answer is None:
            return
        if isinstance(answer, Answered) and answer.is_error:
            await exchange.refuse(
                Code.INTERNAL,
                "The tool itself reports that it failed.",
                "Call it over MCP, at /mcp, to read what it says; then correct the arguments and call again.",
                correlation_id=answer.correlation_id,
            )
        elif isinstance(answer, Answered):
            await exchange.json(answer.result)
        elif answer.reason is Reason.TOKEN:
            await exchange.refuse_stranger()
        else:
            more = {} if answer.retry_after_ms is None else {"retry_after_ms": answer.retry_after_ms}
            await exchange.refuse(
                answer.code, answer.message, answer.suggested_fix, correlation_id=answer.correlation_id, **more
            )

    async def _tools(self, exchange: Exchange) -> None:
        principal = await self._principal(exchange)
        if principal is None:
            return
        limit = exchange.query("limit") or str(PAGE_TOOLS_DEFAULT)
        cursor = exchange.query("cursor")
        page = None
        if limit.isascii() and limit.isdigit() and int(limit[:9]) > 0:
            wall_ms, allows = self._now().wall_ms, self._calls.allows(principal)
            page = await list_all_tools(
                self._directory, self._upstreams, principal, wall_ms, cursor, int(limit[:9]), allows
            )
        if page is None:
            await exchange.refuse(
                Code.MANIFEST_INVALID,
                "The cursor or the limit is not valid.",
                "Leave both out, or use the nextCursor of the page before and a positive limit.",
            )
            return
        more = {} if page.next_cursor is None else {"nextCursor": page.next_cursor}
        await exchange.json({"tools": [tool.listed for tool in page.tools], **more})

    # ---- schemas: public -------------------------------------------------------------------------------------------

    async def _schemas(self, exchange: Exchange) -> None:
        listing = [{"id": schema.id, "uri": schema.uri, "content_hash": schema.content_hash} for schema in REGISTRY]
        await exchange.json({"schemas": listing})

    async def _schema(self, exchange: Exchange) -> None:
        schema: Schema | None = REGISTRY.get(exchange.path.removeprefix("/schemas/"))
        if schema is None:
            await exchange.refuse_status(404, "No schema has this id.", "GET /schemas/ lists all ids.")
            return
        await _cacheable(exchange, schema.content_hash, schema.body, b"application/schema+json", IMMUTABLE)

    # ---- manifests --------------------------------------------------------------------------------------------------

    async def _devices(self, exchange: Exchange) -> None:
        principal = await self._principal(exchange)
        if principal is None:
            return
        devices = []
        for node_id in self._directory.ids(principal.tenant):
            record = self._directory.find(node_id)
            if record is not None:
                devices.append({"node_id": node_id, "manifest_etag": record.accepted.etag, "live": record.live})
        await exchange.json({"devices": devices})

    async def _manifest(self, exchange: Exchange) -> None:
        principal = await self._principal(exchange)
        if principal is None:
            return
        node_id = exchange.path.removeprefix("/devices/").removesuffix("/manifest")
        record = self._directory.find(node_id)
        if record is None or record.tenant != principal.tenant:
            await exchange.refuse_status(404, "No such node.", "GET /devices lists the nodes of your tenant.")
            return
        body = msgspec.json.encode(record.manifest)
        await _cacheable(exchange, record.accepted.etag, body, b"application/json", b"private, no-cache")

    # ---- the gateway itself -----------------------------------------------------------------------------------------

    async def _jwks_json(self, exchange: Exchange) -> None:
        await exchange.json(self._jwks, headers={b"cache-control": b"public, max-age=300"})

    async def _healthz(self, exchange: Exchange) -> None:
        await exchange.json({"status": "alive"})

    async def _readyz(self, exchange: Exchange) -> None:
        if await self._is_ready():
            await exchange.json({"status": "ready"})
        else:
            await exchange.refuse_status(503, "The gateway cannot serve now.", "Try again in a while.")


def _tool_and_arguments(body: bytes) -> tuple[str, Any] | None:
    """What a call's body asks for; None when it is of another shape."""
    try:
        request = jiter.from_json(body, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return None
    if not isinstance(request, dict) or request.keys() != {"tool", "arguments"} or not isinstance(request["tool"], str):
        return None
    return request["tool"], request["arguments"]


async def _cacheable(exchange: Exchange, tag: str, body: bytes, content_type: bytes, cache_control: bytes) -> None:
    """Answer with an ETag, or with 304 to who has it already."""
    headers = {b"etag": f'"{tag}"'.encode(), b"cache-control": cache_control}
    known = [part.strip().removeprefix("W/") for part in (exchange.header(b"if-none-match") or "").split(",")]
    if f'"{tag}"' in known or "*" in known:
        await exchange.answer(304, b"", content_type, headers)
    else:
        await exchange.answer(200, body, content_type, headers)
