"""A full disk refuses cleanly: nothing half-written, reads go on, and writing works again when there is room.

On a small tmpfs, where SQLite meets the lack of room when it commits, if this user may mount one; and in any case on a
database that may not grow (`max_page_count`), where it meets it in the middle of a transaction.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pytest

from actors.log.sqlite_files import Files, open_files
from actors.log.sqlite_store import SqliteStore
from actors.log.store import DEFAULT_LIMITS, Appended, AppendRefused, LogLimits, OpenItem, Part, RefusalReason
from tests.actors.log.shelves import append_in_order, bounded, opening, part

FULL = AppendRefused(RefusalReason.DISK_FULL)
TMPFS_BYTES = 4 * 1024 * 1024


class SmallDisk(Protocol):
    """A place for a database that can be made full, and given room again."""

    def open(self, limits: LogLimits = DEFAULT_LIMITS) -> SqliteStore: ...
    def fill(self) -> None: ...
    def make_room(self) -> None: ...


class Tmpfs:
    """A file system of its own, filled with ballast."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.db"
        self.ballast = folder / "ballast"

    def open(self, limits: LogLimits = DEFAULT_LIMITS) -> SqliteStore:
        return SqliteStore(open_files(self.path), limits)

    def fill(self) -> None:
        with self.ballast.open("wb", buffering=0) as ballast, suppress(OSError):
            for _ in range(TMPFS_BYTES // 512 + 1):
                ballast.write(bytes(512))
        assert os.statvfs(self.ballast).f_bavail == 0

    def make_room(self) -> None:
        self.ballast.unlink()


class PageLimit:
    """A database that may not have more pages than it has."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.db"
        self.files: Files | None = None

    def open(self, limits: LogLimits = DEFAULT_LIMITS) -> SqliteStore:
        self.files = open_files(self.path)
        return SqliteStore(self.files, limits)

    def fill(self) -> None:
        assert self.files is not None
        (pages,) = self.files.writer.execute("PRAGMA page_count").fetchone()
        self.files.writer.execute(f"PRAGMA max_page_count = {pages}")

    def make_room(self) -> None:
        assert self.files is not None
        self.files.writer.execute("PRAGMA max_page_count = 1000000")


@contextmanager
def tmpfs(folder: Path) -> Iterator[bool]:
    """A small tmpfs on the folder while this lasts; False if that is not permitted."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", str(folder)]
    try:
        mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, timeout=10).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True, timeout=10)


@pytest.fixture(params=["tmpfs", "page limit"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    if request.param == "page limit":
        yield PageLimit(tmp_path)
        return
    with tmpfs(tmp_path) as mounted:  # where mounting is not permitted this repeats the other kind
        yield Tmpfs(tmp_path) if mounted else PageLimit(tmp_path)


BIG = "x" * 100_000


@bounded
async def test_an_append_without_room_is_refused_and_nothing_of_it_is_written(small_disk: SmallDisk) -> None:
    async with small_disk.open() as store:
        await store.append(opening("a", 0, "k"))
        small_disk.fill()
        item = OpenItem("k2", BIG.encode())
        refused = Part("a", 1, 0, (b"small", BIG.encode(), b"small"), (item,), ("k",), b"snapshot")
        assert await store.append(refused, part("b", 0, "x")) == FULL
        loaded = await store.load("a")
        assert (loaded.version, [each.key for each in loaded.open_items], loaded.snapshot) == (1, ["k"], None)
        assert (await store.load("b")).version == 0


@bounded
async def test_reads_go_on_and_writing_works_again_when_there_is_room(small_disk: SmallDisk) -> None:
    async with small_disk.open() as store:
        assert await store.append(part("a", 0, *"abc")) == Appended((3,))
        small_disk.fill()
        for _ in range(3):
            assert await store.append(part("a", 3, BIG)) == FULL
            assert len(await store.read("a")) == 3
        small_disk.make_room()
        assert await store.append(part("a", 3, BIG)) == Appended((4,))
    async with small_disk.open() as store:
        assert (await store.load("a")).version == 4


@bounded
async def test_every_append_of_the_batch_is_refused_and_none_is_committed_by_itself(small_disk: SmallDisk) -> None:
    async with small_disk.open() as store:
        await store.append(part("a", 0, "x"))
        small_disk.fill()
        appends = [part(f"s{number}", 0, BIG) for number in range(20)]
        assert await append_in_order(store, *appends) == [FULL] * 20
        assert [(await store.load(f"s{number}")).version for number in range(20)] == [0] * 20
        small_disk.make_room()
        assert await append_in_order(store, *appends) == [Appended((1,))] * 20


@bounded
async def test_a_store_that_filled_up_by_itself_keeps_everything_it_acknowledged(small_disk: SmallDisk) -> None:
    version = 0
    async with small_disk.open(LogLimits(wal_bytes_max=500_000)) as store:
        for number in range(200):
            if number == 15:  # between two checkpoints, at 10 and at 20: the writer's connection is free
                small_disk.fill()
            answer = await store.append(part("a", version, "x" * 30_000))
            if answer == FULL:
                break
            assert answer == Appended((version + 1,))
            version += 1
        assert answer == FULL
        assert (await store.load("a")).version == version
    async with small_disk.open() as store:
        assert (await store.load("a")).version == version


@bounded
async def test_forgetting_without_room_is_refused_or_done_and_never_half_done(small_disk: SmallDisk) -> None:
    async with small_disk.open() as store:
        await store.append(opening("a", 0, "k"))
        for version in range(1, 40):
            await store.append(part("a", version, BIG[:20_000]))
        small_disk.fill()
        if await store.forget("a") == FULL:
            loaded = await store.load("a")
            assert (loaded.version, len(loaded.events), len(loaded.open_items)) == (40, 40, 1)
            small_disk.make_room()
            assert await store.forget("a") is None
        assert (await store.load("a")).version == 0
        assert await store.open_streams() == ()
