"""The official SDK's own client with a room's token, in both eras, against a whole gateway."""

from base64 import b64decode, b64encode
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from schemas.echo.room_tools import ROOM_TOOLS
from tests.gateway.mcp.site import PATIENCE_S
from tests.gateway.mcp.space_site import space_site

VERSIONS = {"auto": "2026-07-28", "2026-07-28": "2026-07-28", "legacy": "2025-11-25"}


@pytest.mark.parametrize("mode", VERSIONS)
@pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")  # which the client drops, under trio
async def test_sdk_client_uses_a_room_with_its_token_alone(tmp_path: Path, mode: str) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        headers = {"authorization": f"Bearer {made.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http,
            Client(streamable_http_client(one.url, http_client=http), mode=mode) as client,
        ):
            assert client.protocol_version == VERSIONS[mode]
            listed = await client.list_tools()
            assert [tool.name for tool in listed.tools] == list(ROOM_TOOLS)
            assert listed.next_cursor is None
            written = await client.call_tool("echo_kv_set", {"key": "greeting", "value": "hi", "ttl_seconds": 60})
            read = await client.call_tool("echo_kv_get", {"key": "greeting"})
            assert not written.is_error
            assert read.structured_content is not None  # held against the output schema by the client itself
            assert read.structured_content["value"] == "hi"
            content = bytes(range(256)) * 1024
            up = await client.call_tool(
                "echo_file_upload", {"data_base64": b64encode(content).decode(), "name": "a.bin"}
            )
            assert up.structured_content is not None
            down = await client.call_tool("echo_file_download", {"file_id": up.structured_content["file_id"]})
            assert down.structured_content is not None
            assert b64decode(down.structured_content["data_base64"]) == content
            failed = await client.call_tool("echo_push_vapid_public", {})
            assert (failed.is_error, failed.structured_content) == (True, None)
            with pytest.raises(MCPError) as unknown:
                await client.call_tool("nope", {})
            data = unknown.value.error.data
            assert (data["code"], set(data)) == ("TOOL_NOT_FOUND", {"code", "correlation_id"})
        assert one.sessions == 0  # the client of the handshake era has ended its own
