"""Cutting history, a bounded piece in one transaction: which events of which streams may go, and taking them out.

Nothing above the snapshot goes, nothing from the oldest open item on, and nothing from the first event on that is young
enough (the clock may have stepped back: history is cut, never thinned). Where a run is cut in two, it is made shorter.

The transaction is the writer's.
"""

import sqlite3
from contextlib import closing
from itertools import islice, takewhile

from actors.log.sqlite_runs import events_of, row_of

_STREAMS_MAX = 64  # looked at in one transaction

_COVERED = """
SELECT stream, min(
    snapshot.version + 1,
    coalesce((SELECT min(since_version) FROM open_item WHERE open_item.stream = snapshot.stream), snapshot.version + 1)
) FROM snapshot WHERE stream > ? ORDER BY stream LIMIT ?
"""
_RUNS = "SELECT version, marks, data FROM run WHERE stream = ? ORDER BY version"
_DELETE = "DELETE FROM run WHERE stream = ? AND version < ? AND last_version < ?"
_ACROSS = "SELECT version, marks, data FROM run WHERE stream = ? AND version < ?"
_SHORTEN = (
    "UPDATE run SET stream = ?, version = ?, last_version = ?, marks = ?, data = ? WHERE stream = ? AND version = ?"
)


def compact_some(
    connection: sqlite3.Connection, before_ms: int, after_stream: int, events_max: int
) -> tuple[int, int | None]:
    """Returns how many events are gone, and where to go on (None: all done)."""
    removed, reached = 0, after_stream
    covered = connection.execute(_COVERED, (after_stream, _STREAMS_MAX)).fetchall()
    for stream, keep_from in covered:
        removed += _cut(connection, stream, keep_from, before_ms, events_max - removed)
        if removed >= events_max:
            return removed, reached  # this stream may have more to give: come back to it
        reached = stream
    return removed, reached if len(covered) == _STREAMS_MAX else None


def _cut(connection: sqlite3.Connection, stream: int, keep_from: int, before_ms: int, events_max: int) -> int:
    """Take out the stream's first events, none with this version or above; returns how many."""
    with closing(connection.execute(_RUNS, (stream,))) as rows:
        events = (event for row in rows for event in events_of(*row))
        going = list(
            takewhile(lambda event: event.version < keep_from and event.at_ms < before_ms, islice(events, events_max))
        )
    if not going:
        return 0
    cut = going[-1].version + 1
    connection.execute(_DELETE, (stream, cut, cut))
    across = connection.execute(_ACROSS, (stream, cut)).fetchone()
    if across is not None:
        staying = [event for event in events_of(*across) if event.version >= cut]
        marks = [mark for event in staying for mark in (event.at_ms, len(event.data))]
        row = row_of(stream, cut, marks, [event.data for event in staying])
        connection.execute(_SHORTEN, (*row, stream, across[0]))
    return len(going)
