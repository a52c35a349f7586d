"""An MCP server of the handshake era, written by hand: it knows no `server/discover`, and tells of changes unasked.

It says a word before it speaks the protocol, as careless programs do.
"""

import json
import sys
from typing import Any

TOOLS = [{"name": "first", "inputSchema": {"type": "object"}}]


def main() -> None:
    print("welcome!", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = answered(request["method"], request.get("params") or {})
        if "id" in request:
            more = {"result": answer} if answer is not None else {"error": {"code": -32601, "message": "hunter2"}}
            say({"id": request["id"], **more})
        if request["method"] == "tools/call":
            TOOLS.append({"name": "second", "inputSchema": {"type": "object"}})
            say({"method": "notifications/tools/list_changed"})


def answered(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "old", "version": "1"}
            return {"protocolVersion": "2025-03-26", "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            # In pages of one.
            at = int(params.get("cursor", "0"))
            more = {} if at + 1 >= len(TOOLS) else {"nextCursor": str(at + 1)}
            return {"tools": TOOLS[at : at + 1], **more}
        case "tools/call" if params["name"] == "first":
            return {"content": [{"type": "text", "text": "hello"}]}
        case _:
            return None


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


if __name__ == "__main__":
    main()
