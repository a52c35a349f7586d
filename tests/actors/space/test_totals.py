"""What all spaces may have together: counted from the first byte on its way, up to the last, and freed with it."""

import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from actors.space.settings import SpaceSettings
from actors.space.space_files import FileComing, SpaceFiles
from actors.space.space_values import Put, SpaceValues
from actors.space.spaces import DISK_S, EchoSpaces, Opened
from actors.space.store import (
    FILE_OVERHEAD_BYTES,
    NOT_FOUND,
    NOT_READY,
    VALUE_OVERHEAD_BYTES,
    Refused,
    SpaceStore,
    SpaceStoreLimits,
    StoredFile,
    Upload,
)
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from schemas.echo.kv import KvWrite
from schemas.ulids import Mint
from tests.actors.log.shelves import bounded, in_order
from tests.actors.space.driver import World, opened
from tests.actors.space.faulty_disks import FailingDisk
from tests.actors.space.shelves import NOW_MS, A, B, F, G, Shelf, SqliteShelf, cancelled, put, upload

FULL = EchoError.STORAGE_NOT_READY
VALUE, FILE = VALUE_OVERHEAD_BYTES, FILE_OVERHEAD_BYTES


async def begin(store: SpaceStore, space_id: str = A, file_id: str = F) -> Upload:
    begun = await store.begin_file(space_id, file_id, "file", "text/plain")
    assert not isinstance(begun, Refused), begun
    return begun


