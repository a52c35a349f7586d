"""What a caller's name for a tool means, in whichever form it comes: the one place where names are resolved.

A tool has one name of its own, by which admission, price, policy, ledger and audit know it: RFC-0001's for a device's,
`SERVER.TOOL` for an upstream's, `fleet_find` and `fleet_node` for our own. The other forms are ways to say it: `-` for
`.`, the flat name of an upstream's tool, and a kind's tool with a `node` among the arguments. Every door takes all of
them, whichever of them it lists.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from actors.bus.directory import Directory, NodeRecord
from actors.node.moment import Moment
from gateway.calls.answers import No, Reason, unfit
from gateway.calls.flat_names import target_of
from gateway.calls.onlooker import UNKNOWN_NODE, Onlooker, node_id_of
from gateway.calls.upstream_tools import UpstreamTools
from gateway.governance.denials import not_in_policy
from gateway.governance.governor import Governor
from gateway.identity.scopes import may_use_kind
from gateway.identity.tokens import Principal
from schemas.errors import Code
from schemas.fleet_tools import KIND_TOOLS, LOOK_TOOLS, FleetTool, KindTool
from schemas.projection import KINDS, Tool, ToolName

_NO_SUCH_KIND = No(
    Code.MANIFEST_NOT_FOUND,
    "The node has no capability of this kind.",
    "Call fleet_node to see what it can do, or fleet_find with kind to find nodes that have such a capability.",
    reason=Reason.NODE,
)
_NO_SUCH_CAPABILITY = No(
    Code.MANIFEST_NOT_FOUND,
    "The node has no capability of this kind with this cap_id.",
    "Call fleet_node to see its capabilities, or leave cap_id out if it has one of this kind.",
    reason=Reason.NODE,
)
_NO_SUCH_VERB = No(
    Code.VERB_UNSUPPORTED,
    "The node's capability of this kind does not offer that verb.",
    "Call fleet_node to see which verbs it offers.",
    reason=Reason.NODE,
)


@dataclass(frozen=True, slots=True)
class OfDevice:
    target: ToolName
    arguments: Any


@dataclass(frozen=True, slots=True)
class OfUpstream:
    name: str


@dataclass(frozen=True, slots=True)
class OfFleet:
    tool: FleetTool


@dataclass(frozen=True, slots=True)
class Nothing:
    no: No
    tool: str | None = None  # what was asked for, if that is a name of ours
    guessed: tuple[str, str] | None = None  # the kind and verb, for whoever counts guesses elsewhere


Meaning: TypeAlias = OfDevice | OfUpstream | OfFleet | Nothing


class Names:
    def __init__(
        self,
        directory: Directory,
        upstreams: UpstreamTools | None,
        onlooker: Callable[[Principal, int], Onlooker],
        governor: Governor | None = None,
    ) -> None:
        self._directory = directory
        self._upstreams = upstreams
        self._onlooker = onlooker
        self._governor = governor

    def meaning(self, principal: Principal, name: str, arguments: Any, now: Moment) -> Meaning:
        kind_tool = KIND_TOOLS.get(name)
        if kind_tool is not None:
            who = self._onlooker(principal, now.wall_ms)
            meant = self._target(who, kind_tool, arguments)
            if isinstance(meant, No):
                return self._why_not(who, kind_tool, arguments, meant, now)
            # The rest it checks itself, as ever.
            taken = {key: value for key, value in arguments.items() if key not in ("node", "cap_id")}
            return OfDevice(meant, taken)
        look = LOOK_TOOLS.get(name)
        if look is not None:
            return OfFleet(look)
        target = target_of(name)
        if isinstance(target, ToolName):
            return OfDevice(target, arguments)
        if self._upstreams is not None:
            own = name if self._upstreams.has(name) else self._upstreams.meant_by(principal.tenant, name)
            if own is not None:
                return OfUpstream(own)
        return Nothing(No(target))

    def _why_not(self, who: Onlooker, tool: KindTool, arguments: Any, no: No, now: Moment) -> Nothing:
        """What an agent is told whose arguments lead to no tool, in the order of admission. One that may use no such
        tool on any node is told that, whichever node it names; others may not guess more often than they may call."""
        short = KINDS[tool.kind].short
        denied = may_use_kind(who.principal, tool.safety_class, tool.verb, now.wall_ms)
        if denied is not None:
            said = No(Code.SAFETY_DENIED, denied.message, denied.suggested_fix, reason=Reason.SCOPE)
            return Nothing(said, tool.name)
        if not who.could_allow(short, tool.verb):
            return Nothing(No.by(not_in_policy()), tool.name)
        flaw = tool.flaw(arguments)
        if flaw is not None:
            return Nothing(unfit(flaw), tool.name)
        governor = self._governor
        if governor is not None and governor.purse is None:
            return Nothing(no, tool.name, (short, tool.verb))
        over = None if governor is None else governor.over_rates_of_kind(who.principal, short, tool.verb, now)
        return Nothing(no if over is None else No.by(over), tool.name)

    def _target(self, who: Onlooker, tool: KindTool, arguments: Any) -> ToolName | No:
        """The node's own tool."""
        if not isinstance(arguments, Mapping) or not isinstance(arguments.get("node"), str):
            return UNKNOWN_NODE
        cap_id = arguments.get("cap_id")
        if "cap_id" in arguments and not isinstance(cap_id, str):
            return _NO_SUCH_CAPABILITY
        node, tenant = arguments["node"], who.principal.tenant
        node_id = node_id_of(self._directory, tenant, node)
        record = None if node_id is None else self._directory.find(node_id)
        if record is not None and record.tenant == tenant:
            able = [one for one in _of_kind(record, tool, cap_id) if one.target.verb == tool.verb]
            if len(able) == 1 and who.allows(able[0].name):  # mostly: then nothing else of the node matters
                return able[0].target
        seen = who.find(self._directory, node)
        return seen if isinstance(seen, No) else _capability(who, seen, tool, cap_id)


def _of_kind(record: NodeRecord, tool: KindTool, cap_id: str | None) -> list[Tool]:
    return [
        one for one in record.tools if one.target.kind == tool.kind and (cap_id is None or one.target.cap_id == cap_id)
    ]


def _capability(who: Onlooker, record: NodeRecord, tool: KindTool, cap_id: str | None) -> ToolName | No:
    """Of a node that the agent may know of."""
    of_kind = _of_kind(record, tool, cap_id)
    if not of_kind:
        return _NO_SUCH_CAPABILITY if _of_kind(record, tool, None) else _NO_SUCH_KIND
    able = [one for one in of_kind if one.target.verb == tool.verb]
    if not able:
        return _NO_SUCH_VERB
    if len(able) > 1:
        cap_ids = [one.target.cap_id for one in able if who.allows(one.name)]
        if cap_ids:  # else none of them is this agent's, which the first says as well as any
            return No(
                Code.MANIFEST_INVALID,
                "The node has several capabilities of this kind, so arguments/cap_id is needed.",
                "Call again with cap_id: details.cap_ids has those there are, and so has fleet_node.",
                reason=Reason.ARGUMENTS,
                details={"cap_ids": cap_ids},
            )
    return able[0].target
