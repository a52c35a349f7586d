"""Which nodes an agent may know of: those of its tenant on which scope and policy let it use some tool.

To the agent no other node exists: an id or name that it may not know gets the same answer as one that nobody has.
"""

from collections.abc import Callable
from dataclasses import dataclass

from actors.bus.directory import Directory, NodeRecord
from gateway.calls.answers import No, Reason
from gateway.governance.governor import CouldAllow
from gateway.identity.scopes import authorize, needed_scope, scopes_of
from gateway.identity.tokens import Principal
from schemas.errors import Code
from schemas.fleet_tools import safety_class_of
from schemas.labels import is_node_id
from schemas.projection import KINDS, Tool

UNKNOWN_NODE = No(
    Code.MANIFEST_NOT_FOUND,
    "No node of this tenant has this id or name.",
    "Call fleet_find to see which nodes there are, and use a node_id or name that it lists.",
    reason=Reason.NODE,
)
NEVER_CAME = No(
    Code.NODE_OFFLINE,
    "The node has a name but has never connected.",
    "Wait until it has connected, or call fleet_find to find a node that is live.",
)
_VERBS = [(kind, short.short, verb) for kind, short in KINDS.items() for verb in short.verbs]


@dataclass(frozen=True, slots=True)
class Onlooker:
    """An agent, by what holds for it now."""

    principal: Principal
    wall_ms: int
    allows: Callable[[str], bool]
    could_allow: CouldAllow

    def find(self, directory: Directory, node: str) -> NodeRecord | No:
        """The node with this id or name, if the agent may know of it."""
        tenant = self.principal.tenant
        node_id = node_id_of(directory, tenant, node)
        if node_id is None:
            return UNKNOWN_NODE
        record = directory.find(node_id)
        if record is not None:
            return record if record.tenant == tenant and self.tools_of(record) else UNKNOWN_NODE
        name = directory.labels_of(node_id).name
        is_ours = name is not None and directory.named(tenant, name) == node_id
        return NEVER_CAME if is_ours and self._could_use(node_id) else UNKNOWN_NODE

    def tools_of(self, record: NodeRecord) -> list[Tool]:
        """Those that it may use, were the node live."""
        who, wall_ms = self.principal, self.wall_ms
        return [
            tool
            for tool in record.tools
            if authorize(who, tool, record.tenant, wall_ms) is None and self.allows(tool.name)
        ]

    def _could_use(self, node_id: str) -> bool:
        """Whether it might use a tool of a node that has announced none yet."""
        scopes = scopes_of(self.principal, self.wall_ms)
        return any(
            needed_scope(safety_class_of(kind), verb) in scopes and self.could_allow(short, verb, node_id)
            for kind, short, verb in _VERBS
        )


def node_id_of(directory: Directory, tenant: str, node: str) -> str | None:
    return node if is_node_id(node) else directory.named(tenant, node)
