"""The list of `/mcp/fleet`: our own tools by kind, then those of upstreams. No node is looked at.

What a token sees of the kinds follows from its scopes and from the policy's patterns alone, so the list costs the same
however many nodes there are, and does not change as they come and go.
"""

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

from gateway.calls.upstream_tools import UpstreamTools
from gateway.identity.scopes import may_look, needed_scope, scopes_of
from gateway.identity.tokens import Principal
from schemas.fleet_tools import KIND_TOOLS, LOOK_TOOLS, FleetTool
from schemas.projection import KINDS


def own_tools(
    principal: Principal, wall_ms: int, could_allow: Callable[[str, str], bool], allows: Callable[[str], bool]
) -> list[FleetTool]:
    """In the order of their names."""
    scopes = scopes_of(principal, wall_ms)
    kinds = (
        tool
        for tool in KIND_TOOLS.values()
        if needed_scope(tool.safety_class, tool.verb) in scopes and could_allow(KINDS[tool.kind].short, tool.verb)
    )
    looks = LOOK_TOOLS.values() if may_look(principal, wall_ms) is None else ()
    return sorted(chain(kinds, (tool for tool in looks if allows(tool.name))), key=lambda tool: tool.name)


def list_fleet(
    upstreams: UpstreamTools | None,
    principal: Principal,
    wall_ms: int,
    after: str | None,
    limit: int,
    could_allow: Callable[[str, str], bool],
    allows: Callable[[str], bool],
) -> tuple[list[Mapping[str, Any]], str | None] | None:
    """One page behind the tool `after`, which is a name of ours or an upstream's own; None when it is neither."""
    is_of_upstream = after is not None and upstreams is not None and upstreams.shows(principal, after)
    if after is not None and not is_of_upstream and after not in KIND_TOOLS and after not in LOOK_TOOLS:
        return None
    found: list[tuple[str, Mapping[str, Any]]] = []
    if not is_of_upstream:
        own = own_tools(principal, wall_ms, could_allow, allows)
        found = [(tool.name, tool.listed) for tool in own if after is None or tool.name > after]
    if upstreams is not None:
        flat = upstreams.flat_names(principal.tenant).by_name
        for tool in upstreams.tools(principal, wall_ms, after if is_of_upstream else None):
            if len(found) > limit:
                break
            if tool.name in flat and allows(tool.name):
                found.append((tool.name, {**tool.listed, "name": flat[tool.name]}))
    page = found[:limit]
    return [listed for _, listed in page], page[-1][0] if len(found) > limit else None
