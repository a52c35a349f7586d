"""The console's pages against made-up answers: each page, too few scopes, connections that are lost, many nodes."""

import json
from collections.abc import Iterator

import pytest

from tests.browser.chromium import Browser
from tests.browser.console import LOST, ConsolePages
from tests.browser.console_fleet import MadeUpFleet
from tests.browser.console_server import FakeConsole, served

NODES = 60
MANY = 5_000


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    with served(MadeUpFleet(NODES)) as one:
        yield one


@pytest.fixture
def pages(console: FakeConsole, anna: Browser) -> ConsolePages:
    return ConsolePages(anna, console)


# ---- each page -------------------------------------------------------------------------------------------------------


def test_fleet_shows_counts_and_a_table_of_its_nodes(pages: ConsolePages, anna: Browser) -> None:
    fleet = pages.console.fleet
    anna.until(lambda: len(anna.all(".nodes tbody tr")) == NODES, "not all nodes are there")
    assert anna.text(".counts [data-word=live] .number") == str(fleet.counts()["live"])
    named = [node["name"] for node in fleet.nodes if node["name"]]
    assert anna.texts(".nodes .node a")[: len(named)] == sorted(named)
    pages.link_is("live")


def test_node_shows_live_charts_capabilities_and_what_happened(pages: ConsolePages, anna: Browser) -> None:
    node = pages.open_node()
    assert anna.text("#main h1") == node["name"]
    anna.until(lambda: len(anna.all(".charts canvas")) == 4, "there are no charts")
    anna.until(lambda: "between" in (anna.one("canvas.chart").get_attribute("aria-label") or ""), "no values came")
    assert is_painted(anna, "canvas.chart")
    assert len(anna.all(".capability")) == 2
    assert "1 of 4" in anna.text(".capability")
    anna.click(".charted button")
    anna.until(lambda: len(anna.all(".charted .values tbody tr")) > 1, "there is no table of values")
    anna.click(".history summary")
    anna.shows(".history td", "command acked")


def is_painted(browser: Browser, css: str) -> bool:
    script = """
        const canvas = document.querySelector(arguments[0]);
        if (canvas.width === 0 || canvas.height === 0) return false;
        // A copy: the browser has something to say of a canvas that is read a second time.
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
        copy.drawImage(canvas, 0, 0);
        return copy.getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0);
    """
    return bool(browser.until(lambda: browser.js(script, css), f"nothing is drawn in {css}"))


def test_row_of_the_table_leads_to_its_node_and_back_again(pages: ConsolePages, anna: Browser) -> None:
    anna.choose(".foot select", "50")
    anna.until(lambda: "limit=50" in anna.driver.current_url, "the address does not say so")
    anna.click(".nodes .node a")
    pages.is_shown("node")
    assert anna.js("return document.activeElement.tagName") == "H1"
    anna.driver.back()
    pages.is_shown("fleet")
    anna.until(lambda: len(anna.all(".nodes tbody tr")) == 50, "the table is not as it was")


def test_agents_show_who_spends_what_and_why_calls_were_refused(pages: ConsolePages, anna: Browser) -> None:
    pages.menu("agents")
    agents = pages.console.fleet.agents
    anna.until(lambda: len(anna.all("tbody tr")) == len(agents), "not all agents are there")
    anna.shows(".bars", "offline")
    anna.shows("td.budget", "of $100.00")
    anna.click("tbody a[href*='/agent/']")
    pages.is_shown("agent")
    anna.until(lambda: anna.all(".audit tr.line"), "there are no lines of it")
    assert is_painted(anna, "canvas.chart")


def test_policy_shows_its_file_and_explains_it_line_by_line(pages: ConsolePages, anna: Browser) -> None:
    pages.menu("policy")
    anna.shows(".file li", 'budget_period = "1d"')
    anna.fill(".explain [name=agent]", "agent_6f1c2c1e-8d0b-4c57-9a55-0d6c1f4b7a10")
    anna.fill(".explain [name=tool]", "sysecho.x.echo.invoke")
    anna.click(".explain button")
    anna.shows(".told", "allowed")
    assert [item.get_attribute("data-line") for item in anna.all(".file .marked")] == ["2", "4", "8"]


