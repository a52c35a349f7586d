"""Attacks on sign-in, each as somebody would try it."""

import io
import logging
import socket
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
import structlog
import structlog.testing
import trio
import trio.testing

from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.worlds import TokenAnswer
from tests.gateway.identity.oauth.site import ASKED, BASE, ISSUER, PLENTY, REDIRECT, VERIFIER, OAuthSite, split

# ---- codes -----------------------------------------------------------------------------------------------------------


async def test_a_code_that_is_used_again_ends_what_it_gave() -> None:
    here = OAuthSite()
    code = await here.code()
    tokens = (await here.exchange(code)).json
    with structlog.testing.capture_logs() as logged:
        assert (await here.exchange(code)).error == (400, "invalid_grant")
    assert here.worlds.ended == [("space:01j", "grant-1")]
    warning = {"event": "oauth_code_reused", "realm": "space:01j", "grant_id": "grant-1", "log_level": "warning"}
    assert warning in logged
    form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    assert (await here.form("/oauth/token", form)).error == (400, "invalid_grant")


async def test_a_grant_that_cannot_be_ended_when_its_code_is_used_again_is_ended_by_the_next_attempt() -> None:
    here = OAuthSite()
    code = await here.code()
    assert (await here.exchange(code)).status == 200
    here.worlds.fault = OAuthError.SERVER_ERROR
    assert (await here.exchange(code)).error == (503, "server_error")
    assert here.worlds.ended == []
    here.worlds.fault = None
    assert (await here.exchange(code)).error == (400, "invalid_grant")
    assert here.worlds.ended == [("space:01j", "grant-1")]


async def test_a_thief_who_lacks_the_verifier_ends_the_grant_and_gets_nothing() -> None:
    here = OAuthSite()
    code = await here.code()
    await here.exchange(code)
    here.now_s += 1_800
    assert (await here.exchange(code, code_verifier="w" * 43)).error == (400, "invalid_grant")
    assert here.worlds.live == {}


async def test_a_code_used_twice_at_the_same_time_gives_nothing_to_either() -> None:
    here = OAuthSite()
    here.worlds.slow = trio.Event()
    code, errors = await here.code(), list[tuple[int, str]]()

    async def exchange() -> None:
        errors.append((await here.exchange(code)).error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange)
        nursery.start_soon(exchange)
        await trio.testing.wait_all_tasks_blocked()
        here.worlds.slow.set()
    assert errors == [(400, "invalid_grant")] * 2
    assert here.worlds.live == {}
    assert here.worlds.ended == [("space:01j", "grant-1")]


@pytest.mark.parametrize(
    "other",
    [
        {"code_verifier": "w" * 43},
        {"code_verifier": VERIFIER + "v"},
        {"redirect_uri": "https://evil.example/cb"},
        {"redirect_uri": "http://127.0.0.1:51001/callback"},
        {"client_id": "another"},
    ],
)
async def test_a_code_in_other_hands_is_worth_nothing_and_used_up(other: dict[str, str]) -> None:
    here = OAuthSite()
    code = await here.code()
    assert (await here.exchange(code, **other)).error == (400, "invalid_grant")
    assert (await here.exchange(code)).error == (400, "invalid_grant")
    assert here.worlds.issued == []


async def test_a_code_ends_after_a_minute() -> None:
    here = OAuthSite()
    code = await here.code()
    here.now_s += 60
    assert (await here.exchange(code)).error == (400, "invalid_grant")


async def test_pkce_cannot_be_left_out_or_weakened() -> None:
    here = OAuthSite()
    for without, other in (
        ("code_challenge", {}),
        ("code_challenge_method", {}),
        ("", {"code_challenge_method": "plain"}),
        ("", {"code_challenge_method": "plain", "code_challenge": VERIFIER}),
    ):
        assert (await here.authorize(without, **other)).sent_to[1]["error"] == "invalid_request"
    code = await here.code()
    assert (await here.exchange(code, "code_verifier")).error == (400, "invalid_request")
    assert (await here.exchange(code, code_verifier=ASKED["code_challenge"])).error == (400, "invalid_grant")


