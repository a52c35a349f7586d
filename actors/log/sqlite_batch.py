"""One transaction's worth of appends: versions checked in memory, rows netted, then written with few statements.

Python's sqlite3 lets go of the interpreter lock around each statement and has to win it back after, against a busy trio
thread; so rows go out by the hundred, not one by one. Netting means that what is opened and closed in the same batch is
never written at all, arguments included.

Beginning, committing, and what an error means are left to `sqlite_writer`.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

from actors.log.store import Appended, Conflict, OpenItem, Part

_PAGE_BYTES = 4096
_ROWS_IN_ONE_GO = 16  # a statement is prepared for each number of rows up to here, and
_ROWS_A_STATEMENT_MAX_LOG2 = 7  # for each power of two up to 128
STATEMENTS_MAX = 8 * (_ROWS_IN_ONE_GO + 3)  # what the writer's connection keeps prepared: all of them


class Statement(NamedTuple):
    """SQL over many rows: `head`, then `row` once for each with `between` in between, then `tail`."""

    head: str
    row: str
    between: str = ","
    tail: str = ""


# Not `(stream, key) IN (VALUES ...)`: SQLite scans the whole table for that.
_DELETE_OPEN = Statement("DELETE FROM open_item WHERE ", "(stream=? AND key=?)", " OR ")
_DELETE_ARGUMENTS = Statement("DELETE FROM arguments WHERE ", "(stream=? AND key=?)", " OR ")
_INSERT_EVENTS = Statement("INSERT INTO event (stream, version, at_ms, data) VALUES ", "(?,?,?,?)")
_UPSERT_OPEN = Statement(
    "INSERT INTO open_item (stream, key, since_version, data) VALUES ",
    "(?,?,?,?)",
    tail=" ON CONFLICT (stream, key) DO UPDATE SET data = excluded.data",
)
INSERT_ARGUMENTS = Statement("INSERT OR REPLACE INTO arguments (stream, key, data) VALUES ", "(?,?,?)")
_REPLACE_SNAPSHOTS = Statement("INSERT OR REPLACE INTO snapshot (stream, version, data) VALUES ", "(?,?,?)")

_FIND_STREAM = """
SELECT id, max(
    coalesce((SELECT max(version) FROM event WHERE stream = id), 0),
    coalesce((SELECT version FROM snapshot WHERE stream = id), 0)
) FROM stream WHERE name = ?
"""

Head = tuple[int, int]  # a stream's id in the tables, and its version
_Value = int | str | bytes


class Batch:
    """Appends that will share a commit. `known` holds versions of committed streams; it is changed by `adopt` alone."""

    def __init__(self, connection: sqlite3.Connection, known: dict[str, Head]) -> None:
        self._connection = connection
        self._known = known
        self._heads: dict[str, Head] = {}
        self._events: list[tuple[int, int, int, bytes]] = []
        self._snapshots: dict[int, tuple[int, int, bytes]] = {}
        self._opened: dict[tuple[int, str], tuple[int, OpenItem]] = {}
        self._closed: set[tuple[int, str]] = set()

    @property
    def wal_bytes(self) -> int:
        """About what committing this adds to the write-ahead file: a page a row, what is in it, and a few more."""
        items = [item for _, item in self._opened.values()]
        rows = 4 + len(self._events) + len(self._snapshots) + 2 * (len(items) + len(self._closed))
        data = sum(len(row[3]) for row in self._events) + sum(len(row[2]) for row in self._snapshots.values())
        return _PAGE_BYTES * rows + data + sum(len(item.data) + len(item.arguments or b"") for item in items)

    @property
    def erases(self) -> bool:
        """Whether arguments that may lie in the files are being deleted."""
        return bool(self._closed)

    def add(self, parts: Sequence[Part]) -> Appended | Conflict:
        """Take one append, whole, or say which stream has moved on."""
        for part in parts:
            _, version = self._head(part.stream)
            if not part.fits(version):
                return Conflict(part.stream, version)
        return Appended(tuple(self._take(part) for part in parts))

    def write(self) -> None:
        """Put the netted rows into the open transaction."""
        closed = sorted(self._closed)
        write_rows(self._connection, _DELETE_OPEN, closed)
        write_rows(self._connection, _DELETE_ARGUMENTS, closed)
        write_rows(self._connection, _INSERT_EVENTS, self._events)
        opened = self._opened.items()
        open_rows = [(stream, key, since, item.data) for (stream, key), (since, item) in opened]
        write_rows(self._connection, _UPSERT_OPEN, open_rows)
        arguments = [(stream, key, item.arguments) for (stream, key), (_, item) in opened if item.arguments is not None]
        write_rows(self._connection, INSERT_ARGUMENTS, arguments)
        write_rows(self._connection, _REPLACE_SNAPSHOTS, list(self._snapshots.values()))

    def adopt(self) -> None:
        """The transaction is committed: these versions hold now."""
        self._known.update(self._heads)

    def _head(self, stream: str) -> Head:
        head = self._heads.get(stream) or self._known.get(stream)
        if head is None:
            row = self._connection.execute(_FIND_STREAM, (stream,)).fetchone()
            head = (0, 0) if row is None else (row[0], row[1])
            if row is not None:
                self._known[stream] = head
        return head

    def _take(self, part: Part) -> int:
        stream, version = self._head(part.stream)
        version_after = version + len(part.events)
        if stream == 0:
            cursor = self._connection.execute("INSERT INTO stream (name) VALUES (?)", (part.stream,))
            assert cursor.lastrowid
            stream = cursor.lastrowid
        for number, data in enumerate(part.events, start=version + 1):
            self._events.append((stream, number, part.at_ms, data))
        if part.snapshot is not None:
            self._snapshots[stream] = (stream, version_after, part.snapshot)
        for item in part.opened:
            since, earlier = self._opened.get((stream, item.key), (version + 1, item))
            kept = earlier.arguments if item.arguments is None else item.arguments
            self._opened[stream, item.key] = (since, OpenItem(item.key, item.data, kept))
        for key in part.closed:
            self._opened.pop((stream, key), None)
            self._closed.add((stream, key))
        self._heads[part.stream] = (stream, version_after)
        return version_after


def write_rows(connection: sqlite3.Connection, statement: Statement, rows: Sequence[Iterable[_Value]]) -> None:
    """Run a statement over many rows, in few runs, and of few sizes so that few forms of it are ever prepared."""
    done = 0
    while done < len(rows):
        count = len(rows) - done
        if count > _ROWS_IN_ONE_GO:
            count = 1 << min(count.bit_length() - 1, _ROWS_A_STATEMENT_MAX_LOG2)
        values = tuple(chain.from_iterable(rows[done : done + count]))
        connection.execute(_sql(statement, count), values)
        done += count


@cache
def _sql(statement: Statement, rows: int) -> str:
    return statement.head + statement.between.join([statement.row] * rows) + statement.tail
