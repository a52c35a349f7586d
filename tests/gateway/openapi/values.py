"""Values that fit a JSON Schema, of as much of JSON Schema as the OpenAPI document has.

The one library that does this breaks with the hypothesis that we have: docs/adr/0062-what-is-served-says-so.md.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
_LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
ANYTHING = st.recursive(
    _LEAF, lambda one: st.lists(one, max_size=4) | st.dictionaries(TEXT, one, max_size=4), max_leaves=8
)
_INTEGER_MAX = 2**31  # where a schema has no bound: as large as anybody means it


def fitting(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """References are in their places."""
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return st.one_of([fitting(one) for one in schema[word]])
    kind = schema.get("type")
    if isinstance(kind, list):
        return st.one_of([fitting({**schema, "type": one}) for one in kind])
    made = _OF_TYPE.get(kind)
    return ANYTHING if made is None else made(schema)


def _object(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not properties:
        rest = schema.get("additionalProperties", True)
        values = fitting(rest) if isinstance(rest, Mapping) else ANYTHING
        return st.dictionaries(TEXT, values, max_size=0 if rest is False else 3)
    made = {name: fitting(one) for name, one in properties.items()}
    return st.fixed_dictionaries(
        {name: one for name, one in made.items() if name in required},
        optional={name: one for name, one in made.items() if name not in required},
    )


def _text(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    low, high = schema.get("minLength", 0), schema.get("maxLength", 80)
    if "pattern" in schema:
        return st.from_regex(schema["pattern"], fullmatch=False).filter(
            lambda text: low <= len(text) and "\n" not in text
        )
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=low, max_size=min(high, low + 80))


def _number(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    return st.integers(schema.get("minimum", -_INTEGER_MAX), schema.get("maximum", _INTEGER_MAX))


def _array(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    low = schema.get("minItems", 0)
    return st.lists(fitting(schema.get("items", {})), min_size=low, max_size=min(schema.get("maxItems", 4), low + 4))


_OF_TYPE: Mapping[Any, Callable[[Mapping[str, Any]], st.SearchStrategy[Any]]] = {
    "object": _object,
    "string": _text,
    "integer": _number,
    "number": _number,
    "array": _array,
    "boolean": lambda _: st.booleans(),
    "null": lambda _: st.none(),
}
