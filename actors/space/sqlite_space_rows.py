"""The tables of `spaces.sqlite`, and what is done to their rows.

What people wrote is sealed: names of keys, values, names and types of files, subscriptions. In the clear are numbers
(versions, sizes, times) and ids; those of a row are bound to what is sealed in it, so that a row whose numbers were
changed, or that was moved, does not open.

Transactions, threads and what an error means are left to `sqlite_space_store` and `actors.log.commit_thread`.
"""

import os
import sqlite3
import struct
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from actors.log.sqlite_files import name_of
from actors.log.store import CannotOpenError, UnreadableError
from actors.space.sealing import SpaceKey
from actors.space.space_index import SpaceIndex
from actors.space.store import (
    FILE_OVERHEAD_BYTES,
    NOT_FOUND,
    VALUE_OVERHEAD_BYTES,
    DeleteAnswer,
    Entry,
    KeyInfo,
    PutAnswer,
    Refused,
    StoredFile,
    Subscription,
    Usage,
    VersionConflict,
    Written,
)

FORM = 1  # PRAGMA user_version: the form of these tables
_CACHE_KIB = 8 * 1024  # of pages held by each connection; beyond it they are read again
_BUSY_S = 0.05  # how long a checkpoint waits for a reader to finish before it gives up for now

_TABLES = """
CREATE TABLE space (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, version INTEGER NOT NULL);
CREATE TABLE kv (
    space INTEGER NOT NULL, lookup BLOB NOT NULL, version INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL, is_encrypted INTEGER NOT NULL, size INTEGER NOT NULL, name BLOB NOT NULL,
    value BLOB NOT NULL, UNIQUE (space, lookup)
);
CREATE TABLE file (
    space INTEGER NOT NULL, file_id TEXT NOT NULL, size INTEGER NOT NULL, meta BLOB NOT NULL, UNIQUE (space, file_id)
);
CREATE TABLE subscription (
    space INTEGER NOT NULL, lookup BLOB NOT NULL, endpoint BLOB NOT NULL, data BLOB NOT NULL, UNIQUE (space, lookup)
);
"""
_SPACE = "SELECT id, version FROM space WHERE name = ?"
_PUT = "INSERT OR REPLACE INTO kv VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ROW = "lookup, version, updated_ms, expires_ms, is_encrypted, size, name"
_TOTALS = ("count(*)", "total(size)")
_OF_SPACE = "space = (SELECT id FROM space WHERE name = ?)"


class FileRow(msgspec.Struct, frozen=True):
    """What is sealed of a file in its row."""

    file: StoredFile
    prefix: bytes


class Swept(NamedTuple):
    """What had expired and is gone, and when more is to go."""

    keys: int
    disk_bytes: int  # that they counted as
    next_expiry_ms: int | None


_encode_file = msgspec.msgpack.Encoder().encode
_decode_file = msgspec.msgpack.Decoder(FileRow).decode

Connections = tuple[sqlite3.Connection, sqlite3.Connection]


def open_connections(path: Path) -> Connections:
    """One that writes and one that can only read, so that reads go on when the disk is full."""
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    try:
        with ExitStack() as undo:
            writer = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            undo.callback(writer.close)
            writer.execute("PRAGMA journal_mode = WAL")
            # A crash of the process loses nothing; loss of power may take the last writes, as the contract allows.
            writer.execute("PRAGMA synchronous = NORMAL")
            writer.execute("PRAGMA secure_delete = ON")
            writer.execute("PRAGMA temp_store = MEMORY")
            writer.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            writer.execute("PRAGMA wal_autocheckpoint = 0")  # `CommitThread` does, and hears how it went
            (form,) = writer.execute("PRAGMA user_version").fetchone()
            if form == 0:
                writer.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {FORM}; COMMIT;")
            elif form != FORM:
                raise CannotOpenError(
                    f"spaces have form {form}, and this version reads {FORM}: install a newer version"
                )
            address = f"{path.absolute().as_uri()}?mode=ro"
            reader = sqlite3.connect(address, uri=True, timeout=5.0, isolation_level=None, check_same_thread=False)
            undo.callback(reader.close)
            reader.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            reader.execute("SELECT count(*) FROM space").fetchone()  # attached to the files from now on
            undo.pop_all()
    except sqlite3.Error as error:
        raise CannotOpenError(f"{name_of(error)}: {path} cannot be opened; restore a backup") from error
    return writer, reader


# ── spaces ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def add_space(db: sqlite3.Connection, space_id: str) -> None:
    db.execute("INSERT OR IGNORE INTO space (name, version) VALUES (?, 0)", (space_id,))


def remove_space(db: sqlite3.Connection, space_id: str) -> None:
    for table in ("kv", "file", "subscription"):
        db.execute(f"DELETE FROM {table} WHERE {_OF_SPACE}", (space_id,))
    db.execute("DELETE FROM space WHERE name = ?", (space_id,))


