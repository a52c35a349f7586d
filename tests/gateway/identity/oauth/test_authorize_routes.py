"""The consent page, and what its script posts."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from gateway.identity import oauth
from gateway.identity.oauth.scope_rules import SCOPE_TEXTS, SCOPES_SUPPORTED
from tests.gateway.identity.oauth.site import ASKED, BASE, ISSUER, PLENTY, REDIRECT, OAuthSite, split
from tests.gateway.markup import Markup

HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "x-robots-tag": "noindex",
    "content-type": "text/html; charset=utf-8",
}
COOKIE = re.compile(r"__Host-oauth=[A-Za-z0-9_-]{43}; Secure; Path=/; HttpOnly; SameSite=Lax")


async def test_the_page_names_host_then_client_then_scopes_and_waits_for_a_click() -> None:
    answer = await OAuthSite().authorize(redirect_uri="https://client.example/cb", client_id="<b>Inspector</b>")
    assert answer.status == 200
    headers = {name: value for name, value in answer.headers.items() if name not in ("content-length", "set-cookie")}
    assert headers == HEADERS
    assert COOKIE.fullmatch(answer.headers["set-cookie"])
    page = Markup(answer.body)
    text = answer.body.decode()
    assert page.by_id("host").text == "client.example"
    assert page.by_id("client").text == "<b>Inspector</b>"
    order = [text.index(f'id="{name}"') for name in ("host", "client", "scopes", "allow")]
    assert order == sorted(order)
    named = [one.text for one in page.of("li")]
    assert named == [f"{one}: {SCOPE_TEXTS[one]}" for one in ("kv_read", "kv_write", "tools:call:read_only")]
    assert not page.of("form"), "nothing is given without the script, the click and the passkey"
    assert json.loads(page.by_id("authorize").attributes["data-options"]) == {"challenge": "Y2g", "rpId": "gw.example"}
    address, parameters = split(page.by_id("cancel").attributes["href"])
    assert (address, parameters["error"], parameters["iss"]) == ("https://client.example/cb", "access_denied", ISSUER)


async def test_the_page_says_when_it_is_this_device_or_an_application_on_it() -> None:
    here = OAuthSite(replace(PLENTY, redirect_schemes=("cursor",)))
    assert b"program on this very device" in (await here.authorize()).body
    answer = await here.authorize(redirect_uri="cursor://anysphere.cursor-mcp/cb")
    assert b"application on this very device" in answer.body
    assert Markup(answer.body).by_id("host").text == "cursor:"
    assert b"does not say what it is called" in (await here.authorize("client_id")).body
    assert b"Nothing in particular" in (await here.authorize("scope")).body


def test_every_scope_has_words_for_people() -> None:
    assert tuple(SCOPE_TEXTS) == SCOPES_SUPPORTED


async def test_a_passkey_gives_a_code_with_state_and_issuer() -> None:
    here = OAuthSite()
    address, parameters = await here.consent()
    assert address == REDIRECT
    assert parameters.pop("code").startswith("ec_")
    assert parameters == {"state": ASKED["state"], "iss": ISSUER}


async def test_the_answer_to_the_script_is_for_nobody_else() -> None:
    here = OAuthSite()
    page = await here.page()
    answer = await here.post(page, {"ceremony": page.ceremony, "credential": {"id": "ada"}, "more": 1})
    assert list(answer.json) == ["redirect"]
    assert answer.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in answer.headers
    assert "set-cookie" not in answer.headers


async def test_consent_is_never_remembered() -> None:
    here = OAuthSite()
    page = await here.page()
    await here.post(page, {"ceremony": page.ceremony, "credential": {"id": "ada"}})
    again = await here.ask("GET", f"/oauth/authorize?{urlencode(ASKED)}", cookie=page.cookie)
    assert again.status == 200, "a page, not a redirect with a code"
    assert Markup(again.body).by_id("authorize").attributes["data-ceremony"] != page.ceremony
    assert again.headers["set-cookie"].startswith(f"{page.cookie};"), "pages in two tabs both work"


async def test_the_members_own_scopes_are_offered_named_and_need_a_second_yes() -> None:
    here = OAuthSite()
    page = await here.page(scope="tools:call:reversible")
    answer = await here.post(page, {"ceremony": page.ceremony, "credential": {"id": "ada"}})
    offer = answer.json["offer"]
    assert (list(answer.json), offer["scopes"]) == (["offer"], ["kv_read", "ws_read"])
    accepted = await here.post(page, {"ceremony": offer["ceremony"]})
    code = split(accepted.json["redirect"])[1]["code"]
    assert (await here.exchange(code)).json["scope"] == "kv_read ws_read"
    assert (await here.post(page, {"ceremony": offer["ceremony"]})).error == (401, "unauthorized")


async def test_an_offer_is_only_for_the_browser_that_showed_the_passkey() -> None:
    here = OAuthSite()
    page, other = await here.page("scope"), await here.page("scope")
    answer = await here.post(page, {"ceremony": page.ceremony, "credential": {"id": "ada"}})
    offer = answer.json["offer"]["ceremony"]
    assert (await here.post(other, {"ceremony": offer})).error == (401, "unauthorized")
    assert (await here.post(page, {"ceremony": offer})).status == 200
    assert (await here.post(page, {"ceremony": page.ceremony})).error == (401, "unauthorized"), (
        "no ceremony is an offer"
    )


async def test_a_fleet_members_redirect_is_this_device_or_the_operators_choice() -> None:
    elsewhere = {"redirect_uri": "https://claude.ai/cb"}
    address, parameters = await OAuthSite().consent("grace", **elsewhere)
    assert (address, parameters["error"], "code" in parameters) == ("https://claude.ai/cb", "access_denied", False)
    allowed = OAuthSite(replace(PLENTY, redirect_hosts=("claude.ai",)))
    assert "code" in (await allowed.consent("grace", **elsewhere))[1]
    assert "code" in (await OAuthSite().consent("grace"))[1]


async def test_a_view_is_not_for_a_member_of_a_space() -> None:
    here = OAuthSite()
    assert (await here.consent("ada", resource=f"{BASE}/mcp/flat"))[1]["error"] == "invalid_target"
    assert "code" in (await here.consent("grace", resource=f"{BASE}/mcp/flat"))[1]


async def test_a_passkey_that_fails_gives_nothing_and_one_that_nobody_has_is_told_apart() -> None:
    here = OAuthSite()
    for credential, error in (
        ({"id": "ada", "bad": 1}, (401, "unauthorized")),
        ({"id": "x"}, (404, "not_found")),
        ({"id": "ada", "unwritten": 1}, (503, "storage_not_ready")),
    ):
        page = await here.page()
        assert (await here.post(page, {"ceremony": page.ceremony, "credential": credential})).error == error
        good = {"ceremony": page.ceremony, "credential": {"id": "ada"}}
        assert (await here.post(page, good)).error == (401, "unauthorized"), "a ceremony is good once"


# ---- what comes without a page ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other", [{"redirect_uri": "http://localhost.evil/cb"}, {"redirect_uri": ""}, {"client_id": "dcr_x"}]
)
async def test_a_bad_address_or_client_is_a_page_without_a_redirect(other: dict[str, str]) -> None:
    answer = await OAuthSite().authorize(**other)
    assert answer.status == 400
    assert "location" not in answer.headers
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["content-type"].startswith("text/html")
    assert b"localhost.evil" not in answer.body


async def test_other_faults_go_back_to_the_client() -> None:
    answer = await OAuthSite().authorize(code_challenge_method="plain")
    assert answer.status == 302
    address, parameters = answer.sent_to
    assert (address, parameters["error"], parameters["state"], parameters["iss"]) == (
        REDIRECT, "invalid_request", ASKED["state"], ISSUER,
    )  # fmt: skip
    assert (answer.headers["referrer-policy"], answer.headers["cache-control"]) == ("no-referrer", "no-store")
    assert "set-cookie" not in answer.headers


async def test_under_its_number_this_machine_sends_to_its_name() -> None:
    here = OAuthSite(base="http://localhost:8420")
    answer = await here.ask("GET", "/oauth/authorize?response_type=code&state=a%20b", host="127.0.0.1:8420")
    assert answer.headers["location"] == "http://localhost:8420/oauth/authorize?response_type=code&state=a%20b"


@pytest.mark.parametrize(
    ("body", "headers", "error"),
    [
        (b"{}", {}, (400, "invalid_payload")),
        (b"[]", {}, (400, "invalid_payload")),
        (b"\xff", {}, (400, "invalid_payload")),
        (b'{"ceremony":1}', {}, (400, "invalid_payload")),
        (b'{"ceremony":"x","credential":"y"}', {}, (400, "invalid_payload")),
        (b'{"ceremony":"x","credential":' + b"[" * 5_000, {}, (400, "invalid_payload")),
        (b'{"ceremony":"x","credential":{}}', {}, (401, "unauthorized")),
        (b'{"ceremony":"x"}', {}, (401, "unauthorized")),
        (b'{"ceremony":"x"}', {"content_type": "text/plain"}, (415, "unsupported_media_type")),
        (b"x" * 40_000, {}, (413, "invalid_request")),
    ],
)
async def test_what_no_page_of_ours_posts_is_refused(body: bytes, headers: dict[str, str], error: Any) -> None:
    here = OAuthSite()
    page = await here.page()
    own = {"origin": BASE, "content_type": "application/json", "cookie": page.cookie, **headers}
    assert (await here.ask("POST", "/oauth/authorize", body, **own)).error == error


async def test_there_are_two_methods() -> None:
    here = OAuthSite()
    for method in ("HEAD", "PUT", "OPTIONS"):
        answer = await here.ask(method, "/oauth/authorize")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, POST")
        assert "access-control-allow-origin" not in answer.headers


async def test_pages_have_a_rate_by_address() -> None:
    here = OAuthSite(replace(PLENTY, ceremonies_burst=2, ceremonies_per_min=10.0))
    assert [(await here.authorize()).status for _ in range(3)] == [200, 200, 429]
    answer = await here.authorize()
    assert answer.headers["retry-after"] == "6"
    assert b"Try again in 6 seconds" in answer.body
    assert len(here.passkeys.addresses) == 2
    here.now_s += 6
    assert (await here.authorize()).status == 200


async def test_everything_has_a_rate_by_address() -> None:
    here = OAuthSite(replace(PLENTY, requests_burst=1, requests_per_s=1.0))
    assert (await here.authorize()).status == 200
    assert (await here.authorize()).status == 429
    assert (await here.post("", {})).error == (429, "rate_limited")
    assert (await here.form("/oauth/token", {})).error == (429, "temporarily_unavailable")


# ---- assets ----------------------------------------------------------------------------------------------------------


async def test_whatever_the_page_loads_is_served() -> None:
    here = OAuthSite()
    page = Markup((await here.authorize()).body)
    loaded = {one.attributes[name] for one in page.elements for name in ("src", "href") if name in one.attributes}
    for path in loaded - {page.by_id("cancel").attributes["href"]}:
        assert (await here.ask("GET", path)).status == 200
    script = (Path(oauth.__file__).parent / "static" / "authorize.js").read_text()
    for name in re.findall(r'from "\./([^"]+)"', script):
        assert (await here.ask("GET", f"/oauth/assets/{name}")).headers["content-type"].startswith("text/javascript")
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in script
