"""The lists of rooms' and of operators' tools: closed, well-formed, and fit for every client."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest

from schemas.contract import Contract
from schemas.echo.project_tools import PROJECT_TOOLS
from schemas.echo.room_tools import ROOM_TOOLS
from schemas.echo.tools import EchoTool

TOOLS = [*ROOM_TOOLS.values(), *PROJECT_TOOLS.values()]
READ = {"echo_project_get", "echo_project_static_list"}
READ |= {name for name, tool in ROOM_TOOLS.items() if tool.scope in (None, "kv_read", "file_read")}


def objects(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Every schema of an object with named members, at any depth."""
    if isinstance(schema, Mapping):
        if "properties" in schema:
            yield schema
        for value in schema.values():
            yield from objects(value)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_schemas_are_closed_and_compile_everywhere(tool: EchoTool) -> None:
    for side in ("inputSchema", "outputSchema"):
        schema = tool.listed[side]
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft7Validator.check_schema(schema)  # what clients of the 1.x SDKs know
        Contract(schema)
        assert (schema["type"], "$id" in schema, "$ref" in str(schema)) == ("object", False, False)
        assert all(part["additionalProperties"] is False for part in objects(schema))


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_tools_have_names_that_every_client_takes_and_words_for_models(tool: EchoTool) -> None:
    assert re.fullmatch(r"[a-z_]{1,64}", tool.name)
    assert tool.listed["title"]
    assert tool.listed["description"].endswith(".")
    assert tool.listed["annotations"]["readOnlyHint"] is (tool.name in READ)


def test_arguments_that_are_none_are_refused_and_nothing_raises() -> None:
    tool = ROOM_TOOLS["echo_kv_set"]
    assert tool.takes({"key": "k", "value": "v", "expires_at": 1.5})
    wrong: tuple[Any, ...] = ([], None, "x", {}, {"key": 1, "value": "v"}, {"key": "k", "value": "v", "\ud800": 1})
    assert [arguments for arguments in wrong if tool.takes(arguments)] == []
    deep: dict[str, Any] = {}
    inner = deep
    for _ in range(50_000):
        inner["a"] = inner = {}
    assert not tool.takes(deep)


def test_an_operator_has_the_six_tools_of_the_contract_with_what_each_needs() -> None:
    needed = {name: tool.listed["inputSchema"]["required"] for name, tool in PROJECT_TOOLS.items()}
    assert needed == {
        "echo_project_create": ["name"],
        "echo_project_get": ["project_id"],
        "echo_project_book": ["project_id"],
        "echo_project_add_space": ["project_id"],
        "echo_project_static_presign": ["project_id", "path"],
        "echo_project_static_list": ["project_id"],
    }
