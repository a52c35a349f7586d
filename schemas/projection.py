"""Capability × verb → MCP tool, and a tool's name back to what it points at (RFC-0001 §3).

A name is `{kind_short}.{node_id}.{cap_id}.{verb}`, at most 64 characters. Descriptions and titles are fixed texts by
kind and verb: no string of a device's goes into them. A new kind is a row in `KINDS`, with its files and its clamp in
the manifest schema. One tool for all nodes of a kind is `fleet_tools.py`'s.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from schemas.contract import contract
from schemas.ecma import compile_ecma
from schemas.errors import Code
from schemas.registry import REGISTRY

TOOL_NAME_CHARS_MAX = 64
NAMES_REMEMBERED_MAX = 16_384  # parsed names; one more, and the one not used for longest is parsed again

_MANIFEST = REGISTRY["manifest@1.0.0"].document
_NODE_ID = compile_ecma(_MANIFEST["properties"]["node_id"]["pattern"])
_CAP_ID = compile_ecma(_MANIFEST["$defs"]["Capability"]["properties"]["cap_id"]["pattern"])
_CONSTRAINTS = _MANIFEST["$defs"]["Capability"]["properties"]["constraints"]["properties"]
_DEFAULTS = {name: rule["default"] for name, rule in _CONSTRAINTS.items() if "default" in rule}
_WIRE_TOOL = compile_ecma(REGISTRY["node.wire.cmd@2.2.0"].document["properties"]["tool"]["pattern"])


SAFETY_CLASS = "io.heliograph/x-safety-class"  # in a tool's `_meta`: MCP has no annotation for it


@dataclass(frozen=True, slots=True)
class Verb:
    input_id: str
    output_id: str
    title: str  # what it does, in a word or two
    description: str


@dataclass(frozen=True, slots=True)
class Kind:
    short: str
    verbs: Mapping[str, Verb]


KINDS = {
    "system.metrics": Kind(
        "sys",
        {
            "snapshot": Verb(
                "system.metrics.snapshot.input@1.0.0",
                "system.metrics.sample@1.0.0",
                "read metrics",
                "Read one sample of the node's system metrics now: CPU, memory, load, uptime and disks. "
                "Bytes for memory and disk, percent from 0 to 100 for CPU. "
                "Use include to ask for some of the groups only. Changes nothing on the node.",
            ),
            "subscribe": Verb(
                "system.metrics.subscribe.input@1.0.0",
                "system.metrics.subscribe.frame@1.0.0",
                "follow metrics",
                "Follow the node's system metrics as a stream of server-sent events, one frame every interval_ms. "
                "Opens only over POST /mcp/tools/call with Accept: text/event-stream; the output schema is that of "
                "one frame. For a single reading call the snapshot tool instead. Changes nothing on the node.",
            ),
        },
    ),
    "system.echo": Kind(
        "sysecho",
        {
            "invoke": Verb(
                "system.echo.invoke.input@1.0.0",
                "system.echo.invoke.output@1.0.0",
                "echo",
                "Send a short ASCII message to the node and get it back unchanged, with the node's id and its clock. "
                "Proves that the whole path to the node works. Changes nothing on the node.",
            ),
        },
    ),
}
_KIND_OF_SHORT = {kind.short: name for name, kind in KINDS.items()}
KIND_SHORTS = frozenset(_KIND_OF_SHORT)  # how the name of a device's tool begins


@dataclass(frozen=True, slots=True)
class ToolName:
    kind: str
    node_id: str
    cap_id: str
    verb: str

    def __str__(self) -> str:
        return f"{KINDS[self.kind].short}.{self.node_id}.{self.cap_id}.{self.verb}"


def parse_tool_name(name: str) -> ToolName | Code:
    """What a name points at, or the code that refuses it. Whether anybody has such a tool is for the caller."""
    return Code.MANIFEST_NOT_FOUND if len(name) > TOOL_NAME_CHARS_MAX else _parse(name)


@lru_cache(NAMES_REMEMBERED_MAX)
def _parse(name: str) -> ToolName | Code:
    if not _WIRE_TOOL.search(name):
        return Code.MANIFEST_NOT_FOUND
    short, node_id, cap_id, verb = name.split(".")
    kind = _KIND_OF_SHORT.get(short)
    if kind is None:
        return Code.KIND_UNSUPPORTED
    if not _NODE_ID.search(node_id) or not _CAP_ID.search(cap_id):
        return Code.MANIFEST_NOT_FOUND
    return ToolName(kind, node_id, cap_id, verb)


def output_schema_of(target: ToolName) -> str | None:
    """The id of the schema that a tool's result must fit; None for a verb that its kind does not have."""
    verb = KINDS[target.kind].verbs.get(target.verb)
    return verb.output_id if verb else None


