"""Passkeys of operators: made in a session by a link, used without one, and never beyond the token behind them."""

from dataclasses import replace
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from actors.console.passkey_rules import Trouble
from gateway.console.settings import ConsoleSettings
from gateway.identity.tokens import OperatorScope
from tests.actors.node.harness import now
from tests.gateway.console.site import PLENTY, SESSION, Browser, Site, operator
from tests.gateway.identity.passkeys.authenticator import Answer as Signed
from tests.gateway.identity.passkeys.authenticator import SoftwareAuthenticator

DAY_S = 86_400


async def with_passkey(site: Site, *scopes: OperatorScope, **more: Any) -> tuple[Browser, str]:
    """A browser in a session by a link, whose authenticator has a passkey; and the passkey's id."""
    browser = await site.signed_in(operator(*scopes, **more))
    made = await browser.register()
    assert made.status == 200, made
    return browser, made.json["passkey"]["id"]


async def test_passkey_signs_in_with_the_scopes_of_the_session_that_made_it(autojump_clock: MockClock) -> None:
    site = await Site().open()
    with capture_logs() as lines:
        browser, passkey_id = await with_passkey(site, OperatorScope.FLEET_READ, jti="01HZXC0000000000000000J0AA")
        later = browser.elsewhere()
        answer = await later.sign_in()
    assert answer.status == 200
    who = answer.json
    assert (who["operator"]["sub"], who["operator"]["scopes"]) == ("ada", ["fleet:read"])
    assert who["passkey_offered"] is False, "a passkey makes no other"
    assert (await later.register()).status == 403
    acted = [line for line in lines if line["event"] == "operator_action"]
    assert [(line["action"], line["token_id"]) for line in acted] == [
        ("console_sign_in", "01HZXC0000000000000000J0AA"),
        ("console_passkey_add", "01HZXC0000000000000000J0AA"),
        ("console_sign_in", passkey_id),
    ]
    (shown,) = (await later.post("passkeys")).json["passkeys"]
    assert shown == {
        "id": passkey_id,
        "sub": "ada",
        "scopes": ["fleet:read"],
        "token_id": "01HZXC0000000000000000J0AA",
        "made_at_ms": now().wall_ms,
        "used_at_ms": now().wall_ms,
        "ends_at_ms": now().wall_ms + 1000 * PLENTY.passkey_s,
        "revoked": False,
    }


