"""`heliograph doctor` and `serve --check` on real folders: what is found, and that nothing is changed."""

import json
import os
import socket
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from gateway.commands.cli import main
from gateway.doctor.look import look_at_folder, look_at_machine
from gateway.main.data_folder import DataFolder
from gateway.main.server import running
from gateway.main.settings import load
from tests.certificates import write_certificate
from tests.gateway.backup.folders import made
from tests.gateway.commands.test_folders import everything

LISTEN = ["--http", "127.0.0.1:0", "--devices", "127.0.0.1:0"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HELIOGRAPH_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HELIOGRAPH_HTTP_LISTEN", "127.0.0.1:0")
    monkeypatch.setenv("HELIOGRAPH_DEVICES_LISTEN", "127.0.0.1:0")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path / "data")


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, set[tuple[str, str]]]:
    """The exit code, and what is found of the folder and the settings: machines differ."""
    capsys.readouterr()
    code = main(["doctor", "--json", *words])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert all(finding["remedy"] for finding in found)
    of_machine = {"clock", "file limit", "disk", "versions"}
    return code, {(one["severity"], one["about"]) for one in found if one["about"] not in of_machine}


def test_healthy_folder_has_no_findings_and_stays_as_it_is(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(tmp_path)
    assert asked(capsys, "--data", "data") == (0, set())
    assert everything(tmp_path) == before


def test_folder_that_is_not_there_is_a_note_and_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "--data", "nope") == (0, {("note", "data folder")})
    assert main(["serve", "--check", "--data", "nope", *LISTEN]) == 0
    assert list(tmp_path.iterdir()) == []


def spoil_newer(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "log.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 99")


def spoil_damage(folder: Path) -> None:
    (folder / "log.sqlite").write_bytes(b"x" * 5000)


def spoil_pages(folder: Path) -> None:
    path = folder / "spaces.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executemany("INSERT INTO t VALUES (?)", ((bytes(3000),) for _ in range(50)))
    data = bytearray(path.read_bytes())
    data[3 * 4096 : 8 * 4096] = os.urandom(5 * 4096)
    path.write_bytes(data)


def spoil_mode(folder: Path) -> None:
    (folder / "token.key").chmod(0o644)


def spoil_key(folder: Path) -> None:
    (folder / "token.key").write_text("nonsense")


def spoil_restoring(folder: Path) -> None:
    (folder / "ca.crt").rename(folder.parent / "away.crt")
    (folder / "restoring").mkdir()


