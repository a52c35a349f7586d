"""An upstream's schemas as clients can take them. Pure.

Some clients compile every `outputSchema` of a list with a validator of draft 7, and one that it cannot compile costs
them the whole list; the handshake era knows no root but an object. The gateway itself holds results against the
upstream's full schema (`tool_rules.py`), so what is listed may be weaker, never stronger: it tells the shape.
"""

from collections.abc import Mapping
from typing import Any

# Same name, same meaning, in drafts 7 and 2020-12.
_OF_SCHEMA = frozenset({"additionalProperties", "items", "contains", "propertyNames", "not", "if", "then", "else"})
_OF_LIST = frozenset({"anyOf", "allOf", "oneOf"})
_OF_MAP = frozenset({"properties", "$defs", "definitions"})
_OF_DATA = frozenset(
    {"type", "enum", "const", "title", "description", "default", "examples", "required", "deprecated", "readOnly"}
    | {
        "writeOnly",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
    }
    | {"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"}
)
# Validators differ in which dates and which expressions they take.
_DROPPED = frozenset({"format", "pattern"})
# Under these, a schema with less in it can refuse more.
_NEGATING = frozenset({"not", "if", "oneOf"})
_DRAFT_7 = frozenset({"http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-07/schema#"})
_LATEST = "https://json-schema.org/draft/2020-12/schema"
_DRAFTS = _DRAFT_7 | {_LATEST, f"{_LATEST}#"}


class _OddError(ValueError):
    """Not every client can take it."""


def input_for_clients(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Clients show it to their model and compile nothing, but want an object for each property."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not any(isinstance(one, bool) for one in properties.values()):
        return schema
    return {**schema, "properties": {name: _as_object(one) for name, one in properties.items()}}


def output_for_clients(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """None when there is no such schema that says no more than this one."""
    dialect = schema.get("$schema", _LATEST)
    if schema.get("type") != "object" or not isinstance(dialect, str) or dialect not in _DRAFTS:
        return None
    used: set[str] = set()
    draft_7 = dialect in _DRAFT_7
    try:
        plain = _plain({key: value for key, value in schema.items() if key not in ("$schema", "$id")}, used, draft_7)
    except (_OddError, RecursionError):
        return None
    if plain.get("type") != "object":  # a root that is nothing but a `$ref`: what it points at went with the rest
        return None
    return None if used & _DROPPED and used & _NEGATING else plain


def _plain(schema: Any, used: set[str], draft_7: bool) -> Any:
    """The schema without what only annotates or is dropped. Raises _OddError."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping):
        raise _OddError
    if draft_7 and "$ref" in schema:  # what stands beside it means nothing there, and something in later drafts
        schema = {"$ref": schema["$ref"]}
    used.update(schema)
    return {key: _value(key, value, used, draft_7) for key, value in schema.items() if not _is_left_out(key)}


def _value(key: str, value: Any, used: set[str], draft_7: bool) -> Any:
    """Whatever an upstream wrote: a value of the wrong type is odd too."""
    if key in _OF_DATA:
        return value
    if key in _OF_SCHEMA:
        return _plain(value, used, draft_7)
    if key in _OF_LIST and isinstance(value, list):
        return [_plain(one, used, draft_7) for one in value]
    if key in _OF_MAP and isinstance(value, Mapping):
        return {name: _as_object(_plain(one, used, draft_7)) for name, one in value.items()}
    if key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
        return value
    raise _OddError


def _is_left_out(key: str) -> bool:
    return key in _DROPPED or key == "$comment" or key.startswith("x-")


def _as_object(schema: Any) -> Any:
    """`true` and `false` as objects that mean the same."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema
