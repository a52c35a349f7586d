"""The methods of MCP over the fleet: `(principal, method, params) → result`, as plain JSON values.

Nothing here knows of a session, an era or the SDK. A tool that fails has a result with `isError` and the error
envelope, so that a model can read it and recover; what is no result at all raises `RpcError` (decisions 14 and 21).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from actors.bus.directory import Directory
from actors.node.moment import Moment
from gateway.calls.answers import Reason
from gateway.calls.audit import Origin, Via
from gateway.calls.flat_names import target_of
from gateway.calls.tool_calls import Answered, Refused, ToolCalls
from gateway.calls.upstream_tools import UpstreamTools
from gateway.identity.tokens import Principal
from gateway.mcp.errors import bad_cursor, denied, failed, not_authorized, resource_not_found, tool_not_found
from gateway.mcp.metrics_resource import TEMPLATE, describe_resource, list_metrics, node_of_uri, tool_for, uri_of
from gateway.mcp.settings import McpSettings
from gateway.mcp.tool_results import CORRELATION_ID, Result, tool_failure, tool_result
from gateway.mcp.views import NAMED, Sources, View
from gateway.observe.tracing import parse_traceparent
from schemas.errors import Code, ErrorEnvelope, envelope
from schemas.projection import ToolName

Params: TypeAlias = Mapping[str, Any]

_NO_SUCH_TOOL = (Code.MANIFEST_NOT_FOUND, Code.KIND_UNSUPPORTED, Code.VERB_UNSUPPORTED)


class Methods:
    def __init__(
        self,
        directory: Directory,
        calls: ToolCalls,
        now: Callable[[], Moment],
        settings: McpSettings | None = None,
        upstreams: UpstreamTools | None = None,
        view: View = NAMED,
    ) -> None:
        self.view = view
        self._sources = Sources(directory, calls, upstreams)
        self._upstreams = upstreams
        self._directory = directory
        self._calls = calls
        self._now = now
        self._settings = settings or McpSettings()
        self._handlers: dict[str, Callable[[Principal, Params], Awaitable[Result]]] = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
        }

    async def handle(self, principal: Principal, method: str, params: Params) -> Result:
        """`params` have the shape that the protocol gives them. Raises RpcError."""
        return await self._handlers[method](principal, params)

    # ---- tools ------------------------------------------------------------------------------------------------------

    async def _list_tools(self, principal: Principal, params: Params) -> Result:
        limit, cursor, wall_ms = self._settings.page_items_max, params.get("cursor"), self._now().wall_ms
        page = await self.view.list_tools(self._sources, principal, wall_ms, cursor, limit)
        if page is None:
            raise bad_cursor()
        return _page("tools", *page)

    def tools_version(self, principal: Principal) -> Callable[[], object] | None:
        """Where the tools of this view do not change with the nodes: another object when they are others."""
        upstreams, tenant = self._upstreams, principal.tenant
        if self.view.changes_with_nodes:
            return None
        return (lambda: None) if upstreams is None else (lambda: upstreams.flat_names(tenant))

    async def _call_tool(self, principal: Principal, params: Params) -> Result:
        name, origin = params["name"], origin_of(params)
        answer = await self._calls.call_tool(principal, name, params.get("arguments") or {}, origin=origin)
        if isinstance(answer, Answered):
            if answer.as_mcp is not None:
                return {**answer.as_mcp, "_meta": {CORRELATION_ID: answer.correlation_id}}
            return tool_result(answer.result, answer.correlation_id)
        if answer.code in _NO_SUCH_TOOL and answer.reason is Reason.NAME:
            raise tool_not_found(correlation_id=answer.correlation_id)
        _raise_if_denied(answer)
        fix = answer.suggested_fix
        if answer.code is Code.BAD_REQUEST:
            fix = _how_to_subscribe(target_of(name)) or fix
        return tool_failure(_envelope(answer, fix), answer.correlation_id)

    # ---- resources --------------------------------------------------------------------------------------------------

    async def _list_resources(self, principal: Principal, params: Params) -> Result:
        cursor, limit = params.get("cursor"), self._settings.page_items_max
        page = await list_metrics(
            self._directory, principal, self._now().wall_ms, cursor, limit, self._calls.allows(principal)
        )
        if page is None:
            raise bad_cursor()
        return _page("resources", [describe_resource(node_id) for node_id in page.node_ids], page.next_cursor)

    async def _list_templates(self, _: Principal, params: Params) -> Result:
        if params.get("cursor") is not None:
            raise bad_cursor()
        return {"resourceTemplates": [TEMPLATE]}

    async def _read_resource(self, principal: Principal, params: Params) -> Result:
        """The latest metrics are those that the node gives now: reading is a call of its `snapshot`."""
        uri = params["uri"]
        node_id = node_of_uri(uri)
        tool = tool_for(self._directory, node_id, "snapshot") if node_id is not None else None
        if tool is None or node_id is None:
            raise resource_not_found(uri)
        answer = await self._calls.call_tool(principal, tool.name, {}, origin=origin_of(params))
        if isinstance(answer, Answered):
            text = msgspec.json.encode(answer.result).decode()
            contents = [{"uri": uri_of(node_id), "mimeType": "application/json", "text": text}]
            return {"contents": contents, "_meta": {CORRELATION_ID: answer.correlation_id}}
        _raise_if_denied(answer)
        raise failed(_envelope(answer, answer.suggested_fix))


def origin_of(params: Params) -> Origin:
    """A call over MCP, with the caller's span if a W3C `traceparent` in `_meta` names one."""
    meta = params.get("_meta")
    return Origin(Via.MCP, parse_traceparent(meta.get("traceparent")) if isinstance(meta, Mapping) else None)


def _raise_if_denied(answer: Refused) -> None:
    """What governance, or a token's scope or tenant, does not allow is no result of the tool."""
    if answer.denial is not None:
        raise denied(answer.denial, answer.correlation_id)
    if answer.code is Code.SAFETY_DENIED:
        raise not_authorized(answer.suggested_fix, correlation_id=answer.correlation_id)


def _envelope(answer: Refused, suggested_fix: str | None) -> ErrorEnvelope:
    return envelope(
        answer.code,
        answer.message,
        suggested_fix,
        retry_after_ms=answer.retry_after_ms,
        correlation_id=answer.correlation_id,
        details=answer.details,
    )


def _page(what: str, items: list[Any], next_cursor: str | None) -> Result:
    return {what: items} if next_cursor is None else {what: items, "nextCursor": next_cursor}


def _how_to_subscribe(target: ToolName | Code) -> str | None:
    if not isinstance(target, ToolName):
        return None
    return (
        f"POST /mcp/tools/call with this tool and Accept: text/event-stream opens the stream; here, subscribe to the "
        f"resource {uri_of(target.node_id)}, or call the snapshot tool of this capability for one sample."
    )
