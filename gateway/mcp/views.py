"""The views of one fleet: which tools an endpoint lists, by which names, and what it tells a model first.

A view is a path, so a list never depends on the connection. What may be called is the same on all of them: a name that
another view lists is served too (`gateway.calls.names`).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from actors.bus.directory import Directory
from gateway.calls.catalogue import list_all_tools
from gateway.calls.flat_names import flat
from gateway.calls.fleet_catalogue import list_fleet
from gateway.calls.tool_calls import ToolCalls
from gateway.calls.upstream_tools import UpstreamTools
from gateway.identity.tokens import Principal
from schemas.projection import KIND_SHORTS

METADATA = "/.well-known/oauth-protected-resource"

Page: TypeAlias = tuple[list[Mapping[str, Any]], str | None]  # tools as MCP has them, and the cursor behind them


@dataclass(frozen=True, slots=True)
class Sources:
    directory: Directory
    calls: ToolCalls
    upstreams: UpstreamTools | None


# (sources, principal, wall_ms, cursor, limit) → a page; None when the cursor is none of this list's.
ListTools: TypeAlias = Callable[[Sources, Principal, int, str | None, int], Awaitable[Page | None]]


@dataclass(frozen=True, slots=True)
class View:
    path: str
    instructions: str
    list_tools: ListTools
    changes_with_nodes: bool  # the list of tools; else only upstreams change it

    @property
    def metadata_path(self) -> str:
        """Of its RFC 9728 document."""
        return METADATA + self.path


async def _as_named(
    sources: Sources, principal: Principal, wall_ms: int, cursor: str | None, limit: int
) -> Page | None:
    allows = sources.calls.allows(principal)
    page = await list_all_tools(sources.directory, sources.upstreams, principal, wall_ms, cursor, limit, allows)
    return None if page is None else ([tool.listed for tool in page.tools], page.next_cursor)


async def _flat(sources: Sources, principal: Principal, wall_ms: int, cursor: str | None, limit: int) -> Page | None:
    page = await _as_named(sources, principal, wall_ms, cursor, limit)
    if page is None:
        return None
    listed, next_cursor = page
    names = {} if sources.upstreams is None else sources.upstreams.flat_names(principal.tenant).by_name
    tools: list[Mapping[str, Any]] = [
        {**tool, "name": text}
        for tool, name in ((tool, tool["name"]) for tool in listed)
        if (text := flat(name) if name.partition(".")[0] in KIND_SHORTS else names.get(name)) is not None
    ]
    return tools, next_cursor


async def _fleet(sources: Sources, principal: Principal, wall_ms: int, cursor: str | None, limit: int) -> Page | None:
    calls = sources.calls
    return list_fleet(
        sources.upstreams, principal, wall_ms, cursor, limit, calls.could_allow(principal), calls.allows(principal)
    )


_ERRORS = "A result with isError carries an error envelope whose suggested_fix says what to do next."
_RESOURCE = "The latest metrics of a node are also the resource metrics://NODE, which can be subscribed to."

NAMED = View(
    "/mcp",
    "Each tool is a capability of one live device: KIND.NODE.CAPABILITY.VERB. Tools come and go with their devices. "
    "Tools named SERVER.TOOL, listed behind those of devices, are of other servers and described in their words. "
    f"{_ERRORS} {_RESOURCE}",
    _as_named,
    changes_with_nodes=True,
)
FLAT = View(
    "/mcp/flat",
    "Each tool is a capability of one live device: KIND-NODE-CAPABILITY-VERB. Tools come and go with their devices. "
    "Tools named SERVER-TOOL, listed behind those of devices, are of other servers and described in their words. "
    f"{_ERRORS} {_RESOURCE}",
    _flat,
    changes_with_nodes=True,
)
FLEET = View(
    "/mcp/fleet",
    "Each tool does one thing on any node of a fleet: say which with node, a node's id or name. fleet_find lists nodes "
    "by name, tag, state and kind; fleet_node tells what one can do. Nodes come and go; the tools stay. Tools named "
    f"SERVER-TOOL are of other servers and described in their words. {_ERRORS} {_RESOURCE}",
    _fleet,
    changes_with_nodes=False,
)
VIEWS = (NAMED, FLAT, FLEET)
