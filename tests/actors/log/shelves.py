"""Where a store under test keeps its things: opened again, it finds what was there."""

import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import closing as closing_after
from functools import partial, wraps
from itertools import count
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

import trio

from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.sqlite_store import SqliteStore
from actors.log.store import DEFAULT_LIMITS, AppendAnswer, LogLimits, LogStore, OpenItem, Part
from gateway.engine.connection import Connection
from gateway.engine.nats_reads import Reads
from gateway.engine.nats_runs import Names
from gateway.engine.nats_store import NatsStore
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.objects import Objects
from gateway.engine.server_run import ServerRun
from gateway.engine.settings import EngineSettings

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

    async def open(self, limits: LogLimits = DEFAULT_LIMITS) -> SqliteStore | MemoryStore | NatsStore:
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


class ShelvedNatsStore(NatsStore):
    """With a connection of its own."""

    link: Connection

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self.link.aclose()


class NatsShelf:
    """Content in JetStream, under a prefix of its own."""

    _shelves = count()

    def __init__(self, *servers: ServerRun) -> None:
        self.servers = servers
        self.names = Names(f"t{next(self._shelves)}")
        self.engine = EngineSettings(
            prefix=self.names.prefix, replicas=1, log_bytes_max=2**24, bucket_bytes_max=2**20, sync_is_always=True
        )
        self.now_s = time.time

    async def connect(self) -> Connection:
        urls = tuple(server.url for server in self.servers)
        return await Connection.open(ConnectionSettings(urls, token=self.servers[0].token, redial_s=0.05))

    async def open(self, limits: LogLimits = DEFAULT_LIMITS) -> ShelvedNatsStore:
        link = await self.connect()
        log_id = await Objects(link, self.names, self.engine).prepare()
        store = ShelvedNatsStore(link, self.names, log_id, self.now_s, limits, self.engine)
        store.link = link
        return store

    def make_unreadable(self, stream: str) -> None:
        async def damage() -> None:
            async with await self.connect() as link:
                reads = Reads(link, self.names, self.engine)
                _, last = await reads.ends(stream)
                assert last is not None
                ours = {name: value for name, value in last.headers.items() if name.startswith("Hg-")}
                await link.request(self.names.runs_of(stream), b"\xff\xfe", ours, timeout_s=TEST_S_MAX)

        thread = threading.Thread(target=trio.run, args=(damage,))
        thread.start()
        thread.join(TEST_S_MAX)


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
