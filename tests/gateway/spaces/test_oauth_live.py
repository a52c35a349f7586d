"""The authorization server of a whole gateway: a member of a space signs in, and a client gets that space's tokens."""

import json
import stat
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import trio

from gateway.main.data_folder import ECHO_KEY
from gateway.main.server import Running, running
from gateway.main.settings import Settings, load
from tests.gateway.api.live import Answer
from tests.gateway.identity.oauth.site import CHALLENGE, FORM, REDIRECT, VERIFIER
from tests.gateway.markup import Markup
from tests.gateway.spaces.test_iam_live import PATIENCE_S, Person, refusal
from tests.gateway.spaces.test_live import ON, ask, make, request

SERVER_DOCUMENT = "/.well-known/oauth-authorization-server/oauth"
RESOURCE_DOCUMENT = "/.well-known/oauth-protected-resource/mcp"


def settings_at(data: Path, **more: Any) -> Settings:
    return load(None, {}, {"data": str(data), **ON, **more})


def authorize_path(**other: str) -> str:
    asked = {
        "response_type": "code",
        "redirect_uri": REDIRECT,
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "scope": "kv_read",
    }
    return f"/oauth/authorize?{urlencode({**asked, **other})}"


async def consent(person: Person) -> str:
    """The code that a client gets when this person agrees."""
    shown = await ask(person.gateway, request("GET", authorize_path()))
    assert shown.status == 200, shown
    form = Markup(shown.body).by_id("authorize").attributes
    credential = person.authenticator.sign_in(json.loads(form["data-options"]))
    body = json.dumps({"ceremony": form["data-ceremony"], "credential": credential}).encode()
    cookie = shown.headers["set-cookie"].partition(";")[0]
    headers = f"Origin: {person.origin}", f"Cookie: {cookie}", "Content-Type: application/json"
    answer = await ask(person.gateway, request("POST", "/oauth/authorize", body, *headers))
    assert answer.status == 200, answer
    redirect: str = answer.json["redirect"]
    return dict(parse_qsl(urlsplit(redirect).query))["code"]


async def post_form(gateway: Running, path: str, **fields: str) -> Answer:
    return await ask(gateway, request("POST", path, urlencode(fields).encode(), f"Content-Type: {FORM}"))


async def exchange(gateway: Running, code: str) -> Answer:
    fields = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT, "code_verifier": VERIFIER}
    return await post_form(gateway, "/oauth/token", **fields)


