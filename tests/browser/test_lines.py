"""What the page offers to copy: it lands in the clipboard, and the lines for programs work as they stand."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.chromium import Browser
from tests.browser.gateway import Gateway, Space
from tests.browser.room import Room

PATIENCE_S = 60
CLIPBOARD = ["clipboardReadWrite", "clipboardSanitizedWrite"]


@pytest.fixture(params=["", "on"], ids=["plain", "encrypted"])
def either(request: pytest.FixtureRequest, gateway: Gateway) -> Space:
    return gateway.make(encryption=request.param)


def lines(browser: Browser, language: str) -> str:
    return browser.text(f"#lines pre[data-lang={language}]")


def test_copy_buttons_fill_the_clipboard(gateway: Gateway, space: Space, anna: Browser) -> None:
    anna.cdp("Browser.grantPermissions", origin=gateway.url, permissions=CLIPBOARD)
    Room(anna, space.url)
    for button in anna.all("[data-copy]"):
        shown = anna.js("return document.getElementById(arguments[0]).textContent", button.get_attribute("data-copy"))
        anna.click_on(button)
        clipboard_has(anna, shown)
    anna.click("#copy-prompt")
    clipboard_has(anna, gateway.ask("GET", f"/s/{space.token}/prompt")[1].decode().strip())


def clipboard_has(browser: Browser, text: str) -> None:
    browser.until(
        lambda: browser.js_async("return navigator.clipboard.readText()").strip() == text.strip(),
        f"the clipboard does not have {text!r}",
    )


def test_curl_lines_work_as_they_stand(either: Space, anna: Browser, tmp_path: Path) -> None:
    room = Room(anna, either.url)
    (tmp_path / "notes.txt").write_text("noted")
    script = "set -e\n" + lines(anna, "curl").replace("curl ", "curl --fail-with-body --silent --show-error ")
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ran.returncode == 0, ran
    assert '"key":"greeting"' in ran.stdout.replace(" ", "")
    room.look_again()
    room.sees_key("greeting", "hello")
    anna.shows("#files [data-file]", "notes.txt")


def test_python_lines_work_as_they_stand(either: Space, anna: Browser) -> None:
    room = Room(anna, either.url)
    command = [sys.executable, "-u", "-c", lines(anna, "python")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
        try:
            assert program.stdout is not None
            assert '"welcome"' in program.stdout.readline()
            room.sees_person("my-program")
            if not either.info["encryption_enabled"]:
                room.sees_message("hello")
        finally:
            program.kill()
    room.look_again()
    room.sees_key("greeting", "hello")


def test_javascript_lines_work_as_they_stand(either: Space, anna: Browser, ben: Browser) -> None:
    room = Room(anna, either.url)
    ben.open(either.url)
    ben.js_async(lines(ben, "javascript").replace("console.log(event.data)", "document.title = event.data"))
    room.sees_person("my-script")
    if not either.info["encryption_enabled"]:
        room.sees_message("hello")
    room.look_again()
    room.sees_key("greeting", "hello")


def test_qr_code_is_drawn(space: Space, anna: Browser) -> None:
    Room(anna, space.url)
    size = anna.one("#qr").size
    assert size["width"] == size["height"] >= 100
