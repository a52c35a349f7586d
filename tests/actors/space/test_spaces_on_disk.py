"""Spaces over real files: what is left of one after its end, whenever the process died."""

import base64
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from actors.log.sqlite_store import SqliteStore
from actors.space import events
from actors.space.events import Space
from actors.space.space_files import FileComing, SpaceFiles
from actors.space.space_values import Put, SpaceValues
from actors.space.spaces import EchoSpaces
from actors.space.sqlite_space_store import SqliteSpaceStore
from actors.space.store import StoredFile
from schemas.echo.kv import KvEntry, KvWrite
from schemas.ulids import Mint
from tests.actors.space.driver import World, opened
from tests.actors.space.shelves import SqliteShelf

MARK = b"marked, and nowhere to be found"


@asynccontextmanager
async def process(world: World, folder: Path, *, loads: bool = True) -> AsyncIterator[EchoSpaces]:
    """`loads`: else it dies before it has looked at what there is."""
    mint = Mint(world.random)
    async with await SqliteStore.open(folder / "log.sqlite") as log, await SqliteSpaceStore.at(folder) as store:
        await store.load()
        spaces = EchoSpaces(store, log, world.settings, world.now, world.random, lambda: mint.mint(world.now_ms))
        if loads:
            await spaces.load()
        yield spaces


async def fill(world: World, spaces: EchoSpaces) -> tuple[str, str]:
    """A space of a minute with a value and a file: its token and id."""
    made = await opened(spaces, 60)
    assert isinstance(await SpaceValues(spaces).put(made.space, made.token, "k", KvWrite(MARK)), Put)
    mint = Mint(world.random)
    coming = await SpaceFiles(spaces, lambda: mint.mint(world.now_ms)).begin(made.space, MARK.decode(), "text/plain")
    assert isinstance(coming, FileComing)
    async with coming:
        assert await coming.append(MARK * 1000) is None
        assert isinstance(await coming.finish(), StoredFile)
    return made.token, made.space.space_id


def key_of(folder: Path, space_id: str) -> bytes:
    return (folder / "spaces" / "keys" / space_id).read_bytes()[:32]


def log_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("log.sqlite*"))


@pytest.mark.parametrize("dies_after", ["nothing", "the key", "everything"])
async def test_after_the_end_neither_the_key_nor_anything_of_the_space_is_left(tmp_path: Path, dies_after: str) -> None:
    world = World()
    async with process(world, tmp_path) as spaces:
        token, space_id = await fill(world, spaces)
        other_token, other_id = await fill(world, spaces)
        space = spaces.find(other_token)
        assert space is not None
        key = key_of(tmp_path, space_id)
        if dies_after == "the key":
            await spaces.store.end(space_id)
        elif dies_after == "everything":
            world.now_ms += 60_000
            await spaces.end_what_is_over()
    world.now_ms += 60_000
    async with process(world, tmp_path) as spaces:
        assert spaces.find(token) is None
        assert spaces.find(other_token) is None
        assert len(spaces) == 0
        assert spaces.store.space_ids() == ()
    left = SqliteShelf(tmp_path)
    assert left.files_with(key, MARK, token.encode()) == set()
    assert [file for file in left.files() if space_id in file or other_id in file] == []
    async with await SqliteStore.open(tmp_path / "log.sqlite") as log:
        assert await log.open_streams() == ()
        assert await log.read(f"space/{space_id}") == ()


async def test_a_space_is_there_with_all_it_had_after_a_restart(tmp_path: Path) -> None:
    world = World()
    async with process(world, tmp_path) as spaces:
        token, _ = await fill(world, spaces)
    async with process(world, tmp_path, loads=False):
        pass
    async with process(world, tmp_path) as spaces:
        space = spaces.find(token)
        assert space is not None
        entry = await SpaceValues(spaces).get(space, "k")
        assert isinstance(entry, KvEntry)
        assert entry.value == MARK
        assert SqliteShelf(tmp_path).files_with(MARK, token.encode()) == set()


async def test_the_log_has_of_a_space_its_id_times_and_lengths_and_all_else_sealed(tmp_path: Path) -> None:
    world = World()
    async with process(world, tmp_path) as spaces:
        made = await opened(spaces, 61, is_encrypted=True)
        space_id, stream = made.space.space_id, f"space/{made.space.space_id}"
        moved = await spaces.move_end(space_id, made.claim, 62)
        assert isinstance(moved, Space)
        hashes = (made.space.token_hash, made.space.claim_hash or b"")
        secrets = [made.token.encode(), made.claim.encode(), *hashes, *map(base64.b64encode, hashes)]
        words = [b"SpaceOpened", b"SpaceEndMoved", b"token_hash", b"is_encrypted", b"protocol", b"json"]
        ends = [b"%d" % space.ends_at_ms for space in (made.space, moved)]
        in_log = log_bytes(tmp_path)
        assert [mark for mark in (*secrets, *words, *ends) if mark in in_log] == []
        assert stream.encode() in in_log
    async with await SqliteStore.open(tmp_path / "log.sqlite") as log, await SqliteSpaceStore.at(tmp_path) as store:
        await store.load()
        loaded = await log.load(stream)
        recorded, (end, _) = loaded.events, loaded.open_items
        bodies = [store.unseal(space_id, data) or b"" for data in (*(event.data for event in recorded), end.data)]
    assert [type(events.decode(body)) for body in bodies] == [events.SpaceOpened, events.SpaceEndMoved]
    with closing(sqlite3.connect(tmp_path / "log.sqlite")) as connection:
        rows = [row for table in ("stream", "run", "open_item") for row in connection.execute(f"SELECT * FROM {table}")]
    marks = {f"[{event.at_ms},{len(event.data)}]" for event in recorded}
    assert {value for row in rows for value in row if isinstance(value, str)} == {stream, "live", "end", *marks}
    sealed = {*(event.data for event in recorded), end.data, b""}
    assert sealed == {bytes(v) for row in rows for v in row if isinstance(v, bytes)}
