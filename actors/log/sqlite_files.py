"""The database file: its tables, how it is opened, and which of SQLite's errors mean what.

Two connections, one that writes and one that can only read, so that reads go on when the disk is full. Who uses them,
and when, is left to `sqlite_writer` and `sqlite_store`.

Up to form 3 the arguments of open commands lay in a table of their own. Such a log is moved when it is opened, and then
no file has a byte of them any more. Dropping the table would not do: SQLite leaves stale copies of rows in the free
space of pages, and old pages in the write-ahead file. So the move is one transaction, which leaves `_MOVING` as the
form; then all tables are written anew (VACUUM), the write-ahead file is folded in and emptied, and only then is it the
new form. Whoever opens a log that was left in between does the rest.
"""

import os
import sqlite3
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ulid import ULID

from actors.log.sqlite_batch import STATEMENTS_MAX
from actors.log.sqlite_runs import TABLE as RUN_TABLE
from actors.log.store import CannotOpenError

FORM = 4  # PRAGMA user_version: the form of these tables
_MOVING = -FORM  # they have it, and what was in earlier ones may still be in the files
_CACHE_KIB = 16 * 1024  # of pages held by the writer: a few for each node; beyond it they are read again
_BUSY_S = 0.05  # how long a checkpoint waits for a reader to finish before it gives up for now

# Runs lie in the order they came: what a commit adds lies on a page or two, whatever streams it is for, and only the
# index has a place for each stream. Kept in the order of the streams, every append would fill, and now and then split,
# a page of its own (measured: half as many pages again).
_TABLES = f"""
CREATE TABLE log (log_id TEXT NOT NULL);
CREATE TABLE stream (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
{RUN_TABLE}
CREATE TABLE snapshot (stream INTEGER PRIMARY KEY, version INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE open_item (
    stream INTEGER NOT NULL, key TEXT NOT NULL, since_version INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (stream, key)
) WITHOUT ROWID;
"""
_DROP_ARGUMENTS = "DROP TABLE arguments;"
# Forms 1 and 2 had a row for each event, in the order of the streams and as they came.
_EVENTS_TO_RUNS = f"""
{RUN_TABLE}
INSERT INTO run SELECT stream, version, version, '[' || at_ms || ',' || length(data) || ']', data
    FROM event ORDER BY stream, version;
DROP TABLE event;
"""
_MOVES = {1: _EVENTS_TO_RUNS + _DROP_ARGUMENTS, 2: _EVENTS_TO_RUNS + _DROP_ARGUMENTS, 3: _DROP_ARGUMENTS}


@dataclass(frozen=True, slots=True)
class Files:
    """An open database."""

    log_id: str
    page_bytes: int
    writer: sqlite3.Connection
    reader: sqlite3.Connection

    def close(self, has_failed: bool) -> None:
        """Let go of the files.

        SQLite checkpoints when the last connection closes. After a failure that must not happen: a sync that is tried
        again seems to succeed, and the write-ahead file, the only good copy, would be removed. A connection that can
        only read cannot checkpoint, so then it is closed last.
        """
        for connection in (self.writer, self.reader) if has_failed else (self.reader, self.writer):
            connection.close()


def open_files(path: Path) -> Files:
    """Open the database, or make one."""
    is_new = not path.exists()
    if is_new:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))  # it will hold names of people and tools
    try:
        with ExitStack() as undo:
            writer = sqlite3.connect(
                path,
                timeout=_BUSY_S,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=STATEMENTS_MAX,
            )
            undo.callback(writer.close)
            log_id = _prepare(writer)
            (page_bytes,) = writer.execute("PRAGMA page_size").fetchone()
            if is_new:
                sync_folder(path.parent)
            address = f"{path.absolute().as_uri()}?mode=ro"
            reader = sqlite3.connect(address, uri=True, timeout=5.0, isolation_level=None, check_same_thread=False)
            undo.callback(reader.close)
            reader.execute("SELECT log_id FROM log").fetchone()  # attached to the files from now on: see `Files.close`
            undo.pop_all()
    except sqlite3.Error as error:
        raise CannotOpenError(f"{name_of(error)}: the log at {path} cannot be opened; restore a backup") from error
    return Files(log_id, page_bytes, writer, reader)


def _prepare(writer: sqlite3.Connection) -> str:
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("PRAGMA synchronous = FULL")
    # What a statement might have to undo holds rows: for those that are to vanish, never in a temporary file.
    writer.execute("PRAGMA temp_store = MEMORY")
    writer.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    # Automatic checkpoints swallow their errors, and a failed fsync must not be swallowed: `Writer` checkpoints itself.
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    (form,) = writer.execute("PRAGMA user_version").fetchone()
    if form == 0:
        _change_form(writer, f"{_TABLES} INSERT INTO log VALUES ('{ULID()}');", FORM)
    elif form in _MOVES:
        _change_form(writer, _MOVES[form], _MOVING)
        _sweep_out(writer)
    elif form == _MOVING:
        _sweep_out(writer)
    elif form != FORM:
        raise CannotOpenError(f"the log has form {form}, and this version reads up to {FORM}: install a newer version")
    (log_id,) = writer.execute("SELECT log_id FROM log").fetchone()
    return str(log_id)


def _change_form(writer: sqlite3.Connection, statements: str, form: int) -> None:
    writer.executescript(f"BEGIN IMMEDIATE; {statements} PRAGMA user_version = {form}; COMMIT;")


def _sweep_out(writer: sqlite3.Connection) -> None:
    """Leave nothing in the files but what is in the tables."""
    writer.execute("PRAGMA temp_store = FILE")  # all of the log goes through it, which may be more than memory has
    writer.execute("VACUUM")
    writer.execute("PRAGMA temp_store = MEMORY")
    busy, *_ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise CannotOpenError(
            "the log has to be moved to its new form, and somebody else has it open: stop that one first"
        )
    _change_form(writer, "", FORM)


def wal_of(path: Path) -> Path:
    """The write-ahead file beside the database."""
    return path.with_name(path.name + "-wal")


def sync_folder(folder: Path) -> None:
    """Make what was created, renamed or removed in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_disk_full(error: sqlite3.Error) -> bool:
    """No room: nothing was committed, for certain (SQLite reports it from writing, which comes before syncing)."""
    return _primary_code(error) == sqlite3.SQLITE_FULL


def is_busy(error: sqlite3.Error) -> bool:
    """Somebody else was in the way."""
    return _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_damage(error: sqlite3.Error) -> bool:
    """The file is not what was written to it."""
    return _primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def name_of(error: sqlite3.Error) -> str:
    """SQLite's name for the error: unlike its text, it cannot quote what was being written."""
    return getattr(error, "sqlite_errorname", type(error).__name__)


def _primary_code(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF
