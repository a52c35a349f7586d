"""Which tools of an upstream are listed, how, and what of a result goes on."""

import json
import time
from typing import Any

import pytest

from gateway.calls.upstreams.settings import UpstreamSettings
from gateway.calls.upstreams.tool_rules import UpstreamTool, listed, passed
from gateway.governance.policy.patterns import Pattern
from gateway.governance.policy.upstream_rules import UpstreamRules

RULES = UpstreamRules("up", frozenset({"acme"}), ("x",), read_only=(Pattern("get_*"),))
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array"}}, "required": ["a"]}


def tool_of(**told: Any) -> UpstreamTool | None:
    return listed(RULES, {"name": "t", "inputSchema": SCHEMA, **told}, UpstreamSettings())


def a_tool(**told: Any) -> UpstreamTool:
    tool = tool_of(**told)
    assert tool is not None
    return tool


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "x" * 125])
def test_name_is_listed_under_the_prefix(name: str) -> None:
    assert a_tool(name=name).name == f"up.{name}"


@pytest.mark.parametrize("name", ["", "x" * 126, "a b", "a/b", "é", "a\n", "<b>"])
def test_name_that_mcp_does_not_have_is_not_listed(name: str) -> None:
    assert tool_of(name=name) is None


def test_class_is_reversible_unless_the_policy_says_read_only() -> None:
    assert a_tool().annotations == {"readOnlyHint": False, "x-safety-class": "reversible"}
    assert a_tool(name="get_x", annotations={"destructiveHint": True}).annotations["readOnlyHint"] is True


def test_description_is_bounded_and_shows_nothing_invisible() -> None:
    assert a_tool(description="a\x00b\x1b[1m\n\tc\u202e\u200bd\ue000").description == "ab[1m\n\tcd"
    assert len(a_tool(description="x" * 5000).description) == 1024
    assert a_tool().description == ""


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.invalid/s.json"},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": "object", "properties": {"a": {"$ref": "other.json"}}},
        {"$schema": "https://example.invalid/dialect", "type": "object"},
        {"type": "nothing"},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": {"a": {"pattern": "(a{1000}){1000}"}}},
        {"description": "x" * 40_000},
    ],
)
def test_schema_that_does_not_stand_by_itself_is_not_listed(schema: dict[str, Any]) -> None:
    assert tool_of(inputSchema=schema) is None
    assert tool_of(outputSchema=schema) is None


def test_older_dialect_is_understood() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "definitions": {"i": {}}}
    assert a_tool(inputSchema=schema).takes({})


def test_schema_that_goes_in_circles_ends() -> None:
    assert a_tool(inputSchema={"$ref": "#"}).takes({"a": {}})


def test_pattern_that_takes_for_ever_is_given_up() -> None:
    tool = a_tool(inputSchema={"type": "object", "properties": {"a": {"pattern": "^(?=a)(a+)+(?!b)$"}}})
    began = time.perf_counter()
    tool.takes({"a": "a" * 5000 + "!"})
    assert time.perf_counter() - began < 1


def test_flaw_names_only_what_the_schema_has() -> None:
    tool = a_tool()
    words = [flaw.words if flaw else None for flaw in map(tool.flaw, ({"a": 1}, {}, {"a": "x"}, [], None))]
    assert words == [
        None,
        "/a is missing",
        "/a has the wrong type",
        "the document has the wrong type",
        "the document has the wrong type",
    ]
    nested = a_tool(inputSchema={"type": "object", "additionalProperties": {"type": "integer"}})
    flaw = nested.flaw({"what the caller chose": "x"})
    assert flaw is not None
    assert flaw.pointer == "/*"


def test_only_data_of_a_result_goes_on() -> None:
    result = passed(
        {
            "content": [
                {"type": "text", "text": "t", "annotations": {"audience": ["user"]}, "_meta": {"x": 1}},
                {"type": "image", "data": "AA==", "mimeType": "image/png", "_meta": {}},
                {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
                {"type": "resource_link", "uri": "x://y", "name": "n"},
                {"type": "resource", "resource": {"uri": "x://y", "text": "r", "_meta": {"x": 1}}, "_meta": {"x": 1}},
                {"type": "resource", "resource": {"uri": "x://z", "blob": "AA==", "mimeType": "a/b"}},
            ],
            "structuredContent": {"s": 1},
            "isError": False,
            "_meta": {"secret": 1},
            "resultType": "complete",
        }
    )
    assert result.as_mcp() == {
        "content": [
            {"type": "text", "text": "t"},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
            {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "x://y", "text": "r"}},
            {"type": "resource", "resource": {"uri": "x://z", "blob": "AA==", "mimeType": "a/b"}},
        ],
        "structuredContent": {"s": 1},
        "isError": False,
    }
    assert result.as_json() == {"s": 1}
    assert "AA==" not in str(result.readable())
    assert result.with_readable(result.readable()) == result
    items, _ = result.readable()
    items[0]["text"], items[3]["resource"]["text"] = "[gone]", "[too]"
    changed = result.with_readable([items, {"s": 2}])
    assert [changed.content[0]["text"], changed.content[3]["resource"]["text"], changed.structured] == [
        "[gone]",
        "[too]",
        {"s": 2},
    ]
    assert changed.content[1] == result.content[1]


@pytest.mark.parametrize(
    ("content", "shown"),
    [([{"type": "text", "text": "t"}], [{"type": "text", "text": "t"}]), ([], [{"type": "text", "text": '{"s":1}'}])],
)
def test_structure_of_a_failure_becomes_text_only_where_there_is_no_other_content(
    content: list[dict[str, str]], shown: list[dict[str, str]]
) -> None:
    result = passed({"content": content, "structuredContent": {"s": 1}, "isError": True})
    assert result.for_clients(has_schema=True).as_mcp() == {"content": shown, "isError": True}
    assert result.for_clients(has_schema=False) == result


@pytest.mark.parametrize("structured", [[1], 1, "x", False])
def test_structure_that_is_no_object_is_text_for_clients(structured: Any) -> None:
    result = passed({"content": [], "structuredContent": structured})
    text = json.dumps(structured)
    assert result.for_clients(has_schema=False).as_mcp() == {
        "content": [{"type": "text", "text": text}],
        "isError": False,
    }
    assert result.as_json() == structured


def test_result_without_structure_is_its_content() -> None:
    result = passed({"content": [{"type": "text", "text": "t"}], "isError": True})
    assert result.as_json() == {"content": [{"type": "text", "text": "t"}]}
    assert result.as_mcp() == {"content": [{"type": "text", "text": "t"}], "isError": True}
