"""The gateway dies under open pages and comes back on the same port with the same data."""

from collections.abc import Iterator

import pytest

from tests.browser.chromium import Browser
from tests.browser.gateway import Gateway
from tests.browser.room import Room


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    one = Gateway(tmp_path_factory.mktemp("mortal"))
    one.start()
    yield one
    one.end()


def test_pages_come_back_by_themselves_after_the_gateway_was_killed(
    mortal: Gateway, anna: Browser, ben: Browser
) -> None:
    space = mortal.make()
    first, second = Room(anna, space.url), Room(ben, space.url)
    second.join("kitchen")
    first.set_key("kept", "through the crash")
    first.sees_key("kept", "through the crash")
    mortal.end()
    first.link_is("lost")
    second.link_is("lost")
    mortal.start()
    first.link_is("open")
    second.link_is("open")
    first.sees_person(second.uid)
    first.say("here again")
    second.sees_message("here again")
    first.say("in the same subspace", to="sub", target="kitchen")
    second.sees_message("in the same subspace")
    second.sees_key("kept", "through the crash")
    for browser in (anna, ben):
        browser.expect_in_console("ERR_CONNECTION_REFUSED")


def test_page_learns_that_its_space_ended_while_the_gateway_was_away(mortal: Gateway, anna: Browser) -> None:
    space = mortal.make(ttl_seconds="2")
    room = Room(anna, space.url)
    mortal.end()
    room.link_is("lost")
    mortal.start()
    room.link_is("gone")
    anna.expect_in_console("ERR_CONNECTION_REFUSED", "404 (Not Found)")