async def test_passkey_is_there_after_a_restart(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser, _ = await with_passkey(site)
    await site.open()
    assert (await browser.post("whoami")).status == 401
    assert (await browser.sign_in()).status == 200
    assert (await browser.post("whoami")).status == 200


async def test_passkey_of_a_token_that_ends_sooner_ends_with_it(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser, _ = await with_passkey(site, life_s=DAY_S)
    await trio.sleep(DAY_S - 60)
    assert (await browser.sign_in()).json["operator"]["ends_at_ms"] == now().wall_ms + 60_000
    await trio.sleep(60)
    assert (await browser.post("whoami")).status == 401
    assert (await browser.sign_in()).status == 404, "over for good: the browser may forget it"


async def test_passkey_ends_by_itself_after_its_time(autojump_clock: MockClock) -> None:
    site = await Site(settings=replace(PLENTY, passkey_s=30 * DAY_S)).open()
    browser, _ = await with_passkey(site)
    await trio.sleep(30 * DAY_S - 1)
    assert (await browser.sign_in()).status == 200
    await trio.sleep(1)
    assert (await browser.sign_in()).status == 404


@pytest.mark.parametrize("what", ["token", "passkey"])
async def test_revoking_the_token_or_the_passkey_ends_it_with_its_sessions(
    autojump_clock: MockClock, what: str
) -> None:
    site = await Site().open()
    by = operator()
    browser = await site.signed_in(by)
    passkey_id = (await browser.register()).json["passkey"]["id"]
    later = browser.elsewhere()
    assert (await later.sign_in()).status == 200
    body = {"path": "/admin/console/link", "method": "POST"}
    link = (await later.post("act", body)).json["url"].partition("#k=")[2]
    site.revoke(by.jti if what == "token" else passkey_id)
    assert (await later.post("whoami")).status == 401
    assert (await later.sign_in()).status == 404
    assert (await browser.post("whoami")).status == (401 if what == "token" else 200)
    assert (await Browser(site).post("session", {"link": link})).status == (401 if what == "passkey" else 200)
    assert [one["revoked"] for one in site.console.passkeys()] == [True]


@pytest.mark.parametrize("by", ["link", "passkey"])
async def test_link_that_a_session_made_lasts_no_longer_and_makes_no_passkey(
    autojump_clock: MockClock, by: str
) -> None:
    """Else a passkey could renew itself for ever, and a session of a day become one of half a year."""
    site = await Site().open()
    browser, passkey_id = await with_passkey(site)
    later = browser
    if by == "passkey":
        later = browser.elsewhere()
        await later.sign_in()
    ends_at_ms = (await later.post("whoami")).json["operator"]["ends_at_ms"]
    await trio.sleep(3600)
    body = {"path": "/admin/console/link", "method": "POST", "body": {"passkey": True}}
    made = (await later.post("act", body)).json
    guest = Browser(site)
    shown = (await guest.post("session", {"link": made["url"].partition("#k=")[2]})).json
    assert (shown["operator"]["ends_at_ms"], shown["passkey_offered"]) == (ends_at_ms, False)
    assert (await guest.register()).status == 403
    assert (await later.post("passkey/remove", {"id": passkey_id})).status == 204
    assert (await guest.post("whoami")).status == (401 if by == "passkey" else 200)


async def test_removed_passkey_signs_nobody_in_and_its_sessions_are_over(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser, passkey_id = await with_passkey(site, OperatorScope.FLEET_READ)
    later = browser.elsewhere()
    await later.sign_in()
    with capture_logs() as lines:
        assert (await browser.post("passkey/remove", {"id": passkey_id})).status == 204
    assert [(line["action"], line["target"]) for line in lines] == [
        ("console_passkey_remove", {"passkey_id": passkey_id})
    ]
    assert (await later.post("whoami")).status == 401
    assert (await later.sign_in()).status == 404
    assert (await browser.post("passkey/remove", {"id": passkey_id})).status == 404


async def test_others_passkeys_are_seen_and_removed_with_tokens_mint_alone(autojump_clock: MockClock) -> None:
    site = await Site().open()
    _, passkey_id = await with_passkey(site, sub="ada")
    bob = await site.signed_in(operator(OperatorScope.FLEET_WRITE, sub="bob"))
    assert (await bob.post("passkeys")).json == {"passkeys": []}
    refused = await bob.post("passkey/remove", {"id": passkey_id})
    assert (refused.status, refused.json["code"]) == (403, "E_SAFETY_DENIED")
    assert "tokens:mint" in refused.json["message"]
    minter = await site.signed_in(operator(OperatorScope.TOKENS_MINT, sub="carol"))
    assert [one["id"] for one in (await minter.post("passkeys")).json["passkeys"]] == [passkey_id]
    assert (await minter.post("passkey/remove", {"id": passkey_id})).status == 204


# ---- attacks ---------------------------------------------------------------------------------------------------------


async def test_passkey_of_another_realm_is_refused_and_kept(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser, _ = await with_passkey(site)
    stranger = Browser(site)
    begun = await stranger.post("sign-in/options")
    stranger.authenticator.register({**begun.json["publicKey"], "rp": {"id": "ops.example"}, "user": {"id": "aaaa"}})
    site.elsewhere.add(stranger.authenticator.passkeys[-1].id)
    answer = await stranger.sign_in()
    assert (answer.status, answer.json["code"]) == (401, "unauthorized"), "the browser must keep it: no 404"
    site.elsewhere.clear()
    assert (await stranger.sign_in()).status == 404
    assert (await browser.sign_in()).status == 200


async def test_credential_that_another_realm_has_is_not_registered(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser = await site.signed_in()
    site.elsewhere.add(b"taken by a member")
    assert (await browser.register(Signed(credential_id=b"taken by a member"))).status == 400
    assert (await browser.register(Signed(credential_id=b"a credential of our own"))).status == 200
    assert (await browser.register(Signed(credential_id=b"a credential of our own"))).status == 400
    assert len(list(site.passkeys)) == 1


@pytest.mark.parametrize(
    "answer",
    [
        Signed(client={"origin": "https://evil.ops.example"}),
        Signed(client={"origin": "http://ops.example"}),
        Signed(client={"challenge": "AAAA"}),
        Signed(rp_id="example"),
        Signed(flags=0x01),
        Signed(client={"crossOrigin": True}),
        Signed(client_bytes=b"{"),
    ],
    ids=["subdomain", "scheme", "challenge", "party", "unverified", "framed", "malformed"],
)
async def test_dishonest_answers_open_nothing(autojump_clock: MockClock, answer: Signed) -> None:
    site = await Site().open()
    browser = await site.signed_in()
    assert (await browser.register(answer)).status == 400
    browser.authenticator.passkeys.clear()
    assert (await browser.register()).status == 200
    assert (await browser.elsewhere().sign_in(answer)).status == 401


async def test_ceremony_is_of_one_browser_and_good_once(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser, _ = await with_passkey(site)
    begun = (await browser.post("sign-in/options")).json
    signed = {"ceremony": begun["ceremony"], "credential": browser.authenticator.sign_in(begun["publicKey"])}
    assert (await browser.elsewhere().post("sign-in", signed)).status == 401, "another browser"
    victim = browser.elsewhere()
    await victim.post("sign-in/options")
    assert (await victim.post("sign-in", signed)).status == 401, "a ceremony of somebody else"
    assert (await browser.post("sign-in", signed)).status == 200
    assert (await browser.post("sign-in", signed)).status == 401, "once"


async def test_ceremony_of_one_session_registers_nothing_in_another(autojump_clock: MockClock) -> None:
    site = await Site().open()
    mallory, ada = await site.signed_in(operator(sub="mallory")), await site.signed_in(operator(sub="ada"))
    begun = (await mallory.post("passkey/options")).json
    signed = {"ceremony": begun["ceremony"], "credential": mallory.authenticator.register(begun["publicKey"])}
    assert (await ada.post("passkey", signed)).status == 400
    assert list(site.passkeys) == []


async def test_ceremony_of_registering_signs_nobody_in_and_the_other_way_round(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser, _ = await with_passkey(site)
    begun = (await browser.post("passkey/options")).json
    signed = browser.authenticator.sign_in(begun["publicKey"])
    assert (await browser.post("sign-in", {"ceremony": begun["ceremony"], "credential": signed})).status == 401
    begun = (await browser.post("sign-in/options")).json
    made = {**begun["publicKey"], "rp": {"id": "ops.example"}, "user": {"id": "aaaa"}}
    credential = browser.authenticator.register(made)
    assert (await browser.post("passkey", {"ceremony": begun["ceremony"], "credential": credential})).status == 400


async def test_copied_passkey_is_noticed_by_its_count(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser, _ = await with_passkey(site)
    assert (await browser.sign_in()).status == 200
    assert (await browser.elsewhere().sign_in(Signed(sign_count=1))).status == 401
    again = await site.open()
    assert (await Browser(again).post("sign-in/options")).status == 200
    assert (await browser.elsewhere().sign_in(Signed(sign_count=1))).status == 401, "also after a restart"


async def test_session_that_ended_while_it_signed_registers_nothing_that_works(autojump_clock: MockClock) -> None:
    site = await Site().open()
    by = operator()
    browser = await site.signed_in(by)
    begun = (await browser.post("passkey/options")).json
    credential = browser.authenticator.register(begun["publicKey"])
    site.revoke(by.jti)
    answer = await browser.post("passkey", {"ceremony": begun["ceremony"], "credential": credential})
    assert answer.status == 401
    assert list(site.passkeys) == []


async def test_too_many_passkeys_are_refused(autojump_clock: MockClock) -> None:
    site = await Site(settings=replace(PLENTY, passkeys_max=1)).open()
    browser, _ = await with_passkey(site)
    assert (await browser.register()).status == 400


async def test_full_disk_registers_nothing_and_lets_nobody_in(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser, passkey_id = await with_passkey(site)
    site.disk.is_full = True
    assert (await browser.register()).status == 503
    browser.authenticator.passkeys.pop()
    assert (await browser.elsewhere().sign_in()).status == 503
    assert (await browser.post("passkey/remove", {"id": passkey_id})).status == 503
    assert (await browser.post("whoami")).status == 200
    site.disk.is_full = False
    assert (await browser.elsewhere().sign_in()).status == 200


async def test_where_no_browser_makes_passkeys_links_go_on(autojump_clock: MockClock) -> None:
    with capture_logs() as lines:
        site = await Site(origin="https://192.0.2.7").open()
    assert [line["event"] for line in lines] == ["console_passkeys_off"]
    browser = await site.signed_in()
    assert (await browser.post("whoami")).json["passkey_offered"] is False
    assert (await browser.register()).status == 403
    assert (await browser.post("sign-in/options")).status == 403
    assert (await browser.post("sign-in", {"ceremony": "x", "credential": {}})).status == 401


async def test_passkeys_of_one_operator_share_a_handle_and_one_device_makes_no_second(
    autojump_clock: MockClock,
) -> None:
    site = await Site().open()
    browser, _ = await with_passkey(site)
    begun = (await browser.post("passkey/options")).json["publicKey"]
    (known,) = browser.authenticator.passkeys
    assert [one["id"] for one in begun["excludeCredentials"]] == [
        SoftwareAuthenticator("").register(
            {"rp": {"id": "x"}, "user": begun["user"], "challenge": ""}, Signed(credential_id=known.id)
        )["id"]
    ]
    assert begun["user"]["name"] == "ada, console"
    other = await site.signed_in(operator(sub="bob"))
    assert (await other.post("passkey/options")).json["publicKey"]["user"]["id"] != begun["user"]["id"]
    assert (await other.post("passkey/options")).json["publicKey"]["excludeCredentials"] == []


async def test_beginning_with_a_passkey_is_an_attempt_too(autojump_clock: MockClock) -> None:
    site = await Site(settings=ConsoleSettings()).open()
    browser = Browser(site)
    statuses = [(await browser.post("sign-in/options")).status for _ in range(11)]
    assert statuses == [200] * 10 + [429]
    assert SESSION not in browser.cookies


async def test_link_that_was_made_with_a_passkey_ends_with_it(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser, passkey_id = await with_passkey(site)
    later = browser.elsewhere()
    assert (await later.sign_in()).status == 200
    made = await later.post("act", {"path": "/admin/console/link", "method": "POST", "body": {}})
    assert (await browser.post("passkey/remove", {"id": passkey_id})).status == 204
    link = made.json["url"].partition("#k=")[2]
    assert (await Browser(site).post("session", {"link": link})).status == 401


async def test_passkey_that_is_revoked_while_its_use_is_written_opens_nothing(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await Site().open()
    browser, passkey_id = await with_passkey(site)
    use = site.passkeys.use

    async def use_and_lose(used_id: str, sign_count: int) -> Trouble | None:
        trouble = await use(used_id, sign_count)
        site.revoke(passkey_id)
        return trouble

    monkeypatch.setattr(site.passkeys, "use", use_and_lose)
    assert (await browser.elsewhere().sign_in()).status == 401


async def test_authenticators_know_an_operator_by_one_handle(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser, _ = await with_passkey(site)
    again = [(await browser.post("passkey/options")).json["publicKey"]["user"]["id"] for _ in range(2)]
    assert again[0] == again[1]


async def test_beginning_a_passkey_is_rated_as_an_attempt_to_sign_in(autojump_clock: MockClock) -> None:
    site = await Site(settings=ConsoleSettings()).open()
    browser = await site.signed_in()
    statuses = {(await browser.post("passkey/options")).status for _ in range(ConsoleSettings().sign_ins_burst)}
    assert statuses == {200, 429}


async def test_removals_that_are_refused_are_in_the_audit_too(autojump_clock: MockClock) -> None:
    site = await Site().open()
    browser, passkey_id = await with_passkey(site)
    bob = await site.signed_in(operator(OperatorScope.FLEET_READ, sub="bob"))
    with capture_logs() as lines:
        await bob.post("passkey/remove", {"id": passkey_id})
        await browser.post("passkey/remove", {"id": "nobody's"})
    told = [line for line in lines if line["event"] == "operator_action"]
    assert [(line["sub"], line["action"], line["decision"], line["code"], line["reason"]) for line in told] == [
        ("bob", "console_passkey_remove", "refused", "E_SAFETY_DENIED", "scope"),
        ("ada", "console_passkey_remove", "refused", "E_MANIFEST_NOT_FOUND", "unknown_passkey"),
    ]
    assert "nobody's" not in str(told)