def spoil_keyless(folder: Path) -> None:
    spoil_newer(folder)
    (folder / "ca.crt").unlink()


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (spoil_newer, {("error", "databases"), ("error", "data folder")}),
        (spoil_damage, {("error", "databases")}),
        (spoil_pages, {("error", "databases")}),
        (spoil_mode, {("error", "permissions")}),
        (spoil_key, {("error", "data folder")}),
        (spoil_restoring, {("error", "data folder")}),
    ],
)
def test_what_is_wrong_with_a_folder_is_found(
    folder: Path, spoil: Callable[[Path], None], expected: set[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(folder)
    assert asked(capsys, "--data", "data") == (1, expected)


def test_certificates_of_nodes_are_counted_by_the_best_of_each(folder: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    day_ms = 86_400_000
    with DataFolder.hold(folder, now_ms) as held:
        for number, ages in enumerate(([400], [350], [400, 10], [400, 350], [10])):
            for age in ages:
                jti = f"01HZXC00000000000000{number}{age:05d}"
                held.enroll(f"01hzxc0000000000000000n{number}d1", "acme", jti, now_ms - age * day_ms)
    leafs = look_at_folder(folder, 5).leafs
    assert leafs is not None
    assert (leafs.nodes, leafs.ended, leafs.ending_soon) == (6, 1, 2)


def test_newest_event_is_found_in_the_log(tmp_path: Path, folder: Path) -> None:
    assert look_at_machine(folder).clock.newest_event_ms is None
    recorded = Path(__file__).parents[2] / "actors" / "log" / "recorded" / "form-4.sqlite"
    (folder / "log.sqlite").write_bytes(recorded.read_bytes())
    assert look_at_machine(folder).clock.newest_event_ms == pytest.approx(1_800_000_000_000, abs=100_000_000)
    assert look_at_machine(tmp_path / "nope").clock.newest_event_ms is None


def test_look_that_has_no_time_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(folder / "spaces.sqlite", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO t VALUES (?)", ((bytes(100),) for _ in range(50_000)))
        connection.execute("COMMIT")
    assert asked(capsys, "--data", "data", "--seconds", "0") == (0, {("note", "databases")})


async def test_beside_a_running_gateway_it_finds_that_it_answers_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pem = str(write_certificate(tmp_path))
    tls = {"http.tls_certificate": pem, "http.tls_key": pem}
    flags = {"data": "data", "http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0", **tls}
    with trio.fail_after(60):
        async with running(load(None, {}, flags)) as gateway:
            seen = await trio.to_thread.run_sync(look_at_folder, Path("data"), 5.0)
            assert (seen.is_held, seen.answers, seen.listens["http"]) == (True, True, gateway.http)
            assert await trio.to_thread.run_sync(lambda: asked(capsys, "--data", "data")) == (0, set())
            note = tmp_path / "data" / "running.json"
            said = json.loads(note.read_text())
            with socket.create_server(("127.0.0.1", 0)) as nobody:
                port = nobody.getsockname()[1]
            note.write_text(json.dumps({**said, "http": f"127.0.0.1:{port}"}))
            assert await trio.to_thread.run_sync(lambda: asked(capsys, "--data", "data")) == (1, {("error", "gateway")})


@pytest.mark.parametrize(
    "note",
    [
        "[" * 100_000,
        *(json.dumps({"http": http, "http_certificate": None}) for http in ("a..b:80", "a\0b:80", 5, "x y:80")),
    ],
)
def test_note_of_a_gateway_that_makes_no_sense_is_no_crash(folder: Path, note: str) -> None:
    (folder / "running.json").write_text(note)
    with DataFolder.hold(folder, 0):
        assert not look_at_folder(folder, 1.0).answers


def test_wrong_settings_are_one_finding_and_the_folder_is_looked_at(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_mode(folder)
    (folder.parent / "settings.toml").write_text("[strem]\nping_s = 1.0\n")
    expected = {("error", "settings"), ("error", "permissions")}
    assert asked(capsys, "--data", "data", "--config", "settings.toml") == (1, expected)
    monkeypatch.setenv("HELIOGRAPH_DATA", "data")
    assert asked(capsys, "--config", "settings.toml") == (1, expected)


def test_for_people_each_finding_has_its_remedy_below(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil_mode(folder)
    assert main(["doctor", "--data", "data"]) == 1
    told = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(told) if line.startswith("ERROR"))
    assert "data/token.key is open to others" in told[at]
    assert told[at + 1].strip() == "chmod go= data/token.key"
    assert "no gateway runs on it" in told[1]


# ---- serve --check ---------------------------------------------------------------------------------------------------


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    return main(["serve", "--check", *words]), capsys.readouterr().out


def test_settings_with_which_a_gateway_could_start_are_said_to_be_so(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(tmp_path)
    assert checked(capsys, "--data", "data", *LISTEN) == (0, "a gateway could start with these settings\n")
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("[http]\nlisten = 'nonsense'", ["an address is HOST:PORT"]),
        ("[http]\ntls_key = 'x'", ["give both, or neither"]),
        ("[devices]\ntls_certificate = 'nope.pem'", ["cannot read nope.pem"]),
        ("[governance]\npolicy = 'policy.toml'", ["policy.toml: line 1"]),
        ("[access]\njwks = 'nope.json'", ["access.jwks"]),
        ("[echo]\nenabled = true\n[http]\nlisten = '0.0.0.0:0'", ["http.public_url"]),
        ("[http]\ntrusted_proxies = ['x']", ["list of networks"]),
        ("[admin]\nlisten = 'unix:nowhere/x.sock'", ["its folder does not exist"]),
        ("[admin]\nlisten = 'unix:policy.toml'", ["not a socket"]),
        ("[strem]\nx = 1", ["there is no strem"]),
        ("[devices]\nlisten = '" + "a" * 64 + ".example:0'", ["an empty part"]),
        ("x = " + "[" * 10_000, ["nested too deep"]),
        ("[http]\ntls_key = 'x'\n[governance]\npolicy = 'policy.toml'", ["give both", "policy.toml: line 1"]),
    ],
)
def test_everything_that_keeps_a_gateway_from_starting_is_told_at_once(
    tmp_path: Path,
    settings: str,
    said: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for section in ("http", "devices"):
        if f"[{section}]\nlisten" in settings:
            monkeypatch.delenv(f"HELIOGRAPH_{section.upper()}_LISTEN")
    (tmp_path / "settings.toml").write_text(settings)
    (tmp_path / "policy.toml").write_text("nonsense = 1\n")
    code, told = checked(capsys, "--config", "settings.toml", "--data", "data")
    assert code == 1
    assert [words for words in said if words not in told] == []
    assert told.count("ERROR") == len(said)
    assert not (tmp_path / "data").exists()


def test_port_that_is_taken_is_told_but_not_that_of_the_gateway_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, told = checked(capsys, "--data", "data", "--http", address, "--devices", "127.0.0.1:0")
        assert (code, f"http.listen: cannot listen on {address} (Address already in use)" in told) == (1, True)
        with DataFolder.hold(tmp_path / "data", 1):
            note = {"http": address, "devices": "127.0.0.1:1", "admin": None}
            (tmp_path / "data" / "running.json").write_text(json.dumps(note))
            assert checked(capsys, "--data", "data", "--http", address, "--devices", "127.0.0.1:0")[0] == 0


def test_socket_on_which_somebody_listens_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "settings.toml").write_text("[admin]\nlisten = 'unix:admin.sock'\n")
    words: list[Any] = ["--config", "settings.toml", "--data", "data"]
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind("admin.sock")
        listener.listen()
        code, told = checked(capsys, *words)
        assert (code, "another process listens there" in told) == (1, True)
    assert checked(capsys, *words)[0] == 0, "what a killed gateway left is replaced"


@pytest.mark.parametrize(("spoil", "said"), [(spoil_restoring, "did not end"), (spoil_keyless, "newer version")])
def test_folder_that_a_start_refuses_is_told_though_no_gateway_has_finished_one_there(
    folder: Path, spoil: Callable[[Path], None], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(folder)
    code, told = checked(capsys, "--data", "data", *LISTEN)
    assert (code, said in told) == (1, True)


@pytest.mark.parametrize("command", ["doctor", "serve"])
def test_folder_that_may_not_be_looked_at_is_told(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As the name of one that is too long: root may look at everything."""
    words = ["--check", *LISTEN] if command == "serve" else ["--json"]
    assert main([command, "--data", "x" * 300, *words]) == 1
    assert "cannot look at xxx" in capsys.readouterr().out


@pytest.mark.parametrize("note", ['{"http": 5, "http_certificate": null}', '{"http": {}, "devices": []}', "[" * 10**5])
def test_note_that_is_spoiled_is_passed_over(folder: Path, note: str, capsys: pytest.CaptureFixture[str]) -> None:
    with DataFolder.hold(folder, 1):
        (folder / "running.json").write_text(note)
        assert main(["doctor", "--data", "data"]) == 0
        assert checked(capsys, "--data", "data", *LISTEN)[0] == 0


def test_folder_that_cannot_be_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    code, told = checked(capsys, "--data", "file/data", *LISTEN)
    assert (code, "may be written to" in told) == (1, True)
