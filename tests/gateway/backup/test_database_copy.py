"""A database copied while somebody writes to it: one moment, whatever is written meanwhile."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.backup.database_copy import STEP_PAGES, connect, copy_database, form_of

ROWS = 6_000  # more than one step


def writing(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    return connection


def filled(path: Path) -> sqlite3.Connection:
    connection = writing(path)
    connection.executescript("CREATE TABLE entry (number INTEGER PRIMARY KEY, text BLOB); PRAGMA user_version = 7;")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO entry VALUES (?, ?)", ((number, bytes(400)) for number in range(ROWS)))
    connection.execute("COMMIT")
    return connection


def numbers(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [number for (number,) in connection.execute("SELECT number FROM entry ORDER BY number")]


def test_what_is_written_meanwhile_is_not_in_it_and_does_not_make_it_begin_anew(tmp_path: Path) -> None:
    source, target = tmp_path / "source.sqlite", tmp_path / "target.sqlite"
    steps = 0
    with closing(filled(source)) as writer:

        def write_on() -> None:
            nonlocal steps
            steps += 1
            writer.execute("INSERT INTO entry VALUES (?, ?)", (ROWS + steps, b"later"))
            writer.execute("DELETE FROM entry WHERE number = ?", (steps,))

        copy_database(source, target, is_live=True, still_wanted=write_on)
        (pages,) = writer.execute("PRAGMA page_count").fetchone()
    assert 2 < steps <= pages // STEP_PAGES + 2
    assert numbers(target) == list(range(ROWS))
    with closing(connect(target, is_live=False)) as copy:
        assert form_of(copy) == 7


def test_what_was_committed_before_and_is_in_the_write_ahead_file_alone_is_in_it(tmp_path: Path) -> None:
    source, target = tmp_path / "source.sqlite", tmp_path / "target.sqlite"
    with closing(filled(source)) as writer:
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        writer.execute("INSERT INTO entry VALUES (?, ?)", (ROWS, b"last"))
        copy_database(source, target, is_live=True, still_wanted=lambda: None)
    assert numbers(target)[-1] == ROWS


def test_one_that_is_not_wanted_any_more_ends_and_lets_go(tmp_path: Path) -> None:
    source = tmp_path / "source.sqlite"

    def give_up() -> None:
        raise InterruptedError

    with closing(filled(source)) as writer:
        with pytest.raises(InterruptedError):
            copy_database(source, tmp_path / "target.sqlite", is_live=True, still_wanted=give_up)
        busy, *_ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert busy == 0, "a reader is left"


def test_one_that_nobody_has_open_is_read_without_a_trace(tmp_path: Path) -> None:
    source = tmp_path / "source.sqlite"
    filled(source).close()
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert list(before) == ["source.sqlite"]
    with closing(connect(source, is_live=False)) as connection:
        assert connection.execute("SELECT count(*) FROM entry").fetchone() == (ROWS,)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_reader_cannot_write(tmp_path: Path) -> None:
    source = tmp_path / "source.sqlite"
    with (
        closing(filled(source)),
        closing(connect(source, is_live=True)) as reader,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        reader.execute("DELETE FROM entry")