@dataclass(frozen=True, slots=True)
class Tool:
    """One capability's verb as agents see it, with what the gateway enforces on it."""

    name: str
    target: ToolName
    description: str
    input_id: str
    output_id: str
    safety_class: str
    constraints: Mapping[str, Any]
    listed: Mapping[str, Any] = field(init=False, repr=False, compare=False)
    """The tool as an MCP client wants it; made once, and what all tools of a kind have in common is shared."""

    def takes(self, arguments: Any) -> bool:
        """Whether these fit its input schema."""
        return contract(self.input_id).is_valid(arguments)

    def gives(self, result: Any) -> bool:
        """Whether this fits its output schema."""
        return contract(self.output_id).is_valid(result)

    def __post_init__(self) -> None:
        listed = {
            "name": self.name,
            "description": self.description,
            "inputSchema": listed_schema(self.input_id),
            "outputSchema": listed_schema(self.output_id),
            "annotations": self.annotations,
            "_meta": safety_meta(self.safety_class),
        }
        object.__setattr__(self, "listed", listed)

    @property
    def input_schema(self) -> Mapping[str, Any]:
        return REGISTRY[self.input_id].document

    @property
    def output_schema(self) -> Mapping[str, Any]:
        return REGISTRY[self.output_id].document

    @property
    def annotations(self) -> Mapping[str, Any]:
        return annotations(self.safety_class)

    @property
    def title(self) -> str:
        """What it does, in a word or two; on which node is for whoever knows its name."""
        return KINDS[self.target.kind].verbs[self.target.verb].title


@cache
def listed_schema(schema_id: str) -> Mapping[str, Any]:
    """Without its own name, which a client's validator refuses the second time, and without its dialect, which older
    ones do not know and which is the protocol's own."""
    document = REGISTRY[schema_id].document
    return {key: value for key, value in document.items() if key not in ("$id", "$schema")}


@cache
def annotations(safety_class: str) -> Mapping[str, Any]:
    return {"readOnlyHint": safety_class == "read_only", "x-safety-class": safety_class}


@cache
def safety_meta(safety_class: str) -> Mapping[str, Any]:
    """A tool's `_meta`."""
    return {SAFETY_CLASS: safety_class}


def tool_names(manifest: Mapping[str, Any]) -> Iterator[tuple[int, ToolName]]:
    """Each projected name of a schema-valid manifest, with the index of its capability, in the manifest's order."""
    for index, capability in enumerate(manifest["capabilities"]):
        for verb in capability["verbs"]:
            yield index, ToolName(capability["kind"], manifest["node_id"], capability["cap_id"], verb)


def project(manifest: Mapping[str, Any]) -> tuple[Tool, ...]:
    """The tools of an accepted manifest, ordered by name."""
    return tuple(sorted((_tool(manifest, *named) for named in tool_names(manifest)), key=lambda tool: tool.name))


def check_projects(manifest: Mapping[str, Any]) -> None:
    """Raise what `project` would, if it would, and make nothing."""
    for capability in manifest["capabilities"]:
        verbs = list(capability["verbs"])
        if verbs:
            known = KINDS[capability["kind"]].verbs
            [known[verb] for verb in verbs], manifest["node_id"], capability["cap_id"], hash(capability["safety_class"])
            for name, value in {**capability["constraints"]}.items():
                if _CONSTRAINTS[name]["type"] == "integer":
                    int(value)


def _tool(manifest: Mapping[str, Any], index: int, target: ToolName) -> Tool:
    capability = manifest["capabilities"][index]
    verb = KINDS[target.kind].verbs[target.verb]
    return Tool(
        name=str(target),
        target=target,
        description=verb.description,
        input_id=verb.input_id,
        output_id=verb.output_id,
        safety_class=capability["safety_class"],
        constraints=_constraints(capability["constraints"]),
    )


def _constraints(announced: Mapping[str, Any]) -> dict[str, Any]:
    """With the defaults of the schema, and its integers as integers: JSON may spell 4 as 4.0."""
    return {
        name: int(value) if _CONSTRAINTS[name]["type"] == "integer" else value
        for name, value in {**_DEFAULTS, **announced}.items()
    }
