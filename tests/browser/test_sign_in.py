"""The consent page in a real Chromium: a click, a passkey, and back to the client."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from gateway.identity.passkeys.ceremony_rules import Ceremonies, Purpose, Realms
from gateway.identity.passkeys.options import PasskeyUser, creation_options
from gateway.identity.passkeys.relying_party import RelyingParty
from gateway.identity.passkeys.verification import NewCredential, register
from tests.browser.chromium import PHONE, Browser
from tests.browser.passkey_page import VirtualAuthenticator
from tests.browser.sign_in_site import SignInSite, sign_in_site
from tests.gateway.identity.oauth.site import ADA, ASKED, VERIFIER, split

USER = PasskeyUser(bytes(range(32)), "ada", "ada")


@pytest.fixture(scope="module")
def site() -> Iterator[SignInSite]:
    with sign_in_site() as one:
        yield one


@pytest.fixture
def page(anna: Browser, site: SignInSite) -> Iterator[Browser]:
    """A browser whose device has the passkey of a member."""
    anna.open(f"{site.client}")
    anna.open(site.address())
    authenticator = VirtualAuthenticator(anna)
    party = RelyingParty.of(site.base)
    ceremony = Ceremonies().begin(Purpose.REGISTER, Realms.only(ADA.realm), browser="b", address="a", now_s=0.0)
    script = "return (await import('/oauth/assets/passkey.js')).register(args[0])"
    new = register(party, ceremony, anna.js_async(script, creation_options(party, ceremony, USER)))
    assert isinstance(new, NewCredential), new
    member = replace(
        ADA,
        credential_id=new.credential_id,
        user_handle=USER.handle,
        public_key=new.public_key,
        sign_count=new.sign_count,
    )
    site.worlds.members = {new.credential_id: member}
    yield anna
    authenticator.remove()


def back_at_the_client(browser: Browser, site: SignInSite) -> dict[str, str]:
    browser.until(lambda: browser.driver.current_url.startswith(site.client), "the client was not reached")
    return split(browser.driver.current_url)[1]


def tokens(site: SignInSite, code: str) -> Any:
    form = {
        "grant_type": "authorization_code", "code": code, "redirect_uri": site.client, "code_verifier": VERIFIER,
        "client_id": "inspector",
    }  # fmt: skip
    request = urllib.request.Request(f"http://127.0.0.1:{site.port}/oauth/token", urlencode(form).encode())
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def test_a_click_and_a_passkey_lead_back_to_the_client_with_a_code(page: Browser, site: SignInSite) -> None:
    page.open(site.address())
    assert page.text("#host") == "127.0.0.1"
    assert page.text("#client") == "inspector"
    page.click("#allow")
    parameters = back_at_the_client(page, site)
    assert (parameters["state"], parameters["iss"]) == (ASKED["state"], f"{site.base}/oauth")
    assert tokens(site, parameters["code"])["scope"] == "kv_read"


def test_other_scopes_than_asked_for_are_named_and_need_another_click(page: Browser, site: SignInSite) -> None:
    page.open(site.address(scope="tools:call:reversible"))
    page.click("#allow")
    page.shows("#offered", "ws_read: read the messages of one space")
    assert not page.one("#asked").is_displayed()
    page.click("#allow")
    assert tokens(site, back_at_the_client(page, site)["code"])["scope"] == "kv_read ws_read"


def test_cancelling_tells_the_client(page: Browser, site: SignInSite) -> None:
    page.open(site.address())
    page.click("#cancel")
    parameters = back_at_the_client(page, site)
    assert (parameters["error"], parameters["state"]) == ("access_denied", ASKED["state"])


def test_a_passkey_that_nobody_knows_is_forgotten_and_another_attempt_has_a_new_page(
    page: Browser, site: SignInSite
) -> None:
    members, site.worlds.members = site.worlds.members, {}
    page.open(site.address())
    ceremony = page.one("#authorize").get_attribute("data-ceremony")
    page.click("#allow")
    page.shows("#said", "does not know that passkey")
    assert any("404" in line for line in page.console())
    site.worlds.members = members
    page.click("#allow")
    page.until(
        lambda: page.one("#authorize").get_attribute("data-ceremony") != ceremony, "the page was not loaded again"
    )


def test_number_of_this_machine_leads_to_its_name(page: Browser, site: SignInSite) -> None:
    page.open(site.address().replace("localhost", "127.0.0.1", 1))
    assert page.driver.current_url.startswith(f"{site.base}/oauth/authorize?")


def test_the_page_fits_a_phone(page: Browser, site: SignInSite) -> None:
    page.size(*PHONE)
    page.open(site.address(client_id="x" * 256, scope=" ".join(["echo.full", *ASKED["scope"].split()])))
    assert page.js("return document.documentElement.scrollWidth <= window.innerWidth")
