"""Tools of a whole fleet: named from the registry, few, with the kind's own contract and a node in front."""

import re

import pytest

from schemas.contract import contract
from schemas.fleet_tools import FLEET_TOOLS_MAX, KIND_TOOLS, LOOK_TOOLS, LOOKS, KindTool, safety_class_of
from schemas.projection import KINDS, SAFETY_CLASS, listed_schema
from schemas.registry import REGISTRY
from tests.schemas.examples import EXAMPLES, NODE_ID

ALL = pytest.mark.parametrize("tool", KIND_TOOLS.values(), ids=list(KIND_TOOLS))


def test_there_is_one_for_every_kind_and_verb_but_subscribe() -> None:
    assert set(KIND_TOOLS) == {
        f"{kind.replace('.', '_')}_{verb}" for kind in KINDS for verb in KINDS[kind].verbs if verb != "subscribe"
    }
    assert {"system_echo_invoke", "system_metrics_snapshot"} <= set(KIND_TOOLS)
    assert set(LOOK_TOOLS) == LOOKS == {"fleet_find", "fleet_node"}


def test_they_are_at_most_32_with_different_names_that_every_client_takes() -> None:
    names = [*KIND_TOOLS, *LOOK_TOOLS]
    assert len(names) <= FLEET_TOOLS_MAX == 32
    assert len({name.lower() for name in names}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)


@ALL
def test_arguments_are_those_of_the_kind_and_the_node(tool: KindTool) -> None:
    verb = KINDS[tool.kind].verbs[tool.verb]
    own = REGISTRY[verb.input_id].document
    assert set(tool.input_schema["properties"]) == {"node", "cap_id", *own["properties"]}
    assert tool.input_schema["required"] == ["node", *own["required"]]
    assert tool.input_schema["additionalProperties"] is False
    assert "$id" not in tool.input_schema
    assert tool.listed["outputSchema"] is listed_schema(verb.output_id)
    for example in EXAMPLES[verb.input_id]:
        assert tool.flaw({**example, "node": NODE_ID}) is None
        assert tool.flaw({**example, "node": "pump-7", "cap_id": "main"}) is None
        assert tool.flaw(example) is not None
        flaw = tool.flaw({**example, "node": "Pump 7"})
        assert flaw is not None
        assert flaw.pointer == "/node"


@ALL
def test_safety_class_is_that_of_the_manifest_schema(tool: KindTool) -> None:
    assert tool.safety_class == safety_class_of(tool.kind) == "read_only"
    assert tool.listed["_meta"] == {SAFETY_CLASS: "read_only"}
    assert tool.listed["annotations"] == {"readOnlyHint": True, "x-safety-class": "read_only"}


def test_kind_without_a_clamp_has_no_safety_class() -> None:
    with pytest.raises(LookupError):
        safety_class_of("system.nothing")


@pytest.mark.parametrize(
    ("arguments", "pointer"),
    [
        ({"name": "-pump"}, "/name"),
        ({"tag": "site"}, "/tag"),
        ({"tag": ["site=lab", "SITE=lab"]}, "/tag"),
        ({"tag": []}, "/tag"),
        ({"state": "dead"}, "/state"),
        ({"kind": "echo"}, "/kind"),
        ({"limit": 0}, "/limit"),
        ({"limit": 101}, "/limit"),
        ({"cursor": "pump-7"}, "/cursor"),
        ({"nodes": 1}, ""),
    ],
)
def test_search_of_the_wrong_shape_is_refused_where_it_is_wrong(arguments: object, pointer: str) -> None:
    flaw = contract("fleet.find.input@1.0.0").first_flaw(arguments)
    assert flaw is not None
    assert flaw.pointer == pointer
