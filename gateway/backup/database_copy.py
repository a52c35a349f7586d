"""A SQLite database as it is at one moment, copied to a file of its own while others write to it.

The copy reads within one transaction: what is committed after its beginning is not in it, and never makes it begin
anew, as SQLite's online backup does without that. Meanwhile writers go on, and the write-ahead file cannot be emptied:
it grows by what is written during the copy. Steps are small, with a pause after each, so that the disk is not one
copy's alone. Everything here blocks: it is called in threads.
"""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

STEP_PAGES = 256  # that are copied before others have their turn: one MiB
PAUSE_S = 0.001  # after each step
BUSY_S = 5.0  # how long a read waits for a lock that a writer holds for a moment


def has_wal(path: Path) -> bool:
    """Whether some of the database lies beside it."""
    wal = path.with_name(f"{path.name}-wal")
    return wal.exists() and wal.stat().st_size > 0


def connect(path: Path, *, is_live: bool) -> sqlite3.Connection:
    """To read, and nothing else. `is_live`: somebody may write to it. One that nobody has open, and that is whole by
    itself, is read without making the files that SQLite would put beside it."""
    how = "mode=ro" if is_live or has_wal(path) else "immutable=1"
    address = f"{path.absolute().as_uri()}?{how}"
    return sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)


def form_of(connection: sqlite3.Connection) -> int:
    (form,) = connection.execute("PRAGMA user_version").fetchone()
    return int(form)


def copy_database(source: Path, target: Path, *, is_live: bool, still_wanted: Callable[[], None]) -> None:
    """`still_wanted` may raise, between two steps. Raises sqlite3.Error; what is in the target then is for the caller
    to remove."""

    def progress(_: int, left: int, __: int) -> None:
        still_wanted()
        if left:
            time.sleep(PAUSE_S)

    with closing(connect(source, is_live=is_live)) as reader, closing(sqlite3.connect(target)) as writer:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # from here on it is that moment
        # Nobody reads the copy until it is whole, and none of it outlives a crash.
        writer.execute("PRAGMA journal_mode = OFF")
        writer.execute("PRAGMA synchronous = OFF")
        reader.backup(writer, pages=STEP_PAGES, progress=progress)
        reader.execute("ROLLBACK")
