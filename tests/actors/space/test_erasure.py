"""The end of a space: its key goes first, and from then on what was copied of it, or is left of it, is noise.

A crash is a disk that does nothing more: the step under way is done by half or not at all, every later one fails.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

from actors.log.store import UnreadableError
from actors.space.key_files import Disk, KeyFiles
from actors.space.sealing import CHUNK_BYTES, KEY_BYTES, SpaceKey
from actors.space.store import NOT_FOUND, NOT_READY, Refused, SpaceStoreLimits
from tests.actors.log.shelves import bounded
from tests.actors.space.faulty_disks import Crash, CrashingDisk, FailingDisk, WaitingDisk, WitnessDisk
from tests.actors.space.marked import CONTENT, MARKS, NAME, fill, holds_all
from tests.actors.space.shelves import NOW_MS, A, B, F, G, SqliteShelf, put, read_all, upload


def key_bytes(folder: Path, space_id: str) -> bytes:
    return (folder / "spaces" / "keys" / space_id).read_bytes()[:KEY_BYTES]


def readable_by_others(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.stat().st_mode & 0o077}


def remove_database(folder: Path) -> None:
    for path in folder.glob("spaces.sqlite*"):
        path.unlink()


@bounded
async def test_nothing_that_was_written_is_readable_in_any_file_while_the_space_lives(tmp_path: Path) -> None:
    shelf = SqliteShelf(tmp_path)
    async with await shelf.open() as store:
        await fill(store)
        assert shelf.files_with(*MARKS) == set()
        assert shelf.files_with(key_bytes(tmp_path, A)) == {A}
    assert shelf.files_with(*MARKS) == set()


@bounded
async def test_keys_and_files_are_readable_by_the_owner_alone(tmp_path: Path) -> None:
    shelf = SqliteShelf(tmp_path)
    async with await shelf.open() as store:
        await fill(store)
        assert readable_by_others(tmp_path) == set()


@bounded
async def test_after_the_end_no_file_has_anything_of_the_space_nor_its_key(tmp_path: Path) -> None:
    shelf = SqliteShelf(tmp_path)
    async with await shelf.open() as store:
        await fill(store)
        await fill(store, B)
        key = key_bytes(tmp_path, A)
        assert await store.end(A) is None
        assert shelf.files_with(*MARKS, key, key[:16], A.encode()) <= {"spaces.sqlite-wal"}
        assert shelf.files_with(*MARKS, key, key[:16]) == set()
        assert shelf.files() == {f"spaces/keys/{B}", f"spaces/{B}/{F}", f"spaces/{B}/{G}"}
        assert await holds_all(store, B)
    assert shelf.files_with(*MARKS, key, key[:16], A.encode()) == set()
    async with await shelf.open() as store:
        assert store.space_ids() == (B,)
        assert await holds_all(store, B)


@bounded
async def test_ciphertext_copied_before_the_end_opens_with_the_key_and_with_nothing_that_is_left(
    tmp_path: Path,
) -> None:
    live, copy = tmp_path / "live", tmp_path / "copy"
    live.mkdir()
    shelf = SqliteShelf(live)
    async with await shelf.open() as store:
        await fill(store)
        event = store.seal(A, b"event")
        key_file = (live / "spaces" / "keys" / A).read_bytes()
        shutil.copytree(live, copy, ignore=shutil.ignore_patterns("keys"))
        await store.end(A)
    assert event is not None
    left = [path.read_bytes() for path in live.rglob("*") if path.is_file()]

    def with_key(name: str, key: bytes) -> SqliteShelf:
        shutil.copytree(copy, tmp_path / name)
        (tmp_path / name / "spaces" / "keys").mkdir(mode=0o700)
        (tmp_path / name / "spaces" / "keys" / A).write_bytes(key)
        return SqliteShelf(tmp_path / name)

    async with await with_key("before", key_file).open() as store:
        assert await holds_all(store)
        assert store.unseal(A, event) == b"event"

    # Every run of bytes that is left, tried as the key.
    def is_the_key(candidate: bytes) -> bool:
        try:
            return SpaceKey(A, candidate).unseal_event(event) == b"event"
        except UnreadableError:
            return False

    assert is_the_key(key_file[:KEY_BYTES])
    candidates = {data[at : at + KEY_BYTES] for data in left for at in range(len(data) - KEY_BYTES + 1)}
    assert candidates
    assert not any(map(is_the_key, candidates))
    async with await with_key("after", bytes(len(key_file))).open() as store:
        assert store.space_ids() == ()
        assert store.unseal(A, event) is None


@bounded
async def test_a_key_file_that_was_overwritten_is_no_key_any_more(tmp_path: Path) -> None:
    disk = CrashingDisk(1_000)
    keys = KeyFiles(tmp_path / "keys", disk)
    keys.make(A)
    made = (tmp_path / "keys" / A).read_bytes()
    disk.nth = disk.steps + 3  # written and synced, not unlinked
    with pytest.raises(Crash):
        keys.erase(A)
    overwritten = (tmp_path / "keys" / A).read_bytes()
    assert len(overwritten) == len(made)
    assert made[:8] not in overwritten
    assert KeyFiles(tmp_path / "keys", Disk()).load() == {}
    assert list((tmp_path / "keys").iterdir()) == []


@bounded
async def test_the_key_is_overwritten_synced_and_unlinked_before_any_row_or_file_goes(tmp_path: Path) -> None:
    disk = WitnessDisk(tmp_path)
    async with await SqliteShelf(tmp_path).open(disk=disk) as store:
        await fill(store)
        disk.steps.clear()
        await store.end(A)
    assert disk.steps == [
        ("write", A, 5),
        ("sync", A, 5),
        ("unlink", A, 5),
        ("sync_folder", "keys", 5),
        ("unlink", F, 0),
        ("unlink", G, 0),
    ]


@bounded
async def test_the_content_of_a_file_is_durable_under_its_name_before_its_row_is_there(tmp_path: Path) -> None:
    disk = WitnessDisk(tmp_path)
    async with await SqliteShelf(tmp_path).open(disk=disk) as store:
        await store.create(A)
        disk.steps.clear()
        await upload(store, A, F, b"content")
    part = f"{F}.part"
    assert disk.steps == [("write", part, 0), ("sync", part, 0), ("rename", F, 0), ("sync_folder", A, 0)]


@bounded
async def test_a_file_that_is_being_published_while_its_space_ends_is_refused_and_gone(tmp_path: Path) -> None:
    disk, shelf = WaitingDisk("keys"), SqliteShelf(tmp_path)
    answers: dict[str, object] = {}
    async with await shelf.open(disk=disk) as store:
        await store.create(A)
        coming = await store.begin_file(A, F, "n", "t")
        assert not isinstance(coming, Refused)

        async def finish() -> None:
            answers["finish"] = await coming.finish(NOW_MS)

        async def end() -> None:
            answers["end"] = await store.end(A)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(finish)
            await disk.is_renaming.wait()
            nursery.start_soon(end)
            await disk.is_synced.wait()  # the key is gone already
            disk.go_on.set()
        assert answers == {"finish": NOT_FOUND, "end": None}
        assert shelf.files() == set()


async def crash_in_end(folder: Path, nth: int) -> tuple[bytes, bool]:
    """The key of a space whose end was interrupted at this step, and whether it was."""
    disk = CrashingDisk(1_000_000)
    store = await SqliteShelf(folder).open(disk=disk)
    await fill(store)
    key = key_bytes(folder, A)
    disk.nth, disk.steps = nth, 0
    crashed = True
    try:
        await store.end(A)
        crashed = False
    except Crash:
        pass
    disk.nth = 1_000_000  # only so that the database can be closed
    await store.close()
    return key, crashed


@bounded
async def test_an_end_that_a_crash_interrupts_at_any_step_is_finished_by_the_next_start(tmp_path: Path) -> None:
    nth = 0
    while True:
        nth += 1
        folder = tmp_path / str(nth)
        folder.mkdir()
        key, crashed = await crash_in_end(folder, nth)
        if not crashed:
            break
        shelf = SqliteShelf(folder)
        async with await shelf.open() as store:
            assert store.space_ids() == ()
            assert shelf.files() == set()
            assert shelf.files_with(*MARKS, key) == set()
            assert await store.end(A) is None
        with closing(sqlite3.connect(folder / "spaces.sqlite")) as connection:
            for table in ("space", "kv", "file", "subscription"):
                assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    assert nth > 6  # overwrite, sync, unlink, sync of the folder, two files


@pytest.mark.parametrize("step", ["write", "sync", "unlink", "sync_folder"])
@bounded
async def test_an_end_that_the_disk_refuses_says_so_and_the_space_is_unknown_nevertheless(
    tmp_path: Path, step: str
) -> None:
    disk = FailingDisk("")
    shelf = SqliteShelf(tmp_path)
    async with await shelf.open(disk=disk) as store:
        await fill(store)
        key = key_bytes(tmp_path, A)
        disk.failing = step
        assert await store.end(A) == NOT_READY
        assert await store.get(A, NAME.decode(), NOW_MS) is None
        assert store.seal(A, b"") is None
        assert shelf.files_with(key) == set()
        disk.failing = None
        assert await store.end(A) is None
        assert shelf.files() == set()


@bounded
async def test_an_upload_that_a_crash_interrupts_at_any_step_leaves_nothing_or_the_file(tmp_path: Path) -> None:
    outcomes: set[bool] = set()
    for nth in range(1, 30):
        folder = tmp_path / str(nth)
        folder.mkdir()
        disk = CrashingDisk(1_000_000)
        shelf = SqliteShelf(folder)
        store = await shelf.open(SpaceStoreLimits(upload_buffer_bytes_max=CHUNK_BYTES), disk)
        await store.create(A)
        disk.nth, disk.steps = nth, 0
        pieces = [CONTENT[at : at + CHUNK_BYTES] for at in range(0, len(CONTENT), CHUNK_BYTES)]
        crashed = False
        try:
            await upload(store, A, F, *pieces)
        except (Crash, BaseExceptionGroup):
            crashed = True
        disk.nth = 1_000_000
        await store.close()
        async with await shelf.open() as store:
            await store.open(A)
            published = store.file(A, F) is not None
            assert published or crashed
            assert shelf.files() == {f"spaces/keys/{A}"} | ({f"spaces/{A}/{F}"} if published else set())
            if published:
                assert await read_all(store, A, F) == CONTENT
        outcomes.add(published)
        if not crashed:
            break
    assert outcomes == {True, False}


@bounded
async def test_a_creation_that_a_crash_interrupts_at_any_step_leaves_a_whole_space_or_none(tmp_path: Path) -> None:
    for nth in range(1, 10):
        folder = tmp_path / str(nth)
        folder.mkdir()
        shelf, disk = SqliteShelf(folder), CrashingDisk(1_000_000)
        store = await shelf.open(disk=disk)
        disk.nth, disk.steps = nth, 0
        crashed = False
        try:
            await store.create(A)
        except Crash:
            crashed = True
        disk.nth = 1_000_000
        await store.close()
        async with await shelf.open() as store:
            there = store.space_ids()
            assert there in ((), (A,))
            assert shelf.files() == {f"spaces/keys/{each}" for each in there}
            if there:
                await store.open(A)
                assert await put(store, A, "k") == 1
        if not crashed:
            break
    assert not crashed


@bounded
async def test_a_start_removes_rows_without_a_key_files_without_a_row_and_rows_without_content(tmp_path: Path) -> None:
    shelf = SqliteShelf(tmp_path)
    async with await shelf.open() as store:
        await fill(store)
        await fill(store, B)
    (tmp_path / "spaces" / "keys" / A).unlink()
    (tmp_path / "spaces" / B / F).unlink()
    (tmp_path / "spaces" / B / "01jdhhhhhhhhhhhhhhhhhhhhhh").write_bytes(b"stray")
    (tmp_path / "spaces" / B / f"{F}.part").write_bytes(b"stray")
    (tmp_path / "spaces" / "keys" / f"{A}.new").write_bytes(b"half a k")
    (tmp_path / "spaces" / "something else").write_bytes(b"not ours")
    async with await shelf.open() as store:
        assert store.space_ids() == (B,)
        await store.open(B)
        assert [file.file_id for file in store.list_files(B)] == [G]
        assert shelf.files() == {f"spaces/keys/{B}", f"spaces/{B}/{G}", "spaces/something else"}


@bounded
async def test_a_key_without_a_row_is_a_space_whose_last_writes_a_power_cut_took(tmp_path: Path) -> None:
    shelf = SqliteShelf(tmp_path)
    async with await shelf.open() as store:
        await fill(store)
        event = store.seal(A, b"event")
        assert event is not None
    remove_database(tmp_path)
    async with await shelf.open() as store:
        assert store.space_ids() == (A,)
        assert store.unseal(A, event) == b"event"
        await store.open(A)
        assert store.list_keys(A, NOW_MS).keys == ()
        assert await put(store, A, "k") == 1
