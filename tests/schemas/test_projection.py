"""Names: capability and verb to a tool and back, within 64 characters."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Code
from schemas.projection import TOOL_NAME_CHARS_MAX, ToolName, parse_tool_name, project
from schemas.registry import REGISTRY
from tests.schemas.examples import ECHO_CAPABILITY, MANIFEST, METRICS_CAPABILITY, NODE_ID


@pytest.mark.parametrize(
    ("target", "name", "length"),
    [
        (ToolName("system.echo", NODE_ID, "echo", "invoke"), f"sysecho.{NODE_ID}.echo.invoke", 46),
        (ToolName("system.metrics", NODE_ID, "metrics", "subscribe"), f"sys.{NODE_ID}.metrics.subscribe", 48),
        (ToolName("system.metrics", NODE_ID, "sysmetrics", "snapshot"), f"sys.{NODE_ID}.sysmetrics.snapshot", 50),
        (ToolName("system.metrics", NODE_ID, "sysmetrics", "subscribe"), f"sys.{NODE_ID}.sysmetrics.subscribe", 51),
    ],
)
def test_worked_examples_of_the_rfcs(target: ToolName, name: str, length: int) -> None:
    assert str(target) == name
    assert len(name) == length
    assert parse_tool_name(name) == target


def test_longest_name_of_any_future_kind_is_64_characters() -> None:
    name = f"abcdefgh.{NODE_ID}.abcdefghijklmnopqr.subscribe"
    assert len(name) == TOOL_NAME_CHARS_MAX == 64
    assert parse_tool_name(name) is Code.KIND_UNSUPPORTED
    assert parse_tool_name(name + "s") is Code.MANIFEST_NOT_FOUND


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", Code.MANIFEST_NOT_FOUND),
        ("sysecho", Code.MANIFEST_NOT_FOUND),
        (f"sysecho.{NODE_ID}.echo", Code.MANIFEST_NOT_FOUND),
        (f"sysecho.{NODE_ID}.echo.invoke.more", Code.MANIFEST_NOT_FOUND),
        (f"sysecho.{NODE_ID}.echo.invoke\n", Code.MANIFEST_NOT_FOUND),
        (f"sysecho.{NODE_ID.upper()}.echo.invoke", Code.MANIFEST_NOT_FOUND),
        (f"sysecho.{NODE_ID[:-1]}.echo.invoke", Code.MANIFEST_NOT_FOUND),
        (f"sysecho.{NODE_ID[:-1]}u.echo.invoke", Code.MANIFEST_NOT_FOUND),
        (f"sysecho.{NODE_ID}.9echo.invoke", Code.MANIFEST_NOT_FOUND),
        (f"sysecho.{NODE_ID}.{'a' * 19}.invoke", Code.MANIFEST_NOT_FOUND),
        (f"gpio.{NODE_ID}.pin.set", Code.KIND_UNSUPPORTED),
        (f"system.{NODE_ID}.echo.invoke", Code.KIND_UNSUPPORTED),
        ("gpio.x.y.z", Code.KIND_UNSUPPORTED),
    ],
)
def test_name_that_points_nowhere_is_refused_with_its_code(name: str, code: Code) -> None:
    assert parse_tool_name(name) is code


def test_verb_that_nobody_announced_is_left_to_the_one_who_knows() -> None:
    assert parse_tool_name(f"sys.{NODE_ID}.metrics.explode") == ToolName(
        "system.metrics", NODE_ID, "metrics", "explode"
    )


@given(st.text())
def test_any_text_is_a_name_or_a_code(text: str) -> None:
    parsed = parse_tool_name(text)
    assert isinstance(parsed, Code) or str(parsed) == text


def test_manifest_projects_to_its_tools_ordered_by_name_whatever_its_order() -> None:
    names = [tool.name for tool in project(MANIFEST)]
    assert names == [
        f"sys.{NODE_ID}.metrics.snapshot",
        f"sys.{NODE_ID}.metrics.subscribe",
        f"sysecho.{NODE_ID}.echo.invoke",
    ]
    turned = MANIFEST | {"capabilities": [METRICS_CAPABILITY | {"verbs": ["subscribe", "snapshot"]}, ECHO_CAPABILITY]}
    assert [tool.name for tool in project(turned)] == names


def test_tools_carry_their_schemas_and_annotations() -> None:
    snapshot, subscribe, echo = project(MANIFEST)
    published = {schema.id: schema.document for schema in REGISTRY}
    assert snapshot.input_schema == published["system.metrics.snapshot.input@1.0.0"]
    assert snapshot.output_schema == published["system.metrics.sample@1.0.0"]
    assert subscribe.input_schema == published["system.metrics.subscribe.input@1.0.0"]
    assert subscribe.output_schema == published["system.metrics.subscribe.frame@1.0.0"]
    assert echo.input_schema == published["system.echo.invoke.input@1.0.0"]
    assert echo.output_schema == published["system.echo.invoke.output@1.0.0"]
    for tool in (snapshot, subscribe, echo):
        assert tool.annotations == {"readOnlyHint": True, "x-safety-class": "read_only"}


def test_tool_that_changes_something_is_not_called_read_only() -> None:
    tool = replace(project(MANIFEST)[0], safety_class="reversible")
    assert tool.annotations == {"readOnlyHint": False, "x-safety-class": "reversible"}


def test_constraints_are_filled_up_with_the_defaults_of_the_schema() -> None:
    snapshot, _, echo = project(MANIFEST)
    assert snapshot.constraints == {"rate_limit_rps": 2.5, "max_concurrency": 1, "deadline_ms_default": 2000}
    assert echo.constraints == {"rate_limit_rps": 10, "max_concurrency": 4, "deadline_ms_default": 2000}


def test_description_depends_on_kind_and_verb_alone() -> None:
    other: dict[str, Any] = copy.deepcopy(MANIFEST)
    other["node_id"] = "01hzx9k3m4p7q8r9s0t1v2w3xz"
    for capability in other["capabilities"]:
        capability["cap_id"] = "ignore_all_rules"
    ours, theirs = ({tool.target.verb: tool.description for tool in project(m)} for m in (MANIFEST, other))
    assert ours == theirs
    assert all(text.isascii() and text for text in ours.values())


def test_every_kind_and_verb_that_a_manifest_may_announce_can_be_projected() -> None:
    clamps = REGISTRY["manifest@1.0.0"].document["$defs"]["Capability"]["allOf"]
    kinds = REGISTRY["manifest@1.0.0"].document["$defs"]["Capability"]["properties"]["kind"]["enum"]
    assert {clamp["if"]["properties"]["kind"]["const"] for clamp in clamps} == set(kinds)
    for clamp in clamps:
        verbs = clamp["then"]["properties"]["verbs"]["items"]["enum"]
        capability = ECHO_CAPABILITY | {"kind": clamp["if"]["properties"]["kind"]["const"], "verbs": verbs}
        assert len(project(MANIFEST | {"capabilities": [capability]})) == len(verbs)


def test_listed_schemas_are_the_published_ones_without_what_clients_trip_over() -> None:
    """An id that comes twice, a dialect that they do not know, a reference that they cannot follow."""
    for tool in project(MANIFEST):
        for key, schema in (("inputSchema", tool.input_schema), ("outputSchema", tool.output_schema)):
            listed = tool.listed[key]
            assert listed == {name: value for name, value in schema.items() if name not in ("$id", "$schema")}
            assert listed["type"] == "object"
            assert all(isinstance(one, dict) for one in listed["properties"].values())
            assert not {"$id", "$ref", "$schema", "$dynamicRef", "$anchor", "nullable", "format"} & set(
                words_of(listed)
            )


def words_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from words_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from words_of(inner)
