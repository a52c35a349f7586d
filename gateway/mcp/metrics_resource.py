"""A node's latest metrics as the resource `metrics://{node_id}`: names, lists, and the tools that stand behind it.

Reading needs what `snapshot` needs, subscribing what `subscribe` needs; a node with several capabilities of that kind
is represented by the first in the order of names.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from actors.bus.directory import Directory
from gateway.calls.paging import LOOKS_MAX, page_behind
from gateway.identity.scopes import authorize
from gateway.identity.tokens import Principal
from schemas.projection import Tool

KIND = "system.metrics"
_URI = re.compile(r"metrics://([0-9a-hjkmnp-tv-z]{26})\Z")

TEMPLATE = {
    "uriTemplate": "metrics://{node_id}",
    "name": "metrics",
    "title": "Latest metrics of a node",
    "description": "CPU, memory, disk and load of one node, sampled when it is read. Subscribe to hear of new samples.",
    "mimeType": "application/json",
}


@dataclass(frozen=True, slots=True)
class Page:
    node_ids: list[str]
    next_cursor: str | None


def uri_of(node_id: str) -> str:
    return f"metrics://{node_id}"


def node_of_uri(uri: str) -> str | None:
    match = _URI.match(uri)
    return match[1] if match else None


def describe_resource(node_id: str) -> dict[str, Any]:
    return {
        "uri": uri_of(node_id),
        "name": f"metrics of {node_id}",
        "description": TEMPLATE["description"],
        "mimeType": TEMPLATE["mimeType"],
    }


def tool_for(directory: Directory, node_id: str, verb: str) -> Tool | None:
    """The tool behind the resource of this node, whether it is live or not."""
    return _first(_tools_of(directory, node_id), verb)


async def list_metrics(
    directory: Directory,
    principal: Principal,
    wall_ms: int,
    after: str | None,
    limit: int,
    allows: Callable[[str], bool] = lambda _: True,
) -> Page | None:
    """One page of live nodes whose metrics the principal may read, behind the node `after`; None when that is none."""
    if after is not None and node_of_uri(uri_of(after)) is None:
        return None
    node_ids, has_more = await page_behind(after or "", partial(_look, directory, principal, wall_ms, allows), limit)
    return Page(node_ids, node_ids[-1] if has_more else None)


def _look(
    directory: Directory, principal: Principal, wall_ms: int, allows: Callable[[str], bool], behind: str, room: int
) -> tuple[list[str], str | None]:
    nodes = directory.live_ids(principal.tenant)
    found: list[str] = []
    looks = 0
    for index in range(bisect_right(nodes, behind), len(nodes)):
        node_id = nodes[index]
        record = directory.find(node_id)
        tools = () if record is None or record.is_expired(wall_ms) else record.tools
        looks += 1 + len(tools)
        tool = _first(tools, "snapshot")
        if tool is not None and authorize(principal, tool, principal.tenant, wall_ms) is None and allows(tool.name):
            found.append(node_id)
        if len(found) == room or looks >= LOOKS_MAX:
            return found, node_id
    return found, None


def _tools_of(directory: Directory, node_id: str) -> Sequence[Tool]:
    record = directory.find(node_id)
    return () if record is None else record.tools


def _first(tools: Sequence[Tool], verb: str) -> Tool | None:
    return next((tool for tool in tools if tool.target.kind == KIND and tool.target.verb == verb), None)