async def test_reuse_of_a_refresh_token_reaches_the_world_which_ends_the_family() -> None:
    here = OAuthSite()
    first = (await here.exchange(await here.code())).json
    form = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
    assert (await here.form("/oauth/token", form)).status == 200
    assert (await here.form("/oauth/token", form)).error == (400, "invalid_grant")
    assert here.worlds.live == {}


# ---- mix-up ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["x&iss=https://evil.example", "x#", "a=b&code=ec_evil", "%26iss%3Devil"])
async def test_a_state_cannot_say_anything_but_itself(state: str) -> None:
    here = OAuthSite()
    _, parameters = await here.consent(state=state)
    assert (parameters["state"], parameters["iss"]) == (state, ISSUER)
    assert parameters["code"] != "ec_evil"
    assert (await here.authorize(state=state, scope="root")).sent_to[1]["state"] == state


async def test_each_answer_has_the_state_of_its_own_request() -> None:
    here = OAuthSite()
    one, two = await here.page(state="one"), await here.page(state="two")
    for page, state in ((two, "two"), (one, "one")):
        answer = await here.post(page, {"ceremony": page.ceremony, "credential": {"id": "ada"}})
        assert split(answer.json["redirect"])[1]["state"] == state


async def test_a_token_for_another_server_is_not_given() -> None:
    here = OAuthSite()
    for resource in ("https://evil.example/mcp", "http://127.0.0.1:9999/mcp", f"{BASE}.evil.example/mcp"):
        assert (await here.authorize(resource=resource)).sent_to[1]["error"] == "invalid_target"
    code = await here.code()
    assert (await here.exchange(code, resource=f"{BASE}/mcp/fleet")).error == (400, "invalid_target")


# ---- browsers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    ["null", "https://evil.example", f"{BASE}.evil.example", f"{BASE}:443", f"{BASE}/", "http://gw.example",
     "https://x.gw.example", BASE.upper(), f"{BASE}, {BASE}", ""],
)  # fmt: skip
async def test_consent_is_posted_by_our_own_page_alone(origin: str) -> None:
    here = OAuthSite()
    page = await here.page()
    good = {"ceremony": page.ceremony, "credential": {"id": "ada"}}
    assert (await here.post(page, good, origin=origin)).error == (403, "csrf_failed")
    assert (await here.post(page, good)).status == 200, "and a forged one does not use the ceremony up"


async def test_a_post_without_an_origin_is_not_our_pages() -> None:
    here = OAuthSite()
    page = await here.page()
    answer = await here.ask("POST", "/oauth/authorize", b"{}", cookie=page.cookie, content_type="application/json")
    assert answer.error == (403, "csrf_failed")


async def test_a_ceremony_of_another_browser_is_nobodys() -> None:
    here = OAuthSite()
    victim, attacker = await here.page(), await here.page()
    answer = await here.post(attacker, {"ceremony": victim.ceremony, "credential": {"id": "ada"}})
    assert answer.error == (401, "unauthorized")
    good = {"ceremony": victim.ceremony, "credential": {"id": "ada"}}
    for cookie in ("", "__Host-oauth=", f"{victim.cookie}; {attacker.cookie}", "__Host-oauth=short", "oauth=x"):
        assert (await here.post(victim, good, cookie=cookie)).error == (403, "csrf_failed")
    assert (await here.post(victim, good)).status == 200


async def test_no_page_of_sign_in_can_be_framed_or_leaks_its_address() -> None:
    here = OAuthSite(replace(PLENTY, ceremonies_burst=1))
    pages = [await here.authorize(), await here.authorize(), await here.authorize(client_id="dcr_x")]
    assert [page.status for page in pages] == [200, 429, 400]
    for page in pages:
        assert page.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["cache-control"] == "no-store"


