"""The conformance profile: fixtures that the official suite wants, added to the MCP server of a real gateway.

Whatever is not a fixture goes to the gateway's own handlers, so a list has the gateway's things first, then fixtures.
Everything around the handlers (door, tokens, sessions, transport, eras) is the gateway's. Tests only.
"""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import mcp_types as types
import trio
from mcp.server.caching import CacheHint
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from gateway.mcp.binding import Binding
from gateway.mcp.lane import CALLER
from gateway.mcp.watch import Changed
from tests.conformance import fixtures, input_required
from tests.conformance.fixtures import embedded, image, text

Context: TypeAlias = ServerRequestContext[Any, Any]
Result: TypeAlias = dict[str, Any]
Tool: TypeAlias = Callable[[Context, dict[str, Any]], Awaitable[Result]]

_TEMPLATE_URI = re.compile(r"test://template/([^/]+)/data\Z")


class Profile(Binding):
    streams_answers = True  # progress, log messages and questions to the client come before a result

    def __init__(self, change_tools: Callable[[], None], *parts: Any) -> None:
        """`change_tools` makes the gateway believe that its tools have changed."""
        super().__init__(*parts)
        self._change_tools = change_tools
        self._subscribed: set[str] = set()
        self._tools: dict[str, Tool] = {
            "test_error_handling": _fail,
            "test_tool_with_logging": _log,
            "test_logging_tool": _log,
            "test_tool_with_progress": _report_progress,
            "test_sampling": _sample,
            "test_elicitation": _elicit,
            "test_elicitation_sep1034_defaults": _elicit,
            "test_elicitation_sep1330_enums": _elicit,
            "test_missing_capability": _need_sampling,
            "test_trigger_tool_change": self._trigger_tool_change,
        }
        for name in fixtures.CONSTANT_TOOLS:
            self._tools[name] = _say_the_same
        for name in (*input_required.TOOLS, input_required.MULTI_ROUND, input_required.BY_CAPABILITY):
            self._tools[name] = _ask_first

    def make_server(self) -> Server[Any]:
        server = super().make_server()
        server.get_tool_input_schema = fixtures.INPUT_SCHEMAS.get
        server.cache_hints["prompts/list"] = CacheHint(ttl_ms=60_000, scope="public")
        seal = RequestStateSecurity(
            keys=["only for the time of one conformance run"],
            bind_principal=_token_id,
        )
        server.middleware.append(RequestStateBoundary(seal, default_audience=server.name))
        listed = [_described(name) for name in sorted(self._tools)]
        _extend_list(server, "tools/list", "tools", listed)
        _extend_list(server, "resources/list", "resources", fixtures.RESOURCES)
        _extend_list(server, "resources/templates/list", "resourceTemplates", [fixtures.TEMPLATE])
        _extend(server, "tools/call", self._call_tool)
        _extend(server, "resources/read", _read_resource)
        _extend(server, "resources/subscribe", self._subscribe_fixture)
        _extend(server, "resources/unsubscribe", self._unsubscribe_fixture)
        _extend(server, "server/discover", _discover(server))
        for method, params_type, handler in (
            ("prompts/list", types.PaginatedRequestParams, _list_prompts),
            ("prompts/get", types.GetPromptRequestParams, _get_prompt),
            ("completion/complete", types.CompleteRequestParams, _complete),
            ("logging/setLevel", types.SetLevelRequestParams, _set_level),
        ):
            server.add_request_handler(method, params_type, _complete_in_its_era(handler))
        return server

    async def _call_tool(self, ctx: Context) -> Result | None:
        params = dict(ctx.params or {})
        tool = self._tools.get(params["name"])
        return None if tool is None else await tool(ctx, params)

    async def _trigger_tool_change(self, _: Context, __: dict[str, Any]) -> Result:
        await trio.lowlevel.checkpoint()
        self._change_tools()
        if not self.view.changes_with_nodes:  # then only upstreams change the list, and there are none here
            for watch in list(self._watches._open):  # noqa: SLF001
                if Changed.TOOLS in watch._lists:  # noqa: SLF001
                    watch.tell(Changed.TOOLS)
        return {"content": [text("The list of tools has changed.")]}

    async def _subscribe_fixture(self, ctx: Context) -> Result | None:
        await trio.lowlevel.checkpoint()
        uri = (ctx.params or {})["uri"]
        if uri not in fixtures.CONTENTS:
            return None
        self._subscribed.add(uri)
        return {}

    async def _unsubscribe_fixture(self, ctx: Context) -> Result | None:
        await trio.lowlevel.checkpoint()
        uri = (ctx.params or {})["uri"]
        if uri not in self._subscribed:
            return None
        self._subscribed.discard(uri)
        return {}


def _token_id(ctx: Context) -> str:
    assert ctx.request is not None
    return str(ctx.request.scope[CALLER].jti)


# ---- how a fixture comes before, or behind, what the gateway has ----------------------------------------------------


def _complete_in_its_era(
    handle: Callable[[Context], Awaitable[Result]],
) -> Callable[[Context, Any], Awaitable[HandlerResult]]:
    async def handler(ctx: Context, _: Any) -> HandlerResult:
        result = await handle(ctx)
        return {"resultType": "complete", **result} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else result

    return handler


def _extend(server: Server[Any], method: str, fixture: Callable[[Context], Awaitable[Result | None]]) -> None:
    """`fixture` answers, or gives None and leaves it to the gateway."""
    ours = server.get_request_handler(method)
    assert ours is not None

    async def handler(ctx: Context, params: Any) -> HandlerResult:
        result = await fixture(ctx)
        if result is None:
            return await ours.handler(ctx, params)
        return {"resultType": "complete", **result} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else result

    server.add_request_handler(method, ours.params_type, handler)


