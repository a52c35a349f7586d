"""How events lie in the database: a row holds a run of them, all that one commit added to one stream.

A row costs the writer more than the event in it (measured: a ledger's two events a call, as rows of their own, were a
sixth of its work), and in a commit many calls of one agent add to the same ledger. A run is found by the version of its
first event, so two runs that begin at the same version cannot both be written. `marks` and `data` are those of `runs`,
the marks as a JSON array.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TypeAlias

import msgspec

from actors.log.runs import split
from actors.log.store import Recorded, UnreadableError

TABLE = """
CREATE TABLE run (
    stream INTEGER NOT NULL, version INTEGER NOT NULL, last_version INTEGER NOT NULL, marks TEXT NOT NULL,
    data BLOB NOT NULL, UNIQUE (stream, version)
);
"""
COLUMNS = "version, CAST(marks AS BLOB), data"
"""What `events_of` takes. As bytes: text that is none would be an error of sqlite3's, which quotes it."""
FIRST_AT_MS = "CAST(substr(marks, 2, 20) AS INTEGER)"
"""When the run's first event was recorded, in SQL: the number that `marks` begins with."""

_READ = f"""
SELECT {COLUMNS} FROM run WHERE stream = :stream AND version >=
    coalesce((SELECT max(version) FROM run WHERE stream = :stream AND version <= :after + 1), 0)
ORDER BY version
"""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[int]).decode


Row: TypeAlias = tuple[int, int, int, str, bytearray]
"""A stream, the versions of the run's first and last event, marks and data."""


def row_of(stream: int, version: int, marks: Sequence[int], events: Sequence[bytes]) -> Row:
    """The run of these events, the first of which has this version."""
    return stream, version, version + len(events) - 1, _encode(marks).decode(), bytearray().join(events)


def events_of(version: int, marks: bytes, data: bytes) -> Iterator[Recorded]:
    """The other way round, but for the stream. Raises `UnreadableError` for what is not a run."""
    try:
        yield from split(version, _decode(marks), data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnreadableError(type(error).__name__) from None


def read_events(reader: sqlite3.Connection, stream: int, after: int, limit: int | None) -> tuple[Recorded, ...]:
    """Those with a version above `after`, oldest first, and as many as the limit says."""
    with closing(reader.execute(_READ, {"stream": stream, "after": after})) as rows:
        return tuple(islice((event for row in rows for event in events_of(*row) if event.version > after), limit))
