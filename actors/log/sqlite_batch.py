"""One transaction's worth of appends: versions checked in memory, rows netted, then written with few statements.

Python's sqlite3 lets go of the interpreter lock around each statement and has to win it back after, against a busy trio
thread; so rows go out by the hundred, not one by one. Netting means that what is opened and closed in the same batch is
never written at all. Bytes are bound as bytearrays: for any other type, `bytes` included, sqlite3 looks for an adapter
each time, which takes longer than copying them (measured: an eighth of the writer's instructions).

Beginning, committing, and what an error means are left to `sqlite_writer`.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from actors.log.sqlite_runs import row_of
from actors.log.store import Appended, BlindEvents, Conflict, Part

_ROWS_IN_ONE_GO = 16  # a statement is prepared for each number of rows up to here, and
_ROWS_A_STATEMENT_MAX_LOG2 = 7  # for each power of two up to 128
STATEMENTS_MAX = 6 * (_ROWS_IN_ONE_GO + 3)  # what the writer's connection keeps prepared: all of them


class Statement(NamedTuple):
    """SQL over many rows of `width` values: `head`, then `row` once for each with `between` in between, then `tail`."""

    width: int
    head: str
    row: str
    between: str = ","
    tail: str = ""


# Not `(stream, key) IN (VALUES ...)`: SQLite scans the whole table for that.
_DELETE_OPEN = Statement(2, "DELETE FROM open_item WHERE ", "(stream=? AND key=?)", " OR ")
# OR FAIL: what a failed statement did is left to the rollback of all. Otherwise SQLite would copy every page before
# the statement changes it, to undo just that.
_INSERT_RUNS = Statement(
    5, "INSERT OR FAIL INTO run (stream, version, last_version, marks, data) VALUES ", "(?,?,?,?,?)"
)
_UPSERT_OPEN = Statement(
    4,
    "INSERT OR FAIL INTO open_item (stream, key, since_version, data) VALUES ",
    "(?,?,?,?)",
    tail=" ON CONFLICT (stream, key) DO UPDATE SET data = excluded.data",
)
_REPLACE_SNAPSHOTS = Statement(3, "INSERT OR REPLACE INTO snapshot (stream, version, data) VALUES ", "(?,?,?)")

_FIND_STREAM = """
SELECT id, max(
    coalesce((SELECT last_version FROM run WHERE stream = id ORDER BY version DESC LIMIT 1), 0),
    coalesce((SELECT version FROM snapshot WHERE stream = id), 0)
) FROM stream WHERE name = ?
"""

Head = tuple[int, int]  # a stream's id in the tables, and its version
_Value = int | str | bytes | bytearray


class Batch:
    """Appends that will share a commit. `known` runs ahead to the streams' versions after it: empty it if it fails."""

    def __init__(self, connection: sqlite3.Connection, known: dict[str, Head]) -> None:
        self._connection = connection
        self._known = known
        self._runs: dict[int, tuple[int, list[int], list[bytes]]] = {}  # by stream: first version, marks, events
        self._snapshots: dict[int, tuple[int, bytes]] = {}
        self._opened: dict[tuple[int, str], tuple[int, bytes]] = {}  # by stream and key: since which version, data
        self._closed: set[tuple[int, str]] = set()

    @property
    def rows(self) -> int:
        """How many rows committing this touches."""
        return len(self._runs) + len(self._snapshots) + len(self._opened) + len(self._closed)

    def add(self, parts: Sequence[Part], blind_events: BlindEvents = ()) -> Appended | Conflict:
        """Take one append, whole, or say which stream has moved on."""
        heads = []
        for part in parts:
            head = self._known.get(part.stream) or self._look_up(part.stream)
            if not part.fits(head[1]):
                return Conflict(part.stream, head[1])
            heads.append(head)
        for stream, data in blind_events:
            self._lengthen(stream, self._known.get(stream) or self._look_up(stream), parts[0].at_ms, (data,))
        return Appended(tuple(map(self._take, parts, heads)))

    def write(self) -> None:
        """Put the netted rows into the open transaction."""
        closed: list[_Value] = []
        for item_id in sorted(self._closed):
            closed += item_id
        _write_rows(self._connection, _DELETE_OPEN, closed)
        runs: list[_Value] = []
        for stream, (version, marks, events) in self._runs.items():
            runs += row_of(stream, version, marks, events)
        _write_rows(self._connection, _INSERT_RUNS, runs)
        opened: list[_Value] = []
        for (stream, key), (since, data) in self._opened.items():
            opened += (stream, key, since, bytearray(data))
        _write_rows(self._connection, _UPSERT_OPEN, opened)
        snapshots = [value for stream, snapshot in self._snapshots.items() for value in (stream, *snapshot)]
        _write_rows(self._connection, _REPLACE_SNAPSHOTS, snapshots)

    def _look_up(self, stream: str) -> Head:
        row: Head | None = self._connection.execute(_FIND_STREAM, (stream,)).fetchone()
        head = self._known[stream] = row or (0, 0)
        return head

    def _lengthen(self, name: str, head: Head, at_ms: int, events: Sequence[bytes]) -> Head:
        """Add events to a stream's run; where the stream is after that."""
        stream, version = head
        if stream == 0:
            cursor = self._connection.execute("INSERT INTO stream (name) VALUES (?)", (name,))
            assert cursor.lastrowid
            stream = cursor.lastrowid
        if events:
            run = self._runs.get(stream)
            if run is None:
                run = self._runs[stream] = (version + 1, [], [])
            _, marks, added = run
            for data in events:
                version += 1
                marks += (at_ms, len(data))
                added.append(data)
        head = self._known[name] = (stream, version)
        return head

    def _take(self, part: Part, head: Head) -> int:
        first = head[1] + 1
        stream, version = self._lengthen(part.stream, head, part.at_ms, part.events)
        if part.snapshot is not None:
            self._snapshots[stream] = (version, part.snapshot)
        for item in part.opened:
            since, _ = self._opened.get((stream, item.key), (first, b""))
            self._opened[stream, item.key] = (since, item.data)
        for key in part.closed:
            self._opened.pop((stream, key), None)
            self._closed.add((stream, key))
        return version


def _write_rows(connection: sqlite3.Connection, statement: Statement, values: Sequence[_Value]) -> None:
    """Run a statement over many rows, in few runs, and of few sizes so that few forms of it are ever prepared."""
    done = 0
    while done < len(values):
        count = (len(values) - done) // statement.width
        if count > _ROWS_IN_ONE_GO:
            count = 1 << min(count.bit_length() - 1, _ROWS_A_STATEMENT_MAX_LOG2)
        end = done + count * statement.width
        connection.execute(_sql(statement, count), values[done:end])
        done = end


@cache
def _sql(statement: Statement, rows: int) -> str:
    return statement.head + statement.between.join([statement.row] * rows) + statement.tail
