"""`fleet_find` and `fleet_node`: which nodes there are and what is known of one, without asking any of them.

Admitted and audited like any call, under these names. Shown are nodes of the caller's tenant that have announced
themselves and have a tool that scope and policy let it use; of such a node only what it may use. What an operator calls
a node may be shown; what a device calls itself may not.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec

from actors.bus.bus import Bus
from actors.bus.directory import Directory, NodeRecord, Presence
from gateway.calls.admission import Admission, Admitted
from gateway.calls.answers import Answered, No, Reason, Refused
from gateway.calls.audit import CallRecord
from gateway.calls.onlooker import Onlooker
from gateway.calls.paging import LOOKS_MAX, page_behind
from gateway.governance.denials import Denial, iso
from gateway.governance.policy.policy import Side
from gateway.identity.scopes import Denied, may_look
from gateway.identity.tokens import Principal
from schemas.contract import Flaw, contract
from schemas.errors import Code
from schemas.fleet_tools import FIND, FleetTool
from schemas.projection import Tool
from schemas.registry import REGISTRY

_LIMIT_DEFAULT: int = REGISTRY["fleet.find.input@1.0.0"].document["properties"]["limit"]["default"]
_BAD_CURSOR = No(
    Code.MANIFEST_INVALID,
    "arguments/cursor is not one that this search gave.",
    "Search again without a cursor.",
    reason=Reason.ARGUMENTS,
)
_METRICS = "system.metrics"

Result: TypeAlias = dict[str, Any]


class LookTarget(msgspec.Struct, frozen=True):
    tool: FleetTool

    @property
    def name(self) -> str:
        return self.tool.name

    def denied(self, principal: Principal, wall_ms: int) -> Denied | None:
        return may_look(principal, wall_ms)

    def unready(self, wall_ms: int) -> No | None:
        del wall_ms
        return None

    def flaw(self, arguments: Any) -> Flaw | None:
        return self.tool.flaw(arguments)

    def takes(self, arguments: Any) -> bool:
        return self.tool.flaw(arguments) is None


@dataclass(frozen=True, slots=True)
class _Query:
    """What a node must be. By tags it is looked up, by name in the order of names, else all are gone through."""

    name: str
    tags: Mapping[str, str]
    state: str | None
    kind: str | None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "_Query":
        tag = arguments.get("tag", ())
        pairs = (text.partition("=") for text in ([tag] if isinstance(tag, str) else tag))
        tags: dict[str, str] = {}
        for key, _, value in pairs:
            # Two values for one key: no node has both.
            tags[key] = value if tags.get(key, value) == value else ""
        return cls(arguments.get("name", ""), tags, arguments.get("state"), arguments.get("kind"))

    @property
    def is_by_name(self) -> bool:
        return bool(self.name) and not self.tags

    def places(self, directory: Directory, tenant: str) -> Sequence[str]:
        """Sorted ids, or names, among which all that fit are."""
        if self.tags:
            return min((directory.tagged(tenant, f"{key}={value}") for key, value in self.tags.items()), key=len)
        if self.name:
            return directory.names(tenant)
        return directory.live_ids(tenant) if self.state == Presence.LIVE else directory.ids(tenant)

    def fits(self, record: NodeRecord, wall_ms: int) -> bool:
        labels = record.labels
        return (
            (self.state is None or record.presence(wall_ms) == self.state)
            and (not self.name or (labels.name or "").startswith(self.name))
            and all(labels.tags.get(key) == value for key, value in self.tags.items())
        )


_Found: TypeAlias = tuple[NodeRecord, list[str]]  # with the kinds of what may be used of it


class FleetLooks:
    def __init__(
        self,
        directory: Directory,
        bus: Bus,
        admission: Admission,
        onlooker: Callable[[Principal, int], Onlooker],
    ) -> None:
        self._directory = directory
        self._bus = bus
        self._admission = admission
        self._onlooker = onlooker

    async def call(
        self, record: CallRecord, tool: FleetTool, arguments: Any, correlation_id: str
    ) -> Answered | Refused:
        answer = await self._call(record, tool, arguments, correlation_id)
        return answer.told(correlation_id) if isinstance(answer, No) else Answered(answer, correlation_id)

    async def _call(self, record: CallRecord, tool: FleetTool, arguments: Any, correlation_id: str) -> Result | No:
        admission = self._admission
        admitted = await admission.admit(record.principal, lambda: LookTarget(tool), arguments)
        record.policy = admission.revision
        if isinstance(admitted, No):
            return admitted
        if not admitted.is_to_reserve:  # then the ledger has nothing to remember
            return self._inspected(admitted, await self._look(admitted))
        async with admission.reserve(admitted, correlation_id, record) as reservation:
            if isinstance(reservation, No):
                return reservation
            seen = await self._look(admitted)
            if not isinstance(seen, No):
                reservation.reached, record.price_micros = True, reservation.price_micros
        return self._inspected(admitted, seen)

    def _inspected(self, admitted: Admitted[LookTarget], seen: Result | No) -> Result | No:
        governor, rules = self._admission.governor, admitted.rules
        if isinstance(seen, No) or governor is None or rules is None:
            return seen
        passed = governor.inspect(rules, Side.RESULT, seen, contract(admitted.target.tool.output_id).is_valid)
        return No.by(passed) if isinstance(passed, Denial) else passed

    async def _look(self, admitted: Admitted[LookTarget]) -> Result | No:
        who = self._onlooker(admitted.principal, admitted.now_ms)
        if admitted.target.name == FIND:
            return await self._find(who, admitted.arguments)
        return self._node(who, admitted.arguments["node"])

    # ---- many nodes -------------------------------------------------------------------------------------------------

    async def _find(self, who: Onlooker, arguments: Mapping[str, Any]) -> Result | No:
        query, cursor, tenant = _Query.of(arguments), arguments.get("cursor"), who.principal.tenant
        place: str | None = cursor or ""
        if query.is_by_name and cursor is not None:
            place = self._directory.labels_of(cursor).name
            if place is None or self._directory.named(tenant, place) != cursor:
                return _BAD_CURSOR
        limit = int(arguments.get("limit", _LIMIT_DEFAULT))
        page: tuple[list[_Found], bool] = await page_behind(place or "", partial(self._some, who, query), limit)
        found, has_more = page
        nodes = [_listed(record, kinds, who.wall_ms) for record, kinds in found]
        return {"nodes": nodes, "next_cursor": nodes[-1]["node_id"]} if has_more else {"nodes": nodes}

    def _some(self, who: Onlooker, query: _Query, behind: str, room: int) -> tuple[list[_Found], str | None]:
        directory, tenant, by_name = self._directory, who.principal.tenant, query.is_by_name
        places = query.places(directory, tenant)
        found: list[_Found] = []
        looks = 0
        first = bisect_left(places, query.name) if by_name and not behind else bisect_right(places, behind)
        for index in range(first, len(places)):
            place = places[index]
            if by_name and not place.startswith(query.name):
                break
            node_id = directory.named(tenant, place) if by_name else place
            record = None if node_id is None else directory.find(node_id)
            looks += 1
            if record is not None and record.tenant == tenant and query.fits(record, who.wall_ms):
                looks += len(record.tools)
                kinds = sorted({tool.target.kind for tool in who.tools_of(record)})
                if kinds and (query.kind is None or query.kind in kinds):
                    found.append((record, kinds))
            if len(found) == room or looks >= LOOKS_MAX:
                return found, place
        return found, None

    # ---- one node ---------------------------------------------------------------------------------------------------

    def _node(self, who: Onlooker, node: str) -> Result | No:
        record = who.find(self._directory, node)
        if isinstance(record, No):
            return record
        tools = who.tools_of(record)
        left = None if record.left is None else record.left.value
        return {
            **_described(record, who.wall_ms),
            "since": None if record.since_ms is None else iso(record.since_ms),
            "left": None if left is None else {"code": left.code, "reason": left.reason},
            "manifest_expires_at": iso(int(record.manifest["expires_at_ms"])),
            "capabilities": _capabilities(tools),
            "sample": self._sample(record, tools, who.wall_ms),
        }

    def _sample(self, record: NodeRecord, tools: Sequence[Tool], wall_ms: int) -> Result | None:
        """Only for whoever might have asked that capability for one."""
        last = self._bus.last_frame(record.node_id)
        if last is None or (_METRICS, last.cap_id) not in {(tool.target.kind, tool.target.cap_id) for tool in tools}:
            return None
        return {"age_ms": max(0, wall_ms - last.at_ms), "frame": dict(last.frame)}


def _described(record: NodeRecord, wall_ms: int) -> Result:
    return {
        "node_id": record.node_id,
        "name": record.labels.name,
        "tags": dict(record.labels.tags),
        "state": record.presence(wall_ms).value,
        "last_seen": iso(record.last_seen_ms(wall_ms)),
    }


def _listed(record: NodeRecord, kinds: list[str], wall_ms: int) -> Result:
    return {**_described(record, wall_ms), "kinds": kinds}


def _capabilities(tools: Sequence[Tool]) -> list[Result]:
    of_one: dict[tuple[str, str], list[Tool]] = {}
    for tool in tools:
        of_one.setdefault((tool.target.cap_id, tool.target.kind), []).append(tool)
    return [
        {
            "cap_id": cap_id,
            "kind": kind,
            "verbs": [tool.target.verb for tool in of],
            "safety_class": of[0].safety_class,
            "limits": dict(of[0].constraints),
            "tools": [tool.name for tool in of],
        }
        for (cap_id, kind), of in sorted(of_one.items())
    ]
