"""The two documents, byte for byte."""

from dataclasses import replace

import msgspec
import pytest

from gateway.identity.oauth.documents import SERVER_DOCUMENT, resource_document
from tests.gateway.identity.oauth.site import BASE, PLENTY, OAuthSite

RESOURCE = (
    '{"resource":"BASE/mcp","resource_name":"Heliograph","authorization_servers":["BASE/oauth"],'
    '"scopes_supported":["echo.full","file_read","file_write","kv_read","kv_write","ws_read","ws_write",'
    '"tools:call:read_only","tools:call:reversible"],"bearer_methods_supported":["header"]}'
)
SERVER = (
    '{"issuer":"BASE/oauth","authorization_endpoint":"BASE/oauth/authorize","token_endpoint":"BASE/oauth/token",'
    '"revocation_endpoint":"BASE/oauth/revoke","registration_endpoint":"BASE/oauth/register",'
    '"response_types_supported":["code"],"response_modes_supported":["query"],'
    '"grant_types_supported":["authorization_code","refresh_token"],'
    '"code_challenge_methods_supported":["S256"],"token_endpoint_auth_methods_supported":["none"],'
    '"scopes_supported":["echo.full","file_read","file_write","kv_read","kv_write","ws_read","ws_write",'
    '"tools:call:read_only","tools:call:reversible"],"authorization_response_iss_parameter_supported":true}'
)


def test_the_resource_says_who_gives_tokens_for_it() -> None:
    document = msgspec.json.encode(resource_document(BASE, "gw.example", "https")).decode()
    assert document == RESOURCE.replace("BASE", BASE)


@pytest.mark.parametrize("host", ["localhost:8420", "127.0.0.1:8420", "[::1]:8420"])
def test_on_this_machine_the_resource_has_the_name_by_which_it_was_asked(host: str) -> None:
    document = resource_document(BASE, host, "http", "/mcp/flat")
    assert document["resource"] == f"http://{host}/mcp/flat"
    assert document["authorization_servers"] == [f"{BASE}/oauth"]
    assert document["scopes_supported"] == ["tools:call:read_only", "tools:call:reversible"]


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil", None, "localhost:80@evil"])
def test_no_other_host_is_believed(host: str | None) -> None:
    assert resource_document(BASE, host, "http")["resource"] == f"{BASE}/mcp"


async def test_the_server_says_what_it_is() -> None:
    here = OAuthSite()
    answer = await here.ask("GET", SERVER_DOCUMENT)
    assert (answer.status, answer.body.decode()) == (200, SERVER.replace("BASE", BASE))
    assert answer.headers["cache-control"] == "public, max-age=300"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert (await here.ask("HEAD", SERVER_DOCUMENT)).body == b""
    assert (await here.ask("OPTIONS", SERVER_DOCUMENT)).status == 204
    assert (await here.ask("POST", SERVER_DOCUMENT)).status == 405


async def test_the_issuer_is_the_operators_word_whatever_the_host_header_says() -> None:
    answer = await OAuthSite().ask("GET", SERVER_DOCUMENT, host="evil.example")
    assert answer.json["issuer"] == f"{BASE}/oauth"


async def test_without_registration_no_endpoint_for_it_is_announced() -> None:
    here = OAuthSite(replace(PLENTY, registration=False))
    assert "registration_endpoint" not in (await here.ask("GET", SERVER_DOCUMENT)).json
    assert (await here.register()).status == 404