def _extend_list(server: Server[Any], method: str, key: str, items: list[dict[str, Any]]) -> None:
    """Fixtures come on the last page."""
    ours = server.get_request_handler(method)
    assert ours is not None

    async def handler(ctx: Context, params: Any) -> HandlerResult:
        page = await ours.handler(ctx, params)
        assert isinstance(page, dict)
        if "nextCursor" not in page:
            page[key] = [*page[key], *items]
        return page

    server.add_request_handler(method, ours.params_type, handler)


def _discover(server: Server[Any]) -> Callable[[Context], Awaitable[Result | None]]:
    """As the SDK does, but for prompts: there is no news of them, for the gateway has none."""
    ours = server.get_request_handler("server/discover")
    assert ours is not None

    async def discover(ctx: Context) -> Result:
        result = await ours.handler(ctx, None)
        assert isinstance(result, types.DiscoverResult)
        assert result.capabilities.prompts is not None
        result.capabilities.prompts.list_changed = False
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)

    return discover


# ---- tools ----------------------------------------------------------------------------------------------------------


def _described(name: str) -> dict[str, Any]:
    schema = fixtures.INPUT_SCHEMAS.get(name, fixtures.NO_INPUT)
    return {"name": name, "description": "For the conformance suite.", "inputSchema": schema}


async def _say_the_same(_: Context, params: dict[str, Any]) -> Result:
    await trio.lowlevel.checkpoint()
    return {"content": fixtures.CONSTANT_TOOLS[params["name"]]}


async def _fail(_: Context, __: dict[str, Any]) -> Result:
    await trio.lowlevel.checkpoint()
    return {"content": [text("This tool intentionally returns an error for testing")], "isError": True}


async def _log(ctx: Context, _: dict[str, Any]) -> Result:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", said, related_request_id=ctx.request_id)
    return {"content": [text("Three messages were logged.")]}


async def _report_progress(ctx: Context, _: dict[str, Any]) -> Result:
    for progress in (0, 50, 100):
        await ctx.session.report_progress(progress, 100)
    return {"content": [text("Progress was reported three times.")]}


async def _sample(ctx: Context, params: dict[str, Any]) -> Result:
    """In the handshake era the server asks on the stream of the call itself."""
    question = types.SamplingMessage(role="user", content=types.TextContent(text=params["arguments"]["prompt"]))
    answer = await ctx.session.create_message([question], max_tokens=100, related_request_id=ctx.request_id)
    said = answer.content.text if isinstance(answer.content, types.TextContent) else ""
    return {"content": [text(f"LLM response: {said}")]}


async def _elicit(ctx: Context, params: dict[str, Any]) -> Result:
    asked, schema = {
        "test_elicitation_sep1034_defaults": ("Please check these values", fixtures.DEFAULTS_FORM),
        "test_elicitation_sep1330_enums": ("Please choose", fixtures.ENUMS_FORM),
    }.get(params["name"]) or (params["arguments"]["message"], fixtures.USER_FORM)
    answer = await ctx.session.elicit_form(asked, schema, related_request_id=ctx.request_id)
    content = json.dumps(answer.content)
    return {"content": [text(f"Elicitation completed: action={answer.action}, content={content}")]}


async def _need_sampling(ctx: Context, _: dict[str, Any]) -> Result:
    await trio.lowlevel.checkpoint()
    client = ctx.session.client_capabilities
    if client is None or client.sampling is None:
        raise input_required.missing_capability({"sampling": {}})
    return {"content": [text("The client can sample.")]}


async def _ask_first(ctx: Context, params: dict[str, Any]) -> Result:
    await trio.lowlevel.checkpoint()
    return input_required.tool_result(params["name"], params, ctx.session.client_capabilities)


# ---- resources, prompts and the rest --------------------------------------------------------------------------------


async def _read_resource(ctx: Context) -> Result | None:
    await trio.lowlevel.checkpoint()
    uri = (ctx.params or {})["uri"]
    if uri in fixtures.CONTENTS:
        return {"contents": [{"uri": uri, **fixtures.CONTENTS[uri]}]}
    templated = _TEMPLATE_URI.match(uri)
    if templated is None:
        return None
    data = {"id": templated[1], "templateTest": True, "data": f"Data for ID: {templated[1]}"}
    return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]}


async def _list_prompts(_: Context) -> Result:
    await trio.lowlevel.checkpoint()
    return {"prompts": fixtures.PROMPTS}


async def _get_prompt(ctx: Context) -> Result:
    await trio.lowlevel.checkpoint()
    params = ctx.params or {}
    given = params.get("arguments") or {}
    match params["name"]:
        case "test_simple_prompt":
            said = [text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            said = [text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")]
        case "test_prompt_with_embedded_resource":
            resource = embedded(given.get("resourceUri", ""), "text/plain", "Embedded resource content for testing.")
            said = [resource, text("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            said = [image(), text("Please analyze the image above.")]
        case input_required.PROMPT:
            return input_required.prompt_result(params, ctx.session.client_capabilities)
        case _:
            raise MCPError(INVALID_PARAMS, "Unknown prompt")
    return {"messages": [{"role": "user", "content": content} for content in said]}


async def _complete(_: Context) -> Result:
    await trio.lowlevel.checkpoint()
    return {"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}}


async def _set_level(_: Context) -> Result:
    await trio.lowlevel.checkpoint()
    return {}
