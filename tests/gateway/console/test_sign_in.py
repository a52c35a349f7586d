"""Signing in to the console by a link, and every way in which somebody else might."""

from dataclasses import replace

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from trio.testing import MockClock

from gateway.console.settings import ConsoleSettings
from gateway.identity.tokens import OperatorScope
from tests.actors.node.harness import now
from tests.gateway.console.site import ORIGIN, PLENTY, SESSION, Browser, Site, asked, operator

LINK_S, SESSION_S = PLENTY.link_s, PLENTY.session_s


async def test_link_opens_a_session_in_a_cookie_that_only_the_browser_sees(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser = Browser(site)
    link = site.link(operator(OperatorScope.FLEET_READ, OperatorScope.SPEND_READ))
    with capture_logs() as lines:
        answer = await browser.post("session", {"link": link})
    assert answer.status == 200
    assert answer.json == {
        "operator": {
            "sub": "ada",
            "scopes": ["fleet:read", "spend:read"],
            "ends_at_ms": now().wall_ms + 1000 * SESSION_S,
            "agent": "agent_5ae11f80-0032-5173-a525-364e41f2a7d7",
        },
        "passkey_offered": True,
    }
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{SESSION}=")
    assert cookie.endswith("; Max-Age=28800; Secure; HttpOnly; SameSite=Strict; Path=/")
    assert answer.headers["cache-control"] == "no-store"
    assert (await browser.post("whoami")).json == answer.json
    (line,) = [line for line in lines if line["event"] == "operator_action"]
    assert (line["action"], line["sub"], line["via"], line["target"]) == (
        "console_sign_in", "ada", "console", {"by": "link"},
    )  # fmt: skip
    assert link not in str(lines)
    assert browser.cookies[SESSION] not in str(lines)


async def test_link_is_good_once_for_whoever_is_first(autojump_clock: MockClock) -> None:
    site = await Site().open()
    link = site.link()
    first, second = Browser(site), Browser(site)
    assert (await first.post("session", {"link": link})).status == 200
    again = await second.post("session", {"link": link})
    assert (again.status, again.json["code"]) == (401, "unauthorized")
    assert second.cookies == {}
    assert (await first.post("session", {"link": link})).status == 401
    assert (await first.post("whoami")).status == 200, "a wrong attempt ends nobody's session"


@pytest.mark.parametrize(("wait_s", "status"), [(LINK_S - 1, 200), (LINK_S, 401)])
async def test_link_ends_after_ten_minutes(autojump_clock: MockClock, wait_s: float, status: int) -> None:
    site = await Site().open()
    link = site.link()
    await trio.sleep(wait_s)
    assert (await Browser(site).post("session", {"link": link})).status == status


async def test_link_of_a_revoked_token_is_void(autojump_clock: MockClock) -> None:
    site = await Site().open()
    by = operator()
    first, second = site.link(by), site.link(by)
    site.verifier.revoke(by.jti)  # known to the verifier, and not yet to the console
    assert (await Browser(site).post("session", {"link": first})).status == 401
    site.console.revoke(by.jti)
    assert (await Browser(site).post("session", {"link": second})).status == 401


async def test_link_of_a_token_that_has_expired_is_void(autojump_clock: MockClock) -> None:
    site = await Site().open()
    link = site.link(operator(life_s=60))
    await trio.sleep(60)
    assert (await Browser(site).post("session", {"link": link})).status == 401


async def test_link_of_a_gateway_that_was_restarted_is_void(autojump_clock: MockClock) -> None:
    site = await Site().open()
    link, browser = site.link(), await site.signed_in()
    await site.open()
    assert (await Browser(site).post("session", {"link": link})).status == 401
    assert (await browser.post("whoami")).status == 401


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(guess=st.text(alphabet="abcXYZ019-_", max_size=60))
async def test_guessed_link_is_nobody(autojump_clock: MockClock, guess: str) -> None:
    site = await Site().open()
    site.link()
    answer = await Browser(site).post("session", {"link": guess})
    assert (answer.status, answer.json["code"]) == (401, "unauthorized")


async def test_guessing_is_slow(autojump_clock: MockClock) -> None:
    site = await Site(settings=ConsoleSettings()).open()
    browser = Browser(site)
    for _ in range(10):
        assert (await browser.post("session", {"link": "guess"})).status == 401
    link = site.link()
    refused = await browser.post("session", {"link": link})
    assert (refused.status, refused.json["code"]) == (429, "E_RATE_LIMITED")
    await trio.sleep(refused.json["retry_after_ms"] / 1000)
    assert (await browser.post("session", {"link": link})).status == 200, "it was not used up"


# ---- sessions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wait_s", "status"), [(SESSION_S - 1, 200), (SESSION_S, 401)])
async def test_session_ends_after_eight_hours(autojump_clock: MockClock, wait_s: float, status: int) -> None:
    browser = await (await Site().open()).signed_in()
    await trio.sleep(wait_s)
    assert (await browser.post("whoami")).status == status


async def test_session_ends_with_its_token_and_cannot_make_a_passkey_that_would_not(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser = await site.signed_in(operator(life_s=3600))
    who = (await browser.post("whoami")).json
    assert who["operator"]["ends_at_ms"] == now().wall_ms + 3_600_000
    assert who["passkey_offered"] is False
    assert (await browser.register()).status == 403
    await trio.sleep(3600)
    assert (await browser.post("whoami")).status == 401


async def test_revoking_the_token_ends_the_session_at_once(autojump_clock: MockClock) -> None:
    site = await Site().open()
    by = operator()
    browser, other = await site.signed_in(by), await site.signed_in()
    site.revoke(by.jti)
    answer = await browser.post("whoami")
    assert (answer.status, answer.json["code"]) == (401, "unauthorized")
    assert (await other.post("whoami")).status == 200


async def test_signing_out_ends_the_session_and_no_other(autojump_clock: MockClock) -> None:
    site = await Site().open()
    by = operator()
    browser, other = await site.signed_in(by), await site.signed_in(by)
    stolen = dict(browser.cookies)
    with capture_logs() as lines:
        out = await browser.post("session/end")
    assert (out.status, out.body) == (204, b"")
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert [line["action"] for line in lines] == ["console_sign_out"]
    browser.cookies = stolen
    assert (await browser.post("whoami")).status == 401
    assert (await other.post("whoami")).status == 200


async def test_signing_in_never_takes_a_secret_that_the_browser_brought(autojump_clock: MockClock) -> None:
    """Fixation: a cookie that somebody planted is not what opens the session."""
    site = await Site().open()
    browser = Browser(site)
    browser.cookies[SESSION] = "planted"
    assert (await browser.post("session", {"link": site.link()})).status == 200
    assert browser.cookies[SESSION] != "planted"
    attacker = Browser(site)
    attacker.cookies[SESSION] = "planted"
    assert (await attacker.post("whoami")).status == 401


async def test_browser_that_signs_in_again_loses_the_session_it_had(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser = await site.signed_in()
    before = browser.cookies[SESSION]
    assert (await browser.post("session", {"link": site.link(operator(sub="bob"))})).status == 200
    assert (await browser.post("whoami")).json["operator"]["sub"] == "bob"
    browser.cookies[SESSION] = before
    assert (await browser.post("whoami")).status == 401


async def test_two_cookies_of_the_name_are_none(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser = await site.signed_in()
    mine = f"{SESSION}={browser.cookies[SESSION]}"
    for cookie, status in (
        (mine, 200),
        (f"a=b; {mine}; c=d", 200),
        (f"{mine}; {SESSION}=x", 401),
        (f"{mine}; {mine}", 401),
        (f"{SESSION}=", 401),
        (f"X{mine}", 401),
        (mine.replace("__Host-", ""), 401),
        (mine.upper(), 401),
    ):
        assert (await browser.post("whoami", cookie=cookie)).status == status, cookie


async def test_cookies_may_come_in_a_header_each(autojump_clock: MockClock) -> None:
    """As browsers send them over HTTP/2."""
    site = await Site().open()
    browser = await site.signed_in()
    mine = f"{SESSION}={browser.cookies[SESSION]}".encode()
    head = [(b"origin", ORIGIN.encode()), (b"content-type", b"application/json")]
    for cookies, status in (((b"a=b", mine, b"c=d"), 200), ((mine, mine), 401), ((b"a=b",), 401)):
        headers = [*head, *((b"cookie", one) for one in cookies)]
        answer = await asked(site.app, "POST", "/console/api/whoami", b"{}", headers)
        assert answer is not None
        assert answer.status == status


async def test_operator_without_scopes_gets_none_by_a_link(autojump_clock: MockClock) -> None:
    """Also if its token is as old as those that name none and have all."""
    site = await Site().open()
    nobody = replace(operator(), scopes=frozenset(), issued_at_ms=0)
    browser = await site.signed_in(nobody)
    assert (await browser.post("whoami")).json["operator"]["scopes"] == []
    assert (await browser.post("act", {"path": "/admin/poke", "method": "POST"})).status == 403


async def test_too_many_sessions_end_the_oldest(autojump_clock: MockClock) -> None:
    site = await Site(settings=replace(PLENTY, sessions_max=2)).open()
    first, second, third = [await site.signed_in() for _ in range(3)]
    assert [(await one.post("whoami")).status for one in (first, second, third)] == [401, 200, 200]


# ---- links by operators ----------------------------------------------------------------------------------------------


async def test_session_gives_somebody_a_look_of_fewer_scopes_without_a_passkey(autojump_clock: MockClock) -> None:
    site = await Site().open()
    by = operator()
    mine = await site.signed_in(by)
    body = {"path": "/admin/console/link", "method": "POST", "body": {"scopes": ["fleet:read"]}}
    made = (await mine.post("act", body)).json
    assert made["url"].startswith(f"{ORIGIN}/console#k=")
    assert (made["scopes"], made["passkey"]) == (["fleet:read"], False)
    guest = Browser(site)
    shown = (await guest.post("session", {"link": made["url"].partition("#k=")[2]})).json
    assert (shown["operator"]["scopes"], shown["passkey_offered"]) == (["fleet:read"], False)
    assert (await guest.register()).status == 403
    more = await guest.post("act", {**body, "body": {"scopes": ["fleet:write"]}})
    assert (more.status, more.json["code"]) == (403, "E_SAFETY_DENIED")
    site.revoke(by.jti)
    assert (await guest.post("whoami")).status == 401, "it ends with the token of whoever gave it"


@pytest.mark.parametrize(
    ("body", "status"),
    [({"scopes": []}, 400), ({"scopes": ["fleet:fly"]}, 400), ({"scopes": "x"}, 400), ({"x": 1}, 400)],
)
async def test_link_for_scopes_that_there_are_not_is_refused(
    autojump_clock: MockClock, body: object, status: int
) -> None:
    browser = await (await Site().open()).signed_in()
    answer = await browser.post("act", {"path": "/admin/console/link", "method": "POST", "body": body})
    assert answer.status == status


async def test_what_is_said_of_a_link_is_no_longer_than_the_token_behind_it(autojump_clock: MockClock) -> None:
    site = await Site().open()
    scopes = frozenset(OperatorScope)
    short = site.console.link(operator(life_s=60), scopes, may_register=False)
    long = site.console.link(operator(), scopes, may_register=False)
    assert (short.ends_at_ms, long.ends_at_ms) == (now().wall_ms + 60_000, now().wall_ms + 1000 * LINK_S)


async def test_session_of_a_token_that_only_the_verifier_knows_to_be_revoked_is_over(autojump_clock: MockClock) -> None:
    site = await Site().open()
    by = operator()
    browser = await site.signed_in(by)
    site.verifier.revoke(by.jti)
    assert (await browser.post("whoami")).status == 401
