"""The example site: published by the command line, opened on its hostname, live from the room of its project."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.commands.demo_site import BOARD, sample
from tests.browser.chromium import DESKTOP, PHONE, Browser
from tests.browser.gateway import BEARER, PATIENCE_S, Gateway, Space
from tests.browser.test_looks import assert_fits, assert_readable

HOW_TO = (Path(__file__).parents[2] / "docs" / "how-to" / "publish-a-site.md").read_text()
FRAME = {
    "ts_ms": 1_790_000_000_123,
    "cpu_pct": 41.26,
    "mem_bytes": 3 * 2**30,
    "mem_total_bytes": 4 * 2**30,
    "load_1m": 1.5,
}


class Board:
    """A site of its own, and the room of its project."""

    def __init__(self, gateway: Gateway, folder: Path, pages: Path = BOARD) -> None:
        self._gateway = gateway
        self._folder = folder
        self._pages = pages
        self.project_id: str = self._run("project", "create", "Fleet board")["project_id"]
        self.url: str = self.publish()["url"]

    def publish(self) -> Any:
        return self._run("site", "deploy", str(self._pages), "--room", "room.json", "--project", self.project_id)

    def _run(self, *arguments: str) -> Any:
        command = [sys.executable, "-m", "gateway.commands.cli", *arguments, "--json"]
        environment = {
            "API_BEARER_TOKEN": BEARER,
            "HELIOGRAPH_URL": self._gateway.url,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        done = subprocess.run(
            command, cwd=self._folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    @property
    def room(self) -> Space:
        project = self._run("project", "show", self.project_id)
        return Space(self._gateway, {"token": project["app_token"]})

    def book(self) -> None:
        self._run("project", "book", self.project_id)


@pytest.fixture
def board(gateway: Gateway, tmp_path: Path) -> Iterator[Board]:
    one = Board(gateway, tmp_path)
    yield one
    gateway.ask("DELETE", f"/api/projects/{one.project_id}", authorization=f"Bearer {BEARER}")


def test_board_shows_what_nodes_say_on_its_own_hostname(board: Board, anna: Browser) -> None:
    host = urlsplit(board.url).hostname
    assert host is not None
    assert host.endswith(".localhost")
    anna.open(board.url)
    anna.one("#link[data-state=live]")
    assert anna.text("#nothing") == "No node has said anything yet."
    with board.room.join("fleet") as fleet:
        fleet.say(sample("pump-2", "lab", FRAME))
        fleet.say(sample("boiler", "roof", {**FRAME, "cpu_pct": 7.0}))
        fleet.say(sample("pump-2", "lab", {**FRAME, "cpu_pct": 99.0}))
        anna.shows("#nodes [data-node=pump-2] output", "99.0")
        assert anna.texts("#nodes h2") == ["boiler", "pump-2"]
        card = " ".join(anna.text("#nodes [data-node=pump-2]").split())
        assert re.fullmatch(r"pump-2 lab 99\.0 % CPU [\d:]+( [AP]M)? memory 75 % load 1\.50", card)
        assert anna.all("#nothing:not([hidden])") == []
        points = anna.js("return document.querySelector('[data-node=pump-2] polyline').getAttribute('points')")
        assert points == "29,11.6 30,1.2"


def test_board_believes_nothing_that_the_room_says(board: Board, anna: Browser) -> None:
    """Whoever visits the site has the token, and can write there."""
    anna.open(board.url)
    anna.one("#link[data-state=live]")
    good = sample("real", "lab", FRAME)
    wrong: list[object] = [None, "text", [], {}, {**good, "site": {}}]
    wrong += [{**good, "node": node} for node in (7, "", "x" * 65)]
    wrong += [{**good, "cpu_pct": cpu_pct} for cpu_pct in ("1", None)]
    with board.room.join("visitor") as visitor:
        for data in wrong:
            visitor.say(data)
        visitor.say({**good, "node": "<img src=x onerror=alert(1)>", "cpu_pct": 1e9})
        visitor.say(good)
        anna.shows("#nodes h2", "real")
        assert anna.texts("#nodes h2") == ["<img src=x onerror=alert(1)>", "real"]
        assert anna.texts("#nodes output") == ["100.0", "41.3"]
        for number in range(80):
            visitor.say({**good, "node": f"flood-{number}"})
        visitor.say({**good, "cpu_pct": 50.0})
        anna.shows("#nodes [data-node=real] output", "50.0")
        assert len(anna.texts("#nodes li")) == 64


def test_board_finds_the_room_that_the_project_was_booked(board: Board, anna: Browser) -> None:
    anna.open(board.url)
    anna.one("#link[data-state=live]")
    board.book()
    anna.shows("#link", "the room has ended")
    assert board.publish()["uploaded"] == ["room.json"]
    anna.one("#link[data-state=live]")
    with board.room.join("fleet") as fleet:
        fleet.say(sample("gate", "yard", FRAME))
        anna.shows("#nodes h2", "gate")


def test_board_can_be_read_in_the_light_in_the_dark_and_on_a_phone(board: Board, anna: Browser) -> None:
    grounds = []
    anna.open(board.url)
    anna.one("#link[data-state=live]")
    with board.room.join("fleet") as fleet:
        for name in ("pump-1", "n" * 64, "boiler"):
            fleet.say(sample(name, "s" * 64, FRAME))
        anna.shows("#nodes h2", "boiler")
        anna.js("document.querySelector('[data-node=boiler]').classList.add('quiet')")
        for scheme in ("light", "dark"):
            anna.scheme(scheme)
            for size in (PHONE, DESKTOP, (2400, 1200)):
                anna.size(*size)
                assert_fits(anna)
                assert_readable(anna, 20)
            grounds.append(anna.js("return getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] != grounds[1]


def test_script_of_the_how_to_runs(gateway: Gateway, tmp_path: Path, anna: Browser) -> None:
    (script,) = re.findall(r"```js\n(.*?)```", HOW_TO, re.DOTALL)
    (pages := tmp_path / "pages").mkdir()
    (pages / "page.js").write_text(script)
    head = '<!doctype html><title>x</title><link rel="icon" href="data:,">'
    (pages / "index.html").write_text(f'{head}<script type="module" src="page.js"></script><h1>Open</h1>')
    site = Board(gateway, tmp_path, pages)
    anna.open(site.url)
    with site.room.join("ada") as ada:
        ada.send(type="who", id="1")
        while len(ada.next("who")["members"]) < 2:  # the page comes when it has loaded
            ada.next("join")
            ada.send(type="who", id="1")
        ada.say({"text": "<b>closed</b>"})
        anna.shows("h1", "<b>closed</b>")
    anna.open("about:blank")


def test_no_page_of_the_gateway_is_on_the_boards_host_and_no_file_of_the_board_on_the_gateways(
    board: Board, gateway: Gateway
) -> None:
    host = f"{urlsplit(board.url).hostname}:{gateway.port}"
    assert gateway.ask("GET", "/board.js", host=host)[0] == 200
    for path in ("/api/projects", "/healthz", "/mcp", "/assets/room.js"):
        assert gateway.ask("GET", path, host=host, authorization=f"Bearer {BEARER}")[0] == 404
    assert gateway.ask("GET", "/board.js")[0] == 404
