"""What a principal may call, in a fixed order and in pages: tools of live nodes of its own tenant.

Ordered by node, then by name, so that a page costs what it shows and a fleet's comings and goings do not move the rest.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from actors.bus.directory import Directory
from gateway.calls.paging import LOOKS_MAX, page_behind
from gateway.calls.upstream_tools import ListedTool, UpstreamTools
from gateway.identity.scopes import authorize
from gateway.identity.tokens import Principal
from schemas.projection import Tool, ToolName, parse_tool_name

PAGE_TOOLS_DEFAULT = 200
PAGE_TOOLS_MAX = 1000  # asked for more: this many

_Place = tuple[str, str]  # a node, and a name of one of its tools
_LAST = "\x7f"  # behind every name


@dataclass(frozen=True, slots=True)
class TitledTool:
    """A device's tool, with what an operator calls the device."""

    tool: Tool
    node_name: str

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def listed(self) -> Mapping[str, Any]:
        return {"name": self.name, "title": f"{self.node_name}: {self.tool.title}", **self.tool.listed}


@dataclass(frozen=True, slots=True)
class Page:
    tools: Sequence[ListedTool]
    next_cursor: str | None  # the last name shown, when there are more


async def list_tools(
    directory: Directory,
    principal: Principal,
    wall_ms: int,
    after: str | None = None,
    limit: int = PAGE_TOOLS_DEFAULT,
    allows: Callable[[str], bool] = lambda _: True,
) -> Page | None:
    """One page behind the tool named `after`; None when that is no name of a tool. `allows` is the policy's word."""
    place: _Place = ("", "")
    if after is not None:
        target = parse_tool_name(after)
        if not isinstance(target, ToolName):
            return None
        place = (target.node_id, after)
    look = partial(_look, directory, principal, wall_ms, allows)
    tools, has_more = await page_behind(place, look, min(limit, PAGE_TOOLS_MAX))
    return Page(tools, tools[-1].name if has_more else None)


def _look(
    directory: Directory, principal: Principal, wall_ms: int, allows: Callable[[str], bool], behind: _Place, room: int
) -> tuple[list[ListedTool], _Place | None]:
    nodes = directory.live_ids(principal.tenant)
    found: list[ListedTool] = []
    looks = 0
    for index in range(bisect_left(nodes, behind[0]), len(nodes)):
        node_id = nodes[index]
        record = directory.find(node_id)
        looks += 1
        if record is not None and not record.is_expired(wall_ms):
            tools = record.tools
            node_name = record.labels.name
            first = bisect_right(tools, behind[1], key=lambda tool: tool.name) if node_id == behind[0] else 0
            for at in range(first, len(tools)):
                tool = tools[at]
                looks += 1
                if authorize(principal, tool, record.tenant, wall_ms) is None and allows(tool.name):
                    found.append(tool if node_name is None else TitledTool(tool, node_name))
                if len(found) == room or looks >= LOOKS_MAX:
                    return found, (node_id, tool.name)
        if looks >= LOOKS_MAX:
            return found, (node_id, _LAST)
    return found, None


async def list_all_tools(
    directory: Directory,
    upstreams: UpstreamTools | None,
    principal: Principal,
    wall_ms: int,
    after: str | None = None,
    limit: int = PAGE_TOOLS_DEFAULT,
    allows: Callable[[str], bool] = lambda _: True,
) -> Page | None:
    """The same, and behind the last tool of a device those of upstreams. A cursor's prefix says whose it is."""
    limit = min(limit, PAGE_TOOLS_MAX)
    tools: list[ListedTool] = []
    if upstreams is None or after is None or not upstreams.shows(principal, after):
        page = await list_tools(directory, principal, wall_ms, after, limit, allows)
        if upstreams is None or page is None or page.next_cursor is not None:
            return page
        tools, after = list(page.tools), None
    for tool in upstreams.tools(principal, wall_ms, after):
        if allows(tool.name):
            if len(tools) == limit:
                return Page(tools, tools[-1].name)
            tools.append(tool)
    return Page(tools, None)
