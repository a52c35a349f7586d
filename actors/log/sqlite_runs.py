"""How events lie in the database: a row holds a run of them, all that one commit added to one stream.

A row costs the writer more than the event in it (measured: a ledger's two events a call, as rows of their own, were a
sixth of its work), and in a commit many calls of one agent add to the same ledger. A run is found by the version of its
first event, so two runs that begin at the same version cannot both be written. Its events lie one behind the other in
`data`; `marks` says when each was recorded and how many bytes it has, as a JSON array: `[at_ms, size, at_ms, size]`.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TypeAlias

import msgspec

from actors.log.store import Recorded

TABLE = """
CREATE TABLE run (
    stream INTEGER NOT NULL, version INTEGER NOT NULL, last_version INTEGER NOT NULL, marks TEXT NOT NULL,
    data BLOB NOT NULL, UNIQUE (stream, version)
);
"""

_READ = """
SELECT version, marks, data FROM run WHERE stream = :stream AND version >=
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


def events_of(version: int, marks: str, data: bytes) -> Iterator[Recorded]:
    """The other way round, but for the stream."""
    begin = 0
    numbers = iter(_decode(marks))
    for at_ms, size in zip(numbers, numbers, strict=True):
        yield Recorded(version, at_ms, data[begin : begin + size])
        version += 1
        begin += size


def read_events(reader: sqlite3.Connection, stream: int, after: int, limit: int | None) -> tuple[Recorded, ...]:
    """Those with a version above `after`, oldest first, and as many as the limit says."""
    with closing(reader.execute(_READ, {"stream": stream, "after": after})) as rows:
        return tuple(islice((event for row in rows for event in events_of(*row) if event.version > after), limit))
