"""Where a store under test keeps its things: opened again, it finds what was there."""

from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, Protocol

import trio

from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.sqlite_store import SqliteStore
from actors.log.store import DEFAULT_LIMITS, AppendAnswer, LogLimits, LogStore, OpenItem, Part

_P = ParamSpec("_P")

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


class MemoryShelf:
    """Content that lives in memory."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()

    async def open(self, limits: LogLimits = DEFAULT_LIMITS) -> MemoryStore:
        await trio.lowlevel.checkpoint()
        return MemoryStore(self.disk, limits)


class SqliteShelf:
    """Content in a file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.db"

    async def open(self, limits: LogLimits = DEFAULT_LIMITS) -> SqliteStore:
        return await SqliteStore.open(self.path, limits)


def unheard(_: object) -> None:
    """For a request that nobody waits for: its answer is read off it."""


async def append_in_order(store: LogStore, *parts: Part) -> list[AppendAnswer]:
    """Append each without waiting for the one before; they are queued in this order. The answers, in this order."""
    answers: dict[int, AppendAnswer] = {}

    async def append(number: int, queueing: trio.Event) -> None:
        queueing.set()
        answers[number] = await store.append(parts[number])

    async with trio.open_nursery() as nursery:
        for number in range(len(parts)):
            queueing = trio.Event()
            nursery.start_soon(append, number, queueing)
            await queueing.wait()
    return [answers[number] for number in range(len(parts))]


def part(stream: str, expected_version: int, *events: str, at_ms: int = 0, snapshot: str | None = None) -> Part:
    """An append to one stream, in words."""
    data = tuple(event.encode() for event in events)
    return Part(stream, expected_version, at_ms, data, snapshot=None if snapshot is None else snapshot.encode())


def opening(stream: str, expected_version: int, key: str, arguments: str | None = "args", data: str = "d") -> Part:
    """An append that opens an item, or writes it again."""
    item = OpenItem(key, data.encode(), None if arguments is None else arguments.encode())
    return Part(stream, expected_version, 0, (f"opened {key}".encode(),), opened=(item,))


def closing(stream: str, expected_version: int, *keys: str) -> Part:
    """An append that closes items."""
    return Part(stream, expected_version, 0, (f"closed {keys}".encode(),), closed=keys)
