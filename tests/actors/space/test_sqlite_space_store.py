"""What only the embedded store can get wrong: threads, batches, memory, the values it remembers."""

import sqlite3
import threading
from functools import partial
from pathlib import Path

import pytest
import trio

from actors.log.store import StoreFailedError
from actors.space import sqlite_space_rows as rows
from actors.space.key_files import Disk
from actors.space.sealing import CHUNK_BYTES, SpaceKey
from actors.space.space_database import SpaceDatabase
from actors.space.space_index import SpaceIndex
from actors.space.sqlite_space_rows import open_connections
from actors.space.store import DEFAULT_LIMITS, VALUE_OVERHEAD_BYTES, Entry, SpaceStoreLimits
from actors.space.value_cache import ValueCache
from tests.actors.log.shelves import bounded, in_order
from tests.actors.space.shelves import LATER_MS, NOW_MS, A, B, F, SqliteShelf, cancelled, put, read_all, upload


class RecordingDisk(Disk):
    """Remembers how much was written at a time."""

    def __init__(self) -> None:
        self.writes: list[int] = []

    def write(self, descriptor: int, data: bytes) -> None:
        self.writes.append(len(data))
        super().write(descriptor, data)


@bounded
async def test_an_upload_is_written_as_it_comes_never_whole(tmp_path: Path) -> None:
    disk = RecordingDisk()
    limits = SpaceStoreLimits(upload_buffer_bytes_max=2 * CHUNK_BYTES)
    async with await SqliteShelf(tmp_path).open(limits, disk) as store:
        await store.create(A)
        disk.writes.clear()
        await upload(store, A, F, *[bytes(CHUNK_BYTES // 2)] * 100)
        assert len(disk.writes) > 20
        assert max(disk.writes) <= 3 * (CHUNK_BYTES + 16)
        assert await read_all(store, A, F) == bytes(50 * CHUNK_BYTES)


@bounded
async def test_many_spaces_end_side_by_side(tmp_path: Path) -> None:
    shelf = SqliteShelf(tmp_path)
    ids = [f"{number:026d}" for number in range(60)]
    async with await shelf.open() as store:
        for space_id in ids:
            await store.create(space_id)
            await put(store, space_id, "k")
        async with trio.open_nursery() as nursery:
            for space_id in ids[1:]:
                nursery.start_soon(store.end, space_id)
        assert store.space_ids() == (ids[0],)
        assert shelf.files() == {f"spaces/keys/{ids[0]}"}
        assert store.totals().bytes == 1 + VALUE_OVERHEAD_BYTES


@bounded
async def test_an_end_is_taken_though_the_queue_is_full(tmp_path: Path) -> None:
    async with await SqliteShelf(tmp_path).open(SpaceStoreLimits(queue_writes_max=1)) as store:
        await store.create(A)
        await store.create(B)
        assert await in_order(partial(put, store, A, "k"), partial(store.end, B)) == [1, None]


@bounded
async def test_writes_queued_before_the_end_of_their_space_leave_no_row(tmp_path: Path) -> None:
    shelf = SqliteShelf(tmp_path)
    async with await shelf.open() as store:
        await store.create(A)
        for number in range(20):
            await cancelled(partial(put, store, A, f"k{number}"))
        assert await store.end(A) is None
    connections = open_connections(tmp_path / "spaces.sqlite")
    assert connections[1].execute("SELECT count(*) FROM kv").fetchone() == (0,)
    for connection in connections:
        connection.close()


@bounded
async def test_a_fault_in_the_writer_is_told_to_everybody_and_to_whoever_watches(tmp_path: Path) -> None:
    def broken(_: sqlite3.Connection) -> None:
        raise KeyError("a fault of our own")

    database = SpaceDatabase(open_connections(tmp_path / "spaces.sqlite"), DEFAULT_LIMITS)
    arrived: list[object] = []
    with pytest.raises(StoreFailedError):
        await database.commit(broken, arrived.append)
    assert [type(answer) for answer in arrived] == [StoreFailedError]
    with pytest.raises(StoreFailedError):
        await database.watch()
    with pytest.raises(StoreFailedError):
        await database.commit(lambda _: None)
    await database.close()


@bounded
async def test_an_answer_that_cannot_be_applied_fails_the_store_and_not_the_other_answers(tmp_path: Path) -> None:
    def refuse(_: object) -> None:
        raise KeyError("a fault of our own")

    database = SpaceDatabase(open_connections(tmp_path / "spaces.sqlite"), DEFAULT_LIMITS)
    assert await in_order(partial(database.commit, lambda _: 1, refuse), partial(database.commit, lambda _: 2)) == [
        1,
        2,
    ]
    with pytest.raises(StoreFailedError, match="not taken"):
        await database.watch()
    await database.close()


def test_the_cache_keeps_what_was_used_last_within_its_bytes() -> None:
    cache = ValueCache(2 * VALUE_OVERHEAD_BYTES + 10)

    def entry(key: str, size: int) -> Entry:
        return Entry(key, bytes(size), 1, NOW_MS, LATER_MS, encrypted=False)

    cache.put(A, entry("a", 4))
    cache.put(A, entry("b", 4))
    assert cache.get(A, "a") == entry("a", 4)
    cache.put(A, entry("c", 4))
    assert (cache.get(A, "b"), cache.get(B, "a")) == (None, None)
    assert cache.get(A, "a") == entry("a", 4)
    cache.put(A, entry("a", 6))
    assert cache.get(A, "a") == entry("a", 6)
    cache.put(A, entry("too large", VALUE_OVERHEAD_BYTES + 11))
    assert [cache.get(A, key) for key in ("a", "c", "too large")] == [None] * 3
    cache.put(A, entry("d", VALUE_OVERHEAD_BYTES + 10))
    cache.drop(A, "d")
    cache.drop(A, "d")
    cache.put(A, entry("e", VALUE_OVERHEAD_BYTES + 10))
    assert cache.get(A, "e") == entry("e", VALUE_OVERHEAD_BYTES + 10)


@bounded
async def test_an_index_that_was_read_before_a_sweep_has_nothing_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await SqliteShelf(tmp_path).open() as store:
        await store.create(A)
        await put(store, A, "old", b"123", expires_at_ms=NOW_MS + 10)
        assert store.release(A)
        is_read, goes_on, load_index = trio.Event(), threading.Event(), rows.load_index

        def slow(db: sqlite3.Connection, key: SpaceKey) -> tuple[SpaceIndex, dict[str, bytes]]:
            loaded = load_index(db, key)
            trio.from_thread.run_sync(is_read.set)
            goes_on.wait(10)
            return loaded

        monkeypatch.setattr(rows, "load_index", slow)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.open, A)
            await is_read.wait()
            with trio.move_on_after(0.2):  # it waits for whoever opens the space
                await store.sweep_expired(A, NOW_MS + 10)
            goes_on.set()
        in_memory = store.usage(A)
        assert store.release(A)
        assert await store.usages([A]) == {A: in_memory}