def keep_spaces(db: sqlite3.Connection, space_ids: Iterable[str]) -> None:
    """Leave rows of these spaces only, and give one to each that has none: power may have failed."""
    wanted = set(space_ids)
    there = {name for (name,) in db.execute("SELECT name FROM space")}
    for space_id in there - wanted:
        remove_space(db, space_id)
    for space_id in wanted - there:
        add_space(db, space_id)


def sizes(db: sqlite3.Connection) -> dict[str, int]:
    """How many bytes each space counts as, with the overhead of each value and file."""
    kv, file = (
        f"(SELECT total(size) + {overhead} * count(*) FROM {table} WHERE space = id)"
        for table, overhead in (("kv", VALUE_OVERHEAD_BYTES), ("file", FILE_OVERHEAD_BYTES))
    )
    return dict(db.execute(f"SELECT name, {kv} + {file} FROM space"))


def usages(db: sqlite3.Connection, space_ids: Iterable[str]) -> dict[str, Usage]:
    """What these spaces have. Sizes are in the clear, so no key is needed."""
    totals = [f"(SELECT {what} FROM {table} WHERE space = id)" for table in ("kv", "file") for what in _TOTALS]
    subscriptions = "(SELECT count(*) FROM subscription WHERE space = id)"
    query = f"SELECT {', '.join(totals)}, {subscriptions} FROM space WHERE name = ?"
    found = {space_id: db.execute(query, (space_id,)).fetchone() for space_id in space_ids}
    return {space_id: Usage(*map(int, numbers)) for space_id, numbers in found.items() if numbers is not None}


def touch(db: sqlite3.Connection) -> bool:
    """Write, and change nothing."""
    db.execute(f"PRAGMA user_version = {FORM}")
    return True


def next_expiries(db: sqlite3.Connection) -> dict[str, int]:
    """When the next value of each space expires; those without any are left out."""
    found = db.execute("SELECT space.name, min(expires_ms) FROM kv JOIN space ON space.id = kv.space GROUP BY space.id")
    return {name: at_ms for name, value in found if (at_ms := _time(value)) is not None}


def load_index(db: sqlite3.Connection, key: SpaceKey) -> tuple[SpaceIndex, dict[str, bytes]]:
    """The index, and the prefixes of the files' nonces."""
    keys: dict[str, KeyInfo] = {}
    for lookup, *numbers, sealed in db.execute(f"SELECT {_ROW} FROM kv WHERE {_OF_SPACE}", (key.space_id,)):
        name = key.unseal_row(sealed, _kv_place(b"key", lookup, *numbers)).decode()
        version, _, expires_ms, _, size = numbers
        keys[name] = KeyInfo(name, version, size, expires_ms)
    rows = [
        _decode_file(key.unseal_row(meta, _file_place(file_id, size)))
        for file_id, size, meta in db.execute(
            f"SELECT file_id, size, meta FROM file WHERE {_OF_SPACE}", (key.space_id,)
        )
    ]
    (subscriptions,) = db.execute(f"SELECT count(*) FROM subscription WHERE {_OF_SPACE}", (key.space_id,)).fetchone()
    index = SpaceIndex(keys, {row.file.file_id: row.file for row in rows}, subscriptions)
    return index, {row.file.file_id: row.prefix for row in rows}


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def put(db: sqlite3.Connection, key: SpaceKey, entry: Entry, now_ms: int, expected_version: int | None) -> PutAnswer:
    """Write the entry, as the space's next version whatever its own says."""
    space = db.execute(_SPACE, (key.space_id,)).fetchone()
    if space is None:
        return NOT_FOUND
    space_row, version = space[0], space[1] + 1
    lookup = key.key_lookup(entry.key)
    there = db.execute(
        "SELECT version, expires_ms FROM kv WHERE space = ? AND lookup = ?", (space_row, lookup)
    ).fetchone()
    actual = there[0] if there is not None and there[1] > now_ms else 0
    if expected_version is not None and expected_version != actual:
        return VersionConflict(actual)
    numbers = (version, entry.updated_at_ms, entry.expires_at_ms, int(entry.encrypted), len(entry.value))
    name = key.seal_row(entry.key.encode(), _kv_place(b"key", lookup, *numbers))
    value = key.seal_row(entry.value, _kv_place(b"value", lookup, *numbers))
    db.execute("UPDATE space SET version = ? WHERE id = ?", (version, space_row))
    db.execute(_PUT, (space_row, lookup, *numbers, name, value))
    return Written(version, is_new=actual == 0)


def get(db: sqlite3.Connection, key: SpaceKey, name: str) -> Entry | None:
    lookup = key.key_lookup(name)
    statement = f"SELECT {_ROW}, value FROM kv WHERE {_OF_SPACE} AND lookup = ?"
    row = db.execute(statement, (key.space_id, lookup)).fetchone()
    if row is None:
        return None
    _, *numbers, _, sealed = row
    version, updated_ms, expires_ms, is_encrypted, _ = numbers
    value = key.unseal_row(sealed, _kv_place(b"value", lookup, *numbers))
    return Entry(name, value, version, updated_ms, expires_ms, bool(is_encrypted))


