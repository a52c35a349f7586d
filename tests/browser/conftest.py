"""One gateway and two browsers for all tests of pages; and what is said where there is no Chromium.

Without Chromium these tests are not collected, and the summary says so. Where they must run, as in CI,
`BROWSER_TESTS=required` collects them all the same, and they fail.
"""

import os
from collections.abc import Iterator

import pytest

from tests.browser.chromium import Browser, chromium, installed
from tests.browser.gateway import BEARER, Gateway, Space

MISSING = "install chromium and chromedriver (on Debian: apt install chromium chromium-driver)"
FOUND = installed()
collect_ignore_glob = ["test_*"] if FOUND is None and os.environ.get("BROWSER_TESTS") != "required" else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if collect_ignore_glob:
        terminalreporter.section("browser tests were NOT run", sep="=", yellow=True)
        terminalreporter.write_line(f"The pages were not tested: {MISSING}.")


@pytest.fixture(scope="package")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    one = Gateway(tmp_path_factory.mktemp("gateway"))
    one.start()
    yield one
    one.end()
    log = one.log.read_text()
    assert "es_" not in log, "a token is in the log"
    assert BEARER not in log, "the project bearer is in the log"


@pytest.fixture(scope="package")
def _two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Browser]]:
    """Starting one costs seconds."""
    if FOUND is None:
        pytest.fail(f"there is no Chromium: {MISSING}")
    folders = [tmp_path_factory.mktemp("browser") for _ in range(4)]
    with chromium(FOUND, folders[0], folders[1]) as anna, chromium(FOUND, folders[2], folders[3]) as ben:
        yield anna, ben


def _quiet(browser: Browser) -> Iterator[Browser]:
    """A page that says nothing to the console: no error, no warning, no violation of its policy."""
    yield browser
    said = browser.console()
    browser.forget()
    assert said == []


@pytest.fixture
def anna(_two: tuple[Browser, Browser]) -> Iterator[Browser]:
    yield from _quiet(_two[0])


@pytest.fixture
def ben(_two: tuple[Browser, Browser]) -> Iterator[Browser]:
    yield from _quiet(_two[1])


@pytest.fixture
def space(gateway: Gateway) -> Space:
    return gateway.make()
