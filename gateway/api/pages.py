"""Lists in pages: `?limit` and `?cursor` of a request, and pages of nodes, each at the cost of what it shows.

A cursor is a place in an order that everybody knows, not a thing that has to be there: one of another tenant, or of
nobody, tells no more than any other.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

from actors.bus.directory import Directory, NodeRecord
from gateway.net.exchange import Exchange
from gateway.net.operation import Schema
from schemas.echo.names import ULID_PATTERN
from schemas.ecma import compile_ecma
from schemas.errors import Code
from schemas.registry import REGISTRY

PAGE_NODES_DEFAULT = 200
PAGE_NODES_MAX = 1000  # asked for more: this many
PAGE_NODES_WITH_TOOLS_MAX = 200  # the same where each is shown with its tools, of which it may have hundreds

NODE_ID_SCHEMA: Mapping[str, Any] = REGISTRY["manifest@1.0.0"].document["properties"]["node_id"]
NODE_ID = compile_ecma(NODE_ID_SCHEMA["pattern"])
LIMIT_SCHEMA: Mapping[str, Any] = {"type": "integer", "minimum": 1}
ID_SCHEMA: Mapping[str, Any] = {"type": "string", "pattern": ULID_PATTERN}
PAGE_OF_NODES: Mapping[str, Schema] = {"limit": LIMIT_SCHEMA, "cursor": NODE_ID_SCHEMA}
PAGE_OF_IDS: Mapping[str, Schema] = {"limit": LIMIT_SCHEMA, "cursor": ID_SCHEMA}


def wanted_limit(exchange: Exchange, default: int) -> int | None:
    """How many things to show; None when that is no positive number."""
    limit = exchange.query("limit") or str(default)
    return int(limit[:9]) or None if limit.isascii() and limit.isdigit() else None


async def refuse_page(exchange: Exchange) -> None:
    await exchange.refuse(
        Code.MANIFEST_INVALID,
        "The cursor or the limit is not valid.",
        "Leave both out, or use the nextCursor of the page before and a positive limit.",
    )


async def answer_with_nodes(
    exchange: Exchange,
    directory: Directory,
    tenant: str | None,
    what: str,
    show: Callable[[NodeRecord], Mapping[str, Any]],
    limit_max: int = PAGE_NODES_MAX,
) -> None:
    """The page that the request asks for, of the nodes of a tenant (None: of all) that ever announced themselves."""
    limit, cursor = wanted_limit(exchange, PAGE_NODES_DEFAULT), exchange.query("cursor")
    if limit is None or (cursor is not None and not NODE_ID.search(cursor)):
        await refuse_page(exchange)
        return
    ids = directory.ids(tenant)
    first = 0 if cursor is None else bisect_right(ids, cursor)
    shown = ids[first : first + min(limit, limit_max)]
    more = {"nextCursor": shown[-1]} if first + len(shown) < len(ids) else {}
    records = [record for record in map(directory.find, shown) if record is not None]
    await exchange.json({what: [show(record) for record in records], **more})
