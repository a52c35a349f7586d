"""The landing page in a browser: what its form makes, and how a person is told that it cannot."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.browser.chromium import Browser
from tests.browser.gateway import Gateway

PASSWORD = "correct horse"


def submit(browser: Browser) -> None:
    browser.click("#create [type=submit]")


def prompt_of(browser: Browser, gateway: Gateway) -> str:
    """Of the room that the form led to: it names every choice."""
    browser.one("html[data-link=open]")
    status, text = gateway.ask("GET", f"{urlsplit(browser.driver.current_url).path}/prompt")
    assert status == 200
    return text.decode()


def test_form_as_it_is_makes_a_plain_json_space_for_a_week(gateway: Gateway, anna: Browser) -> None:
    anna.open(gateway.url)
    submit(anna)
    prompt = prompt_of(anna, gateway)
    assert "Encryption is off" in prompt
    assert "protocol is json" in prompt
    assert not anna.all("#encryption-key")
    anna.shows("#countdown", "6 days")


def test_each_option_of_the_form_is_one_of_the_space(gateway: Gateway, anna: Browser) -> None:
    anna.open(gateway.url)
    anna.click("#encryption")
    anna.choose("#protocol", "protobuf")
    anna.choose("#ttl", "3600")
    submit(anna)
    prompt = prompt_of(anna, gateway)
    assert "Encryption is on" in prompt
    assert "protocol is protobuf" in prompt
    assert anna.text("#encryption-key") in prompt
    anna.shows("#countdown", "00:59")


def test_claim_leaves_the_address_bar_and_stays_with_the_page(gateway: Gateway, anna: Browser) -> None:
    anna.open(gateway.url)
    submit(anna)
    anna.one("html[data-link=open]")
    anna.one("#end-space")
    assert "claim" not in anna.driver.current_url
    assert "ei_" not in anna.text("body")
    anna.driver.refresh()
    anna.one("html[data-link=open]")
    anna.one("#end-space")


def test_unknown_link_is_explained(gateway: Gateway, anna: Browser) -> None:
    anna.open(f"{gateway.url}/s/es_{'x' * 43}")
    anna.shows("h1", "There is no such space")
    anna.expect_in_console("404 (Not Found)")
    anna.click("a[href='/']")
    anna.one("form#create")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One that wants a password and proof that the form was its own."""
    one = Gateway(tmp_path_factory.mktemp("guarded"), ECHO_CREATE_PASSWORD=PASSWORD, ECHO_CSRF="strict")
    one.start()
    yield one
    one.end()


def test_wrong_password_is_explained_and_the_right_one_makes_a_space(guarded: Gateway, anna: Browser) -> None:
    anna.open(guarded.url)
    anna.fill("#password", "wrong")
    submit(anna)
    anna.shows("h1", "Wrong password")
    anna.expect_in_console("401 (Unauthorized)")
    anna.click("a[href='/']")
    anna.fill("#password", PASSWORD)
    submit(anna)
    assert "Encryption is off" in prompt_of(anna, guarded)


def test_strict_form_without_its_cookie_is_refused(guarded: Gateway, anna: Browser) -> None:
    anna.open(guarded.url)
    anna.cdp("Network.clearBrowserCookies")
    anna.fill("#password", PASSWORD)
    submit(anna)
    anna.shows("h1", "The form is stale")
    anna.expect_in_console("403 (Forbidden)")


def test_password_is_asked_for_only_where_one_is_needed(gateway: Gateway, anna: Browser) -> None:
    anna.open(gateway.url)
    anna.one("#create")
    assert not anna.all("#password")