def test_streams_spaces_upstreams_and_an_engine_are_shown(pages: ConsolePages, anna: Browser) -> None:
    pages.menu("streams")
    anna.shows("tbody", "metrics.subscribe")
    pages.menu("spaces")
    anna.shows(".limits", "6 of 10,000")
    anna.click("tbody .danger")
    anna.click("dialog [type=submit]")
    anna.until(lambda: len(anna.all("tbody tr")) == 5, "the space is there still")
    pages.menu("upstreams")
    anna.shows("tbody tr", "tickets")
    assert not anna.one("#pages [data-page=engine]").is_displayed()
    row = {
        "process": "gw-1",
        "is_here": True,
        "started_at_ms": 1_790_000_000_000,
        "nodes": 30,
        "lag_ms": 4,
        "link": None,
    }
    pages.console.engine = {"prefix": "hg", "is_janitor": False, "processes_total": 1, "processes": [row]}
    anna.driver.refresh()
    pages.is_shown("upstreams")
    pages.menu("engine")
    anna.shows("tbody", "gw-1")
    assert anna.texts("thead th") == ["Process", "Link", "Nodes", "Lag (ms)", "Started", "Here"]
    process, link, nodes, lag, started, here = anna.texts("tbody td")
    assert (process, here, nodes, lag, link) == ("gw-1", "yes", "30", "4", "–")
    assert "2026" in started
    anna.shows("#main", "Janitor")
    pages.menu("log")
    anna.one("tr.line")
    assert "process" not in anna.text("#main .note")
    pages.console.engine = {**pages.console.engine, "processes_total": 4}
    for page in ("log", "agents"):
        pages.go(page)
        anna.shows("#main .note", "of one process of 4")


def test_log_is_filtered_followed_and_exported(pages: ConsolePages, anna: Browser) -> None:
    console = pages.console
    pages.menu("log")
    anna.until(lambda: len(anna.all("tr.line")) == 100, "there is no page of lines")
    anna.click("#main p.row button:not([hidden])")
    anna.until(lambda: len(anna.all("tr.line")) == 200, "there are no older lines")
    anna.choose("[name=decision]", "refused")
    anna.click(".filters [type=submit]")
    pages.is_shown("log")
    anna.until(lambda: set(anna.texts("tr.line .badge")) == {"refused"}, "others than refused are there")
    anna.click(".opener")
    anna.shows(".fields-of-line", "correlation_id")
    anna.click(".toggle")
    pages.link_is("live")
    line = {**console.fleet.audit({"decision": "refused"})["lines"][0], "id": 9_001, "node_name": "just-now"}
    console.tell("audit", {"lines": [line], "skipped": False})
    anna.until(lambda: "just-now" in anna.text("tr.line"), "the new line is not there")
    assert "just-now" in anna.texts("tr.line")[0]
    anna.click(".head .actions button:last-child")
    file = anna.until(lambda: next(iter(anna.downloads.glob("*.jsonl")), None), "nothing was exported")
    exported = [json.loads(one) for one in file.read_text().splitlines()]
    assert {one["decision"] for one in exported} == {"refused"}


def test_followed_log_shows_the_newest_lines_however_many_were_written(pages: ConsolePages, anna: Browser) -> None:
    fleet = pages.console.fleet
    pages.visit("log?follow=yes")
    pages.link_is("live")
    anna.until(lambda: len(anna.all("tr.line")) >= 100, "there is no page of lines")
    first, like = fleet.lines[0]["id"], fleet.lines[0]
    fleet.lines[:0] = [{**like, "id": first + number} for number in range(1_500, 0, -1)]
    pages.console.tell("audit", {"lines": fleet.lines[99::-1], "skipped": True})
    newest = f'tr.line:first-child[data-line="{first + 1_500}"]'
    anna.until(lambda: anna.all(newest), "the newest line is not on top")


def test_export_that_breaks_off_is_told_and_not_saved(pages: ConsolePages, anna: Browser) -> None:
    pages.console.cuts_exports = True
    pages.menu("log")
    anna.until(lambda: len(anna.all("tr.line")) == 100, "there is no page of lines")
    anna.click(".head .actions button:last-child")
    anna.shows("body", "The export broke off")
    assert not list(anna.downloads.glob("*.jsonl"))
    anna.expect_in_console("net::ERR_CONTENT_LENGTH_MISMATCH")


def test_address_of_no_page_says_so(pages: ConsolePages, anna: Browser) -> None:
    anna.open(f"{pages.console.url}/console/nothing/at/all")
    anna.shows("#main h1", "No such page")


# ---- signing in ------------------------------------------------------------------------------------------------------


def test_link_signs_in_once_and_is_kept_neither_in_the_address_nor_in_the_history(
    console: FakeConsole, anna: Browser
) -> None:
    link = console.new_link()
    pages = ConsolePages(anna, console)
    anna.open("about:blank")
    anna.cdp("Network.clearBrowserCookies")
    anna.open(link)
    pages.is_shown("fleet")
    assert "#" not in anna.driver.current_url
    history = anna.cdp("Page.getNavigationHistory")["entries"]
    assert not any("#k=" in entry["url"] for entry in history), history
    anna.cdp("Network.clearBrowserCookies")
    anna.open("about:blank")
    anna.open(link)
    pages.is_at_the_entrance()
    anna.shows("#said", "was used already")
    anna.expect_in_console("status of 401")


