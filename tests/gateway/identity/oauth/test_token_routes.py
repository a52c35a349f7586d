"""Tokens, revocation and registration, as a client meets them."""

import json
from dataclasses import replace

import pytest
import structlog.testing
import trio
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity.oauth.oauth_errors import OAuthError
from tests.gateway.identity.oauth.site import ADA, ASKED, BASE, PLENTY, REDIRECT, OAuthSite

CORS = {"access-control-allow-origin": "*", "access-control-expose-headers": "ETag, Retry-After, WWW-Authenticate"}


async def test_a_code_becomes_tokens() -> None:
    here = OAuthSite()
    code = await here.code()
    with structlog.testing.capture_logs() as logged:
        answer = await here.exchange(code)
    assert answer.status == 200
    named = {"realm": "space:01j", "member_id": "m-ada", "grant_id": "grant-1"}
    assert logged == [{"event": "oauth_granted", **named, "log_level": "info"}]
    assert list(answer.json) == ["access_token", "token_type", "expires_in", "refresh_token", "scope"]
    assert (answer.json["token_type"], answer.json["expires_in"], answer.json["scope"]) == ("Bearer", 3600, "kv_read")
    assert answer.headers["cache-control"] == "no-store"
    assert CORS.items() <= answer.headers.items()
    assert here.worlds.issued == [(ADA, frozenset({"kv_read"}), "inspector", f"{BASE}/mcp")]


async def test_a_refresh_token_becomes_the_next_pair_with_less_if_asked() -> None:
    here = OAuthSite()
    first = (await here.exchange(await here.code(scope="kv_read ws_read"))).json
    form = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"], "scope": "ws_read"}
    second = (await here.form("/oauth/token", form)).json
    assert second["scope"] == "ws_read"
    assert second["refresh_token"] != first["refresh_token"]
    form = {"grant_type": "refresh_token", "refresh_token": second["refresh_token"], "scope": "file_write"}
    assert (await here.form("/oauth/token", form)).error == (400, "invalid_scope")


async def test_errors_are_those_of_the_rfc() -> None:
    here = OAuthSite()
    for fields, error in (
        ({}, (400, "invalid_request")),
        ({"grant_type": "password"}, (400, "unsupported_grant_type")),
        ({"grant_type": "refresh_token", "refresh_token": "er_x"}, (400, "invalid_grant")),
        ({"grant_type": "refresh_token", "refresh_token": "er_x", "client_id": "dcr_x"}, (401, "invalid_client")),
    ):
        answer = await here.form("/oauth/token", fields)
        assert answer.error == error
        assert set(answer.json) == {"error", "error_description"}
        assert (answer.headers["cache-control"], answer.headers["access-control-allow-origin"]) == ("no-store", "*")
        assert ("www-authenticate" in answer.headers) == (error[0] == 401)


async def test_only_forms_are_taken_and_no_client_authenticates() -> None:
    here = OAuthSite()
    body = b'{"grant_type":"refresh_token"}'
    assert (await here.ask("POST", "/oauth/token", body, content_type="application/json")).error == (
        400,
        "invalid_request",
    )
    assert (await here.ask("POST", "/oauth/token", b"")).error == (400, "invalid_request")
    answer = await here.form("/oauth/token", {}, authorization="Basic YTpi")
    assert answer.error == (401, "invalid_client")
    assert (await here.form("/oauth/token", b"x" * 20_000)).error == (413, "invalid_request")


@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/revoke", "/oauth/register"])
async def test_pages_of_any_origin_may_call_these_without_cookies(path: str) -> None:
    here = OAuthSite()
    answer = await here.ask("OPTIONS", path, origin="https://client.example")
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "*")
    assert "access-control-allow-credentials" not in answer.headers
    refused = await here.ask("GET", path)
    assert (refused.status, refused.headers["allow"]) == (405, "POST")
    assert CORS.items() <= refused.headers.items()
    assert refused.json["error"] == "invalid_request"


async def test_a_member_that_is_gone_meanwhile_gets_nothing() -> None:
    here = OAuthSite()
    code = await here.code()
    del here.worlds.members[ADA.credential_id]
    assert (await here.exchange(code)).error == (400, "invalid_grant")


# ---- revocation ------------------------------------------------------------------------------------------------------


