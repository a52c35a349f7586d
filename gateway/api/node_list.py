"""Nodes as operators see them (`actors.register.listed_node`), in pages, filtered."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import merge
from typing import Any

from actors.bus.directory import Directory, NodeRecord
from actors.register.events import Member
from actors.register.listed_node import ListedNode, ListedState
from actors.register.register import Register
from gateway.api.pages import NODE_ID, PAGE_NODES_DEFAULT, PAGE_NODES_WITH_TOOLS_MAX, PAGE_OF_NODES, wanted_limit
from gateway.calls.paging import LOOKS_MAX, page_behind
from gateway.net.exchange import Exchange
from gateway.net.operation import Schema
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.labels import TAG_RULE, is_tag

QUERY: Mapping[str, Schema] = {
    **PAGE_OF_NODES,
    "name": {"type": "string"},
    "tag": {"type": "array", "items": {"type": "string"}},
    "state": {"enum": [state.value for state in ListedState]},
    "tenant": {"type": "string"},
}
CURSOR_RULE = "Leave them out, or use the nextCursor of the page before and a positive limit."


def shown(node: ListedNode, wall_ms: int) -> dict[str, Any]:
    known = node.known
    member = node.member or Member(known.node_id, known.tenant)
    return {
        "node_id": member.node_id,
        "tenant": member.tenant,
        "name": member.name,
        "tags": member.tags,
        "state": node.state(wall_ms),
        "enrolled_at_ms": member.enrolled_at_ms,
        "revoked_at_ms": member.revoked_at_ms,
        **_session(node.record, wall_ms),
        "left": None if node.left is None else _said(node.left),
    }


def _session(record: NodeRecord | None, wall_ms: int) -> dict[str, Any]:
    if record is None:
        nothing = dict.fromkeys(("since_ms", "last_seen_ms", "agent", "expires_at_ms"))
        return {"live": False, "tools": [], **nothing}
    return {
        "live": record.live,
        "since_ms": record.since_ms,
        "last_seen_ms": record.last_seen_ms(wall_ms),
        "agent": record.agent,
        "tools": [tool.name for tool in record.tools],
        "expires_at_ms": record.manifest["expires_at_ms"],
    }


def _said(close: NodeClose) -> dict[str, Any]:
    return {"code": close.value.code, "reason": close.value.reason}


@dataclass(frozen=True, slots=True)
class Filter:
    tags: tuple[str, ...] = ()  # all of these
    state: ListedState | None = None
    tenant: str | None = None
    name: str | None = None

    def takes(self, node: ListedNode, wall_ms: int) -> bool:
        if self.tenant not in (None, node.known.tenant):
            return False
        if self.name is not None and (node.member is None or node.member.name != self.name):
            return False
        if self.state is not None and node.state(wall_ms) is not self.state:
            return False
        return not self.tags or (node.member is not None and set(self.tags) <= set(node.member.labels.tag_texts))


class NodeList:
    def __init__(self, register: Register, directory: Directory, wall_ms: Callable[[], int]) -> None:
        self._register = register
        self._directory = directory
        self._wall_ms = wall_ms

    def __iter__(self) -> Iterator[ListedNode]:
        """All of them, in the order of their ids."""
        return (node for node_id in self._ids("") if (node := self._node(node_id)) is not None)

    def _node(self, node_id: str) -> ListedNode | None:
        """None for one that is forgotten, or was."""
        member, record = self._register.find(node_id), self._directory.find(node_id)
        if member is None and record is None:
            return None
        return None if member is not None and member.is_forgotten else ListedNode(member, record)

    def _ids(self, behind: str) -> Iterable[str]:
        """Each once."""
        last = behind
        members, announced = self._register.ids, self._directory.ids()
        for node_id in merge(_behind(members, behind), _behind(announced, behind)):
            if node_id != last:
                last = node_id
                yield node_id

    async def page(self, exchange: Exchange) -> Mapping[str, Any] | None:
        """What the request asks for; None when that was refused."""
        limit, cursor = wanted_limit(exchange, PAGE_NODES_DEFAULT), exchange.query("cursor")
        if limit is None or (cursor is not None and not NODE_ID.search(cursor)):
            await exchange.refuse(Code.MANIFEST_INVALID, "The cursor or the limit is not valid.", CURSOR_RULE)
            return None
        tags, state = tuple(exchange.queries("tag")), exchange.query("state")
        if not all(map(is_tag, tags)):
            await exchange.refuse(Code.MANIFEST_INVALID, "A tag to look for is not of the right shape.", TAG_RULE)
            return None
        if state is not None and state not in list(ListedState):
            await exchange.refuse(
                Code.MANIFEST_INVALID, "There is no such state.", f"A state is one of {', '.join(ListedState)}."
            )
            return None
        wanted = Filter(
            tags, None if state is None else ListedState(state), exchange.query("tenant"), exchange.query("name")
        )
        look = partial(self._look, wanted)
        nodes, has_more = await page_behind(cursor or "", look, min(limit, PAGE_NODES_WITH_TOOLS_MAX))
        more = {"nextCursor": nodes[-1]["node_id"]} if has_more else {}
        return {"nodes": nodes, **more}

    def _look(self, wanted: Filter, behind: str, room: int) -> tuple[list[dict[str, Any]], str | None]:
        found: list[dict[str, Any]] = []
        wall_ms = self._wall_ms()
        for looks, node_id in enumerate(self._ids(behind), 1):
            node = self._node(node_id)
            if node is not None and wanted.takes(node, wall_ms):
                found.append(shown(node, wall_ms))
            if len(found) == room or looks == LOOKS_MAX:
                return found, node_id
        return found, None


def _behind(ids: Any, behind: str) -> Iterator[str]:
    return (ids[index] for index in range(bisect_right(ids, behind), len(ids)))
