"""The console on a phone, in the dark, by keyboard alone; and names and tags of people who mean no good, as text."""

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.chromium import PHONE, Browser
from tests.browser.console import ConsolePages
from tests.browser.console_fleet import MadeUpFleet
from tests.browser.console_server import FakeConsole, served
from tests.browser.test_looks import Keyboard, assert_fits, assert_readable

PAGES = ("fleet", "agents", "policy", "streams", "spaces", "upstreams", "engine", "log")
MARKUP = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
TURNED = "\u202egnp.eteled\u202c"  # right to left, from here on
LONG = "n" * 400
HOSTILE = (MARKUP, TURNED, LONG, "javascript:document.title='broken'", "\u0000\u001b[31m\n")


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    with served(MadeUpFleet(40)) as one:
        one.engine = {"mode": "nats", "processes": [{"name": "gw-1", "nodes": 30, "lag_ms": 4}]}
        yield one


def every_page(pages: ConsolePages) -> Iterator[str]:
    """One after the other, once it shows something."""
    for page in (*PAGES, f"node/{pages.node()['node_id']}", f"agent/{pages.console.fleet.agents[0]['sub']}"):
        pages.visit(page)
        pages.browser.until(lambda: pages.browser.all("#main tbody tr, .file li"), f"nothing is shown of {page}")
        yield page


def test_form_and_dialog_are_not_wider_than_a_phone(console: FakeConsole, anna: Browser) -> None:
    anna.size(*PHONE)
    ConsolePages(anna, console).open_node()
    anna.click("[data-tool*=snapshot] button")
    anna.click("[data-tool*=echo] button")
    anna.click(".actions .danger")
    anna.one("dialog[open]")
    assert_fits(anna)


BROKEN = """
    const lines = (one) => new Set([...one.getClientRects()].map(({top}) => Math.round(top / 8))).size;
    return [...document.querySelectorAll("#main td a bdi, #main th bdi, #main .badge, #link button")]
        .filter((one) => one.textContent.length <= 10 && one.checkVisibility() && lines(one) > 1)
        .map((one) => one.textContent);
"""


@pytest.mark.parametrize("width", [390, 800, 1280])
def test_no_short_name_is_broken_into_two_lines(console: FakeConsole, anna: Browser, width: int) -> None:
    for at, node in enumerate(console.fleet.nodes):
        node["name"] = f"valve-{at}"
    for line in console.fleet.lines:
        line["node_name"] = "valve-1" if line.get("node_id") else None
    anna.size(width, 900)
    for page in every_page(ConsolePages(anna, console)):
        assert anna.js(BROKEN) == [], page


def test_text_of_every_page_can_be_read_in_the_light_and_in_the_dark(console: FakeConsole, anna: Browser) -> None:
    for _ in every_page(ConsolePages(anna, console)):
        for scheme in ("dark", "light"):
            anna.scheme(scheme)
            assert_readable(anna, 20)


# ---- what others wrote -----------------------------------------------------------------------------------------------


def poison(console: FakeConsole) -> None:
    """Whatever is somebody's text."""
    fleet = console.fleet
    console.sub = MARKUP
    for at, node in enumerate(fleet.nodes):
        text = HOSTILE[at % len(HOSTILE)]
        node.update(name=text, tenant=text, tags={text: text, "k": MARKUP}, tools=1)
        node["left"] = {"code": 4408, "reason": text} if node["state"] == "away" else None
    for at, agent in enumerate(fleet.agents):
        text = HOSTILE[at % len(HOSTILE)]
        agent.update(tenant=text, refusals={text: 3}, tools=[{"tool": text, "calls": 1, "micros": 5}])
    for at, line in enumerate(fleet.lines):
        text = HOSTILE[at % len(HOSTILE)]
        line.update(node_name=text, reason=text, action=text, tool=text, decision=text, tenant=text)
        line["sub"] = text if at % 2 else fleet.agents[0]["sub"]
    fleet.upstreams = [{**fleet.upstreams[0], "name": text, "last_error": text, "state": text} for text in HOSTILE]
    fleet.spaces = [{**fleet.spaces[0], "space_id": text, "project_id": text} for text in HOSTILE]
    console.policy = "\n".join(f"# {text}" for text in HOSTILE)
    console.engine = {MARKUP: MARKUP, "processes": [{MARKUP: text} for text in HOSTILE]}


