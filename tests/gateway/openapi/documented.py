"""An OpenAPI document, read: its operations, and its schemas with every reference put in place."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

OPEN = frozenset({"AnyError", "AuditLine", "ListedTool"})
"""Have members that are described elsewhere: those of two forms, the fields of an event, what MCP lists of a tool."""


@dataclass(frozen=True)
class Described:
    method: str
    path: str
    document: Any
    operation: Any

    @property
    def id(self) -> str:
        return str(self.operation["operationId"])

    def responses(self) -> Mapping[str, Any]:
        return {status: resolved(self.document, one) for status, one in self.operation["responses"].items()}

    def parameters(self, place: str) -> dict[str, Any]:
        found = self.operation.get("parameters", [])
        return {one["name"]: inlined(self.document, one["schema"]) for one in found if one["in"] == place}

    def bodies(self) -> dict[str, Any]:
        content = self.operation.get("requestBody", {}).get("content", {})
        return {kind: inlined(self.document, one.get("schema", {})) for kind, one in content.items()}

    def schemes(self) -> list[str]:
        return [scheme for one in self.operation["security"] for scheme in one]


def operations(document: Any) -> Iterator[Described]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield Described(method.upper(), path, document, operation)


def resolved(document: Any, value: Any) -> Any:
    while "$ref" in value:
        target = document
        for word in value["$ref"].removeprefix("#/").split("/"):
            target = target[word]
        value = target
    return value


def inlined(document: Any, schema: Any, *, is_closed: bool = False) -> Any:
    """With references replaced. Closed: objects have no members but those that are named."""
    if isinstance(schema, list):
        return [inlined(document, one, is_closed=is_closed) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        closes = is_closed and schema["$ref"].rpartition("/")[2] not in OPEN
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return inlined(document, {**resolved(document, schema), **rest}, is_closed=closes)
    made = {key: inlined(document, value, is_closed=is_closed) for key, value in schema.items() if key != "$defs"}
    if is_closed and made.get("type") == "object" and "properties" in made:
        made.setdefault("additionalProperties", False)
    return made


class Judge:
    """What there is against an answer, by a document."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._validator = cache(self._made)
        self._of = {one.id: one.responses() for one in operations(document)}

    def _made(self, operation_id: str, status: str, kind: str) -> Draft202012Validator | None:
        schema = self._of[operation_id][status]["content"][kind].get("schema")
        return None if schema is None else Draft202012Validator(inlined(self._document, schema, is_closed=True))

    def faults(self, one: Described, answer: Any) -> list[str]:
        status, responses = str(answer.status), self._of[one.id]
        if answer.status == 500:
            return ["500"]
        if status not in responses:
            return [f"{status} is not documented"]
        content = responses[status].get("content", {})
        if not answer.body and not content:
            return []
        kind = answer.media_type if answer.media_type in content else "*/*"
        if kind not in content:
            return [f"{status} as {answer.media_type} is not documented"]
        validator = self._validator(one.id, status, kind)
        if validator is None or answer.body is None or kind not in ("application/json", "application/schema+json"):
            return []
        faults = [f"{status}: {error.message} at {error.json_path}" for error in validator.iter_errors(answer.json)]
        if answer.status == 401 and "www-authenticate" not in answer.headers:
            faults.append("401 without a challenge")
        if answer.status >= 400 and "x-correlation-id" not in answer.headers and not one.path.startswith("/mcp"):
            faults.append(f"{status} without a correlation id")
        return faults
