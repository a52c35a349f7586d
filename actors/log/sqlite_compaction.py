"""Cutting history in the database, a bounded piece in one transaction. Where a run is cut in two, it is made shorter.

Which events may go is up to `compaction_rules`; the transaction is the writer's.
"""

import sqlite3
from contextlib import closing
from itertools import islice
from typing import NamedTuple

from actors.log.compaction_rules import Bounds
from actors.log.sqlite_runs import COLUMNS, FIRST_AT_MS, events_of, row_of
from actors.log.store import Recorded, UnreadableError

_STREAMS_MAX = 64  # looked at in one transaction

_LAST_OF_PIECE = "SELECT max(name) FROM (SELECT name FROM stream WHERE name > ? ORDER BY name LIMIT ?)"
# A step of the index for each stream, and for most that is all: nothing in them is old enough. CROSS: in this order.
_OLD = f"""
SELECT
    id, name, version, {FIRST_AT_MS},
    coalesce((SELECT version FROM snapshot WHERE snapshot.stream = id), 0),
    (SELECT min(since_version) FROM open_item WHERE open_item.stream = id)
FROM stream CROSS JOIN run ON run.stream = id AND version = (SELECT min(version) FROM run WHERE run.stream = id)
WHERE name > ? AND name <= ? AND {FIRST_AT_MS} < ?
ORDER BY name
"""
_RUNS = f"SELECT {COLUMNS} FROM run WHERE stream = ? ORDER BY version"
_DELETE = "DELETE FROM run WHERE stream = ? AND version < ? AND last_version < ?"
_ACROSS = f"SELECT {COLUMNS} FROM run WHERE stream = ? AND version < ?"
_SHORTEN = (
    "UPDATE run SET stream = ?, version = ?, last_version = ?, marks = ?, data = ? WHERE stream = ? AND version = ?"
)


class Piece(NamedTuple):
    """How far one transaction came."""

    removed: int
    uncovered: list[str]
    go_on_after: str | None  # None: all done


def compact_some(connection: sqlite3.Connection, before_ms: int, after: str, events_max: int) -> Piece:
    """Go on with the streams whose names come after this one."""
    removed, uncovered = 0, list[str]()
    (last,) = connection.execute(_LAST_OF_PIECE, (after, _STREAMS_MAX)).fetchone()
    old = connection.execute(_OLD, (after, last, before_ms)).fetchall()
    for stream, name, version, at_ms, covered, open_since in old:
        bounds, first = Bounds(before_ms, covered, open_since), Recorded(version, at_ms, b"")
        if bounds.may_go(first):
            try:
                cut, lacks_snapshot = _cut(connection, stream, bounds, events_max - removed)
            except UnreadableError:
                continue  # its trouble, and nobody else's: it stays as it is
            removed += cut - version
            if removed >= events_max:
                return Piece(removed, uncovered, after)  # this stream may have more to give: come back to it
        else:
            lacks_snapshot = bounds.lacks_snapshot(first)
        if lacks_snapshot:
            uncovered.append(name)
        after = name
    return Piece(removed, uncovered, last)


def _cut(connection: sqlite3.Connection, stream: int, bounds: Bounds, events_max: int) -> tuple[int, bool]:
    """Take out the first events; returns the version of the first that stays, and whether it lacks a snapshot."""
    cut, lacks_snapshot = 0, False
    with closing(connection.execute(_RUNS, (stream,))) as rows:
        for event in islice((event for row in rows for event in events_of(*row)), events_max):
            if not bounds.may_go(event):
                lacks_snapshot = bounds.lacks_snapshot(event)
                break
            cut = event.version + 1
    connection.execute(_DELETE, (stream, cut, cut))
    across = connection.execute(_ACROSS, (stream, cut)).fetchone()
    if across is not None:
        staying = [event for event in events_of(*across) if event.version >= cut]
        marks = [mark for event in staying for mark in (event.at_ms, len(event.data))]
        row = row_of(stream, cut, marks, [event.data for event in staying])
        connection.execute(_SHORTEN, (*row, stream, across[0]))
    return cut, lacks_snapshot