def test_ended_session_leads_to_the_sign_in_and_back_to_where_one_was(pages: ConsolePages, anna: Browser) -> None:
    node = pages.open_node()
    pages.console.end_sessions()
    pages.is_at_the_entrance()
    anna.shows("#said", "Your session has ended")
    assert not anna.all("#main .page"), "what was shown is still there"
    anna.open(pages.console.new_link())
    pages.is_shown("node")
    assert anna.driver.current_url.endswith(f"/console/node/{node['node_id']}")
    anna.expect_in_console("status of 401", LOST)


def test_signing_out_ends_it_in_other_tabs_too(pages: ConsolePages, anna: Browser) -> None:
    first = anna.driver.current_window_handle
    anna.driver.switch_to.new_window("tab")
    try:
        pages.go("streams")
        anna.click("#who summary")
        anna.click("#sign-out")
        pages.is_at_the_entrance()
        anna.shows("#said", "You are signed out.")
    finally:
        anna.driver.close()
        anna.driver.switch_to.window(first)
    pages.is_at_the_entrance()
    anna.shows("#said", "another tab")
    anna.expect_in_console("status of 401", LOST)


# ---- scopes ----------------------------------------------------------------------------------------------------------


def test_what_scopes_do_not_allow_is_shown_with_the_scope_that_is_missing(console: FakeConsole, anna: Browser) -> None:
    console.scopes = ("fleet:read",)
    pages = ConsolePages(anna, console)
    assert "needs the scope spend:read" in anna.js("return document.querySelector('[data-page=agents]').textContent")
    pages.menu("agents")
    anna.shows(".lacking-scope", "spend:read")
    assert pages.asked("agents") == [], "it was asked for all the same"
    pages.open_node()
    anna.shows(".lacks-scope", "fleet:write")
    for button in anna.all(".actions button:not([hidden])"):
        assert button.get_attribute("aria-disabled") == "true"
    anna.click(".actions .danger")
    assert not anna.all("dialog")
    anna.click("[data-tool*=echo] button")
    anna.shows(".try .lacking-scope", "tokens:mint")
    assert not anna.one(".try [type=submit]").is_enabled()


def test_action_that_the_gateway_refuses_names_the_scope_and_changes_nothing(
    pages: ConsolePages, anna: Browser
) -> None:
    node = pages.open_node()
    pages.console.forbids_acts = True
    anna.click(".actions button")
    anna.fill("dialog input", "other")
    anna.click("dialog [type=submit]")
    anna.shows("dialog .refusal", "This needs the scope fleet:write.")
    anna.shows("dialog .refusal", "01M7NXQJS0CBBKT4CND45MRPZG")
    assert (pages.console.acts, anna.text("#main h1")) == ([], node["name"])
    anna.expect_in_console("status of 403")


# ---- doing -----------------------------------------------------------------------------------------------------------


def test_node_is_renamed_tagged_renewed_and_revoked_with_confirmation(pages: ConsolePages, anna: Browser) -> None:
    node, acts = pages.open_node(), pages.console.acts
    anna.click(".actions button:nth-of-type(1)")
    anna.fill("dialog input", "pump-new")
    anna.click("dialog [type=submit]")
    anna.shows("#main h1", "pump-new")
    anna.click(".actions button:nth-of-type(2)")
    anna.fill("dialog textarea", "site=roof\nshift=2")
    anna.click("dialog [type=submit]")
    anna.shows(".head .tags", "shift=2")
    anna.click(".actions button:nth-of-type(3)")
    anna.click("dialog [type=submit]")
    anna.shows("#identity", "c2VjcmV0")
    anna.click("dialog .primary")
    anna.click(".actions .danger")
    assert not anna.one("dialog [type=submit]").is_enabled()
    anna.fill("dialog input", "pump-new")
    anna.click("dialog [type=submit]")
    anna.shows(".head .state", "revoked")
    assert [act["path"].rpartition("/")[2] for act in acts] == ["rename", "tag", "renew", "revoke"]
    assert {act["body"]["node"] for act in acts} == {node["node_id"]}
    assert acts[1]["body"]["set"] == {"site": "roof", "shift": "2"}
    assert anna.text(".actions button:not([hidden])") == "Forget"


def test_name_that_is_taken_is_told_in_the_dialog(pages: ConsolePages, anna: Browser) -> None:
    pages.open_node()
    anna.click(".actions button")
    anna.fill("dialog input", "taken")
    anna.click("dialog [type=submit]")
    anna.shows("dialog [role=alert]", "Another node of the tenant has this name.")
    anna.expect_in_console("status of 400")


# ---- connections -----------------------------------------------------------------------------------------------------


