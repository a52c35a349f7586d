"""Logs that earlier versions wrote: every form is read, with all that is in it but for the arguments of commands.

Up to form 3 those lay in the log while their command was open. After it has been opened no file has a byte of them,
whatever had happened to it before and however often opening it was cut short.
"""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing as closing_after
from pathlib import Path
from typing import Any

import pytest

from actors.bus.local_directory import LocalDirectory
from actors.ledger.ledgers import Ledgers
from actors.log.sqlite_files import open_files, wal_of
from actors.log.sqlite_store import SqliteStore
from actors.log.store import Appended, Conflict, Loaded, OpenItem, Recorded, Snapshot, StoreFailedError
from actors.node.history import NodeState
from actors.node.node_stream import restore, stream_of
from tests.actors.log.shelves import bounded, part

ROOT = Path(__file__).parents[3]
RECORDED = Path(__file__).with_name("recorded")
FORM = 4
FORMS = range(1, FORM + 1)
WITH_ARGUMENTS = (1, 2, 3)


def marks_of(file: Path) -> set[int]:
    """The marks of arguments that can be found in it."""
    return {int(mark) for mark in re.findall(rb"SECRET(\d{6})", file.read_bytes())}


def marks_in(folder: Path) -> set[int]:
    return set[int]().union(*map(marks_of, folder.iterdir()))


def copied(form: int, folder: Path) -> Path:
    path = folder / "log.sqlite"
    shutil.copy(RECORDED / f"form-{form}.sqlite", path)
    return path


def expected(form: int) -> Any:
    return json.loads((RECORDED / f"form-{form}.json").read_text())


