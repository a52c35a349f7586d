"""A server behind the gateway whose tools have what breaks clients: failures with structure, legal but odd schemas.

On the official SDK, of the newest version of the protocol, over standard input and output.
"""

from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
_SAME_ID = "https://example.org/result"
_STRING = {"type": "string"}

# Each makes the list, or a result, unreadable for some client that takes it as it is.
ODD_OUTPUTS: dict[str, Any] = {
    "no_type": {"anyOf": [{"type": "object"}]},
    "array": {"type": "array", "items": _STRING},
    "boolean_property": {"type": "object", "properties": {"odd": True}},
    "pattern": {"type": "object", "properties": {"odd": {"type": "string", "pattern": "(?i)x|\\-"}}},
    "nullable": {"type": "object", "properties": {"odd": {"nullable": True}}},
    "tuple": {"type": "object", "properties": {"odd": {"prefixItems": [_STRING], "items": False}}},
    "same_id": {"$id": _SAME_ID, "type": "object", "properties": {"odd": _STRING}},
    "same_id_too": {"$id": _SAME_ID, "type": "object", "properties": {"odd": {"type": "array"}}},
    "two_ids": {"type": "object", "$defs": {"a": {"$id": _SAME_ID}, "b": {"$id": _SAME_ID}}},
}
ODD_INPUTS: dict[str, Any] = {
    "input_boolean_property": {"type": "object", "properties": {"odd": True}},
    "input_id": {
        "$id": _SAME_ID,
        "type": "object",
        "properties": {"odd": {"$ref": "#/$defs/a"}},
        "$defs": {"a": _STRING},
    },
}
_STRUCTURES: dict[str, Any] = {"array": ["odd"], "same_id_too": {"odd": ["odd"]}, "tuple": {"odd": ["odd"]}}
ODD = (*ODD_OUTPUTS, *ODD_INPUTS)


async def main() -> None:
    server: Server[Any] = Server("odd")
    server.add_request_handler("tools/list", types.PaginatedRequestParams, _list)
    server.add_request_handler("tools/call", types.CallToolRequestParams, _call)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def _list(*_: Any) -> dict[str, Any]:
    plain = {"type": "object"}
    tools = [{"name": name, "inputSchema": plain, "outputSchema": NUMBER} for name in ("works", "fails", "fails_bare")]
    tools += [{"name": name, "inputSchema": plain, "outputSchema": schema} for name, schema in ODD_OUTPUTS.items()]
    tools += [{"name": name, "inputSchema": schema} for name, schema in ODD_INPUTS.items()]
    return {"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


async def _call(_: Any, params: types.CallToolRequestParams) -> dict[str, Any]:
    return {"resultType": "complete", **_result(params.name)}


def _result(name: str) -> dict[str, Any]:
    match name:
        case "works":
            return {"content": [_text('{"n": 1}')], "structuredContent": {"n": 1}}
        case "fails":
            return {"content": [_text("disk 3 is full")], "structuredContent": {"disk": 3}, "isError": True}
        case "fails_bare":
            return {"content": [], "structuredContent": {"why": "disk 3 is full"}, "isError": True}
        case _ if name in ODD_INPUTS:
            return {"content": [_text("odd")]}
        case _:
            structure = _STRUCTURES.get(name, {"odd": "x"})
            return {"content": [_text("odd")], "structuredContent": structure}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


if __name__ == "__main__":
    anyio.run(main)
