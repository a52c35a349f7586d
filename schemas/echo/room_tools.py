"""The tools of a room over MCP, as `room_tools.json` lists them, with what each one asks of a credential's scopes.

The file is the list itself: names, texts for models, and the schemas of what goes in and comes out. What the tools do
is for whoever serves them.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.contract import Contract

FULL = "echo.full"  # all of the others, and administration
# None: whoever gets into the room at all may use it.
_SCOPES: Mapping[str, str | None] = {
    "echo_space_info": None,
    "echo_system_prompt": None,
    "echo_kv_get": "kv_read",
    "echo_kv_set": "kv_write",
    "echo_file_list": "file_read",
    "echo_file_download": "file_read",
    "echo_file_upload": "file_write",
    "echo_push_vapid_public": None,
    "echo_push_subscribe": "kv_write",
    "echo_push_unsubscribe": "kv_write",
    "echo_push_notify": "ws_write",
}


@dataclass(frozen=True)
class RoomTool:
    name: str
    scope: str | None
    listed: Mapping[str, Any]  # as MCP shows it
    input: Contract

    def is_open_to(self, scopes: Collection[str]) -> bool:
        return self.scope is None or self.scope in scopes or FULL in scopes

    def takes(self, arguments: Any) -> bool:
        """Whether the arguments have the form. Never raises, whatever they are and whoever decoded them."""
        try:
            return bool(self.input.is_valid(arguments))
        except ValueError:  # a name that is no text: half of a surrogate pair
            return False


def _read() -> dict[str, RoomTool]:
    listed = json.loads((Path(__file__).parent / "room_tools.json").read_text())
    return {
        tool["name"]: RoomTool(tool["name"], _SCOPES[tool["name"]], tool, Contract(tool["inputSchema"]))
        for tool in listed
    }


ROOM_TOOLS: Mapping[str, RoomTool] = _read()
