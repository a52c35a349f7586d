"""`heliograph nodes --watch`: one look after the other at a gateway that runs, until Ctrl-C."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.commands import nodes as command
from gateway.commands.cli import main
from tests.gateway.commands.fake_gateway import Asked, FakeGateway, Reply, fake_gateway, node, reply, running_on
from tests.schemas.examples import NODE_ID

OTHER_ID = "01hzx9k3m4p7q8r9s0t1v2w000"
LOOKS = 2


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it waited each time; then Ctrl-C."""
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == LOOKS:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    for name in ("HELIOGRAPH_DATA", "HELIOGRAPH_TOKEN", "HELIOGRAPH_OPERATOR_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return waits


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FakeGateway]:
    """After the first look the node has left and another is there."""
    pages = [[node()], [node() | {"state": "away", "live": False}, node(OTHER_ID) | {"name": None}]]

    def changing(asked: Asked) -> Reply:
        return Reply({"nodes": pages.pop(0)}) if asked.path == "/admin/nodes" else reply(asked)

    with fake_gateway(changing) as server, running_on(tmp_path / "data", server):
        yield server


def watch(tmp_path: Path, *more: str) -> int:
    return main(["nodes", "--watch", *more, "--data", str(tmp_path / "data")])


def test_the_list_is_printed_again_as_it_is_then_until_ctrl_c(
    tmp_path: Path, gateway: FakeGateway, slept: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch(tmp_path) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    headings = [number for number, line in enumerate(lines) if line.split()[:2] == ["name", "node"]]
    assert len(headings) == LOOKS
    first, second = lines[: headings[1]], lines[headings[1] :]
    assert [line.split()[:4] for line in first if "acme" in line] == [["pump-7", NODE_ID, "acme", "live"]]
    assert [line.split()[:4] for line in second if "acme" in line] == [
        ["pump-7", NODE_ID, "acme", "away"],
        ["-", OTHER_ID, "acme", "live"],
    ]
    assert "\x1b" not in out  # no terminal is cleared where there is none
    assert err == ""
    assert slept == [command.WATCH_S] * LOOKS


def test_on_a_terminal_each_look_begins_with_an_empty_screen(
    tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert watch(tmp_path) == 0
    empty, *looks = capsys.readouterr().out.split("\x1b[H\x1b[2J")
    assert empty == ""
    assert [look.count("acme") for look in looks] == [1, 2]


def test_with_json_each_look_is_one_line(
    tmp_path: Path, gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch(tmp_path, "--json") == 0
    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [[(one["node_id"], one["state"]) for one in look] for look in looks] == [
        [(NODE_ID, "live")],
        [(NODE_ID, "away"), (OTHER_ID, "live")],
    ]


def test_each_look_asks_with_the_filters(tmp_path: Path, gateway: FakeGateway) -> None:
    assert watch(tmp_path, "--tag", "site=lab", "--tag", "row=2", "--state", "live", "--tenant", "acme") == 0
    asked = {"tag": ["site=lab", "row=2"], "state": ["live"], "tenant": ["acme"]}
    assert [one.query for one in gateway.asked] == [asked] * LOOKS


def test_ctrl_c_while_it_looks_ends_it_too(
    tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "ask", interrupted)
    assert watch(tmp_path) == 0
    assert slept == []
