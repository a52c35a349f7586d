"""The official SDK's own client signs a member of a tenant in: from a 401 to a device's answer, on every view."""

from pathlib import Path
from typing import Any

import jwt
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.gateway.identity.members.person import READ, Person, base_of, member_of, operate
from tests.gateway.identity.oauth.member_client import Consenting
from tests.gateway.mcp.site import TENANT, Site, site
from tests.gateway.mcp.test_member_sdk_client import DROPPED, VERSIONS

PLENTY: Any = {"oauth__ceremonies_burst": 1_000, "oauth__requests_burst": 10_000}


async def signed_up(one: Site) -> tuple[Any, Consenting[Person]]:
    invited, person = await member_of(one.gateway, tenant=TENANT)
    return invited, Consenting(person)


@DROPPED
@pytest.mark.parametrize("view", ["/mcp", "/mcp/flat", "/mcp/fleet"])
@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_client_that_has_a_url_signs_a_person_in_and_calls_a_device(tmp_path: Path, view: str, mode: str) -> None:
    async with site(tmp_path, **PLENTY) as one:
        invited, person = await signed_up(one)
        url = f"{base_of(one.gateway)}{view}"
        async with (
            person.http(person.provider(url)) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            assert client.protocol_version == VERSIONS[mode]
            assert (await client.list_tools()).tools
            answer = await client.call_tool(one.echo, {"message": "ping"})
            assert answer.structured_content is not None
            assert answer.structured_content["message"] == "ping"
        assert len(person.pages) == 1
        tokens = person.storage.tokens
        assert tokens is not None
        assert tokens.scope == READ
        said = jwt.decode(tokens.access_token, options={"verify_signature": False})
        assert (said["sub"], said["aud"][0]) == (invited["sub"], url)


@DROPPED
@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_it_refreshes_by_itself_until_the_member_is_revoked(tmp_path: Path, mode: str) -> None:
    async with site(tmp_path, **PLENTY) as one:
        invited, person = await signed_up(one)
        url = f"{base_of(one.gateway)}/mcp"
        provider = person.provider(url)
        async with person.http(provider) as http:
            async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
                await client.list_tools()
                first = person.storage.tokens
                provider.context.token_expiry_time = 1.0
                assert not (await client.call_tool(one.echo, {"message": "ping"})).is_error
                second = person.storage.tokens
            assert first is not None
            assert second is not None
            assert second.access_token != first.access_token
            assert len(person.pages) == 1
            body = {"member": invited["member_id"]}
            assert (await operate(one.gateway, "POST", "/admin/members/revoke", body)).status_code == 200
            with pytest.raises(AssertionError):  # it is sent to the page, which knows the passkey no more
                await http.post(url, content=b"{}")
        assert len(person.pages) == 2
