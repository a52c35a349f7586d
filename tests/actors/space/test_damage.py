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
from tests.actors.space.marked import CONTENT, NAME, fill
from tests.actors.space.shelves import NOW_MS, A, F, G, SqliteShelf, read_all


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