@bounded
async def test_what_is_under_way_counts_in_the_total_until_it_is_there_or_given_up(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await store.create(B)
        coming, other = await begin(store), await begin(store, B, G)
        await coming.append(b"123")
        await other.append(b"45")
        assert store.totals().bytes == 5 + 2 * FILE
        seen: list[int] = []

        async def look() -> None:
            seen.append(store.totals().bytes)
            await trio.lowlevel.checkpoint()

        await in_order(partial(put, store, A, "k", b"6789"), look)
        all_three = 9 + 2 * FILE + VALUE
        assert (seen, store.totals().bytes) == ([all_three], all_three)
        assert isinstance(await coming.finish(NOW_MS), StoredFile)
        await cancelled(other.abort)
        assert store.totals().bytes == 7 + FILE + VALUE
        last = await begin(store, B, G)
        await last.append(b"12")
        await store.end(B)
        assert await last.append(b"34") == NOT_FOUND
        await last.abort()
        assert store.totals().bytes == 7 + FILE + VALUE


@bounded
async def test_a_piece_and_a_file_count_from_the_moment_they_are_asked_for(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        coming = await begin(store)
        seen: list[tuple[int, int]] = []

        async def look() -> None:
            seen.append((store.usage(A).files, store.usage(A).file_bytes))
            await trio.lowlevel.checkpoint()

        await in_order(partial(coming.append, b"123"), look, partial(store.begin_file, A, G, "n", "t"), look)
        assert seen == [(1, 3), (2, 3)]


@bounded
async def test_a_disk_that_fails_under_an_upload_frees_what_it_had_taken(tmp_path: Path) -> None:
    disk = FailingDisk("")
    async with await SqliteShelf(tmp_path).open(SpaceStoreLimits(upload_buffer_bytes_max=4), disk) as store:
        await store.create(A)
        coming = await begin(store)
        assert await coming.append(b"123") is None
        disk.failing = "sync"
        assert await coming.append(b"4") is None
        assert await coming.finish(NOW_MS) == NOT_READY
        assert (store.totals().bytes, store.usage(A).file_bytes) == (0, 0)


@bounded
async def test_a_crash_under_an_upload_frees_what_it_had_taken(tmp_path: Path) -> None:
    shelf, left = SqliteShelf(tmp_path / "before"), SqliteShelf(tmp_path / "after")
    shelf.folder.mkdir()
    async with await shelf.open(SpaceStoreLimits(upload_buffer_bytes_max=4)) as store:
        await store.create(A)
        await upload(store, A, G, b"there")
        coming = await begin(store)
        await coming.append(b"12345")
        shutil.copytree(shelf.folder, left.folder)  # what a process leaves that is killed now
    assert f"spaces/{A}/{F}.part" in left.files()
    async with await left.open() as store:
        assert store.totals().bytes == 5 + FILE
        assert left.files() == {f"spaces/keys/{A}", f"spaces/{A}/{G}"}


# ---- the limit, of all spaces ----------------------------------------------------------------------------------------


def files_of(world: World, spaces: EchoSpaces) -> SpaceFiles:
    mint = Mint(world.random)
    return SpaceFiles(spaces, lambda: mint.mint(world.now_ms))


def limited(total_bytes_max: int) -> World:
    return World(SpaceSettings(disk_free_min=0.0, total_bytes_max=total_bytes_max))


async def coming_to(files: SpaceFiles, made: Opened) -> FileComing:
    coming = await files.begin(made.space, "a", "b")
    assert isinstance(coming, FileComing)
    return coming


async def test_the_last_byte_of_the_total_is_taken_and_no_more() -> None:
    async with (world := limited(10 + VALUE + FILE)).process() as spaces:
        made, other = await opened(spaces), await opened(spaces)
        values, files = SpaceValues(spaces), files_of(world, spaces)
        assert await values.put(made.space, made.token, "k", KvWrite(b"x" * (11 + FILE))) is FULL
        assert isinstance(await values.put(made.space, made.token, "k", KvWrite(b"x" * 6)), Put)
        async with await coming_to(files, other) as coming:
            assert await coming.append(b"12345") is FULL
        async with await coming_to(files, other) as coming:
            assert await coming.append(b"1234") is None
            assert isinstance(await coming.finish(), StoredFile)
        assert await values.put(other.space, other.token, "k", KvWrite(b"x")) is FULL
        assert await spaces.open(Encoding.JSON, None, is_encrypted=False) is FULL
        assert await files.begin(other.space, "a", "b") is FULL
        assert await values.delete(made.space, "k") is None
        assert isinstance(await values.put(other.space, other.token, "k", KvWrite(b"x" * 6)), Put)


async def test_uploads_to_several_spaces_at_the_same_time_cannot_pass_the_total_together() -> None:
    async with (world := limited(100 + 20 * FILE)).process() as spaces:
        files = files_of(world, spaces)
        coming = [await coming_to(files, await opened(spaces)) for _ in range(20)]
        answers: list[EchoError | None] = []

        async def send(one: FileComing) -> None:
            async with one:
                for _ in range(2):
                    answers.append(await one.append(b"x" * 15))
                    assert spaces.store.totals().bytes <= 100 + 20 * FILE

        async with trio.open_nursery() as nursery:
            for each in coming:
                nursery.start_soon(send, each)
        assert {*answers} == {None, FULL}
        assert spaces.store.totals().bytes == 0


@pytest.mark.parametrize("ratio", [0.09, 0.10, 0.11])
async def test_with_less_than_a_tenth_of_the_disk_free_writes_are_refused_and_reads_go_on(
    ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (world := World()).process() as spaces:
        made, values = await opened(spaces), SpaceValues(spaces)
        await values.put(made.space, made.token, "k", KvWrite(b"v"))
        spaces.settings = replace(spaces.settings, disk_free_min=0.10)
        monkeypatch.setattr(spaces.store, "disk_free_ratio", lambda: ratio)
        world.now_ms += int(DISK_S * 1000)
        answer = await values.put(made.space, made.token, "k", KvWrite(b"v"))
        assert (answer is FULL) is (ratio < 0.10)
        assert not isinstance(await values.get(made.space, "k"), EchoError)


# ---- what empty ones take --------------------------------------------------------------------------------------------


async def test_empty_values_and_files_count_in_the_total_and_not_in_what_their_space_may_have() -> None:
    async with (world := limited(VALUE + 2 * FILE)).process() as spaces:
        made, values, files = await opened(spaces), SpaceValues(spaces), files_of(world, spaces)
        for _ in range(2):  # the second time in the place of the first
            assert isinstance(await values.put(made.space, made.token, "k", KvWrite(b"")), Put)
            assert spaces.store.totals().bytes == VALUE
        async with await coming_to(files, made) as coming:
            assert spaces.store.totals().bytes == VALUE + FILE
            assert isinstance(await coming.finish(), StoredFile)
        async with await coming_to(files, made):
            assert await files.begin(made.space, "a", "b") is FULL
            assert await values.put(made.space, made.token, "l", KvWrite(b"")) is FULL
        assert spaces.store.totals().bytes == VALUE + FILE
        usage = spaces.store.usage(made.space.space_id)
        assert (usage.kv_bytes, usage.file_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("files", "free_files", "ratio"), [(1_000, 500, 0.5), (1_000, 20, 0.02), (0, 0, 0.5), (1_000, 900, 0.5)]
)
async def test_a_disk_without_inodes_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, free_files: int, ratio: float
) -> None:
    async with await SqliteShelf(tmp_path).open() as store:
        told = SimpleNamespace(f_bavail=50, f_blocks=100, f_files=files, f_favail=free_files)
        monkeypatch.setattr(os, "statvfs", lambda _: told)
        assert store.disk_free_ratio() == ratio


async def test_indexes_with_many_entries_go_though_few_spaces_are_open() -> None:
    async with (world := World(SpaceSettings(disk_free_min=0.0, open_entries_max=10))).process() as spaces:
        values, files = SpaceValues(spaces), files_of(world, spaces)
        many = [await opened(spaces) for _ in range(5)]
        for made in many:
            for number in range(4):
                assert isinstance(await values.put(made.space, made.token, f"{number}", KvWrite(b"")), Put)
            async with await coming_to(files, made) as coming:
                assert isinstance(await coming.finish(), StoredFile)
        released = [made for made in many if not is_open(spaces.store, made)]
        assert released == many[:3]
        for made in many:  # they are read again when needed
            assert not isinstance(await values.get(made.space, "0"), EchoError)


def is_open(store: SpaceStore, made: Opened) -> bool:
    try:
        return store.usage(made.space.space_id).keys > 0
    except RuntimeError:
        return False
