"""What is shown of one node, and which streams are open.

Nothing here is a device's own text: capabilities and verbs are of closed sets or fixed forms, titles and schemas ours,
`agent` what operators' routes have too.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Annotated, Any

import msgspec

from actors.bus.directory import Directory, NodeRecord
from actors.log.store import LogStore
from actors.node.limit_rules import CapabilityUse
from actors.node.moment import Moment
from actors.stream.streams import OpenStream, Streams
from gateway.console.api import Answer, NoAnswer
from gateway.console.fleet_table import Roll
from gateway.console.live import Live
from gateway.console.node_ids import NO_SUCH_NODE, NodeId
from gateway.observe.command_history import command_history
from schemas.certificates import Leaf
from schemas.errors import Code
from schemas.labels import is_node_id
from schemas.projection import Tool

STREAMS_MAX = 1_000  # in one answer; of more, how many there are
NODE_STREAMS_MAX = 100  # of one node; the same
CAPABILITIES_MAX = 100  # of a node, each with its tools and their schemas; of more, how many there are


class NodeAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node_id: NodeId


class HistoryAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node_id: NodeId
    after: Annotated[int, msgspec.Meta(ge=0, lt=10**15)] = 0


class NodePages:
    def __init__(
        self,
        live: Live,
        directory: Directory,
        register: Roll,
        streams: Streams,
        store: LogStore,
        uses_of: Callable[[str], Mapping[tuple[str, str], CapabilityUse]],
        leafs_of: Callable[[str], Iterable[Leaf]],
        now: Callable[[], Moment],
    ) -> None:
        self._live = live
        self._directory = directory
        self._register = register
        self._streams = streams
        self._store = store
        self._uses_of = uses_of
        self._leafs_of = leafs_of
        self._now = now

    async def node(self, node_id: str) -> Answer:
        row = await self._live.row(node_id)
        if row is None:
            return NO_SUCH_NODE
        member, record = self._register.find(node_id), self._directory.find(node_id)
        streams = list(self._streams.looks(node_id))
        return {
            **row,
            "enrolled_at_ms": None if member is None else member.enrolled_at_ms,
            **self._session(node_id, record),
            "streams": [self._stream(one) for one in streams[:NODE_STREAMS_MAX]],
            "streams_total": len(streams),
            "certificates": [
                {"kid": leaf.kid, "not_before_ms": leaf.not_before_ms, "not_after_ms": leaf.not_after_ms}
                for leaf in sorted(self._leafs_of(node_id), key=lambda leaf: leaf.not_after_ms, reverse=True)
            ],
        }

    def _session(self, node_id: str, record: NodeRecord | None) -> dict[str, Any]:
        if record is None:
            nothing = dict.fromkeys(("agent", "expires_at_ms", "epoch", "owner"))
            return {**nothing, "capabilities": [], "capabilities_total": 0}
        tools: dict[tuple[str, str], list[Tool]] = {}
        for tool in record.tools:
            tools.setdefault((tool.target.kind, tool.target.cap_id), []).append(tool)
        uses = self._uses_of(node_id)
        return {
            "agent": record.agent,
            "expires_at_ms": int(record.manifest["expires_at_ms"]),
            "epoch": record.epoch,
            "owner": record.owner,
            "capabilities": [
                _capability(kind, cap_id, of, uses.get((kind, cap_id)))
                for (kind, cap_id), of in islice(tools.items(), CAPABILITIES_MAX)
            ],
            "capabilities_total": len(tools),
        }

    async def history(self, ask: HistoryAsk) -> Answer:
        """As `GET /admin/log`: also of a node that is forgotten, as long as the log has it."""
        if not is_node_id(ask.node_id):
            return NO_SUCH_NODE
        events = await command_history(self._store, ask.node_id, ask.after)
        if events is None:
            return NoAnswer(Code.INTERNAL, "The history of this node cannot be read.", "See the gateway's log.")
        return {"events": events}

    def streams(self) -> Answer:
        found = list(islice(self._streams.looks(), STREAMS_MAX))
        total = len(found) if len(found) < STREAMS_MAX else len(self._streams.registry)
        return {"streams": [self._stream(one) for one in found], "total": total}

    def _stream(self, one: OpenStream) -> dict[str, Any]:
        now = self._now()
        node_id, tool, interval_ms = one.source
        return {
            "stream_id": one.stream_id,
            "node_id": node_id,
            "node_name": self._name_of(node_id),
            "tool": tool,
            "interval_ms": interval_ms,
            "sub": one.subscriber.sub,
            "tenant": one.subscriber.tenant,
            "since_ms": now.wall_ms - round((now.mono_s - one.opened_s) * 1000),
        }

    def _name_of(self, node_id: str) -> str | None:
        member = self._register.find(node_id)
        return None if member is None else member.name


def _capability(kind: str, cap_id: str, tools: list[Tool], use: CapabilityUse | None) -> dict[str, Any]:
    constraints = tools[0].constraints
    return {
        "cap_id": cap_id,
        "kind": kind,
        "verbs": [tool.target.verb for tool in tools],
        "safety_class": tools[0].safety_class,
        "tools": [
            {
                "name": tool.name,
                "title": tool.title,
                "verb": tool.target.verb,
                "input_schema": tool.listed["inputSchema"],
                "output_schema": tool.listed["outputSchema"],
                "safety_class": tool.safety_class,
            }
            for tool in tools
        ],
        "limits": {name: constraints[name] for name in ("rate_limit_rps", "max_concurrency")},
        "use": None if use is None else {"in_flight": use.in_flight, "tokens_left": use.tokens_left},
    }
