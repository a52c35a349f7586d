"""The tools of a room over MCP, as `room_tools.json` lists them, with what each one asks of a credential's scopes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from schemas.contract import Contract
from schemas.echo.tools import EchoTool, listed_in

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
class RoomTool(EchoTool):
    scope: str | None

    def is_open_to(self, scopes: Collection[str]) -> bool:
        return self.scope is None or self.scope in scopes or FULL in scopes


ROOM_TOOLS: Mapping[str, RoomTool] = {
    tool["name"]: RoomTool(tool["name"], tool, Contract(tool["inputSchema"]), _SCOPES[tool["name"]])
    for tool in listed_in("room_tools.json")
}