async def test_client_gets_tokens_of_the_members_space_and_loses_them_when_they_are_revoked(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with running(settings_at(tmp_path)) as gateway:
            made = await make(gateway)
            ann = Person(gateway, made)
            assert (await ann.ask("POST", "/kv/k", {"value": "v"})).status == 201
            assert (await ann.join(made["claim"], "Ann")).status == 201

            given = await exchange(gateway, await consent(ann))
            assert (given.status, given.json["scope"]) == (200, "kv_read"), given
            ann.tokens = given.json
            assert (await ann.ask("GET", "/kv/k")).json["value"] == "v"
            assert refusal(await ann.ask("POST", "/kv/k", {"value": "w"})) == (403, "insufficient_scope")

            refresh = given.json["refresh_token"]
            again = await post_form(gateway, "/oauth/token", grant_type="refresh_token", refresh_token=refresh)
            ann.tokens = again.json
            assert (await ann.ask("GET", "/kv/k")).status == 200
            assert (await post_form(gateway, "/oauth/revoke", token=again.json["access_token"])).status == 200
            assert refusal(await ann.ask("GET", "/kv/k")) == (401, "unauthorized")


async def test_login_of_a_room_and_consent_do_not_take_each_others_ceremonies(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with running(settings_at(tmp_path)) as gateway:
            made = await make(gateway)
            ann = Person(gateway, made)
            assert (await ann.join(made["claim"])).status == 201
            shown = await ask(gateway, request("GET", authorize_path()))
            form = Markup(shown.body).by_id("authorize").attributes
            credential = ann.authenticator.sign_in(json.loads(form["data-options"]))
            ann.cookie = f"{ann.cookie.partition('=')[0]}={shown.headers['set-cookie'].partition(';')[0].split('=')[1]}"
            body = {"ceremony": form["data-ceremony"], "credential": credential}
            assert refusal(await ann.post("login", body)) == (401, "unauthorized")


async def test_each_document_has_one_place(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with running(settings_at(tmp_path)) as gateway:
            assert gateway.base is not None
            server = await ask(gateway, request("GET", SERVER_DOCUMENT))
            assert server.json["issuer"] == f"{gateway.base()}/oauth"
            resource = await ask(gateway, request("GET", RESOURCE_DOCUMENT))
            assert resource.json["resource"].endswith("/mcp")
            assert resource.json["authorization_servers"] == [server.json["issuer"]]


async def test_registered_client_is_known_after_a_restart_by_a_key_that_nobody_else_can_read(tmp_path: Path) -> None:
    body = json.dumps({"redirect_uris": [REDIRECT], "client_name": "Inspector"}).encode()
    with trio.fail_after(PATIENCE_S):
        async with running(settings_at(tmp_path)) as gateway:
            head = "Content-Type: application/json"
            registered = await ask(gateway, request("POST", "/oauth/register", body, head))
            assert registered.status == 201, registered
        key = tmp_path / ECHO_KEY
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        async with running(settings_at(tmp_path)) as gateway:
            shown = await ask(gateway, request("GET", authorize_path(client_id=registered.json["client_id"])))
            assert (shown.status, b"Inspector" in shown.body) == (200, True)


@pytest.mark.parametrize(
    ("more", "status"), [({"echo.enabled": False}, 200), ({"http.public_url": "https://192.0.2.1"}, 404)]
)
async def test_without_spaces_there_is_an_authorization_server_for_fleets_and_without_passkeys_there_is_none(
    tmp_path: Path, more: Any, status: int
) -> None:
    with trio.fail_after(PATIENCE_S):
        async with running(settings_at(tmp_path, **more)) as gateway:
            for path in (SERVER_DOCUMENT, authorize_path()):
                host = f"Host: localhost:{gateway.http.rpartition(':')[2]}".encode()
                assert (await ask(gateway, request("GET", path).replace(b"Host: test", host))).status == status
    assert (tmp_path / ECHO_KEY).exists()


@pytest.mark.parametrize("view", ["/mcp", "/mcp/flat", "/mcp/fleet"])
async def test_document_of_a_resource_is_that_of_the_contract_for_every_browser(tmp_path: Path, view: str) -> None:
    path = f"/.well-known/oauth-protected-resource{view}"
    of_space = (
        "" if view != "/mcp" else '"echo.full","file_read","file_write","kv_read","kv_write","ws_read","ws_write",'
    )
    with trio.fail_after(PATIENCE_S):
        async with running(settings_at(tmp_path, **{"http.public_url": "https://gw.example"})) as gateway:
            for host, base in (("gw.example", "https://gw.example"), ("localhost:1", "http://localhost:1")):
                answer = await ask(
                    gateway, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
                )
                assert answer.body.decode() == (
                    f'{{"resource":"{base}{view}","resource_name":"Heliograph",'
                    '"authorization_servers":["https://gw.example/oauth"],'
                    f'"scopes_supported":[{of_space}"tools:call:read_only","tools:call:reversible"],'
                    '"bearer_methods_supported":["header"]}'
                )
                assert answer.headers["cache-control"] == "public, max-age=300"
                assert answer.headers["access-control-allow-origin"] == "*"
            assert (await ask(gateway, request("OPTIONS", path))).status == 204
            assert (await ask(gateway, request("POST", path))).status == 405


async def test_where_nobody_can_sign_in_no_document_names_a_server(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with running(settings_at(tmp_path, **{"http.public_url": "https://192.0.2.1"})) as gateway:
            resource = await ask(gateway, request("GET", RESOURCE_DOCUMENT))
            assert (resource.status, "authorization_servers" in resource.json) == (200, False)
