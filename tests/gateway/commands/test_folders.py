"""Commands and folders: which one they mean, and that they leave alone what is no gateway's."""

import fcntl
import json
from pathlib import Path

import pytest

from gateway.commands.cli import main
from gateway.main.data_folder import DataFolder
from tests.gateway.commands.fake_gateway import AGENT, ECHO, JTI, NOW_MS
from tests.schemas.examples import NODE_ID

OPERATOR = [
    ["nodes"],
    ["log", NODE_ID],
    ["ledger", AGENT],
    ["token", "mint", "--tenant", "acme"],
    ["token", "revoke", JTI],
    ["backup", "--out", "backup.tar"],
    ["node", "enroll", "--tenant", "acme", "--out", "enrolled"],
]
AS_AGENT = [["call", ECHO, "{}"], ["watch", NODE_ID]]
EXPLAIN = ["policy", "explain", AGENT, ECHO]
STALE_NOTE = {"http": "127.0.0.1:1", "http_certificate": None, "policy": None}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HELIOGRAPH_DATA", "HELIOGRAPH_TOKEN", "HELIOGRAPH_OPERATOR_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def everything(path: Path) -> dict[str, object]:
    """Names, modes, times and bytes of all that is there."""
    found = sorted([path, *path.rglob("*")])
    looks = {str(one): one.stat() for one in found}
    return {
        str(one): (looks[str(one)].st_mode, looks[str(one)].st_mtime_ns, one.is_file() and one.read_bytes())
        for one in found
    }


def make(path: Path, *without: str) -> Path:
    """A stopped gateway's folder, or what an interrupted first start left of one."""
    with DataFolder.hold(path, NOW_MS):
        pass
    for name in without:
        (path / name).unlink()
    return path


@pytest.mark.parametrize("command", [*OPERATOR, *AS_AGENT, EXPLAIN], ids=lambda words: "-".join(words[:2])[:12])
@pytest.mark.parametrize("what", ["nothing", "empty", "foreign", "a file"])
def test_folder_that_is_no_gateways_is_refused_and_left_as_it_was(
    command: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data"
    if what in ("empty", "foreign"):
        path.mkdir()
    if what == "foreign":
        (path / "thesis.txt").write_text("years of work")
    if what == "a file":
        path.write_text("not even a folder")
    before = everything(tmp_path)
    assert main([*command, "--data", str(path)]) == 2
    assert f"heliograph serve --data {path}" in capsys.readouterr().err
    assert everything(tmp_path) == before


@pytest.mark.parametrize("command", [*OPERATOR, *AS_AGENT], ids=lambda words: "-".join(words[:2])[:12])
@pytest.mark.parametrize("missing", [("ca.crt",), ("ca.crt", "ca.key"), ("ca.crt", "ca.key", "token.key")])
def test_interrupted_first_start_is_left_for_serve_to_finish(
    command: list[str], missing: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path / "data", *missing)
    before = everything(tmp_path)
    assert main([*command, "--data", str(path)]) == 2
    told = capsys.readouterr().err
    assert f"heliograph serve --data {path}" in told
    if command in OPERATOR:
        assert ("interrupted" if len(missing) < 3 else "not a gateway's data folder") in told
    assert everything(tmp_path) == before


@pytest.mark.parametrize("command", AS_AGENT, ids=lambda words: words[0])
def test_note_in_a_folder_without_keys_makes_none(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even if somebody holds the folder, as a gateway does that is about to make them."""
    (tmp_path / "running.json").write_text(json.dumps(STALE_NOTE))
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = everything(tmp_path)
        assert main([*command, "--data", str(tmp_path)]) == 2
    assert "heliograph serve" in capsys.readouterr().err
    assert everything(tmp_path) == before


@pytest.mark.parametrize("command", OPERATOR[:3], ids=lambda words: words[0])
def test_reading_a_stopped_gateways_folder_makes_nothing_in_it(command: list[str], tmp_path: Path) -> None:
    path = make(tmp_path / "data")
    before = everything(tmp_path)
    assert main([*command, "--data", str(path)]) == (1 if command[0] == "ledger" else 0)
    assert everything(tmp_path) == before


def test_folder_that_another_process_holds_without_serving_is_said_to_be_busy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with DataFolder.hold(tmp_path, NOW_MS):
        assert main(["nodes", "--data", str(tmp_path)]) == 2
    assert "try again" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["token.key", "ca.crt", "log.sqlite"])
def test_damaged_file_is_named_in_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(tmp_path / "data")
    (path / name).write_text("x" * 5000)
    assert main(["nodes", "--data", str(path)]) == 2
    told = capsys.readouterr().err
    assert str(path) in told
    assert told.count("\n") == 1


# ---- which folder ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [*OPERATOR, *AS_AGENT, EXPLAIN], ids=lambda words: "-".join(words[:2])[:12])
def test_folder_is_the_flags_then_the_environments_then_the_default(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def named(*flags: str) -> str:
        assert main([*command, *flags]) == 2
        return capsys.readouterr().err

    assert "heliograph serve --data heliograph-data" in named()
    monkeypatch.setenv("HELIOGRAPH_DATA", "from-the-environment")
    assert "heliograph serve --data from-the-environment" in named()
    assert "heliograph serve --data from-the-flag" in named("--data", "from-the-flag")


def test_folder_of_the_environment_is_worked_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HELIOGRAPH_DATA", str(make(tmp_path / "2026")))
    assert main(["token", "mint", "--tenant", "acme"]) == 0
    assert capsys.readouterr().out.count(".") == 2


def test_settings_of_a_gateway_are_no_business_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_NODE_CADENCES_MAX", "many")
    assert main(["nodes", "--data", str(make(tmp_path / "data"))]) == 0


def test_demo_leaves_the_folder_of_another_gateway_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path / "data")
    before = everything(tmp_path)
    assert main(["demo", "--data", str(path)]) == 2
    monkeypatch.setenv("HELIOGRAPH_DATA", str(path))
    assert main(["demo"]) == 2
    assert capsys.readouterr().err.count(f"{path} is the data folder of another gateway") == 2
    assert everything(tmp_path) == before
