"""The gateway dies under open pages and comes back on the same port with the same data."""

from pathlib import Path

from tests.browser.chromium import Browser
from tests.browser.gateway import Gateway
from tests.browser.room import Room


def test_pages_come_back_by_themselves_after_the_gateway_was_killed(
    tmp_path: Path, anna: Browser, ben: Browser
) -> None:
    gateway = Gateway(tmp_path)
    gateway.start()
    try:
        space = gateway.make()
        first, second = Room(anna, space.url), Room(ben, space.url)
        first.set_key("kept", "through the crash")
        first.sees_key("kept", "through the crash")
        gateway.end()
        first.link_is("lost")
        second.link_is("lost")
        gateway.start()
        first.link_is("open")
        second.link_is("open")
        first.sees_person(second.uid)
        first.say("here again")
        second.sees_message("here again")
        second.sees_key("kept", "through the crash")
    finally:
        for browser in (anna, ben):
            browser.open("about:blank")
        gateway.end()
    for browser in (anna, ben):
        browser.expect_in_console("ERR_CONNECTION_REFUSED")