def form_of(path: Path) -> int:
    with closing_after(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (form,) = connection.execute("PRAGMA user_version").fetchone()
    return int(form)


def content_of(path: Path) -> list[list[tuple[Any, ...]]]:
    """All rows of a log of today's form."""
    tables = {"log", "stream", "run", "snapshot", "open_item"}
    with closing_after(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        assert {name for (name,) in found} == tables
        return [sorted(connection.execute(f"SELECT * FROM {table}").fetchall()) for table in sorted(tables)]


# ── what was recorded ─────────────────────────────────────────────────────────────────────────────────────────────────


def node_described(state: NodeState) -> dict[str, Any]:
    names = ("version", "epoch", "resumed_epoch", "journal_id", "journal_mark", "last_command_id")
    of_command = ("tool", "sub", "tenant", "deadline_at_ms", "previous_id", "epoch", "cancel_requested")
    return {name: getattr(state, name) for name in names} | {
        "final": {msg_id: final.value for msg_id, final in (state.older_final | state.recent_final).items()},
        "open": {
            msg_id: {name: getattr(command, name) for name in of_command}
            for msg_id, command in state.open_commands.items()
        },
    }


async def ledger_described(ledgers: Ledgers, sub: str) -> dict[str, Any]:
    state = (await ledgers.of("acme", sub)).state
    names = ("version", "used_micros", "window_ms", "window_used_micros")
    return {name: getattr(state, name) for name in names} | {
        "open": {key: reserved.micros for key, reserved in state.open.items()}
    }


async def stream_described(store: SqliteStore, stream: str) -> dict[str, Any]:
    loaded = await store.load(stream)
    return {
        "version": loaded.version,
        "snapshot": None if loaded.snapshot is None else loaded.snapshot.version,
        "events": len(await store.read(stream)),
        "open_items": {item.key: item.data.decode() for item in loaded.open_items},
    }


def test_every_form_so_far_is_recorded(tmp_path: Path) -> None:
    open_files(tmp_path / "new.sqlite").close(has_failed=False)
    assert form_of(tmp_path / "new.sqlite") == FORM
    assert sorted(file.stem for file in RECORDED.glob("*.sqlite")) == [f"form-{form}" for form in FORMS]


@pytest.mark.parametrize("form", FORMS)
@bounded
async def test_a_recorded_log_gives_back_every_node_ledger_and_open_item(tmp_path: Path, form: int) -> None:
    path, then = copied(form, tmp_path), expected(form)
    assert form_of(path) == form
    for _ in range(2):  # the second time there is nothing to be moved
        async with await SqliteStore.open(path) as store:
            assert store.log_id == then["log_id"]
            streams = {stream: await stream_described(store, stream) for stream in then["streams"]}
            assert streams == then["streams"]
            nodes = {node: node_described(restore(await store.load(stream_of(node)))) for node in then["nodes"]}
            assert nodes == then["nodes"]
            ledgers = Ledgers(store)
            assert {sub: await ledger_described(ledgers, sub) for sub in then["ledgers"]} == then["ledgers"]
            assert set(await store.open_streams()) == {name for name, each in streams.items() if each["open_items"]}
            manifests = LocalDirectory(store)
            await manifests.load()
            assert [retained.node_id for retained in manifests] == list(streams["manifests"]["open_items"])
        assert form_of(path) == FORM


@pytest.mark.parametrize("form", FORMS)
@bounded
async def test_a_recorded_log_goes_on_where_it_was(tmp_path: Path, form: int) -> None:
    path, then = copied(form, tmp_path), expected(form)
    async with await SqliteStore.open(path) as store:
        for stream, was in then["streams"].items():
            assert await store.append(part(stream, was["version"] + 1, "x")) == Conflict(stream, was["version"])
            assert await store.append(part(stream, was["version"], "x")) == Appended((was["version"] + 1,))
            assert await store.forget(stream) is None
    assert content_of(path)[1:] == [[], [], [], []]


# ── arguments ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def worn(form: int, folder: Path) -> Path:
    """A log as a killed process leaves it, and older than careful deletion: in free pages, in free space, in the
    write-ahead file there is something of every command's arguments."""
    working = copied(form, folder)
    left = folder / "left"
    left.mkdir()
    with closing_after(sqlite3.connect(working, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        for numbers in (range(1000, 1060), range(2000, 2030)):
            rows = [(1, f"{number}", f"SECRET{number:06}.".encode() * (number % 40 + 1)) for number in numbers]
            connection.executemany("INSERT INTO arguments VALUES (?,?,?)", rows)
            connection.executemany("DELETE FROM arguments WHERE stream = ? AND key = ?", [row[:2] for row in rows[::2]])
            if numbers[0] == 1000:
                connection.execute("DELETE FROM arguments WHERE length(data) > 200")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(working, left)
        shutil.copy(wal_of(working), left)
    return left / working.name


@pytest.mark.parametrize("form", WITH_ARGUMENTS)
@bounded
async def test_the_arguments_in_a_log_are_gone_once_it_has_been_opened(tmp_path: Path, form: int) -> None:
    path = copied(form, tmp_path)
    assert marks_in(tmp_path) == set(expected(form)["open_marks"])
    async with await SqliteStore.open(path):
        assert marks_in(tmp_path) == set()
    assert marks_in(tmp_path) == set()


@pytest.mark.parametrize("form", WITH_ARGUMENTS)
def test_nothing_of_them_is_left_in_free_space_or_in_the_write_ahead_file(tmp_path: Path, form: int) -> None:
    path = worn(form, tmp_path)
    assert marks_of(path) & set(range(1000, 1060, 2))  # deleted long ago
    assert set(range(2000, 2030)) <= marks_of(wal_of(path))
    files = open_files(path)
    assert marks_in(path.parent) == set()
    files.close(has_failed=False)
    assert marks_in(path.parent) == set()


@pytest.mark.parametrize("form", WITH_ARGUMENTS)
def test_wherever_a_move_is_cut_short_the_next_opening_finishes_it(tmp_path: Path, faults: Path, form: int) -> None:
    path = worn(form, tmp_path)
    killed = tmp_path / "killed"
    subprocess.run(
        [sys.executable, "-m", "tests.actors.log.move_child", str(path), str(killed)],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(faults)},
        timeout=60,
        check=True,
    )
    open_files(path).close(has_failed=False)
    whole = content_of(path)
    folders = sorted(killed.iterdir())
    assert any(marks_in(folder) for folder in folders)
    for folder in folders:
        files = open_files(folder / path.name)
        assert marks_in(folder) == set(), folder.name
        files.close(has_failed=False)
        assert marks_in(folder) == set(), folder.name
        assert form_of(folder / path.name) == FORM
        assert content_of(folder / path.name) == whole


def test_somebody_who_reads_a_log_that_has_to_be_moved_keeps_it_from_being_opened(tmp_path: Path) -> None:
    path = copied(3, tmp_path)
    with closing_after(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM arguments").fetchall()
        with pytest.raises(StoreFailedError, match="somebody else has it open"):
            open_files(path)
        reader.execute("COMMIT")
    open_files(path).close(has_failed=False)
    assert marks_in(tmp_path) == set()


# ── by hand ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_a_log_of_a_later_form_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    open_files(path).close(has_failed=False)
    with closing_after(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {FORM + 1}")
    with pytest.raises(StoreFailedError, match="form 5"):
        await SqliteStore.open(path)


FORM_2 = """
CREATE TABLE log (log_id TEXT NOT NULL);
CREATE TABLE stream (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE event (
    stream INTEGER NOT NULL, version INTEGER NOT NULL, at_ms INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE (stream, version)
);
CREATE TABLE snapshot (stream INTEGER PRIMARY KEY, version INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE open_item (
    stream INTEGER NOT NULL, key TEXT NOT NULL, since_version INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (stream, key)
) WITHOUT ROWID;
CREATE TABLE arguments (
    stream INTEGER NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (stream, key)
) WITHOUT ROWID;
PRAGMA user_version = 2;
INSERT INTO log VALUES ('01JD0000000000000000000001');
INSERT INTO stream VALUES (1, 'a'), (2, 'b');
INSERT INTO event VALUES (2, 1, 10, x'C3A4'), (1, 4, 20, x'6134'), (1, 3, 10, x''), (1, 5, 30, x'0061');
INSERT INTO event VALUES (1, 6, 31, x'62');
INSERT INTO snapshot VALUES (1, 3, x'73');
INSERT INTO open_item VALUES (1, 'k', 4, x'64'), (1, 'l', 5, x'65');
INSERT INTO arguments VALUES (1, 'k', x'61726773');
"""
FORM_1 = FORM_2.replace("UNIQUE (stream, version)\n)", "PRIMARY KEY (stream, version)\n) WITHOUT ROWID").replace(
    "user_version = 2", "user_version = 1"
)


@pytest.mark.parametrize("form", [FORM_1, FORM_2])
@bounded
async def test_a_log_of_an_earlier_form_is_brought_to_this_one_with_all_that_is_in_it(
    tmp_path: Path, form: str
) -> None:
    path = tmp_path / "log.db"
    with closing_after(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(form)
    later = (Recorded(4, 20, b"a4"), Recorded(5, 30, b"\0a"), Recorded(6, 31, b"b"))
    items = (OpenItem("k", b"d"), OpenItem("l", b"e"))
    for _ in range(2):  # the second time there is nothing to be done
        async with await SqliteStore.open(path) as store:
            assert store.log_id == "01JD0000000000000000000001"
            assert await store.read("a") == (Recorded(3, 10, b""), *later)
            assert await store.read("b") == (Recorded(1, 10, "ä".encode()),)
            assert await store.load("a") == Loaded("a", 6, Snapshot(3, b"s"), later, items)
            assert await store.append(part("a", 4, "x")) == Conflict("a", 6)
    async with await SqliteStore.open(path) as store:
        assert await store.append(part("a", 6, "x")) == Appended((7,))
    assert form_of(path) == FORM
    assert len(content_of(path)) == 5


@pytest.mark.parametrize("form", [FORM_1, FORM_2])
@bounded
async def test_a_move_to_this_form_that_fails_leaves_the_earlier_one_as_it_was(tmp_path: Path, form: str) -> None:
    path = tmp_path / "log.db"
    with closing_after(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(form.replace("at_ms INTEGER NOT NULL", "at_ms INTEGER"))
        connection.execute("INSERT INTO event VALUES (3, 1, NULL, x'')")  # after all others have moved
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    with pytest.raises(StoreFailedError):
        await SqliteStore.open(path)
    with closing_after(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)
        assert connection.execute("SELECT count(*) FROM event").fetchone() == (6,)
        assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'run'").fetchone() == (0,)
