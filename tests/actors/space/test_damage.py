"""What lies on the disk is not what was written there: it is not read, and everything else is."""

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from actors.log.store import StoreFailedError, UnreadableError
from actors.space.sealing import CHUNK_BYTES
from actors.space.sqlite_space_store import SqliteSpaceStore
from tests.actors.log.shelves import bounded
from tests.actors.space.driver import World, opened
from tests.actors.space.marked import CONTENT, NAME, fill
from tests.actors.space.shelves import NOW_MS, A, F, G, SqliteShelf, put, read_all
from tests.actors.space.test_spaces_on_disk import process


def swap_chunks(sealed: bytes) -> bytes:
    size = CHUNK_BYTES + 16
    return sealed[size : 2 * size] + sealed[:size] + sealed[2 * size :]


@pytest.mark.parametrize(
    "damage",
    [
        swap_chunks,
        lambda sealed: sealed[: CHUNK_BYTES + 16],
        lambda sealed: sealed[:-1],
        lambda sealed: sealed + b"x",
        lambda sealed: sealed[:5] + bytes([sealed[5] ^ 1]) + sealed[6:],
        lambda sealed: sealed[:0],
    ],
)
@bounded
async def test_a_file_whose_content_was_changed_cut_or_put_in_another_order_is_not_read(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    async with await SqliteShelf(tmp_path).open() as store:
        await fill(store)
        path = tmp_path / "spaces" / A / F
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(UnreadableError):
            await read_all(store, A, F)
        assert await read_all(store, A, G) == CONTENT


@bounded
async def test_a_file_in_the_place_of_another_is_not_read(tmp_path: Path) -> None:
    async with await SqliteShelf(tmp_path).open() as store:
        await fill(store)
        shutil.copy(tmp_path / "spaces" / A / F, tmp_path / "spaces" / A / G)
        with pytest.raises(UnreadableError):
            await read_all(store, A, G)


async def look(store: SqliteSpaceStore) -> None:
    """Numbers are bound to the name too, so most damage is met when the space is opened."""
    await store.open(A)
    await store.get(A, NAME.decode(), NOW_MS)


@pytest.mark.parametrize("change", ["version = version + 1", "expires_ms = expires_ms + 1", "value = zeroblob(60)"])
@bounded
async def test_a_row_that_was_changed_is_not_read(tmp_path: Path, change: str) -> None:
    shelf = SqliteShelf(tmp_path)
    async with await shelf.open() as store:
        await fill(store)
    with closing(sqlite3.connect(tmp_path / "spaces.sqlite", isolation_level=None)) as connection:
        connection.execute(f"UPDATE kv SET {change}")
    async with await shelf.open() as store:
        with pytest.raises(UnreadableError):
            await look(store)


@bounded
async def test_a_file_of_another_form_is_not_opened(tmp_path: Path) -> None:
    async with await SqliteShelf(tmp_path).open():
        pass
    with closing(sqlite3.connect(tmp_path / "spaces.sqlite", isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(StoreFailedError, match=re.escape("form 9")):
        await SqliteSpaceStore.at(tmp_path)


@pytest.mark.parametrize("change", ["name = x'00'", "expires_ms = 'soon'", "size = 'large'"])
@bounded
async def test_a_row_that_was_changed_does_not_keep_other_spaces_from_being_swept(tmp_path: Path, change: str) -> None:
    world = World()
    async with process(world, tmp_path) as spaces:
        space_ids = [(await opened(spaces)).space.space_id for _ in range(3)]
        for space_id in space_ids:
            await put(spaces.store, space_id, "k", b"v", expires_at_ms=world.now_ms + 10)
    with closing(sqlite3.connect(tmp_path / "spaces.sqlite", isolation_level=None)) as connection:
        damage = f"UPDATE kv SET {change} WHERE space = (SELECT id FROM space WHERE name = ?)"
        connection.execute(damage, (space_ids[0],))
    async with process(world, tmp_path) as spaces:
        world.now_ms += 60_000
        await spaces.sweep_values()
        usages = await spaces.store.usages(space_ids)
        assert [usages[space_id].keys for space_id in space_ids[1:]] == [0, 0]
        world.now_ms += 1000 * 604_800
        await spaces.end_what_is_over()
        assert spaces.store.space_ids() == ()
