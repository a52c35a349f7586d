"""What clients on the SDKs' 1.x lines can take of an upstream's schemas; with them in person: `make conformance`."""

from typing import Any

import pytest

from gateway.calls.upstreams.client_schemas import input_for_clients, output_for_clients
from gateway.calls.upstreams.settings import UpstreamSettings
from gateway.calls.upstreams.tool_rules import listed
from gateway.governance.policy.upstream_rules import UpstreamRules

DRAFT_7 = "http://json-schema.org/draft-07/schema#"

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
STRING = {"type": "string"}


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_plain_output_schema_is_listed_as_it_is() -> None:
    schema = {
        **an_object(a={"$ref": "#/$defs/a"}, b={"anyOf": [STRING, {"type": "null"}]}, c={"items": STRING}),
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"a": {"type": "integer", "minimum": 1, "title": "A"}},
    }
    assert output_for_clients(schema) == schema


@pytest.mark.parametrize("draft", [DRAFT_7, DRAFT_2020])
def test_name_dialect_and_notes_are_left_out(draft: str) -> None:
    schema = {"$schema": draft, "$id": "https://example.org/a", "x-note": 1, **an_object(a={**STRING, "$comment": "c"})}
    assert output_for_clients(schema) == an_object(a=STRING)


def test_formats_and_patterns_are_left_out_because_validators_differ_in_them() -> None:
    schema = an_object(a={**STRING, "format": "date-time"}, b={**STRING, "pattern": "(?i)x"})
    assert output_for_clients(schema) == an_object(a=STRING, b=STRING)


@pytest.mark.parametrize("negating", ["not", "if", "oneOf"])
def test_schema_that_would_refuse_more_without_its_formats_is_not_listed(negating: str) -> None:
    inner: Any = {**STRING, "format": "date"}
    schema = an_object(a={negating: [inner] if negating == "oneOf" else inner})
    assert output_for_clients(schema) is None
    inner.pop("format")
    assert output_for_clients(schema) == schema


def test_property_that_is_named_like_a_keyword_is_a_property() -> None:
    schema = an_object(format=STRING, pattern={"oneOf": [STRING]}, nullable=STRING)
    assert output_for_clients(schema) == schema


def test_true_and_false_are_objects_where_clients_want_objects() -> None:
    objects = an_object(a={}, b={"not": {}}, c=STRING)
    assert output_for_clients(an_object(a=True, b=False, c=STRING)) == objects
    assert input_for_clients(an_object(a=True, b=False, c=STRING)) == objects
    assert input_for_clients({"type": "object"}) == {"type": "object"}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array"},
        {"type": ["object", "null"]},
        {"anyOf": [{"type": "object"}]},
        {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"},
        an_object(a={"nullable": True}),
        an_object(a={"prefixItems": [STRING], "items": False}),
        an_object(a={"items": [STRING]}),
        an_object(a={"$anchor": "a"}),
        an_object(a={"$ref": "#a"}),
        an_object(a={"$ref": "https://example.org/a"}),
        an_object(a={"$id": "https://example.org/a"}),
        {"type": "object", "id": "a"},
        {"type": "object", "patternProperties": {"(?i)x": STRING}},
    ],
)
def test_output_schema_that_some_client_cannot_compile_is_not_listed(schema: dict[str, Any]) -> None:
    assert output_for_clients(schema) is None


@pytest.mark.parametrize("dialect", [{}, {"$schema": DRAFT_7}])
@pytest.mark.parametrize(
    "odd",
    [
        {"$defs": 5},
        {"$defs": {"a": 5}},
        {"$defs": [1]},
        {"definitions": 5},
        {"properties": [1]},
        {"properties": {"a": {"anyOf": 5}}},
        {"properties": {"a": {"anyOf": {"b": {}}}}},
        {"properties": {"a": {"$ref": 5}}},
        {"properties": {"a": {"items": "x"}}},
        {"$ref": 5},
    ],
)
def test_value_of_a_wrong_type_is_not_listed(odd: dict[str, Any], dialect: dict[str, Any]) -> None:
    assert output_for_clients({"type": "object", **dialect, **odd}) is None


def test_dialect_that_is_no_text_is_not_listed() -> None:
    assert output_for_clients({"type": "object", "$schema": []}) is None


def test_what_stands_beside_a_reference_of_draft_7_is_left_out_because_it_means_nothing_there() -> None:
    reference = {"$ref": "#/definitions/t"}
    schema = {**an_object(a={**reference, "maxLength": 1}), "definitions": {"t": STRING}}
    assert output_for_clients({**schema, "$schema": DRAFT_7}) == {
        **an_object(a=reference),
        "definitions": {"t": STRING},
    }
    assert output_for_clients(schema) == schema, "it means something in later drafts"


def test_root_that_is_a_reference_of_draft_7_is_not_listed() -> None:
    schema = {"$schema": DRAFT_7, "type": "object", "$ref": "#/definitions/t", "definitions": {"t": STRING}}
    assert output_for_clients(schema) is None


def test_deep_nesting_is_not_listed() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"items": schema}
    assert output_for_clients({"type": "object", "properties": {"a": schema}}) is None


def test_results_are_held_against_the_full_schema_though_clients_see_less_of_it() -> None:
    output = an_object(a={**STRING, "pattern": "^x$"})
    told = {"name": "tool", "inputSchema": {"type": "object"}, "outputSchema": output}
    tool = listed(UpstreamRules("up", frozenset({"acme"}), ("x",)), told, UpstreamSettings())
    assert tool is not None
    assert tool.listed["outputSchema"] == an_object(a=STRING)
    assert (tool.gives({"a": "x"}), tool.gives({"a": "y"})) == (True, False)
    hidden = listed(
        UpstreamRules("up", frozenset({"acme"}), ("x",)),
        {**told, "outputSchema": {"type": "array"}},
        UpstreamSettings(),
    )
    assert hidden is not None
    assert "outputSchema" not in hidden.listed
    assert (hidden.gives([1]), hidden.gives({})) == (True, False)
