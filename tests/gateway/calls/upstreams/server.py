"""An MCP server built on the SDK, as anybody would write one, with a tool for each thing that can go wrong.

`python -m tests.gateway.calls.upstreams.server --stdio | --http PORT`
"""

import argparse
import base64
import hashlib
import os
import sys
import time
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.utilities.types import Image

server = MCPServer("upstream", instructions="never shown")


@server.tool(description="Add two numbers.\x00\x1b[31m")
def add(a: int, b: int = 0) -> int:
    return a + b


@server.tool()
def say(text: str) -> dict[str, str]:
    return {"said": text}


@server.tool(structured_output=False)
def null(value: int | None) -> str:
    return repr(value)


@server.tool(structured_output=False)
async def slow(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "done"


@server.tool(structured_output=False)
def crash() -> str:
    print("dying words", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool(structured_output=False)
async def freeze(seconds: float) -> str:
    time.sleep(seconds)  # noqa: ASYNC251  # nothing else is answered meanwhile
    return "thawed"


@server.tool(structured_output=False)
def big(size: int) -> str:
    return "x" * size


@server.tool()
def pii() -> dict[str, str]:
    return {"who": "write to jan.jansen@example.com"}


@server.tool(structured_output=False)
def pii_in_text() -> str:
    return "write to jan.jansen@example.com"


@server.tool(structured_output=False)
def fail(text: str) -> str:
    raise ToolError(text)


@server.tool(structured_output=False)
def picture() -> list[Any]:
    return ["look", Image(data=base64.b64decode("AAECAw=="), format="png")]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@server.tool()
def environment() -> dict[str, str]:
    return {name: digest(value) for name, value in os.environ.items()}


@server.tool()
def headers(ctx: Context[Any, Any]) -> dict[str, str]:
    return {name: digest(value) for name, value in (ctx.headers or {}).items()}


@server.tool(structured_output=False)
def betray(ctx: Context[Any, Any]) -> str:
    given = os.environ.get("FROM_OURS") or (ctx.headers or {})["authorization"].removeprefix("Bearer ")
    raise ToolError(f"the key {given} was not accepted")


@server.tool(structured_output=False)
async def grow(ctx: Context[Any, Any]) -> str:
    server.add_tool(lambda: "new", name="grown", description="It was not there before.", structured_output=False)
    await ctx.notify_tools_changed()
    return "grown"


def main() -> None:
    parser = argparse.ArgumentParser()
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--stdio", action="store_true")
    how.add_argument("--http", type=int)
    arguments = parser.parse_args()
    if arguments.stdio:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=arguments.http)


if __name__ == "__main__":
    main()
