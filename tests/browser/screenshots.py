"""`make screenshots`: the pages, with two people and an agent in a room, as pictures for the documentation.

The links on them lead nowhere: the gateway and its room live as long as this command.
"""

import base64
import sys
import tempfile
from pathlib import Path

from actors.device.mock_sampler import MockSampler
from gateway.commands.demo import NAMES
from gateway.commands.demo_site import sample
from tests.browser.chromium import PHONE, Browser, Installed, chromium, installed
from tests.browser.gateway import PLENTY, Gateway, Space
from tests.browser.members import device, invite, is_at_the_sign_in, join, protect
from tests.browser.room import Room
from tests.browser.test_board import Board

FOLDER = Path(__file__).parent.parent.parent / "docs" / "images"
LANDING, ROOM, SIGN_IN = (960, 900), (1280, 1260), (960, 480)
MEMBERS = (1280, 4000)
BOARD = (1280, 560)
START_MS = 1_790_000_000_000
FULL = """
    const lines = [...document.querySelectorAll("#nodes polyline")];
    return lines.length === 5 && lines.every(line => line.getAttribute("points").split(" ").length === 30);
"""
BASE = "https://echo.example.org"


def take(browser: Browser, name: str, size: tuple[int, int]) -> None:
    browser.size(*size)
    browser.js("scrollTo(0, 0); document.activeElement?.blur(); document.querySelector('#messages')?.scrollTo(0, 1e6)")
    picture = base64.b64decode(browser.cdp("Page.captureScreenshot", format="png")["data"])
    (FOLDER / f"{name}.png").write_bytes(picture)
    print(f"{len(picture) / 1024:5.0f} KiB  docs/images/{name}.png")


def furnish(space: Space) -> None:
    space.put("agenda", "1. What the greenhouse told us\n2. Water on Thursday")
    space.put("frost.celsius", "2.0")
    space.upload("greenhouse-week-46.csv", b"at,celsius\n" + b"2026-11-12T08:00:00Z,21.4\n" * 700)


def converse(ada: Room, space: Space) -> None:
    ada.browser.click("#keys [data-key=agenda] .read")
    with space.join("grace") as grace, space.join("thermo-agent", subs="sensors") as agent:
        ada.sees_person("grace")
        ada.sees_person("thermo-agent")
        grace.say("Good morning! Did it freeze in the greenhouse?")
        ada.sees_message("Did it freeze")
        ada.say("Let us ask the one who was there all night.")
        agent.next()
        agent.say({"node": "greenhouse-1", "celsius": 4.2, "min": 3.1})
        ada.sees_message("3.1")
        agent.say("No frost: 3.1 °C at the coldest, at 05:40.")
        ada.sees_message("05:40")
        ada.say("Thank you. Please warn us below 2.", to="uid", target="thermo-agent")
        ada.sees_message("Please warn us")
        take(ada.browser, "room-light", ROOM)
        ada.browser.scheme("dark")
        take(ada.browser, "room-dark", ROOM)
        ada.browser.scheme("light")
        take(ada.browser, "room-phone", PHONE)


def take_part(browser: Browser, name: str, css: str) -> None:
    """An element and a little around it."""
    browser.size(*MEMBERS)  # so high that nothing scrolls under the header
    browser.js("scrollTo(0, 0); document.activeElement?.blur(); document.getElementById('notice').textContent = ''")
    box = browser.js(
        "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return [b.x, b.y + scrollY, b.width, b.height]",
        css,
    )
    clip = {"x": box[0] - 16, "y": box[1] - 16, "width": box[2] + 32, "height": box[3] + 32, "scale": 1}
    shot = browser.cdp("Page.captureScreenshot", format="png", clip=clip)
    picture = base64.b64decode(shot["data"])
    (FOLDER / f"{name}.png").write_bytes(picture)
    print(f"{len(picture) / 1024:5.0f} KiB  docs/images/{name}.png")


def show_members(found: Installed, folder: Path, ada: Browser) -> None:
    """On a gateway of its own: passkeys are made under its real address, which the pictures then show."""
    gateway = Gateway(folder / "members")
    (folder / "members").mkdir()
    gateway.start()
    downloads = folder / "downloads-of-grace"
    downloads.mkdir()
    try:
        with (
            chromium(found, folder / "profile-of-grace", downloads) as grace,
            device(ada, gateway),
            device(grace, gateway),
        ):
            grace.cdp("Emulation.setScrollbarsHidden", hidden=True)
            space = gateway.make()
            protect(ada, space, "Ada")
            for name, scopes in {
                "Grace": ("kv_read", "file_read", "ws_read", "ws_write"),
                "Linus": ("kv_read",),
            }.items():
                join(grace, invite(ada, *scopes), name)
                grace.click("#sign-out")
                is_at_the_sign_in(grace)
                grace.driver.refresh()
            ada.driver.refresh()
            ada.shows("#members li", "Linus")
            invite(ada, "kv_read", "file_read", "ws_read")
            for scheme in ("light", "dark"):
                for browser in (ada, grace):
                    browser.scheme(scheme)
                take(grace, f"sign-in-{scheme}", SIGN_IN)
                take_part(ada, f"members-{scheme}", "#members-card")
    finally:
        gateway.end()


def show_board(folder: Path, browser: Browser) -> None:
    """The example site on a hostname of its own, with a minute of five machines that do not exist."""
    (folder / "board").mkdir()
    gateway = Gateway(folder / "board", ECHO_FRAMES_PER_S_MAX=PLENTY)
    gateway.start()
    try:
        board = Board(gateway, folder / "board")
        browser.open(board.url)
        browser.one("#link[data-state=live]")
        machines = [MockSampler(seed, START_MS) for seed in range(len(NAMES))]
        with board.room.join("fleet") as fleet:
            for second in range(0, 60, 2):
                for (name, tags), machine in zip(NAMES, machines, strict=True):
                    fleet.say(sample(name, tags["site"], frame_of(machine, START_MS + 1000 * second)))
            browser.until(lambda: browser.js(FULL), "the lines are not full")
        for scheme in ("light", "dark"):
            browser.scheme(scheme)
            take(browser, f"board-{scheme}", BOARD)
    finally:
        browser.open("about:blank")
        gateway.end()


def frame_of(machine: MockSampler, at_ms: int) -> dict[str, float]:
    read = machine.read_sync(at_ms)
    return {
        "ts_ms": at_ms,
        "cpu_pct": sum(read.per_core_pct) / len(read.per_core_pct),
        "mem_bytes": read.mem_used_bytes,
        "mem_total_bytes": read.mem_total_bytes,
        "load_1m": read.load[0],
    }


def shoot(found: Installed, folder: Path) -> None:
    gateway = Gateway(folder, HTTP_PUBLIC_URL=BASE)
    gateway.start()
    downloads = folder / "downloads"
    downloads.mkdir()
    try:
        with chromium(found, folder / "profile", downloads) as browser:
            browser.cdp("Emulation.setScrollbarsHidden", hidden=True)
            browser.open(gateway.url)
            take(browser, "landing-light", LANDING)
            space = gateway.make()
            furnish(space)
            room = Room(browser, space.url)
            room.rename("ada")
            converse(room, space)
            show_members(found, folder, browser)
            show_board(folder, browser)
    finally:
        gateway.end()


def main() -> int:
    found = installed()
    if found is None:
        print("Chromium and its driver are needed (on Debian: apt install chromium chromium-driver)", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        shoot(found, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
