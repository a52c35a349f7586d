"""A whole gateway with echo spaces on, rooms in it, and MCP clients that come with a room's token."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.space.spaces import Opened
from schemas.echo.frames import Encoding
from tests.gateway.mcp.site import Client, Site, site


@dataclass
class SpaceSite:
    site: Site

    @property
    def url(self) -> str:
        return self.site.url

    async def room(self, *, is_encrypted: bool = False) -> Opened:
        assert self.site.gateway.spaces is not None
        made = await self.site.gateway.spaces.open(Encoding.JSON, None, is_encrypted=is_encrypted)
        assert isinstance(made, Opened)
        return made

    async def rest(self, client: Client, made: Opened, path: str = "") -> Any:
        """What REST says of the same."""
        answer = await client.http.get(f"http://{self.site.gateway.http}/api/s/{made.token}{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    @property
    def sessions(self) -> int:
        """Of rooms, that are open."""
        _agents, rooms = self.site.gateway.mcp.session_tables
        return len(rooms)


@asynccontextmanager
async def space_site(folder: Path, **flags: Any) -> AsyncIterator[SpaceSite]:
    async with site(folder, echo__enabled=True, echo__disk_free_min=0.0, **flags) as one:
        yield SpaceSite(one)


async def call(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The result of a tool, in the modern era."""
    response = await client.modern("tools/call", name=tool, arguments=arguments)
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()["result"]
    return result


async def failure(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """What a tool says that fails: as text, for programs, and as nothing else."""
    result = await call(client, tool, **arguments)
    assert result["isError"] is True
    assert "structuredContent" not in result
    (content,) = result["content"]
    error: dict[str, Any] = result["_meta"]["io.heliograph/error"]
    assert json.loads(content["text"]) == error
    assert error["correlation_id"] == result["_meta"]["io.heliograph/correlationId"]
    return error
