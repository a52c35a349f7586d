"""Every page of the console by axe-core, in both colour schemes: nothing found, however slight."""

from collections.abc import Iterator

import pytest

from tests.browser.axe import findings
from tests.browser.chromium import PHONE, Browser
from tests.browser.console import ConsolePages
from tests.browser.console_fleet import MadeUpFleet
from tests.browser.console_server import FakeConsole, served

SCHEMES = ("light", "dark")
PAGES = ("fleet", "agents", "policy", "streams", "spaces", "upstreams", "engine", "log")


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    with served(MadeUpFleet(40)) as one:
        one.engine = {"mode": "nats", "processes": [{"name": "gw-1", "nodes": 30, "lag_ms": 4}]}
        one.offers_passkey = True
        yield one


def assert_accessible(browser: Browser, where: str) -> None:
    for scheme in SCHEMES:
        browser.scheme(scheme)
        assert findings(browser) == [], f"{where}, {scheme}"
    browser.scheme("light")


def test_page_that_some_cannot_use_has_findings(console: FakeConsole, anna: Browser) -> None:
    """Who would notice otherwise that nothing is looked for any more?"""
    ConsolePages(anna, console).menu("policy")
    anna.one(".file li")
    anna.js("""
        document.querySelector("#main .explain button").textContent = "";
        document.documentElement.removeAttribute("lang");
        document.querySelector("#main h1").style.color = "#999";
        document.querySelector("#main h1").style.background = "#aaa";
    """)
    rules = {rule for _, rule, _ in findings(anna)}
    anna.js("document.documentElement.lang = 'en'")
    assert rules >= {"button-name", "html-has-lang", "color-contrast"}


def test_sign_in_page_is_accessible(console: FakeConsole, anna: Browser) -> None:
    anna.open(f"{console.url}/console")
    anna.one("#entrance:not([hidden])")
    assert_accessible(anna, "sign-in")
    anna.expect_in_console("status of 401")


def test_pages_are_accessible(console: FakeConsole, anna: Browser) -> None:
    pages = ConsolePages(anna, console)
    for page in PAGES:
        pages.visit(page)
        anna.until(lambda: anna.all("#main tbody tr, .file li"), f"nothing is shown of {page}")
        assert_accessible(anna, page)
    pages.visit(f"agent/{console.fleet.agents[0]['sub']}")
    anna.one("tr.line")
    anna.click(".opener")
    assert_accessible(anna, "agent")


def test_node_with_a_form_an_answer_and_a_dialog_is_accessible(console: FakeConsole, anna: Browser) -> None:
    ConsolePages(anna, console).open_node()
    anna.one(".charts canvas")
    anna.click(".charted button")
    anna.click("[data-tool*=snapshot] button")
    anna.click("[data-tool*=echo] button")
    anna.click("[data-tool*=echo] .try [type=submit]")
    anna.one(".outcome")
    anna.click("#who summary")
    assert_accessible(anna, "node")
    anna.click("#who summary")
    anna.click(".actions .danger")
    anna.one("dialog[open]")
    assert_accessible(anna, "dialog")


def test_what_scopes_do_not_allow_is_accessible_on_a_phone(console: FakeConsole, anna: Browser) -> None:
    console.scopes = ("fleet:read",)
    anna.size(*PHONE)
    pages = ConsolePages(anna, console)
    pages.menu("agents")
    assert_accessible(anna, "agents without its scope")
    pages.open_node()
    anna.click("[data-tool*=echo] button")
    assert_accessible(anna, "node without its scopes")
