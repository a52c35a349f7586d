"""A whole gateway with projects, and MCP clients that come with the project bearer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gateway.mcp.site import Client, Site
from tests.gateway.mcp.space_site import space_site

BEARER = "a-bearer-of-the-project-api-that-is-long-enough"


@dataclass
class OperatorSite:
    site: Site

    @property
    def url(self) -> str:
        return self.site.url

    @property
    def sessions(self) -> int:
        """Of operators, that are open."""
        _agents, operators, _rooms = self.site.gateway.mcp.session_tables
        return len(operators)

    def client(self, token: str = BEARER, **headers: str) -> Any:
        return self.site.client(token, **headers)

    async def rest(self, client: Client, path: str = "") -> Any:
        """What REST says of the same."""
        answer = await client.http.get(f"http://{self.site.gateway.http}/api/projects{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()


@asynccontextmanager
async def operator_site(folder: Path, **flags: Any) -> AsyncIterator[OperatorSite]:
    async with space_site(folder, projects__api_bearer_token=BEARER, **flags) as one:
        yield OperatorSite(one.site)
