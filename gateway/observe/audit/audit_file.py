"""One file of the audit: a table of lines in the order of their numbers, looked through in windows.

There are no indexes. A line costs one row at the end of a table, and whoever looks for few among many reads some tens
of thousands of rows a step; a search is bounded by its time, and goes on where it stopped.
"""

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from gateway.observe.audit.query_rules import AT_MS_MAX, COLUMNS, HOUR_MS, AuditQuery, CallTally, KeptLine

FORM = 1  # PRAGMA user_version
NUMBER_MAX = 2**63 - 1  # of a line
WINDOW = 20_000  # rows that are looked at before the time is looked at
_TABLE = f"""
CREATE TABLE line (
    number INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, {", ".join(f"{name} TEXT" for name in COLUMNS)},
    fields BLOB NOT NULL
) STRICT
"""
_PLACES = ", ".join("?" * (len(COLUMNS) + 3))
_INSERT = f"INSERT INTO line (number, at_ms, {', '.join(COLUMNS)}, fields) VALUES ({_PLACES})"
_KEY = f"at_ms / {HOUR_MS} * {HOUR_MS}, tenant, sub, tool, decision, reason"
_TALLY = f"""
SELECT {_KEY}, count(*), coalesce(sum(json_extract(CAST(fields AS TEXT), '$.price_micros')), 0), max(at_ms)
FROM line WHERE number >= ? AND number < ? AND event = 'tool_call' GROUP BY {_KEY}
"""
_TALLY_OF_WHOLE = _TALLY.replace("WHERE", "WHERE json_valid(CAST(fields AS TEXT)) AND")
_encoder = msgspec.json.Encoder()
_fields = msgspec.json.Decoder(dict[str, Any])


class AuditFile:
    """Used by one thread at a time. `writes`: else it can only be read, and nothing of it is changed."""

    def __init__(self, path: Path, *, writes: bool = False) -> None:
        """Raises sqlite3.Error."""
        self.path = path
        self._writes = writes
        if writes and not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        address = f"{path.absolute().as_uri()}?mode={'rw' if writes else 'ro'}"
        self._connection = sqlite3.connect(
            address, uri=True, timeout=5.0, isolation_level=None, check_same_thread=False
        )
        self._connection.text_factory = _text
        try:
            if writes:
                self._prepare()
            elif self._value("PRAGMA user_version") != FORM:
                raise sqlite3.DatabaseError("the file is of another form")
        except sqlite3.Error:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        form = self._value("PRAGMA user_version")  # before anything is changed of another version's file
        if form not in (0, FORM):
            raise sqlite3.DatabaseError("the file is of another form")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if form == 0:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(_TABLE)
            self._connection.execute(f"PRAGMA user_version = {FORM}")
            self._connection.execute("COMMIT")

    def _value(self, statement: str) -> int | None:
        value: int | None = self._connection.execute(statement).fetchone()[0]
        return value

    @property
    def size_bytes(self) -> int:
        return (self._value("PRAGMA page_count") or 0) * (self._value("PRAGMA page_size") or 0)

    def last_number(self) -> int:
        """0: it has no line."""
        return self._value("SELECT max(number) FROM line") or 0

    def oldest_ms(self) -> int:
        return self._value("SELECT coalesce((SELECT at_ms FROM line ORDER BY number LIMIT 1), 0)") or 0

    def last_ms(self, below: int = NUMBER_MAX) -> int:
        """When the last of its lines with smaller numbers was written; 0: it has none."""
        last = f"SELECT at_ms FROM line WHERE number < {below:d} ORDER BY number DESC LIMIT 1"
        return self._value(f"SELECT coalesce(({last}), 0)") or 0

    def newest_ms(self) -> int:
        return self._value("SELECT max(at_ms) FROM line") or 0

    def write(self, first: int, lines: Sequence[tuple[int, str, dict[str, object]]]) -> None:
        """All of them, numbered from `first` on, or none. Raises sqlite3.Error; ValueError, TypeError and OverflowError
        of a line that nobody can write."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_INSERT, _rows(first, lines))
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def look(self, query: AuditQuery, start: int, end: int, limit: int) -> list[KeptLine]:
        """Of the lines with numbers from `start` to before `end`, `limit` at most, in the query's direction."""
        conditions, values = ["number >= ?", "number < ?"], [start, end]
        filters: list[int | str] = [*values]
        for column, text in query.equal:
            conditions.append(f"{column} = ?")  # one of COLUMNS
            filters.append(text)
        for bound, condition in ((query.since_ms, "at_ms >= ?"), (query.until_ms, "at_ms < ?")):
            if bound is not None:
                conditions.append(condition)
                filters.append(bound)
        order = "DESC" if query.after is None else "ASC"
        statement = (
            f"SELECT number, at_ms, event, fields FROM line WHERE {' AND '.join(conditions)} "
            f"ORDER BY number {order} LIMIT ?"
        )
        rows = self._connection.execute(statement, (*filters, limit))
        return [_line(*row) for row in rows]

    def tally(self, start: int, end: int) -> list[CallTally]:
        """Of the calls with numbers from `start` to before `end`: how many there were of each kind, hour by hour."""
        try:
            rows = self._connection.execute(_TALLY, (start, end)).fetchall()
        except sqlite3.Error:  # a line is damaged: the others count
            rows = self._connection.execute(_TALLY_OF_WHOLE, (start, end)).fetchall()
        return [CallTally(*row) for row in rows]

    def close(self) -> None:
        """What was written is then in the one file, unless somebody is reading it."""
        if self._writes:
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()


def _rows(first: int, lines: Sequence[tuple[int, str, dict[str, object]]]) -> Iterable[tuple[object, ...]]:
    for number, (at_ms, event, fields) in enumerate(lines, first):
        known = (fields.get(name) for name in COLUMNS[1:])
        yield number, at_ms, event, *(None if value is None else str(value) for value in known), _encoder.encode(fields)


# ---- damage ----------------------------------------------------------------------------------------------------------
# A disk may alter bytes that are no part of SQLite's own form. Such a line keeps its place, so that a search goes on
# behind it, and says what can still be read of it.


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _line(number: int, at_ms: int, event: str, fields: bytes) -> KeptLine:
    try:
        found = _fields.decode(fields)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
        found = {"unreadable": True}
    return KeptLine(number, min(max(at_ms, 0), AT_MS_MAX), event, found)
