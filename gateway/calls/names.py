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
from gateway.calls.answers import No, Reason, unfit
from gateway.calls.flat_names import target_of
from gateway.calls.upstream_tools import UpstreamTools
from gateway.identity.tokens import Principal
from schemas.errors import Code
from schemas.fleet_tools import KIND_TOOLS, LOOK_TOOLS, FleetTool, KindTool
from schemas.labels import is_node_id
from schemas.projection import ToolName

UNKNOWN_NODE = No(
    Code.MANIFEST_NOT_FOUND,
    "No node of this tenant has this id or name.",
    "Call fleet_find to see which nodes there are, and use a node_id or name that it lists.",
    reason=Reason.NODE,
)
_NEVER_CAME = No(
    Code.NODE_OFFLINE,
    "The node has a name but has never connected.",
    "Wait until it has connected, or call fleet_find to find a node that is live.",
)
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


Meaning: TypeAlias = OfDevice | OfUpstream | OfFleet | Nothing


def node_of(directory: Directory, tenant: str, node: str) -> NodeRecord | No:
    """The node of this tenant that has this id or name. Of other tenants' nodes nothing is told."""
    node_id = node if is_node_id(node) else directory.named(tenant, node)
    record = None if node_id is None else directory.find(node_id)
    if record is not None and record.tenant == tenant:
        return record
    name = node if node_id is None else directory.labels_of(node_id).name
    is_known = record is None and name is not None and directory.named(tenant, name) is not None
    return _NEVER_CAME if is_known else UNKNOWN_NODE


class Names:
    def __init__(
        self,
        directory: Directory,
        upstreams: UpstreamTools | None,
        allows: Callable[[Principal], Callable[[str], bool]],
    ) -> None:
        self._directory = directory
        self._upstreams = upstreams
        self._allows = allows

    def meaning(self, principal: Principal, name: str, arguments: Any) -> Meaning:
        kind_tool = KIND_TOOLS.get(name)
        if kind_tool is not None:
            meant = self._on_node(principal, kind_tool, arguments)
            return Nothing(meant, name) if isinstance(meant, No) else meant
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

    def _on_node(self, principal: Principal, tool: KindTool, arguments: Any) -> OfDevice | No:
        """The node's own tool, with the arguments that it takes: those it checks itself, as ever."""
        target = self._target(principal, tool, arguments)
        if isinstance(target, No):
            flaw = tool.flaw(arguments)
            return target if flaw is None else unfit(flaw)
        return OfDevice(target, {key: value for key, value in arguments.items() if key not in ("node", "cap_id")})

    def _target(self, principal: Principal, tool: KindTool, arguments: Any) -> ToolName | No:
        if not isinstance(arguments, Mapping) or not isinstance(arguments.get("node"), str):
            return UNKNOWN_NODE
        cap_id = arguments.get("cap_id")
        if "cap_id" in arguments and not isinstance(cap_id, str):
            return _NO_SUCH_CAPABILITY
        record = node_of(self._directory, principal.tenant, arguments["node"])
        return record if isinstance(record, No) else self._capability(principal, record, tool, cap_id)

    def _capability(
        self, principal: Principal, record: NodeRecord, tool: KindTool, cap_id: str | None
    ) -> ToolName | No:
        of_kind = [one for one in record.tools if one.target.kind == tool.kind]
        if not of_kind:
            return _NO_SUCH_KIND
        if cap_id is not None:
            of_kind = [one for one in of_kind if one.target.cap_id == cap_id]
            if not of_kind:
                return _NO_SUCH_CAPABILITY
        able = [one for one in of_kind if one.target.verb == tool.verb]
        if not able:
            return _NO_SUCH_VERB
        if len(able) > 1:
            allows = self._allows(principal)
            cap_ids = [one.target.cap_id for one in able if allows(one.name)]
            if cap_ids:  # else none of them is this agent's, which the first says as well as any
                return No(
                    Code.MANIFEST_INVALID,
                    "The node has several capabilities of this kind, so arguments/cap_id is needed.",
                    "Call again with cap_id: details.cap_ids has those there are, and so has fleet_node.",
                    reason=Reason.ARGUMENTS,
                    details={"cap_ids": cap_ids},
                )
        return able[0].target