async def test_revocation_says_200_whatever_the_token_is() -> None:
    here = OAuthSite()
    given_ = (await here.exchange(await here.code())).json
    for token in (given_["refresh_token"], given_["refresh_token"], "er_unknown", "x", "%00"):
        answer = await here.form("/oauth/revoke", {"token": token, "token_type_hint": "anything"})
        assert (answer.status, answer.body) == (200, b"{}")
    assert (await here.form("/oauth/revoke", {})).status == 200
    assert here.worlds.live == {}
    form = {"grant_type": "refresh_token", "refresh_token": given_["refresh_token"]}
    assert (await here.form("/oauth/token", form)).error == (400, "invalid_grant")


async def test_what_cannot_be_written_is_said_and_can_be_tried_again() -> None:
    here = OAuthSite()
    tokens, code = (await here.exchange(await here.code())).json, await here.code()
    here.worlds.fault = OAuthError.SERVER_ERROR
    assert (await here.exchange(code)).error == (503, "server_error")
    revoke = {"token": tokens["refresh_token"]}
    assert (await here.form("/oauth/revoke", revoke)).error == (503, "server_error")
    here.worlds.fault = None
    assert (await here.form("/oauth/revoke", revoke)).status == 200


async def test_a_repeated_parameter_is_no_revocation() -> None:
    here = OAuthSite()
    assert (await here.form("/oauth/revoke", b"token=a&token=b")).error == (400, "invalid_request")
    assert here.worlds.revoked == []


# ---- registration ----------------------------------------------------------------------------------------------------


async def test_a_client_registers_and_signs_in_without_anything_being_kept() -> None:
    here = OAuthSite()
    asked = {"token_endpoint_auth_method": "client_secret_basic", "grant_types": ["implicit"], "contacts": ["a@b"]}
    answer = await here.register(**asked)
    assert answer.status == 201
    assert answer.headers["cache-control"] == "no-store"
    client_id = answer.json["client_id"]
    assert answer.json == {
        "client_id": client_id,
        "client_id_issued_at": 1000,
        "client_name": "Inspector",
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    other = OAuthSite()  # as after a restart
    code = await other.code(client_id=client_id, redirect_uri="http://127.0.0.1:7/callback")
    tokens = await other.exchange(code, client_id=client_id, redirect_uri="http://127.0.0.1:7/callback")
    assert tokens.status == 200


async def test_what_cannot_be_registered_has_the_words_of_the_rfc() -> None:
    here = OAuthSite()
    assert (await here.register(redirect_uris=["http://evil.example"])).error == (400, "invalid_redirect_uri")
    assert (await here.register(client_name="x" * 300)).error == (400, "invalid_client_metadata")
    plain = await here.ask("POST", "/oauth/register", json.dumps({"redirect_uris": [REDIRECT]}).encode())
    assert plain.error == (400, "invalid_client_metadata")
    large = await here.register(logo_uri="x" * 20_000)
    assert large.error == (413, "invalid_request")


async def test_applications_register_with_a_scheme_that_the_operator_lists() -> None:
    uri = "cursor://anysphere.cursor-mcp/oauth/callback"
    assert (await OAuthSite().register(redirect_uris=[uri])).error == (400, "invalid_redirect_uri")
    here = OAuthSite(replace(PLENTY, redirect_schemes=("cursor",)))
    client_id = (await here.register(redirect_uris=[uri])).json["client_id"]
    address, parameters = await here.consent(client_id=client_id, redirect_uri=uri)
    assert (address, parameters["state"]) == (uri, ASKED["state"])


# ---- anything --------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(
        ["/oauth/token", "/oauth/revoke", "/oauth/register", "/oauth/authorize", "/oauth/assets/x", "/oauth"]
    ),
    st.sampled_from(["GET", "POST", "DELETE"]),
    st.binary(max_size=120),
    st.sampled_from(["application/x-www-form-urlencoded", "application/json", "\xff"]),
)
def test_whatever_comes_is_answered_without_a_fault_of_ours(path: str, method: str, body: bytes, kind: str) -> None:
    async def main() -> None:
        answer = await OAuthSite().ask(method, path, body, content_type=kind, origin=BASE)
        assert answer.status in (200, 400, 401, 403, 404, 405, 415)

    trio.run(main)
