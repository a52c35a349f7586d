"""A space with members, as people use its pages: each with a browser and a device that makes passkeys."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tests.browser.chromium import Browser
from tests.browser.gateway import Space
from tests.browser.passkey_page import VirtualAuthenticator

REFUSED = ("status of 400", "status of 401", "status of 403", "status of 404", "status of 409")


class HasAddress(Protocol):
    """A gateway: at the name to which passkeys are bound."""

    @property
    def url(self) -> str: ...


@contextmanager
def device(browser: Browser, gateway: HasAddress) -> Iterator[VirtualAuthenticator]:
    """The authenticator of a browser, for as long as a test."""
    browser.open(gateway.url)
    authenticator = VirtualAuthenticator(browser)
    try:
        yield authenticator
    finally:
        browser.open("about:blank")
        authenticator.remove()


def protect(browser: Browser, space: Space, label: str = "Anna") -> None:
    """By the one who made it."""
    browser.open(space.claimed_url)
    browser.one("html[data-link=open]")
    browser.fill("#protect-label", label)
    browser.click("#protect [type=submit]")
    is_in(browser)


def is_in(browser: Browser) -> None:
    browser.one("html[data-iam=on][data-link=open]")


def is_at_the_sign_in(browser: Browser) -> None:
    browser.until(lambda: "Sign in" in browser.text("#use-passkey"), "there is no sign-in")


def sign_in(browser: Browser) -> None:
    is_at_the_sign_in(browser)
    browser.click("#use-passkey")


def invite(browser: Browser, *scopes: str) -> str:
    """Its link."""
    browser.one("#invite")
    browser.js("document.querySelector('#invite-url').textContent = ''")
    for box in browser.all("#invite [name=scope]"):
        if box.is_selected() != (box.get_attribute("value") in scopes):
            browser.click_on(box)
    browser.click("#invite [type=submit]")
    return browser.until(lambda: browser.text("#invite-url"), "there is no invite")


def join(browser: Browser, url: str, label: str = "Ben") -> None:
    browser.open(url)
    browser.until(lambda: browser.one("#invited").is_displayed(), "nobody is invited")
    browser.fill("#label", label)
    browser.click("#enter [type=submit]")
    browser.one("#members-card")


def answer(browser: Browser, css: str, question: str) -> None:
    """Click, and say yes."""
    browser.click(css)
    browser.shows("#sure-question", question)
    browser.click("#sure-yes")


def was_refused(browser: Browser) -> None:
    """The browser's own words on answers that a test asked for, and no others. What it still asks for ends first."""
    browser.open("about:blank")
    browser.expect_in_console(*REFUSED)
