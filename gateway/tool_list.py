"""What a principal may call, in a fixed order and in pages: tools of live nodes of its own tenant.

Ordered by node, then by name, so that a page costs what it shows and a fleet's comings and goings do not move the rest.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from actors.fleet import Fleet
from gateway.access.scopes import authorize
from gateway.access.tokens import Principal
from schemas.projection import Tool, ToolName, parse_tool_name

PAGE_TOOLS_DEFAULT = 200
PAGE_TOOLS_MAX = 1000  # asked for more: this many


class Described(Protocol):
    """A tool as agents see it, wherever it is."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def input_schema(self) -> Mapping[str, Any]: ...

    @property
    def output_schema(self) -> Mapping[str, Any] | None: ...

    @property
    def annotations(self) -> dict[str, Any]: ...


class Elsewhere(Protocol):
    """Tools that are no device's: `gateway.upstreams`."""

    def has(self, name: str) -> bool: ...

    def tools(self, principal: Principal, wall_ms: int, after: str | None) -> Iterator[Described]: ...


@dataclass(frozen=True, slots=True)
class Page:
    tools: Sequence[Described]
    next_cursor: str | None  # the last name shown, when there are more


def list_tools(
    fleet: Fleet, principal: Principal, wall_ms: int, after: str | None = None, limit: int = PAGE_TOOLS_DEFAULT
) -> Page | None:
    """One page behind the tool named `after`; None when that is no name of a tool."""
    start = ("", "")
    if after is not None:
        target = parse_tool_name(after)
        if not isinstance(target, ToolName):
            return None
        start = (target.node_id, after)
    nodes = fleet.world.roster.live_ids(principal.tenant)
    tools: list[Tool] = []
    for node_id in islice(nodes, bisect_left(nodes, start[0]), None):
        retained = fleet.world.manifests.find(node_id)
        if retained is None or retained.is_expired(wall_ms):
            continue
        for tool in retained.accepted.tools:
            if (node_id, tool.name) <= start or authorize(principal, tool, retained.tenant, wall_ms) is not None:
                continue
            if len(tools) == min(limit, PAGE_TOOLS_MAX):
                return Page(tools, tools[-1].name)
            tools.append(tool)
    return Page(tools, None)


def list_all_tools(
    fleet: Fleet,
    elsewhere: Elsewhere | None,
    principal: Principal,
    wall_ms: int,
    after: str | None = None,
    limit: int = PAGE_TOOLS_DEFAULT,
) -> Page | None:
    """The same, and behind the last tool of a device those that are elsewhere. A cursor tells by its prefix which."""
    if elsewhere is None:
        return list_tools(fleet, principal, wall_ms, after, limit)
    limit = min(limit, PAGE_TOOLS_MAX)
    tools: list[Described] = []
    if after is None or not elsewhere.has(after):
        page = list_tools(fleet, principal, wall_ms, after, limit)
        if page is None or page.next_cursor is not None:
            return page
        tools, after = list(page.tools), None
    for tool in elsewhere.tools(principal, wall_ms, after):
        if len(tools) == limit:
            return Page(tools, tools[-1].name)
        tools.append(tool)
    return Page(tools, None)


def describe(tool: Described) -> dict[str, Any]:
    """The tool as an MCP client wants it."""
    given = {} if tool.output_schema is None else {"outputSchema": tool.output_schema}
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        **given,
        "annotations": tool.annotations,
    }
