"""Where a store under test keeps its things: opened again, it finds what was there."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing as closing_after
from functools import partial, wraps
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

import trio

from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.sqlite_store import SqliteStore
from actors.log.store import DEFAULT_LIMITS, AppendAnswer, LogLimits, LogStore, OpenItem, Part

_P = ParamSpec("_P")
_T = TypeVar("_T")

TEST_S_MAX = 30.0


def bounded(test: Callable[_P, Awaitable[None]]) -> Callable[_P, Awaitable[None]]:
    """Fail rather than hang."""

    @wraps(test)
    async def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        with trio.fail_after(TEST_S_MAX):
            await test(*args, **kwargs)

    return run


class Shelf(Protocol):
    """Opens a store over the same content again and again."""

    async def open(self, limits: LogLimits = DEFAULT_LIMITS) -> SqliteStore | MemoryStore:
        """The store; at most one at a time for SQLite."""

    def make_unreadable(self, stream: str) -> None:
        """Damage what the stream has, behind the store's back."""


class MemoryShelf:
    """Content that lives in memory."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()

    async def open(self, limits: LogLimits = DEFAULT_LIMITS) -> MemoryStore:
        await trio.lowlevel.checkpoint()
        return MemoryStore(self.disk, limits)

    def make_unreadable(self, stream: str) -> None:
        self.disk.unreadable.add(stream)


class SqliteShelf:
    """Content in a file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.db"

    async def open(self, limits: LogLimits = DEFAULT_LIMITS) -> SqliteStore:
        return await SqliteStore.open(self.path, limits)

    def make_unreadable(self, stream: str) -> None:
        named = "stream = (SELECT id FROM stream WHERE name = ?)"
        with closing_after(sqlite3.connect(self.path, isolation_level=None, timeout=5)) as connection:
            connection.execute(f"UPDATE run SET marks = CAST(x'FFFE' AS TEXT) WHERE {named}", (stream,))


def unheard(_: object) -> None:
    """For a request that nobody waits for: its answer is read off it."""


async def in_order(*asked: Callable[[], Awaitable[_T]]) -> list[_T]:
    """Ask each without waiting for the one before; they are queued in this order. The answers, in this order."""
    answers: dict[int, _T] = {}

    async def ask(number: int, queueing: trio.Event) -> None:
        queueing.set()
        answers[number] = await asked[number]()

    async with trio.open_nursery() as nursery:
        for number in range(len(asked)):
            queueing = trio.Event()
            nursery.start_soon(ask, number, queueing)
            await queueing.wait()
    return [answers[number] for number in range(len(asked))]


async def append_in_order(store: LogStore, *parts: Part) -> list[AppendAnswer]:
    """Append each without waiting for the one before."""
    return await in_order(*(partial(store.append, each) for each in parts))


def part(stream: str, expected_version: int, *events: str, at_ms: int = 0, snapshot: str | None = None) -> Part:
    """An append to one stream, in words."""
    data = tuple(event.encode() for event in events)
    return Part(stream, expected_version, at_ms, data, snapshot=None if snapshot is None else snapshot.encode())


def opening(stream: str, expected_version: int, key: str, data: str = "d") -> Part:
    """An append that opens an item, or writes it again."""
    item = OpenItem(key, data.encode())
    return Part(stream, expected_version, 0, (f"opened {key}".encode(),), opened=(item,))


def closing(stream: str, expected_version: int, *keys: str) -> Part:
    """An append that closes items."""
    return Part(stream, expected_version, 0, (f"closed {keys}".encode(),), closed=keys)