async def test_what_a_client_calls_itself_is_text() -> None:
    here = OAuthSite()
    for name in ("</code><script>alert(1)</script>", '" onmouseover="x', "{{ 7 * 7 }}"):
        markup = (await here.page(client_id=name)).markup
        assert markup.by_id("client").text == name
        assert len(markup.of("script")) == 1
    registered = (await here.register(client_name="<img src=x>")).json["client_id"]
    assert (await here.page(client_id=registered)).markup.by_id("client").text == "<img src=x>"


# ---- the network -----------------------------------------------------------------------------------------------------


async def test_a_client_id_that_is_a_url_is_shown_and_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: Any, **__: Any) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(trio, "open_tcp_stream", connect)
    here, url = OAuthSite(), "https://client.example/oauth/metadata.json"
    page = await here.page(client_id=url)
    assert page.markup.by_id("client").text == url
    assert "code" in (await here.consent(client_id=url))[1]


async def test_a_flood_of_registrations_is_held_up_by_address_and_leaves_nothing() -> None:
    here = OAuthSite(replace(PLENTY, registrations_burst=10))
    statuses = [(await here.register()).status for _ in range(12)]
    assert statuses == [201] * 10 + [429] * 2
    answer = await here.register()
    assert (answer.error, answer.headers["retry-after"]) == ((429, "temporarily_unavailable"), "6")
    assert (await here.register("198.51.100.7")).status == 201
    assert (await here.register("2001:db8::1")).status == 201


async def test_secrets_in_a_query_are_refused_before_they_are_used() -> None:
    here = OAuthSite()
    tokens = (await here.exchange(await here.code())).json
    query = urlencode({"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]})
    assert (await here.form(f"/oauth/token?{query}", {})).error == (400, "invalid_request")
    assert (await here.form(f"/oauth/revoke?token={tokens['refresh_token']}", {})).error == (400, "invalid_request")
    assert tokens["refresh_token"] in here.worlds.live


async def test_no_secret_is_in_a_log_line_or_an_error(caplog: pytest.LogCaptureFixture) -> None:
    canary = "CANARY" + "c" * 37
    here, lines = OAuthSite(), io.StringIO()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(lines))
    answers = []
    try:
        with caplog.at_level(logging.DEBUG):
            for other in (
                {"redirect_uri": f"http://{canary}/"},
                {"state": f"{canary}\n"},
                {"client_id": f"dcr_{canary}"},
            ):
                answers.append(await here.authorize(**other))
            page = await here.page(state=canary)
            answers.append(await here.post(page, {"ceremony": canary, "credential": {"id": canary}}))
            answers.append(await here.post(page, {"ceremony": canary}, origin=canary))
            answers.append(await here.post(page, {"ceremony": page.ceremony, "credential": {"id": canary}}))
            answers.append(await here.exchange(canary, code_verifier=canary))
            answers.append(await here.form("/oauth/token", {"grant_type": "refresh_token", "refresh_token": canary}))
            answers.append(await here.form("/oauth/token", {"grant_type": canary}))
            answers.append(await here.form(f"/oauth/token?token={canary}", {}))
            answers.append(await here.register(redirect_uris=[f"http://{canary}/"]))
            answers.append(await here.ask("GET", f"/oauth/{canary}"))
    finally:
        structlog.reset_defaults()
    assert lines.getvalue().count("request_refused") > 8
    assert "CANARY" not in lines.getvalue() + caplog.text
    for answer in answers:
        assert b"CANARY" not in answer.body


async def test_only_the_redirect_itself_carries_the_code_and_never_a_token() -> None:
    here = OAuthSite()
    address, parameters = await here.consent()
    assert (address, set(parameters)) == (REDIRECT, {"code", "state", "iss"})
    answer = await here.exchange(parameters["code"])
    assert "location" not in answer.headers
    assert "er_" not in repr(TokenAnswer("ea_1", "er_1", 1, frozenset(), "space:1", "g"))
