"""A data folder that a newer version has written to: nobody opens it, nothing of it changes, and the reason is told."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.commands.cli import main
from gateway.main.data_folder import DataFolder, FolderError
from gateway.main.folder_forms import databases, form_of, newer_database
from tests.gateway.backup.folders import NOW_MS, made, names

ALL = [
    ("log.sqlite", 4),
    ("spaces.sqlite", 1),
    ("audit/0000000000000001.sqlite", 1),
    ("audit/0000000000000009.sqlite", 1),
    ("projects/spaces.sqlite", 1),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path / "data")


def set_form(path: Path, form: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {form}")
        connection.commit()


def looks(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names(folder)}


def test_folder_of_this_version_has_no_newer_database(folder: Path) -> None:
    assert newer_database(folder) is None
    assert {path.relative_to(folder).as_posix(): known for path, known in databases(folder)} == dict(ALL)
    assert [form_of(path) for path, _ in databases(folder)] == [known for _, known in databases(folder)]


@pytest.mark.parametrize(("name", "known"), ALL)
@pytest.mark.parametrize("make", [True, False])
def test_newer_database_is_named_and_left_as_it_is(folder: Path, name: str, known: int, make: bool) -> None:
    set_form(folder / name, known + 1)
    before = looks(folder)
    with (
        pytest.raises(FolderError, match=rf"{name} has form {known + 1}, .* reads up to {known}\. Install a newer"),
        DataFolder.hold(folder, NOW_MS, make=make),
    ):
        pass
    assert looks(folder) == before


@pytest.mark.parametrize("form", [-4, 0, 1])
def test_earlier_form_of_the_log_is_not_refused(folder: Path, form: int) -> None:
    set_form(folder / "log.sqlite", form)
    assert newer_database(folder) is None


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"x" * 500])
def test_what_is_no_database_is_for_whoever_opens_it(folder: Path, content: bytes) -> None:
    (folder / "log.sqlite").write_bytes(content)
    assert form_of(folder / "log.sqlite") is None
    assert newer_database(folder) is None


def in_write_ahead(path: Path) -> None:
    """As a process that was killed leaves it: the header is of before."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA user_version = 99")
        wal = path.with_name(f"{path.name}-wal")
        kept, log = path.read_bytes(), wal.read_bytes()
    path.write_bytes(kept)
    wal.write_bytes(log)


def damage(path: Path) -> None:
    path.write_bytes(b"x" * 5000)


@pytest.mark.parametrize("name", ["log.sqlite", "spaces.sqlite"])
@pytest.mark.parametrize(("spoil", "said"), [(in_write_ahead, "install a newer version"), (damage, "restore a backup")])
def test_gateway_does_not_start_on_it_and_says_why_in_one_line(
    folder: Path, name: str, spoil: Callable[[Path], None], said: str
) -> None:
    (folder / name).unlink()
    with closing(sqlite3.connect(folder / name)) as connection:
        connection.executescript("CREATE TABLE t (x); PRAGMA user_version = 1;" if name != "log.sqlite" else "")
    if name == "log.sqlite":
        made(folder.with_name("other"))
        (folder / name).write_bytes((folder.with_name("other") / name).read_bytes())
    spoil(folder / name)
    command = [sys.executable, "-m", "gateway.commands.cli", "serve", "--data", str(folder), "--http", "127.0.0.1:0"]
    done = subprocess.run(
        [*command, "--devices", "127.0.0.1:0"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_commands_say_it_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_form(folder / "log.sqlite", 99)
    for words in (["nodes"], ["token", "mint", "--tenant", "acme"], ["backup", "--out", str(folder.parent / "b.tar")]):
        assert main([*words, "--data", str(folder)]) == 2
        assert "Install a newer version" in capsys.readouterr().err