# What runs something, or loads it from elsewhere; words that people only see may say what they like.
SCRIPTED = """
    const OURS = "/console/assets/";
    const loaded = [...document.querySelectorAll("img, script, iframe, object, embed")];
    const strange = loaded.filter((one) => !(one.getAttribute("src") ?? "").startsWith(OURS));
    const attributes = [...document.querySelectorAll("*")].flatMap((one) => [...one.attributes]);
    const SEEN = /^(title|value|aria-.*|data-.*)$/;
    const runs = ({name, value}) => name.startsWith("on") || (/^javascript:/.test(value) && !SEEN.test(name));
    return [...strange.map((one) => one.outerHTML), ...attributes.filter(runs).map((one) => one.name)];
"""


def test_hostile_names_tags_and_reasons_are_text_on_every_page_and_widen_none(
    console: FakeConsole, anna: Browser
) -> None:
    poison(console)
    anna.size(*PHONE)
    pages = ConsolePages(anna, console)
    shown = 0
    for page in every_page(pages):
        anna.until(lambda: "<img src=x" in anna.text("body") or "nnnn" in anna.text("body"), f"none is on {page}")
        shown += "<img src=x" in anna.text("#main")
        assert anna.js(SCRIPTED) == [], page
        assert_fits(anna)
        assert "broken" not in anna.driver.title or "<" in anna.driver.title, page
    assert shown >= 8, "hardly any of it was shown"


def test_text_that_turns_around_turns_nothing_else(console: FakeConsole, anna: Browser) -> None:
    node = console.fleet.nodes[0]
    node.update(name=TURNED, state="live")
    pages = ConsolePages(anna, console)
    anna.one(f".nodes tr[data-id='{node['node_id']}'] .node bdi")
    pages.go(f"node/{node['node_id']}")
    assert anna.js("return document.querySelector('#main h1').firstElementChild.tagName") == "BDI"


# ---- by keyboard -----------------------------------------------------------------------------------------------------


def test_fleet_is_searched_opened_and_renamed_by_keyboard_alone(console: FakeConsole, anna: Browser) -> None:
    pages = ConsolePages(anna, console)
    node = pages.node()
    keyboard = Keyboard(anna)
    keyboard.press("/", str(node["name"]))
    anna.until(lambda: all(str(node["name"]) in one for one in anna.texts(".nodes tbody .node")), "it is not filtered")
    keyboard.reach(f".nodes a[href$='{node['node_id']}']")
    keyboard.press(Keys.ENTER)
    pages.is_shown("node")
    anna.one(".facts")
    assert anna.js("return document.activeElement.matches('h1')"), "the focus is not on the page"
    keyboard.reach(".actions button")
    keyboard.press(Keys.ENTER)
    anna.one("dialog[open]")
    keyboard.press(Keys.ESCAPE)
    anna.until(lambda: not anna.all("dialog"), "the dialog is open still")
    assert anna.js("return document.activeElement.matches('.actions button')"), "the focus did not come back"
    keyboard.press(Keys.ENTER)
    anna.one("dialog[open] input")
    keyboard.press(Keys.CONTROL + "a" + Keys.CONTROL, "by-hand", Keys.ENTER)
    anna.shows("#main h1", "by-hand")


def test_first_stop_of_the_keyboard_skips_the_menu(console: FakeConsole, anna: Browser) -> None:
    pages = ConsolePages(anna, console)
    pages.link_is("live")
    anna.js("document.body.tabIndex = -1; document.body.focus()")
    keyboard = Keyboard(anna)
    keyboard.press(Keys.TAB)
    assert anna.js("return document.activeElement.className") == "skip"
    keyboard.press(Keys.ENTER)
    keyboard.press(Keys.TAB)
    assert anna.js("return document.activeElement.closest('#main') !== null")


def test_menu_of_the_operator_opens_and_closes_by_keyboard(console: FakeConsole, anna: Browser) -> None:
    ConsolePages(anna, console)
    keyboard = Keyboard(anna)
    anna.js("document.querySelector('#who summary').focus()")
    keyboard.press(Keys.ENTER)
    anna.shows("#who .sheet", "tokens:mint")
    keyboard.press(Keys.ESCAPE)
    anna.until(lambda: not anna.one("#who .sheet").is_displayed(), "the menu is open still")
    assert anna.js("return document.activeElement.matches('#who summary')")
