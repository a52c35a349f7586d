"""An upstream's tool as it is listed here, and its result as it is passed on. Pure.

Names and schemas that we could not vouch for are not listed: names that MCP does not have, schemas that do not compile
or that point outside themselves. Descriptions are the upstream's own words, for it is the operator who named it: cut to
a length, and without control characters. Of a result only what is data goes on.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs
import msgspec

from gateway.calls.upstreams.client_schemas import input_for_clients, output_for_clients
from gateway.calls.upstreams.settings import UpstreamSettings
from gateway.governance.policy.upstream_rules import UpstreamRules
from schemas.contract import Flaw
from schemas.projection import annotations, safety_meta

NAME_CHARS_MAX = 128  # with the prefix, as in MCP
DESCRIPTION_CHARS_MAX = 1024

_NAME = re.compile(r"[A-Za-z0-9_.-]+\Z")
# A pattern that needs more steps than this for one value does not match it.
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000, size_limit=1_000_000)


@dataclass(frozen=True, slots=True)
class UpstreamTool:
    name: str  # as agents know it
    own_name: str  # as the upstream does
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None  # as listed; its results are held against the upstream's own
    safety_class: str
    _input: Any = field(repr=False, compare=False)
    _output: Any = field(repr=False, compare=False)
    _words: frozenset[str] = field(repr=False, compare=False)

    @property
    def annotations(self) -> Mapping[str, Any]:
        return annotations(self.safety_class)

    @property
    def listed(self) -> dict[str, Any]:
        """As an MCP client wants it."""
        output = {} if self.output_schema is None else {"outputSchema": self.output_schema}
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            **output,
            "annotations": self.annotations,
            "_meta": safety_meta(self.safety_class),
        }

    def flaw(self, arguments: Any) -> Flaw | None:
        """Where the arguments do not fit, in names that the tool's own schema has."""
        if not isinstance(arguments, dict):
            return Flaw("", "type")
        try:
            self._input.validate(arguments)
        except jsonschema_rs.ValidationError as error:
            path = list(error.instance_path)
            if error.kind.name == "required":
                path.append(str(error.kind.value))
            steps = (step if isinstance(step, int) or step in self._words else "*" for step in path)
            return Flaw("".join(f"/{step}" for step in steps), error.kind.name)
        return None

    def takes(self, arguments: Any) -> bool:
        return self.flaw(arguments) is None

    def gives(self, structured: Any) -> bool:
        """Whether this may be its structured result."""
        return self._output is None or bool(self._output.is_valid(structured))


def listed(rules: UpstreamRules, told: Mapping[str, Any], settings: UpstreamSettings) -> UpstreamTool | None:
    """The tool that an upstream tells of, as MCP has it; None when it is not to be listed."""
    own_name, description = told["name"], told.get("description") or ""
    name = f"{rules.name}.{own_name}"
    if len(name) > NAME_CHARS_MAX or not _NAME.match(own_name):
        return None
    input_schema, output_schema = told["inputSchema"], told.get("outputSchema")
    for schema in (input_schema, output_schema):
        if schema is not None and len(msgspec.json.encode(schema)) > settings.schema_bytes_max:
            return None
    try:
        takes = _compiled(input_schema)
        gives = None if output_schema is None else _compiled(output_schema)
    except (ValueError, RecursionError):
        return None
    words = frozenset(_words(input_schema))
    shown_input = input_for_clients(input_schema)
    shown_output = None if output_schema is None else output_for_clients(output_schema)
    safety_class = rules.safety_class(own_name)
    return UpstreamTool(
        name, own_name, _shown(description), shown_input, shown_output, safety_class, takes, gives, words
    )


def _compiled(schema: Mapping[str, Any]) -> Any:
    """Nothing is ever fetched. Raises ValueError."""
    return jsonschema_rs.validator_for(dict(schema), offline=True, pattern_options=_PATTERNS)


def _words(schema: Any) -> Iterator[str]:
    """Every property name that the schema declares. No recursion: deep nesting would exhaust the stack."""
    todo = [schema]
    while todo:
        item = todo.pop()
        if isinstance(item, Mapping):
            properties = item.get("properties")
            if isinstance(properties, Mapping):
                yield from properties
            required = item.get("required")
            if isinstance(required, list):
                yield from (name for name in required if isinstance(name, str))
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)


def _shown(text: str) -> str:
    """Line breaks stay; what is invisible, or turns the text around, does not."""
    kept = (c for c in text[: 4 * DESCRIPTION_CHARS_MAX] if c in "\n\t" or unicodedata.category(c)[0] != "C")
    return "".join(kept)[:DESCRIPTION_CHARS_MAX]


# ---- results --------------------------------------------------------------------------------------------------------

_FIELDS = {"text": ("text",), "image": ("data", "mimeType"), "audio": ("data", "mimeType")}
_RESOURCE_FIELDS = ("uri", "mimeType", "text", "blob")
_BINARY = ("data", "blob")


@dataclass(frozen=True, slots=True)
class Passed:
    """What goes on of a result."""

    content: list[dict[str, Any]]
    structured: Any
    has_structured: bool
    is_error: bool

    def readable(self) -> Any:
        """All that can be read in it, to be looked through; what is only bytes is left out."""
        return [[_without_bytes(item) for item in self.content], self.structured]

    def with_readable(self, readable: Any) -> "Passed":
        """The same, once `readable` was changed."""
        items, structured = readable
        content = [_merged(item, changed) for item, changed in zip(self.content, items, strict=True)]
        return Passed(content, structured, self.has_structured, self.is_error)

    def as_mcp(self) -> dict[str, Any]:
        structured = {"structuredContent": self.structured} if self.has_structured else {}
        return {"content": self.content, **structured, "isError": self.is_error}

    def for_clients(self, has_schema: bool) -> "Passed":
        """Without a structure that some clients refuse the result for: one that is no object, or that of a failure,
        which they hold against the schema all the same. It goes on as text if there is no other content."""
        if isinstance(self.structured, dict) and not (self.is_error and has_schema):
            return self
        content = self.content
        if self.has_structured and not content:
            content = [{"type": "text", "text": msgspec.json.encode(self.structured).decode()}]
        return Passed(content, None, False, self.is_error)

    def as_json(self) -> Any:
        return self.structured if self.has_structured else {"content": self.content}


def passed(result: Mapping[str, Any]) -> Passed:
    """Of a `CallToolResult` as MCP has it."""
    content = []
    for item in result["content"]:
        if item["type"] == "resource":
            kept = {key: item["resource"][key] for key in _RESOURCE_FIELDS if item["resource"].get(key) is not None}
            content.append({"type": "resource", "resource": kept})
        elif item["type"] in _FIELDS:
            content.append({"type": item["type"], **{key: item[key] for key in _FIELDS[item["type"]]}})
    structured = result.get("structuredContent")
    return Passed(content, structured, structured is not None, bool(result.get("isError")))


def _without_bytes(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_bytes(value) if isinstance(value, Mapping) else value
        for key, value in item.items()
        if key not in _BINARY
    }


def _merged(item: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _merged(value, changed[key]) if isinstance(value, Mapping) else changed.get(key, value)
        for key, value in item.items()
    }