def delete(db: sqlite3.Connection, key: SpaceKey, name: str, now_ms: int, expected_version: int | None) -> DeleteAnswer:
    space = db.execute(_SPACE, (key.space_id,)).fetchone()
    if space is None:
        return NOT_FOUND
    row = (space[0], key.key_lookup(name))
    there = db.execute("SELECT version, expires_ms FROM kv WHERE space = ? AND lookup = ?", row).fetchone()
    is_there = there is not None and there[1] > now_ms
    if is_there and expected_version not in (None, there[0]):
        return VersionConflict(there[0])
    db.execute("DELETE FROM kv WHERE space = ? AND lookup = ?", row)
    return is_there


def sweep(db: sqlite3.Connection, space_id: str, now_ms: int) -> Swept:
    """Times are in the clear, so no key is needed."""
    of_space = (space_id,)
    expired = db.execute(
        f"SELECT count(*), total(size) FROM kv WHERE {_OF_SPACE} AND expires_ms <= ?", (*of_space, now_ms)
    )
    count, size = expired.fetchone()
    db.execute(f"DELETE FROM kv WHERE {_OF_SPACE} AND expires_ms <= ?", (*of_space, now_ms))
    (next_expiry_ms,) = db.execute(f"SELECT min(expires_ms) FROM kv WHERE {_OF_SPACE}", of_space).fetchone()
    return Swept(count, int(size) + count * VALUE_OVERHEAD_BYTES, _time(next_expiry_ms))


def _time(value: object) -> int | None:
    """None: there is none, or what lies there is damaged and no time."""
    return value if isinstance(value, int) else None


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def add_file(db: sqlite3.Connection, key: SpaceKey, row: FileRow) -> StoredFile | Refused:
    space = db.execute(_SPACE, (key.space_id,)).fetchone()
    if space is None:
        return NOT_FOUND
    file = row.file
    meta = key.seal_row(_encode_file(row), _file_place(file.file_id, file.size))
    db.execute("INSERT INTO file VALUES (?, ?, ?, ?)", (space[0], file.file_id, file.size, meta))
    return file


def remove_file(db: sqlite3.Connection, space_id: str, file_id: str) -> bool:
    return db.execute(f"DELETE FROM file WHERE {_OF_SPACE} AND file_id = ?", (space_id, file_id)).rowcount > 0


def file_ids(db: sqlite3.Connection) -> dict[str, set[str]]:
    """The files of each space, of those that have none too."""
    found: dict[str, set[str]] = {name: set() for (name,) in db.execute("SELECT name FROM space")}
    for name, file_id in db.execute("SELECT name, file_id FROM file JOIN space ON space.id = file.space"):
        found[name].add(file_id)
    return found


# ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def put_subscription(db: sqlite3.Connection, key: SpaceKey, endpoint: str, data: bytes) -> bool | Refused:
    space = db.execute(_SPACE, (key.space_id,)).fetchone()
    if space is None:
        return NOT_FOUND
    is_new = not delete_subscription(db, key, endpoint)
    lookup = key.endpoint_lookup(endpoint)
    name = key.seal_row(endpoint.encode(), b"endpoint" + lookup)
    db.execute(
        "INSERT INTO subscription VALUES (?, ?, ?, ?)",
        (space[0], lookup, name, key.seal_row(data, b"subscription" + lookup)),
    )
    return is_new


def delete_subscription(db: sqlite3.Connection, key: SpaceKey, endpoint: str) -> bool:
    row = (key.space_id, key.endpoint_lookup(endpoint))
    return db.execute(f"DELETE FROM subscription WHERE {_OF_SPACE} AND lookup = ?", row).rowcount > 0


def subscriptions(db: sqlite3.Connection, key: SpaceKey) -> tuple[Subscription, ...]:
    found = [
        Subscription(
            key.unseal_row(endpoint, b"endpoint" + lookup).decode(), key.unseal_row(data, b"subscription" + lookup)
        )
        for lookup, endpoint, data in db.execute(
            f"SELECT lookup, endpoint, data FROM subscription WHERE {_OF_SPACE}", (key.space_id,)
        )
    ]
    return tuple(sorted(found, key=lambda each: each.endpoint))


# ── places: what a sealed thing is bound to ───────────────────────────────────────────────────────────────────────────


def _kv_place(what: bytes, lookup: bytes, *numbers: int) -> bytes:
    try:
        return what + lookup + struct.pack(">5q", *numbers)
    except struct.error:
        raise UnreadableError("a row's numbers are not numbers") from None


def _file_place(file_id: str, size: int) -> bytes:
    return f"file {file_id} {size}".encode()
