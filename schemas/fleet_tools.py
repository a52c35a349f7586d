"""The tools of a whole fleet: one a kind and verb, with `node` among its arguments, and two that look around.

They are named from our own registry, so their number does not depend on how many nodes there are or what those
announce. What they point at, and who may use them, is the gateway's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from schemas.contract import Contract, Flaw
from schemas.projection import KINDS, annotations, listed_schema, safety_meta
from schemas.registry import REGISTRY

FLEET_TOOLS_MAX = 32  # of our own on any list; a kind that brings more fails the test of the registry
FIND = "fleet_find"
NODE = "fleet_node"
LOOKS = frozenset({FIND, NODE})  # tools that reach no device
FIND_INPUT, NODE_INPUT = "fleet.find.input@1.0.0", "fleet.node.input@1.0.0"

_MANIFEST = REGISTRY["manifest@1.0.0"].document
_CAPABILITY = _MANIFEST["$defs"]["Capability"]
_NODE: Mapping[str, Any] = REGISTRY[NODE_INPUT].document["properties"]["node"]
_CAP_ID: Mapping[str, Any] = {
    "type": "string",
    "pattern": _CAPABILITY["properties"]["cap_id"]["pattern"],
    "description": "Which capability of the node; needed only where it has several of this kind.",
}
_OWN = {"node": _NODE, "cap_id": _CAP_ID}


def safety_class_of(kind: str) -> str:
    """The one class that the manifest's schema lets this kind have."""
    for clamp in _CAPABILITY["allOf"]:
        if clamp["if"]["properties"]["kind"]["const"] == kind:
            return str(clamp["then"]["properties"]["safety_class"]["const"])
    raise LookupError("a kind without a clamp in the manifest schema")


@dataclass(frozen=True)
class FleetTool:
    """What every one of them shows, and takes."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output_id: str
    safety_class: str
    listed: Mapping[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        listed = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": listed_schema(self.output_id),
            "annotations": annotations(self.safety_class),
            "_meta": safety_meta(self.safety_class),
        }
        object.__setattr__(self, "listed", listed)

    @cached_property
    def _contract(self) -> Contract:
        return Contract(self.input_schema)

    def flaw(self, arguments: Any) -> Flaw | None:
        return self._contract.first_flaw(arguments)


@dataclass(frozen=True)
class KindTool(FleetTool):
    """One kind and verb, on whichever node."""

    kind: str
    verb: str


def _kind_tool(kind: str, verb: str) -> KindTool:
    projected = KINDS[kind].verbs[verb]
    document = REGISTRY[projected.input_id].document
    properties = document["properties"]
    assert not _OWN.keys() & properties.keys(), "the kind has an argument of this name itself"
    schema = dict(listed_schema(projected.input_id))
    schema["required"] = ["node", *document.get("required", ())]
    schema["properties"] = {**_OWN, **properties}
    return KindTool(
        name=f"{kind.replace('.', '_')}_{verb}",
        title=f"{projected.title} (any node)".capitalize(),
        description=f"{projected.description} Say which node with node: its id or its name, as fleet_find lists them.",
        input_schema=schema,
        output_id=projected.output_id,
        safety_class=safety_class_of(kind),
        kind=kind,
        verb=verb,
    )


# A `subscribe` is no call: it is a resource here.
KIND_TOOLS: Mapping[str, KindTool] = {
    tool.name: tool
    for tool in (
        _kind_tool(name, verb) for name, kind in sorted(KINDS.items()) for verb in kind.verbs if verb != "subscribe"
    )
}
LOOK_TOOLS: Mapping[str, FleetTool] = {
    FIND: FleetTool(
        FIND,
        "Find nodes",
        "Find nodes of the fleet by the beginning of their name, by tags, state or kind of capability; all of what is "
        "given must hold, and nothing given is every node. Answers with a page of nodes and, if there are more, a "
        "next_cursor. Reaches no node.",
        listed_schema(FIND_INPUT),
        "fleet.find.output@1.0.0",
        "read_only",
    ),
    NODE: FleetTool(
        NODE,
        "Look at one node",
        "What is known of one node, by its id or name: whether it is connected, what it can do and within which "
        "limits, and the last sample of its metrics if one is in memory. Reaches no node.",
        listed_schema(NODE_INPUT),
        "fleet.node.output@1.0.0",
        "read_only",
    ),
}
