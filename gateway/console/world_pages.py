"""What else a gateway has: upstreams and echo spaces. How many and how full, never what is in them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from actors.node.moment import Moment
from actors.space.settings import SpaceSettings
from gateway.calls.upstreams.life_rules import UpstreamState
from gateway.calls.upstreams.upstreams import Upstreams
from gateway.console.api import Answer, NoAnswer
from schemas.echo.names import is_ulid
from schemas.errors import Code

LIMITS = (
    "spaces_max",
    "connections_max",
    "keys_max",
    "kv_bytes_max",
    "files_max",
    "files_bytes_max",
    "total_bytes_max",
    "room_ttl_s",
)
"""Of the section `[echo]`, that are shown beside what there is."""


class SpacesAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cursor: Annotated[str, msgspec.Meta(max_length=64)] = ""


@dataclass(frozen=True, slots=True)
class SpacesShown:
    """Where there are spaces."""

    settings: SpaceSettings
    count: Callable[[], int]  # live, and those that are not erased yet
    page: Callable[[str], Awaitable[Mapping[str, Any] | None]]
    """As `GET /admin/spaces` has them behind this id; None when what they have cannot be read."""


async def spaces_page(spaces: SpacesShown | None, ask: SpacesAsk) -> Answer:
    if spaces is None:
        return {"spaces": [], "total": 0, "limits": None}
    if ask.cursor and not is_ulid(ask.cursor):
        return NoAnswer(
            Code.MANIFEST_INVALID, "The cursor is not valid.", "Leave it out, or use the nextCursor of the page before."
        )
    page = await spaces.page(ask.cursor)
    if page is None:
        return NoAnswer(Code.INTERNAL, "What spaces have cannot be read.", "See the gateway's log.")
    return {**page, "total": spaces.count(), "limits": {name: getattr(spaces.settings, name) for name in LIMITS}}


def upstreams_page(upstreams: Upstreams, now: Moment) -> Answer:
    return {
        "upstreams": [
            {
                "name": rules.name,
                "transport": "stdio" if rules.url is None else "http",
                "tenants": sorted(rules.tenants),
                "state": UpstreamState.DOWN if one is None else one.state,
                "since_ms": None if one is None else now.wall_ms - round((now.mono_s - one.since_s) * 1000),
                "tools": 0 if one is None else len(one.tools),
                "calls": 0 if one is None else one.calls,
                "last_error": None if one is None else one.last_end,
            }
            for rules, one in upstreams.looks()
        ]
    }
