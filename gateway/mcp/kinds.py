"""Sessions of the kinds that features bring: how their requests are let in, how large they may be, and their methods.

They have tools and nothing else: no resources, no news, so no stream of their own (GET is 405). What is refused before
MCP is spoken has the form of echo's errors; a credential that nobody has is told what an agent's bad token is told.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import jiter
import mcp_types as types
import trio
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from gateway.main.session_kind import Caller, LargeShare, SessionKind, ToolDone, ToolUnknown
from gateway.mcp.binding import translated
from gateway.mcp.errors import bad_cursor, tool_not_found
from gateway.mcp.lane import CALLER, Lane, LaneFault, Transport
from gateway.mcp.large_requests import LargeRequests
from gateway.mcp.request_log import note
from gateway.mcp.sessions import Sessions
from gateway.mcp.tool_results import Result, tool_failure, tool_result
from gateway.net.echo_answers import Refusal, refuse
from gateway.net.exchange import BODY_BYTES_MAX, Exchange
from schemas.echo.errors import EchoError

SHARE = "heliograph.large_share"  # in the ASGI scope, for methods
_ALLOWED = "POST, DELETE"
_DOUBLED = "Detected duplicate key"  # how jiter begins to say so
_SAID = {
    LaneFault.DOUBLED_HEADER: EchoError.INVALID_PAYLOAD,
    LaneFault.DOUBLED_ID: EchoError.INVALID_PAYLOAD,
    LaneFault.STOPPING: EchoError.OVERLOADED,
    LaneFault.TOO_MANY_SESSIONS: EchoError.OVERLOADED,
}

Context = ServerRequestContext[Any, Any]


class KindEndpoint:
    def __init__(
        self,
        kind: SessionKind,
        path: str,
        transport: Transport,
        refuse_unknown: Callable[[Exchange], Awaitable[None]],
    ) -> None:
        """`transport` is that of agents. `refuse_unknown` tells whoever has no credential that is good here."""
        self._kind = kind
        self._refuse_unknown = refuse_unknown
        self._large = LargeRequests(kind.large_max, kind.large_of_accounts_max)
        own = replace(
            transport,
            body_bytes_max=kind.body_bytes_max,
            sessions_max=kind.limits.in_all_max,
            streams_answers=False,
        )
        name = f"{path[1:].replace('/', '_')}_{kind.name}"
        sessions = Sessions(kind.limits)
        self.lane = Lane(name, path, lambda: _make_server(kind), sessions, own, ends_at_ms=kind.ends_at_ms)
        self.claims = kind.claims
        kind.on_end = self.lane.revoke

    async def handle(self, exchange: Exchange, token: str) -> None:
        caller = self._kind.admit(exchange, token)
        if caller is None:
            await self._refuse_unknown(exchange)
        elif isinstance(caller, Refusal):
            await refuse(exchange, caller.error, retry_after_ms=caller.wait_ms)
        elif exchange.method not in ("POST", "DELETE"):
            note(exchange, self._kind.name, None)
            await refuse(exchange, EchoError.METHOD_NOT_ALLOWED, {b"allow": _ALLOWED.encode()})
        else:
            with self._large.request(caller.accounts) as share:
                await self._handle(exchange, caller, share)

    async def _handle(self, exchange: Exchange, caller: Caller, share: LargeShare) -> None:
        body = await self._body(exchange, share) if exchange.method == "POST" else None
        note(exchange, self._kind.name, body if isinstance(body, bytes) else None)
        if isinstance(body, EchoError):
            await refuse(exchange, body)
        elif not self._kind.is_good(caller):  # the body had to be waited for
            await self._refuse_unknown(exchange)
        else:
            fault = await self.lane.serve(exchange, caller, body, self._refuse_unknown, {SHARE: share})
            if fault is not None:
                await refuse(exchange, _SAID[fault])

    async def _body(self, exchange: Exchange, share: LargeShare) -> bytes | EchoError:
        """Counted as it comes: an announcement is enough to be refused, but takes no place from others."""
        exchange.pace_body(self._kind.body_pace, self._kind.refusal_form)
        chunks: list[bytes] = []
        size, announced = 0, exchange.announced_bytes()
        while True:
            if max(size, announced) > self._kind.body_bytes_max:
                return EchoError.PAYLOAD_TOO_LARGE
            if size > BODY_BYTES_MAX and not share.take():
                return EchoError.OVERLOADED
            chunk = await exchange.next_chunk()
            if chunk is None:
                body = b"".join(chunks)
                is_fit = size <= BODY_BYTES_MAX or self._kind.takes_large(body)
                return body if is_fit and not _has_doubled_members(body) else EchoError.INVALID_PAYLOAD
            chunks.append(chunk)
            size += len(chunk)


def _has_doubled_members(body: bytes) -> bool:
    """Of which the SDK would take the last and others the first. What is no JSON at all, the SDK says itself."""
    try:
        jiter.from_json(body, cache_mode="none", catch_duplicate_keys=True)
    except ValueError as error:
        return str(error).startswith(_DOUBLED)
    return False


def _make_server(kind: SessionKind) -> Server[Any]:
    async def list_tools(ctx: Context, _: Any) -> Result:
        await trio.lowlevel.checkpoint()
        with translated():
            if (ctx.params or {}).get("cursor") is not None:  # all of them are on one page
                raise bad_cursor()
        return _of_era(ctx, {"tools": list(kind.tools(_caller(ctx)))})

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> Result:
        assert ctx.request is not None
        share: LargeShare = ctx.request.scope[SHARE]
        with share:  # the call may outlive its request
            done = await kind.call(_caller(ctx), params.name, params.arguments or {}, share)
        with translated():
            if isinstance(done, ToolUnknown):
                raise tool_not_found(correlation_id=done.correlation_id)
        if isinstance(done, ToolDone):
            return _of_era(ctx, tool_result(done.document, done.correlation_id))
        return _of_era(ctx, tool_failure(done.error, done.correlation_id))

    server: Server[Any] = Server(
        "heliograph",
        version=version("heliograph"),
        title="Heliograph",
        instructions=kind.instructions,
        cache_hints={
            "server/discover": CacheHint(ttl_ms=60_000, scope="private"),
            "tools/list": CacheHint(ttl_ms=60_000, scope="private"),
        },
        get_tool_input_schema=lambda _: None,
    )
    server.middleware.clear()  # of tracing, which writes names that clients send
    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    return server


def _caller(ctx: Context) -> Caller:
    assert ctx.request is not None
    caller: Caller = ctx.request.scope[CALLER]
    return caller


def _of_era(ctx: Context, result: Result) -> Result:
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        result["resultType"] = "complete"
    return result
