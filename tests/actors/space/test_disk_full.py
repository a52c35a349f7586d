"""A full disk refuses cleanly: nothing half-written, reads go on, and writing works again when there is room.

On a small tmpfs if this user may mount one, and in any case with a database that may not grow (`max_page_count`) and
content files that may not either.
"""

import errno
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from actors.space.key_files import Disk
from actors.space.sealing import CHUNK_BYTES
from actors.space.sqlite_space_rows import open_connections
from actors.space.sqlite_space_store import SqliteSpaceStore
from actors.space.store import DEFAULT_LIMITS, NOT_READY, Refused, SpaceStoreLimits, Usage, Written
from tests.actors.log.shelves import bounded, in_order
from tests.actors.log.test_disk_full import Tmpfs as Ballast
from tests.actors.log.test_disk_full import tmpfs
from tests.actors.space.shelves import LATER_MS, NOW_MS, A, B, F, G, SqliteShelf, put, read_all, upload

BIG = bytes(100_000)


class SmallDisk(Protocol):
    """A folder that can be made full, and given room again."""

    shelf: SqliteShelf

    async def open(self, limits: SpaceStoreLimits = DEFAULT_LIMITS) -> SqliteSpaceStore: ...
    def fill(self) -> None: ...
    def make_room(self) -> None: ...


class Tmpfs:
    """A file system of its own, filled with ballast."""

    def __init__(self, folder: Path) -> None:
        self.shelf = SqliteShelf(folder / "spaces here")
        self.shelf.folder.mkdir()
        self._ballast = Ballast(folder)
        self.fill, self.make_room = self._ballast.fill, self._ballast.make_room

    async def open(self, limits: SpaceStoreLimits = DEFAULT_LIMITS) -> SqliteSpaceStore:
        return await self.shelf.open(limits)


class FullDisk(Disk):
    """Takes no byte more when it is full."""

    is_full = False

    def write(self, descriptor: int, data: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "no room")
        super().write(descriptor, data)


class PageLimit:
    """A database that may not have more pages than it has, beside files that may not grow."""

    def __init__(self, folder: Path) -> None:
        self.shelf = SqliteShelf(folder)
        self.disk = FullDisk()

    async def open(self, limits: SpaceStoreLimits = DEFAULT_LIMITS) -> SqliteSpaceStore:
        self.connections = open_connections(self.shelf.folder / "spaces.sqlite")
        store = SqliteSpaceStore(self.shelf.folder, self.connections, self.disk, limits)
        await store.load()
        return store

    def fill(self) -> None:
        (pages,) = self.connections[0].execute("PRAGMA page_count").fetchone()
        self.connections[0].execute(f"PRAGMA max_page_count = {pages}")
        self.disk.is_full = True

    def make_room(self) -> None:
        self.connections[0].execute("PRAGMA max_page_count = 1000000")
        self.disk.is_full = False


class ReadOnly(PageLimit):
    """A database that takes no write at all."""

    def fill(self) -> None:
        self.connections[0].execute("PRAGMA query_only = ON")

    def make_room(self) -> None:
        self.connections[0].execute("PRAGMA query_only = OFF")


@pytest.fixture(params=["tmpfs", "page limit"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    if request.param == "page limit":
        yield PageLimit(tmp_path)
        return
    with tmpfs(tmp_path) as mounted:  # where mounting is not permitted this repeats the other kind
        yield Tmpfs(tmp_path) if mounted else PageLimit(tmp_path)


async def write_big(store: SqliteSpaceStore, key: str) -> object:
    return await store.put(A, key, BIG, now_ms=NOW_MS, expires_at_ms=LATER_MS)


@bounded
async def test_writes_without_room_are_refused_and_reads_go_on(small_disk: SmallDisk) -> None:
    async with await small_disk.open(SpaceStoreLimits(cache_bytes_max=0)) as store:
        await store.create(A)
        await put(store, A, "k", b"value")
        await upload(store, A, F, b"content")
        small_disk.fill()
        answers = await in_order(*(partial(write_big, store, f"big{number}") for number in range(20)))
        assert NOT_READY in answers
        written = sum(isinstance(answer, Written) for answer in answers)
        assert store.usage(A).keys == 1 + written
        entry = await store.get(A, "k", NOW_MS)
        assert entry is not None
        assert entry.value == b"value"
        assert await read_all(store, A, F) == b"content"
        small_disk.make_room()
        assert isinstance(await write_big(store, "k"), Written)
        usage = store.usage(A)
    async with await small_disk.open() as store:
        await store.open(A)
        assert store.usage(A) == usage


@bounded
async def test_an_upload_without_room_is_refused_and_leaves_nothing(small_disk: SmallDisk) -> None:
    async with await small_disk.open(SpaceStoreLimits(upload_buffer_bytes_max=CHUNK_BYTES)) as store:
        await store.create(A)
        await upload(store, A, F, b"content")
        begun = await store.begin_file(A, G, "n", "t")
        assert not isinstance(begun, Refused)
        before = small_disk.shelf.files()
        small_disk.fill()
        refused = None
        async with begun as coming:
            while refused is None:
                refused = await coming.append(BIG)
            assert refused == NOT_READY
            assert await coming.append(BIG) == NOT_READY
            assert await coming.finish(NOW_MS) == NOT_READY
        assert store.usage(A) == Usage(files=1, file_bytes=7)
        assert small_disk.shelf.files() == before - {f"spaces/{A}/{G}.part"}
        small_disk.make_room()
        await upload(store, A, G, BIG)
        assert await read_all(store, A, G) == BIG


@bounded
async def test_a_space_that_cannot_be_created_leaves_no_key(small_disk: SmallDisk) -> None:
    async with await small_disk.open() as store:
        small_disk.fill()
        assert await store.create(A) == NOT_READY
        assert small_disk.shelf.files() == set()
        assert not await store.open(A)
        small_disk.make_room()
        assert await store.create(A) is None


@bounded
async def test_without_room_a_space_ends_or_is_at_least_unreadable_from_then_on(small_disk: SmallDisk) -> None:
    async with await small_disk.open() as store:
        await store.create(A)
        await store.create(B)
        await put(store, A, "k", BIG)
        await upload(store, A, F, BIG)
        key = (small_disk.shelf.folder / "spaces" / "keys" / A).read_bytes()[:32]
        small_disk.fill()
        answer = await store.end(A)
        assert answer in (None, NOT_READY)
        assert small_disk.shelf.files() == {f"spaces/keys/{B}"}
        assert small_disk.shelf.files_with(key) == set()
        small_disk.make_room()
        assert await store.end(A) is None
        assert await put(store, B, "k") == 1
    async with await small_disk.open() as store:
        assert store.space_ids() == (B,)


@bounded
async def test_a_store_whose_commits_fail_says_that_it_takes_no_writes(tmp_path: Path) -> None:
    with tmpfs(tmp_path) as mounted:
        disk: SmallDisk = Tmpfs(tmp_path) if mounted else ReadOnly(tmp_path)
        async with await disk.open() as store:
            await store.create(A)
            assert await store.takes_writes()
            disk.fill()
            assert not await store.takes_writes()
            disk.make_room()
            assert await store.takes_writes()
