"""Values and files on the page: set, listed, deleted, dropped, downloaded, and the same on the other's page."""

import base64
import os
from pathlib import Path

from tests.browser.chromium import Browser
from tests.browser.gateway import Space
from tests.browser.room import Room

DROP = """
    const [name, content, zeros] = args;
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(content), c => c.charCodeAt(0)), new Uint8Array(zeros)], name));
    for (const type of ["dragenter", "dragover", "drop"]) {
        const event = new DragEvent(type, {dataTransfer: data, bubbles: true, cancelable: true});
        document.querySelector("#messages").dispatchEvent(event);
    }
"""


def drop(browser: Browser, name: str, content: bytes, zeros: int = 0) -> None:
    """Anywhere on the page, as from a file manager: the content, and so many zeros after it."""
    browser.js_async(DROP, name, base64.b64encode(content).decode(), zeros)


def download(browser: Browser, name: str) -> bytes:
    """By a click on it, to the disk, as a person has it."""
    browser.shows("#files [data-file]", name)
    browser.click_on(next(link for link in browser.all("#files [data-file] a") if name in link.text))
    file = browser.downloads / name
    browser.until(file.exists, f"{name} was not downloaded")
    return file.read_bytes()


def test_key_is_set_changed_and_deleted_on_both_pages(space: Space, anna: Browser, ben: Browser) -> None:
    """The other page finds out by itself, within seconds."""
    first, second = Room(anna, space.url), Room(ben, space.url)
    first.set_key("colour", "blue")
    first.sees_key("colour", "blue")
    assert space.get("colour") == "blue"
    second.sees_key("colour", "blue")
    second.set_key("colour", "green")
    first.look_again()
    first.sees_key("colour", "green")
    anna.click("#keys [data-key=colour] .delete")
    anna.until(lambda: not anna.all("#keys [data-key=colour]"), "the key stays with who deleted it")
    second.look_again()
    ben.until(lambda: not ben.all("#keys [data-key=colour]"), "the key stays with the other")
    assert space.get("colour") is None


def test_file_dropped_on_the_page_is_downloaded_by_the_other_byte_for_byte(
    space: Space, anna: Browser, ben: Browser
) -> None:
    content = os.urandom(100_000)
    Room(anna, space.url)
    other = Room(ben, space.url)
    drop(anna, "dropped.bin", content)
    assert download(anna, "dropped.bin") == content
    other.look_again()
    assert download(ben, "dropped.bin") == content


def test_file_chosen_from_the_disk_is_uploaded_and_can_be_deleted(space: Space, anna: Browser, tmp_path: Path) -> None:
    file = tmp_path / "chosen.txt"
    file.write_bytes("a line\r\nünd another".encode())
    Room(anna, space.url)
    anna.one("#file-input").send_keys(str(file))
    assert download(anna, "chosen.txt") == file.read_bytes()
    anna.click("#files [data-file] .delete")
    anna.until(lambda: not anna.all("#files [data-file]"), "the file stays")


def test_file_above_the_limit_is_refused_in_words(space: Space, anna: Browser) -> None:
    Room(anna, space.url)
    drop(anna, "large.bin", b"", zeros=11 * 1024 * 1024)
    anna.shows("#notice", "large.bin is larger than 10.0 MiB")
    assert not anna.all("#files [data-file]")
