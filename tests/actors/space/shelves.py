"""Where a store of spaces under test keeps its things: opened again, it finds what was there."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeAlias

import trio

from actors.space.key_files import Disk
from actors.space.memory_space_store import MemorySpaceDisk, MemorySpaceStore
from actors.space.sqlite_space_store import SqliteSpaceStore
from actors.space.store import DEFAULT_LIMITS, Refused, SpaceStore, SpaceStoreLimits, StoredFile, Written

A, B, C = (f"01jd{letter * 22}" for letter in "abc")
F, G, H = (f"01jd{letter * 22}" for letter in "fgh")
NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 1_000

Store: TypeAlias = SqliteSpaceStore | MemorySpaceStore


class Shelf(Protocol):
    """Opens a store over the same content again and again, one at a time."""

    async def open(self, limits: SpaceStoreLimits = DEFAULT_LIMITS) -> Store:
        """The store, loaded."""


class MemoryShelf:
    """Content that lives in memory."""

    def __init__(self) -> None:
        self.disk = MemorySpaceDisk()

    async def open(self, limits: SpaceStoreLimits = DEFAULT_LIMITS) -> MemorySpaceStore:
        store = MemorySpaceStore(self.disk, limits)
        await store.load()
        return store


class SqliteShelf:
    """Content in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def open(self, limits: SpaceStoreLimits = DEFAULT_LIMITS, disk: Disk | None = None) -> SqliteSpaceStore:
        store = await SqliteSpaceStore.at(self.folder, limits, disk)
        await store.load()
        return store

    def files(self) -> set[str]:
        """All but the database."""
        return {
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if path.is_file() and not path.name.startswith("spaces.sqlite")
        }

    def files_with(self, *marks: bytes) -> set[str]:
        """Those that have one of these bytes in them or in their names."""
        return {
            path.name
            for path in self.folder.rglob("*")
            if any(mark in path.name.encode() or (path.is_file() and mark in path.read_bytes()) for mark in marks)
        }


async def put(store: SpaceStore, space_id: str, key: str, value: bytes = b"v", expires_at_ms: int = LATER_MS) -> int:
    """The version it got."""
    answer = await store.put(space_id, key, value, now_ms=NOW_MS, expires_at_ms=expires_at_ms)
    assert isinstance(answer, Written), answer
    return answer.version


async def upload(store: SpaceStore, space_id: str, file_id: str, *pieces: bytes, name: str = "file") -> StoredFile:
    """A whole file."""
    begun = await store.begin_file(space_id, file_id, name, "text/plain")
    assert not isinstance(begun, Refused), begun
    async with begun as coming:
        for piece in pieces:
            assert await coming.append(piece) is None
        stored = await coming.finish(NOW_MS)
    assert isinstance(stored, StoredFile), stored
    return stored


async def read_all(store: SpaceStore, space_id: str, file_id: str) -> bytes:
    """As a download would."""
    content = b""
    while piece := await store.read_file(space_id, file_id, len(content), 1 << 30):
        content += piece
    return content


async def cancelled(work: Callable[[], Awaitable[object]]) -> None:
    """Ask for something, and stop waiting at once."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await work()
