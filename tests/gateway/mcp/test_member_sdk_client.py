"""The official SDK's own client, which knows nothing but a URL: from a 401 to a tool's result, through our pages."""

from pathlib import Path

import pytest
from mcp import Client
from mcp.client.auth import OAuthFlowError, OAuthTokenError
from mcp.client.streamable_http import streamable_http_client

from schemas.echo.room_tools import ROOM_TOOLS
from tests.gateway.identity.oauth.member_client import Consenting
from tests.gateway.mcp.space_site import SpaceSite, space_site
from tests.gateway.mcp.test_member_sessions import PLENTY, later, owner, token_of
from tests.gateway.spaces.test_live import ask, request
from tests.gateway.spaces.test_oauth_live import authorize_path, post_form

VERSIONS = {"auto": "2026-07-28", "2026-07-28": "2026-07-28", "legacy": "2025-11-25"}
DROPPED = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")  # by the client, under trio


def local(one: SpaceSite, host: str) -> str:
    return f"http://{host}:{one.site.gateway.http.rpartition(':')[2]}/mcp"


@DROPPED
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("mode", VERSIONS)
async def test_client_that_has_a_url_signs_a_member_in_and_gets_its_tools(tmp_path: Path, mode: str, host: str) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        person = Consenting(await owner(one))
        url = local(one, host)
        async with (
            person.http(person.provider(url)) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            assert client.protocol_version == VERSIONS[mode]
            assert [tool.name for tool in (await client.list_tools()).tools] == list(ROOM_TOOLS)
            assert not (await client.call_tool("echo_kv_set", {"key": "k", "value": "v"})).is_error
            info = await client.call_tool("echo_space_info", {})
            assert info.structured_content is not None
            assert info.structured_content["token"] == person.person.api.removeprefix("/api/s/")
        assert len(person.pages) == 1
        assert person.storage.tokens is not None
        assert person.storage.tokens.scope == "echo.full"


@DROPPED
@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_it_goes_on_by_itself_when_its_access_token_has_ended(tmp_path: Path, mode: str) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        person = Consenting(await owner(one))
        provider = person.provider(one.url)
        async with (
            person.http(provider) as http,
            Client(streamable_http_client(one.url, http_client=http), mode=mode) as client,
        ):
            await client.list_tools()
            first = person.storage.tokens
            later(one.site.gateway, 3_600)
            provider.context.token_expiry_time = 1.0  # its clock goes with ours
            assert not (await client.call_tool("echo_space_info", {})).is_error
            assert one.sessions == (1 if mode == "legacy" else 0)  # the same one as before
            second = person.storage.tokens
            assert first is not None
            assert second is not None
            assert second.access_token != first.access_token
        assert len(person.pages) == 1


@DROPPED
async def test_it_asks_again_when_its_family_was_revoked_because_a_refresh_token_came_twice(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        person = Consenting(await owner(one))
        provider = person.provider(one.url)
        async with (
            person.http(provider) as http,
            Client(streamable_http_client(one.url, http_client=http), mode="2026-07-28") as client,
        ):
            await client.list_tools()
            assert person.storage.tokens is not None
            stolen = person.storage.tokens.refresh_token or ""
            for _ in range(2):  # it is used, and its successor too
                provider.context.token_expiry_time = 1.0
                await client.call_tool("echo_space_info", {})
            reused = await post_form(one.site.gateway, "/oauth/token", grant_type="refresh_token", refresh_token=stolen)
            assert (reused.status, reused.json["error"]) == (400, "invalid_grant")
            assert len(person.pages) == 1
            assert not (await client.call_tool("echo_space_info", {})).is_error
            assert len(person.pages) == 2


@pytest.mark.parametrize("resource", ["https://evil.example/mcp", "{base}/mcp/", "{base}", "{base}/mcp/nope"])
async def test_resource_that_is_not_ours_is_invalid_target(tmp_path: Path, resource: str) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        await owner(one)
        gateway = one.site.gateway
        assert gateway.base is not None
        wrong = resource.format(base=gateway.base())
        shown = await ask(gateway, request("GET", authorize_path(resource=wrong, state="s")))
        assert shown.status == 303 or shown.status == 302, shown
        assert "error=invalid_target" in shown.headers["location"]
        assert "state=s" in shown.headers["location"]


@DROPPED
async def test_sdk_client_sent_to_another_resource_gets_no_token_of_ours(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        person = Consenting(await owner(one))
        provider = person.provider(one.url)
        provider.context.server_url = "https://evil.example/mcp"  # what it would ask for
        async with person.http(provider) as http:
            with pytest.raises((OAuthFlowError, OAuthTokenError, AssertionError)):
                await http.post(one.url, content=b"{}")
        assert person.storage.tokens is None


async def test_token_of_a_space_is_nothing_to_the_routes_of_agents(tmp_path: Path) -> None:
    """The wrong audience the other way round."""
    async with space_site(tmp_path, **PLENTY) as one:
        ann = await owner(one)
        for path in ("/mcp/tools", "/mcp/budget", "/mcp/flat"):
            answer = await ask(one.site.gateway, request("GET", path, b"", f"Authorization: Bearer {token_of(ann)}"))
            assert answer.status == 401, path
