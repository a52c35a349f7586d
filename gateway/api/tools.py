"""Tools over plain HTTP.

    POST /mcp/tools/call   {"tool", "arguments"} → the result itself, a stream, or an error envelope
    GET  /mcp/tools        what the token may call, in pages (?cursor, ?limit)

Who may call what is `gateway.calls`'; a call that asks for an event stream is passed on to whoever opens those.
"""

from collections.abc import Callable
from typing import Any, Protocol

import jiter

from actors.bus.directory import Directory
from actors.node.moment import Moment
from gateway.api.pages import refuse_page, wanted_limit
from gateway.calls.answers import Answered, Reason, Refused
from gateway.calls.audit import OVER_HTTP, Origin, Via
from gateway.calls.catalogue import PAGE_TOOLS_DEFAULT, list_all_tools
from gateway.calls.tool_calls import ToolCalls
from gateway.calls.upstream_tools import UpstreamTools
from gateway.governance.spend.rate_headers import rate_headers
from gateway.identity.authenticator import Authenticator, NotAdmitted
from gateway.identity.tokens import Principal, TokenFault
from gateway.net.exchange import CORRELATION_ID, Exchange
from gateway.net.router import Routes
from gateway.observe.tracing import parse_traceparent
from schemas.errors import Code


class EventStreams(Protocol):
    """Answers calls with event streams: `gateway.streams`."""

    def wants(self, exchange: Exchange, tool: str) -> bool:
        """Whether this call is one for it."""

    async def open(
        self, exchange: Exchange, principal: Principal, name: str, arguments: object, origin: Origin
    ) -> Refused | None:
        """None when there was a stream, or still is."""


class ToolRoutes:
    def __init__(
        self,
        agents: Authenticator,
        directory: Directory,
        calls: ToolCalls,
        streams: EventStreams,
        now: Callable[[], Moment],
        upstreams: UpstreamTools | None = None,
    ) -> None:
        self._agents = agents
        self._directory = directory
        self._calls = calls
        self._streams = streams
        self._now = now
        self._upstreams = upstreams
        self.routes: Routes = {"/mcp/tools/call": ("POST", self._call), "/mcp/tools": ("GET", self._list)}

    async def _call(self, exchange: Exchange) -> None:
        admitted = await self._agents.admit_with_body(exchange)
        if admitted is None:
            return
        principal, body = admitted
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
        if self._streams.wants(exchange, tool):
            answer = await self._streams.open(exchange, principal, tool, arguments, origin)
        else:
            # A caller that hangs up cancels its call, and the node is told.
            answer = await exchange.unless_gone(
                lambda: self._calls.call_tool(principal, tool, arguments, origin=origin)
            )
        if answer is None:
            return
        headers = rate_headers(answer.rates) if answer.rates else {}
        if isinstance(answer, Answered) and answer.is_error:
            await exchange.refuse(
                Code.INTERNAL,
                "The tool itself reports that it failed.",
                "Call it over MCP, at /mcp, to read what it says; then correct the arguments and call again.",
                headers=headers,
                correlation_id=answer.correlation_id,
            )
        elif isinstance(answer, Answered):
            headers[CORRELATION_ID] = answer.correlation_id.encode()
            await exchange.json(answer.result, headers=headers)
        elif answer.reason is Reason.TOKEN:
            await self._agents.refuse(exchange, NotAdmitted(TokenFault.REVOKED))
        else:
            more = {} if answer.retry_after_ms is None else {"retry_after_ms": answer.retry_after_ms}
            await exchange.refuse(
                answer.code,
                answer.message,
                answer.suggested_fix,
                headers=headers,
                correlation_id=answer.correlation_id,
                details=answer.details,
                **more,
            )

    async def _list(self, exchange: Exchange) -> None:
        principal = await self._agents.admit(exchange)
        if principal is None:
            return
        limit, cursor, page = wanted_limit(exchange, PAGE_TOOLS_DEFAULT), exchange.query("cursor"), None
        if limit is not None:
            wall_ms, allows = self._now().wall_ms, self._calls.allows(principal)
            page = await list_all_tools(self._directory, self._upstreams, principal, wall_ms, cursor, limit, allows)
        if page is None:
            await refuse_page(exchange)
            return
        more = {} if page.next_cursor is None else {"nextCursor": page.next_cursor}
        await exchange.json({"tools": [tool.listed for tool in page.tools], **more})


def _tool_and_arguments(body: bytes) -> tuple[str, Any] | None:
    """What a call's body asks for; None when it is of another shape."""
    try:
        request = jiter.from_json(body, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return None
    if not isinstance(request, dict) or request.keys() != {"tool", "arguments"} or not isinstance(request["tool"], str):
        return None
    return request["tool"], request["arguments"]