def retry(anna: Browser) -> None:
    """Not by the pointer: the page tries by itself, too, and then there is no button any more."""
    anna.js("document.querySelector('#link-retry').click()")


def test_lost_connection_is_shown_and_heals_with_what_was_missed(pages: ConsolePages, anna: Browser) -> None:
    console = pages.console
    pages.link_is("live")
    console.is_down = True
    console.break_feeds()
    pages.link_is("lost")
    anna.shows("#link", "Connection lost at")
    node = pages.node()
    node["name"] = "aa-renamed-meanwhile"
    console.is_down = False
    retry(anna)
    pages.link_is("live")
    anna.shows(".nodes", "aa-renamed-meanwhile")
    assert "back" in anna.js("return document.getElementById('spoken').textContent")
    anna.expect_in_console(LOST)


def test_feed_that_falls_silent_counts_as_lost_and_is_opened_again(pages: ConsolePages, anna: Browser) -> None:
    pages.link_is("live")
    opened = len(pages.asked("live"))

    def is_opened_again() -> bool:
        anna.js("const before = Date.now; Date.now = () => before() + 60_000")  # what was on its way may come after it
        return len(pages.asked("live")) > opened

    anna.until(is_opened_again, "no other feed was opened")
    pages.link_is("live")
    anna.expect_in_console(LOST)


def test_page_that_gets_no_feed_says_so_and_asks_now_and_then(console: FakeConsole, anna: Browser) -> None:
    console.feeds_refused = True
    pages = ConsolePages(anna, console)
    pages.link_is("busy")
    anna.until(lambda: len(pages.asked("fleet")) >= 2, "it did not ask again")
    console.feeds_refused = False
    anna.js("dispatchEvent(new Event('online'))")
    pages.link_is("live")
    anna.expect_in_console("status of 429")


def test_page_that_polls_goes_on_when_the_gateway_is_back(pages: ConsolePages, anna: Browser) -> None:
    pages.menu("agents")
    anna.one("tbody tr")
    pages.console.is_down = True
    pages.menu("streams")
    pages.link_is("lost")
    pages.console.is_down = False
    retry(anna)
    pages.link_is("open")
    anna.shows("tbody", "metrics.subscribe")
    anna.expect_in_console(LOST)


# ---- many ------------------------------------------------------------------------------------------------------------


def test_five_thousand_rows_are_paged_sorted_and_filtered_by_the_gateway(anna: Browser) -> None:
    with served(MadeUpFleet(MANY)) as console:
        pages = ConsolePages(anna, console)
        pages.go("fleet?limit=500")
        seen: set[str] = set()
        for page in range(MANY // 500):
            first = page * 500 + 1
            anna.shows(".pager", f"{first:,}–{first + 499:,} of 5,000")
            seen |= set(anna.js("return [...document.querySelectorAll('.nodes tbody tr')].map(e => e.dataset.id)"))
            assert len(anna.all(".nodes tbody tr")) == 500
            if page < 9:
                anna.click("[aria-label='Next page']")
        assert len(seen) == MANY
        assert anna.one("[aria-label='Next page']").get_attribute("aria-disabled") == "true"
        anna.click("th.rate .sort")
        anna.one("th.rate[aria-sort=descending]")
        asked = pages.asked("fleet")[-1]
        assert (asked["sort"], asked["descending"], asked["offset"]) == ("frames_per_s", True, 0)
        anna.fill("[data-search]", "pump-1")
        anna.until(lambda: pages.asked("fleet")[-1].get("text") == "pump-1", "the gateway was not asked")
        anna.until(lambda: all("pump-1" in name for name in anna.texts(".nodes tbody .node")), "others are shown still")
        anna.click(".counts [data-word=away]")
        anna.until(lambda: set(anna.texts(".nodes .badge")) == {"away"}, "others than away are shown")


def test_live_rows_change_in_place_and_the_window_follows_its_order(pages: ConsolePages, anna: Browser) -> None:
    pages.link_is("live")
    fleet = pages.console.fleet
    page = fleet.fleet({})
    first, last = page["rows"][0], page["rows"][-1]
    anna.js("document.querySelector('.nodes tbody tr').dataset.mark = 'same'")
    heading = {key: value for key, value in page.items() if key != "rows"}
    pages.console.tell("fleet", {**heading, "rows": [{**first, "drops": 77_777}]})
    anna.shows("tr[data-mark=same]", "77,777")
    ids = [last["node_id"], *(row["node_id"] for row in page["rows"][:-1])]
    pages.console.tell("fleet", {**heading, "ids": ids, "rows": [{**last, "name": "now-on-top"}]})
    anna.until(lambda: anna.texts(".nodes .node a")[0] == "now-on-top", "it is not on top")
    assert anna.texts("tr[data-mark=same] .node a") == [first["name"]]
