"""Chromium for tests: what is installed, how it is started, and a page as a test looks at it.

Every wait polls and has a bound. Nothing is downloaded: browser and driver are those of the system, or there are none.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

T = TypeVar("T")
PATIENCE_S = 20  # of every wait; a page that needs longer has failed
POLL_S = 0.05
SHOWN_CHARS_MAX = 1500  # of a page, where a test failed
DESKTOP, PHONE = (1280, 900), (360, 740)
FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",  # a container's /dev/shm is small
)


@dataclass(frozen=True, slots=True)
class Installed:
    browser: str
    driver: str


def installed() -> Installed | None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return Installed(browser, driver) if browser and driver else None


class Browser:
    """One Chromium with one page, and what it wrote to its console."""

    def __init__(self, driver: Chrome, downloads: Path) -> None:
        self.driver = driver
        self.downloads = downloads

    def open(self, url: str) -> None:
        self.driver.get(url)

    # ---- looking -----------------------------------------------------------------------------------------------------

    def one(self, css: str) -> WebElement:
        """The element, waited for."""
        return self.until(lambda: next(iter(self.all(css)), None), f"there is no {css}")

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def text(self, css: str) -> str:
        """As it is rendered; empty where there is none."""
        return "\n".join(self.texts(css))

    def texts(self, css: str) -> list[str]:
        """In one step, so that no element is gone meanwhile."""
        found = self.js("return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)", css)
        assert isinstance(found, list)
        return found

    def shows(self, css: str, text: str) -> None:
        self.until(lambda: any(text in one for one in self.texts(css)), f"{text!r} is not in {css}")

    def until(self, condition: Callable[[], T | None], else_say: str) -> T:
        """What the condition says once it is neither None nor False nor empty."""
        wait = WebDriverWait(self.driver, PATIENCE_S, POLL_S, [StaleElementReferenceException])
        try:
            found = wait.until(lambda _: condition())
        except TimeoutException:
            pytest.fail(f"{else_say}, but on the page:\n{self.text('body')[:SHOWN_CHARS_MAX]}\n{self.console()}")
        assert found is not None
        return found

    def js(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def js_async(self, body: str, *arguments: object) -> Any:
        """`body` is that of an async function of `args`; a rejection fails the test."""
        script = (
            "const args = [...arguments], done = args.pop();"
            f"(async () => {{ {body} }})().then(value => done({{value}}), error => done({{error: String(error)}}));"
        )
        answer = self.driver.execute_async_script(script, *arguments)
        assert "error" not in answer, answer["error"]
        return answer.get("value")

    # ---- doing -------------------------------------------------------------------------------------------------------

    def click(self, css: str) -> None:
        self.click_on(self.one(css))

    def click_on(self, element: WebElement) -> None:
        """In the middle of the window, where the header covers nothing."""
        self.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        element.click()

    def fill(self, css: str, text: str) -> None:
        field = self.one(css)
        field.clear()
        field.send_keys(text)

    def choose(self, css: str, value: str) -> None:
        Select(self.one(css)).select_by_value(value)

    def cdp(self, command: str, **arguments: object) -> Any:
        return self.driver.execute_cdp_cmd(command, arguments)

    def size(self, width: int, height: int) -> None:
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name: str) -> None:
        """Colours change at once, with no motion between them."""
        wishes = {"prefers-color-scheme": name, "prefers-reduced-motion": "reduce"}
        features = [{"name": wish, "value": value} for wish, value in wishes.items()]
        self.cdp("Emulation.setEmulatedMedia", features=features)

    def console(self) -> list[str]:
        """What was said since the last time: errors and warnings of the page, violations of its policy."""
        entries: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [f"{one['source']}: {one['message']}" for one in entries if one["level"] in ("WARNING", "SEVERE")]

    def expect_in_console(self, *parts: str) -> None:
        """Lines that each have one of these are what the browser itself says of an answer that a test asked for."""
        assert [line for line in self.console() if not any(part in line for part in parts)] == []

    def forget(self) -> None:
        """As if it had just been started."""
        self.open("about:blank")
        self.cdp("Network.clearBrowserCookies")
        self.size(*DESKTOP)
        self.scheme("light")
        self.console()
        for file in self.downloads.iterdir():
            file.unlink()


@contextmanager
def chromium(found: Installed, profile: Path, downloads: Path, *more: str) -> Iterator[Browser]:
    """`more` are flags."""
    options = ChromeOptions()
    options.binary_location = found.browser
    for flag in (*FLAGS, *more, *(["--no-sandbox"] if os.geteuid() == 0 else []), f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options, Service(found.driver))
    try:
        driver.set_page_load_timeout(PATIENCE_S)
        driver.set_script_timeout(PATIENCE_S)
        browser = Browser(driver, downloads)
        browser.cdp("Emulation.setFocusEmulationEnabled", enabled=True)
        browser.forget()
        yield browser
    finally:
        driver.quit()
