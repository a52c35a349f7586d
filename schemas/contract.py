"""What a schema says of an instance: yes or no in a microsecond, and where it fails in words of our own.

Two validators read the same files. `jsonschema-rs` judges on every path that a stranger's bytes can reach and says
where the first flaw is. `jsonschema`, tens of times slower, proves the files themselves and lists every flaw for a
person (`heliograph schema check`). A property test holds the two to the same verdict and the same flaws.

A `Flaw` never carries a value or a name that the sender chose: its pointer is made of names from our schemas and of
array indices, its words come from a table here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jsonschema
import jsonschema_rs
from jsonschema.validators import extend
from referencing import Registry as PythonReferences
from referencing.jsonschema import DRAFT202012

from schemas.ecma import compile_ecma
from schemas.registry import REGISTRY

WORDS = {
    "additionalProperties": "has a property that its schema does not know",
    "anyOf": "fits none of the allowed shapes",
    "const": "is not the one allowed value",
    "enum": "is not one of the allowed values",
    "exclusiveMinimum": "is too small",
    "maxItems": "has too many items",
    "maxLength": "is too long",
    "maximum": "is too large",
    "minItems": "has too few items",
    "minimum": "is too small",
    "not": "is not allowed here",
    "oneOf": "does not fit exactly one of the allowed shapes",
    "pattern": "does not match its pattern",
    "required": "is missing",
    "type": "has the wrong type",
    "uniqueItems": "has the same item twice",
}


@dataclass(frozen=True, slots=True, order=True)
class Flaw:
    pointer: str  # RFC 6901; of a missing property, where it should be
    rule: str  # the JSON Schema keyword that failed

    @property
    def trouble(self) -> str:
        """What is wrong there, in words that follow on the place."""
        return WORDS.get(self.rule, "does not fit its schema")

    @property
    def words(self) -> str:
        return f"{self.pointer or 'the document'} {self.trouble}"


def _names(document: object) -> Iterator[str]:
    """Every property name that a schema declares, at any depth."""
    if isinstance(document, Mapping):
        properties = document.get("properties")
        if isinstance(properties, Mapping):
            yield from properties
        for value in document.values():
            yield from _names(value)
    elif isinstance(document, list):
        for value in document:
            yield from _names(value)


_VOCABULARY = frozenset(name for schema in REGISTRY for name in _names(schema.document))


def _pointer(path: list[str | int]) -> str:
    return "".join(f"/{step if isinstance(step, int) or step in _VOCABULARY else '*'}" for step in path)


# ---- the fast validator -------------------------------------------------------------------------------------------

_references = jsonschema_rs.Registry([(schema.uri, dict(schema.document)) for schema in REGISTRY])


def _fast_flaws(error: jsonschema_rs.ValidationError) -> Iterator[Flaw]:
    rule = error.kind.name
    if rule == "required":
        yield Flaw(_pointer([*error.instance_path, str(error.kind.value)]), rule)
    else:
        yield Flaw(_pointer(error.instance_path), rule)


class Contract:
    """A compiled schema. Nothing is ever fetched: a `$ref` that no published file answers fails here, at load."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._fast = jsonschema_rs.Draft202012Validator(dict(document), registry=_references, offline=True)
        self.is_valid = self._fast.is_valid

    def first_flaw(self, instance: Any) -> Flaw | None:
        """Where it fails first; None when it is valid.

        Fit for hostile input: `validate` stops at the first error, where `iter_errors` makes all of them at once, with
        copies of what they are about, which takes seconds for a frame that is wrong forty thousand times.
        """
        try:
            self._fast.validate(instance)
        except jsonschema_rs.ValidationError as error:
            return next(_fast_flaws(error))
        return None

    def flaws(self, instance: Any) -> frozenset[Flaw]:
        """Every place where it fails, by the fast validator; for tests, not for hostile input."""
        return frozenset(flaw for error in self._fast.iter_errors(instance) for flaw in _fast_flaws(error))

    def explain(self, instance: Any) -> list[Flaw]:
        """Every place where it fails, in order, by `jsonschema`: for people, not for a hot path."""
        errors = _EcmaValidator(_without_dialect(self._document), registry=_python_references).iter_errors(instance)
        return sorted({flaw for error in errors for flaw in _slow_flaws(error)})


@cache
def contract(schema_id: str) -> Contract:
    """The compiled contract of a published schema."""
    return Contract(REGISTRY[schema_id].document)


# ---- the explaining validator --------------------------------------------------------------------------------------


def _ecma_pattern(
    validator: Any, pattern: str, instance: Any, _schema: Mapping[str, Any]
) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(instance, "string") and not compile_ecma(pattern).search(instance):
        yield jsonschema.ValidationError("does not match its pattern")


_EcmaValidator = extend(jsonschema.Draft202012Validator, {"pattern": _ecma_pattern})  # type: ignore[no-untyped-call]


def _without_dialect(document: Mapping[str, Any]) -> dict[str, Any]:
    """jsonschema follows a `$ref` with its stock validator if the target names a dialect, losing our `pattern`."""
    return {key: value for key, value in document.items() if key != "$schema"}


_python_references: PythonReferences[Any] = PythonReferences().with_resources(
    (schema.uri, DRAFT202012.create_resource(_without_dialect(schema.document))) for schema in REGISTRY
)


def _slow_flaws(error: jsonschema.ValidationError) -> Iterator[Flaw]:
    path = list(error.absolute_path)
    rule = str(error.validator)
    if rule == "required" and isinstance(error.instance, Mapping):
        required: list[str] = list(error.validator_value)  # type: ignore[arg-type]  # a list, by the meta-schema
        yield from (Flaw(_pointer([*path, name]), rule) for name in required if name not in error.instance)
    else:
        yield Flaw(_pointer(path), rule)
