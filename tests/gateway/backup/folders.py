"""Data folders for tests of backups."""

import hashlib
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from actors.log.sqlite_files import open_files
from gateway.backup.archive import Archive
from gateway.backup.gathering import Wish, gather
from gateway.main.data_folder import DataFolder

NOW_MS = 1_795_000_000_000
SPACE, FILE = "01m7q96emf8a3t440md936y6xm", "01m7q96emf8a3t440md936y6xn"
LEAF = f"leafs/{'a1' * 32}.crt"
SUBSCRIPTIONS = "projects/spaces.sqlite"
SUBSCRIPTIONS_KEY = f"projects/spaces/keys/{SPACE}"
DATABASES = ("spaces.sqlite", SUBSCRIPTIONS, "audit/0000000000000001.sqlite", "audit/0000000000000009.sqlite")
CONTENT = b"<h1>hello</h1>"
SITE = f"sites/{hashlib.sha256(CONTENT).hexdigest()[:2]}/{hashlib.sha256(CONTENT).hexdigest()}"


def put(folder: Path, name: str, content: bytes) -> None:
    path = folder / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(content)


def made(folder: Path) -> Path:
    """A stopped gateway's, with something of everything."""
    with DataFolder.hold(folder, NOW_MS) as held:
        held.echo_key()
        held.revoke("01HZXC0000000000000000J000")
        held.enroll("01hzxc0000000000000000n0d0", "acme", "01HZXC0000000000000000J001", NOW_MS)
    open_files(folder / "log.sqlite").close(has_failed=False)
    for name in DATABASES:
        put(folder, name, b"")
        with closing(sqlite3.connect(folder / name)) as connection:
            connection.executescript(f"CREATE TABLE t (x); INSERT INTO t VALUES ('{name}'); PRAGMA user_version = 1;")
    put(folder, SITE, CONTENT)
    put(folder, SUBSCRIPTIONS_KEY, os.urandom(48))
    put(folder, "sites/incoming/0", b"half")
    put(folder, f"spaces/keys/{SPACE}", os.urandom(48))
    put(folder, f"spaces/{SPACE}/{FILE}", os.urandom(70_000))
    put(folder, "running.json", b"{}")
    put(folder, "thesis.txt", b"years of work")
    return folder


def archived(folder: Path, wish: Wish | None = None) -> bytes:
    staging = folder.with_name(f"{folder.name}.staging")
    gathered = gather(folder, staging, wish or Wish(spaces=True), is_live=False)
    return b"".join(Archive(gathered, "0.1.0", NOW_MS).pieces())


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def contents(folder: Path, of: Iterable[str]) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in of}
