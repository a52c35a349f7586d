"""A node's latest metrics as the resource `metrics://{node_id}`: names, lists, and the tools that stand behind it.

Reading needs what `snapshot` needs, subscribing what `subscribe` needs; a node with several capabilities of that kind
is represented by the first in the order of names.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice
from typing import Any

from actors.fleet import Fleet
from gateway.access.scopes import authorize
from gateway.access.tokens import Principal
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


def tool_for(fleet: Fleet, node_id: str, verb: str) -> Tool | None:
    """The tool behind the resource of this node, whether it is live or not."""
    retained = fleet.world.manifests.find(node_id)
    if retained is None:
        return None
    tools = (tool for tool in retained.accepted.tools if tool.target.kind == KIND and tool.target.verb == verb)
    return next(tools, None)


def list_metrics(fleet: Fleet, principal: Principal, wall_ms: int, after: str | None, limit: int) -> Page | None:
    """One page of live nodes whose metrics the principal may read, behind the node `after`; None when that is none."""
    if after is not None and node_of_uri(uri_of(after)) is None:
        return None
    nodes = fleet.world.roster.live_ids(principal.tenant)
    page: list[str] = []
    for node_id in islice(nodes, bisect_right(nodes, after or ""), None):
        tool = tool_for(fleet, node_id, "snapshot")
        retained = fleet.world.manifests.find(node_id)
        if tool is None or retained is None or retained.is_expired(wall_ms):
            continue
        if authorize(principal, tool, principal.tenant, wall_ms) is not None:
            continue
        if len(page) == limit:
            return Page(page, page[-1])
        page.append(node_id)
    return Page(page, None)
