"""The console of a real gateway, with the nodes of the demo: signing in, looking, trying a tool, acting; passkeys."""

import json
from collections.abc import Iterator

import pytest

from tests.browser.chromium import Browser
from tests.browser.members import device, was_refused
from tests.browser.passkey_page import VirtualAuthenticator
from tests.processes.test_demo import Demo

PAGES = ("fleet", "agents", "policy", "streams", "spaces", "upstreams", "log", "engine")


class RealConsole:
    """As `device` wants it: at its own name, to which passkeys are bound."""

    def __init__(self, demo: Demo) -> None:
        self.demo = demo
        self.url = demo.ready["console"].partition("/console")[0]

    def new_link(self, *arguments: str) -> str:
        made = self.demo.command("console", "--json", *arguments)
        assert made.returncode == 0, made.stderr
        url: str = json.loads(made.stdout)["url"]
        return url

    def open(self, browser: Browser, page: str) -> None:
        browser.open(f"{self.url}/console/{page}")
        browser.one(f"#main .page-{page.partition('/')[0]} h1")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealConsole]:
    demo = Demo(tmp_path_factory.mktemp("console"), nodes=3)
    yield RealConsole(demo)
    assert demo.stop() == 0


def test_link_of_the_demo_opens_a_live_fleet_in_which_a_tool_is_tried_and_a_node_renamed(
    real: RealConsole, anna: Browser
) -> None:
    anna.open(real.demo.ready["console"].replace("localhost", "127.0.0.1"))  # sent on to the name that it has
    anna.one("#link[data-state=live]")
    anna.until(lambda: anna.texts(".nodes .node a") == ["pump-1", "pump-2", "valve-1"], "the nodes are not there")
    assert anna.text(".counts [data-word=live] .number") == "3"
    anna.click(".nodes .node a")
    anna.until(lambda: len(anna.all(".charts canvas")) == 4, "no frame came")
    anna.click("[data-tool*=echo] button")
    anna.fill(".try textarea", "hello from the console")
    anna.click(".try [type=submit]")
    anna.shows(".answer pre", '"message": "hello from the console"')
    anna.shows(".audit-line", "console")
    anna.shows(".page-node .audit tr.line", "echo.invoke")
    anna.click(".actions button")
    anna.fill("dialog input", "pump-one")
    anna.click("dialog [type=submit]")
    anna.shows("#main h1", "pump-one")
    anna.click("#pages [data-page=agents]")
    anna.shows("tbody tr", "agent_")
    assert "audit" not in anna.text(".page-agents"), "it is said that there is none"
    anna.click("#pages [data-page=log]")
    anna.click(".toggle")
    anna.shows(".page-log tr.line", "node_rename")
    assert "pump-one" in real.demo.command("nodes").stdout


def test_every_page_of_a_real_gateway_shows_something_and_keeps_to_its_policy(real: RealConsole, anna: Browser) -> None:
    anna.open(real.new_link())
    anna.one("#link[data-state=live]")
    for page in PAGES:
        real.open(anna, page)
        anna.until(lambda: anna.all("#link:is([data-state=open], [data-state=live])"), f"{page} was not answered")
        assert not anna.all("#main .refusal"), page
    assert anna.console() == []


def test_passkey_is_made_used_for_the_next_sign_in_and_removed(real: RealConsole, anna: Browser) -> None:
    with device(anna, real) as authenticator:
        anna.open(real.new_link())
        anna.click(".offer .primary")
        anna.until(lambda: not anna.all(".offer"), "it is offered still")
        assert len(authenticator.credentials()) == 1
        real.open(anna, "streams")
        anna.click("#who summary")
        anna.click("#sign-out")
        anna.shows("#said", "You are signed out.")
        anna.click("#use-passkey")
        anna.one("#main .page-streams h1")
        assert not anna.all(".offer"), "a session by a passkey makes no other"
        remove_all(anna, authenticator)


def remove_all(browser: Browser, authenticator: VirtualAuthenticator) -> None:
    browser.click("#who summary")
    browser.click("#list-passkeys")
    browser.click("dialog .danger")
    browser.one("#entrance:not([hidden])")  # the session was of this passkey
    browser.click("#use-passkey")
    browser.shows("#said", "not known here any more")
    browser.until(lambda: not authenticator.credentials(), "the browser offers it still")
    was_refused(browser)


def test_link_with_fewer_scopes_shows_a_look_and_nothing_more(real: RealConsole, anna: Browser) -> None:
    anna.open(real.new_link("--scope", "fleet:read"))
    anna.one("#main h1")
    real.open(anna, "fleet")
    anna.one(".nodes tbody tr")
    assert not anna.all(".offer")
    anna.click("#pages [data-page=agents]")
    anna.shows(".lacking-scope", "spend:read")
    real.open(anna, f"node/{real.demo.ready['nodes'][1]}")
    anna.shows(".lacks-scope", "fleet:write")
    anna.js("document.querySelector('.actions button').ariaDisabled = 'false'")
    refused = anna.js_async("""
        const body = {path: "/admin/node/rename", method: "POST", body: {node: "pump-2", name: "stolen"}};
        const request = {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)};
        const answer = await fetch("/console/api/act", request);
        return [answer.status, (await answer.json()).message];
    """)
    assert refused[0] == 403
    assert "pump-2" in real.demo.command("nodes").stdout
    anna.expect_in_console("status of 403")
