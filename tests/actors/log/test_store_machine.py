"""Each store against a naive model, over any sequence of appends, compactions, restarts and crashes.

A crash of the SQLite store is what a power cut leaves: its files copied as they are, without closing anything, with
half of a write that nobody was told of at the end of the write-ahead file. On JetStream it is a connection that ends,
or a server that is killed and started again.
"""

import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import hypothesis.strategies as st
import msgspec
import pytest
import trio
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.sqlite_files import wal_of
from actors.log.sqlite_store import SqliteStore
from actors.log.store import (
    AppendAnswer,
    Appended,
    BlindEvents,
    Conflict,
    Loaded,
    LogLimits,
    LogStore,
    OpenItem,
    Part,
    Recorded,
    Snapshot,
)
from gateway.engine.server_run import ServerRun
from tests.actors.log.shelves import NatsShelf, ShelvedNatsStore, in_order

_T = TypeVar("_T")

STREAMS = ("a", "b", "c")
KEYS = ("k", "l", "m")
LIMITS = LogLimits(batch_appends_max=3, known_versions_max=2, compact_events_max=2, uncovered_streams_max=2)


class TrioThread:
    """A trio run in a thread of its own, for tests that are not async."""

    def __init__(self, clock: trio.abc.Clock | None = None) -> None:
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=partial(trio.run, clock=clock), args=(self._run,))
        self._thread.start()
        self._is_up.wait(10)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._end = trio.Event()
        self._is_up.set()
        await self._end.wait()

    def call(self, work: Callable[[], Awaitable[_T]]) -> _T:
        async def bounded_work() -> _T:
            with trio.fail_after(30):
                return await work()

        return trio.from_thread.run(bounded_work, trio_token=self._token)

    def stop(self) -> None:
        trio.from_thread.run_sync(self._end.set, trio_token=self._token)
        self._thread.join(10)


class Model:
    """The log as a reader of the port's description would write it down."""

    def __init__(self) -> None:
        self.events: dict[str, list[Recorded]] = {stream: [] for stream in STREAMS}
        self.version = dict.fromkeys(STREAMS, 0)
        self.snapshot: dict[str, Snapshot | None] = dict.fromkeys(STREAMS)
        self.items: dict[str, dict[str, OpenItem]] = {stream: {} for stream in STREAMS}
        self.since: dict[tuple[str, str], int] = {}

    def append(self, parts: list[Part], blind_events: BlindEvents = ()) -> AppendAnswer:
        for part in parts:
            if not part.fits(self.version[part.stream]):
                return Conflict(part.stream, self.version[part.stream])
        for stream, data in blind_events:
            self._write(Part(stream, None, parts[0].at_ms, (data,)))
        for part in parts:
            self._write(part)
        return Appended(tuple(self.version[part.stream] for part in parts))

    def _write(self, part: Part) -> None:
        stream, items = part.stream, self.items[part.stream]
        first = self.version[stream] + 1
        for data in part.events:
            self.version[stream] += 1
            self.events[stream].append(Recorded(self.version[stream], part.at_ms, data))
        if part.snapshot is not None:
            self.snapshot[stream] = Snapshot(self.version[stream], part.snapshot)
        for item in part.opened:
            if item.key not in items:
                self.since[stream, item.key] = first
            items[item.key] = item
        for key in part.closed:
            items.pop(key, None)

    def forget(self, stream: str) -> None:
        self.events[stream], self.items[stream] = [], {}
        self.version[stream], self.snapshot[stream] = 0, None

    def compact(self, before_ms: int) -> tuple[int, list[str]]:
        """How many events are gone, and the streams of which more would be if a snapshot had covered it."""
        removed, uncovered = 0, []
        for stream in STREAMS:
            snapshot, oldest = self.snapshot[stream], [self.since[stream, key] for key in self.items[stream]]
            covered = 0 if snapshot is None else snapshot.version
            while (
                (events := self.events[stream])
                and events[0].at_ms < before_ms
                and all(events[0].version < since for since in oldest)
            ):
                if events[0].version > covered:
                    uncovered.append(stream)
                    break
                events.pop(0)
                removed += 1
        return removed, uncovered

    def load(self, stream: str) -> Loaded:
        snapshot = self.snapshot[stream]
        covered = 0 if snapshot is None else snapshot.version
        events = tuple(event for event in self.events[stream] if event.version > covered)
        items = tuple(self.items[stream][key] for key in sorted(self.items[stream]))
        return Loaded(stream, self.version[stream], snapshot, events, items)


_ITEMS = st.builds(OpenItem, st.sampled_from(KEYS), st.binary(max_size=300))
_PARTS = st.builds(
    Part,
    stream=st.sampled_from(STREAMS),
    expected_version=st.sampled_from([0, 0, 0, 0, 1, -1, None]),  # relative: mostly the right one, or any
    at_ms=st.integers(0, 5),
    events=st.lists(st.binary(max_size=40), max_size=4).map(tuple),
    opened=st.lists(_ITEMS, max_size=2, unique_by=lambda item: item.key).map(tuple),
    closed=st.lists(st.sampled_from(KEYS), max_size=2).map(tuple),
    snapshot=st.none() | st.binary(max_size=8),
)
_APPENDS = st.lists(_PARTS, min_size=1, max_size=3, unique_by=lambda part: part.stream)

_RIDERS = st.lists(st.tuples(st.sampled_from(STREAMS), st.binary(max_size=40)), max_size=3).map(tuple)


class LogMachine(RuleBasedStateMachine):
    """What happens to a log."""

    def __init__(self, clock: trio.abc.Clock | None = None) -> None:
        super().__init__()
        self.model = Model()
        self.loop = TrioThread(clock)
        self.store: LogStore = self.loop.call(self.open_store)

    async def open_store(self) -> LogStore:
        raise NotImplementedError

    def crash_store(self, torn: bytes) -> None:
        raise NotImplementedError

    def at_right_versions(self, parts: list[Part]) -> list[Part]:
        versions = self.model.version
        return [
            part
            if part.expected_version is None
            else msgspec.structs.replace(part, expected_version=max(0, versions[part.stream] + part.expected_version))
            for part in parts
        ]

    @rule(parts=_APPENDS)
    def append(self, parts: list[Part]) -> None:
        parts = self.at_right_versions(parts)
        assert self.loop.call(lambda: self.store.append(*parts)) == self.model.append(parts)

    @rule(steps=st.lists(st.tuples(_APPENDS, _RIDERS) | st.sampled_from(STREAMS), min_size=2, max_size=6))
    def go_on_without_waiting(self, steps: list[tuple[list[Part], BlindEvents] | str]) -> None:
        """Appended and forgotten by tasks that do not wait for each other, each counting on those before."""
        asked: list[Callable[[], Awaitable[AppendAnswer | None]]] = []
        expected: list[AppendAnswer | None] = []
        for step in steps:
            if isinstance(step, str):
                asked.append(partial(self.store.forget, step))
                expected.append(None)
                self.model.forget(step)
                continue
            parts, named = self.at_right_versions(step[0]), {part.stream for part in step[0]}
            riding = tuple(event for event in step[1] if event[0] not in named)
            asked.append(partial(self.store.append, *parts, blind_events=riding))
            expected.append(self.model.append(parts, riding))
        assert self.loop.call(partial(in_order, *asked)) == expected

    @rule(stream=st.sampled_from(STREAMS))
    def forget(self, stream: str) -> None:
        assert self.loop.call(lambda: self.store.forget(stream)) is None
        self.model.forget(stream)

    @rule(before_ms=st.integers(0, 6))
    def compact(self, before_ms: int) -> None:
        compacted = self.loop.call(lambda: self.store.compact(before_ms))
        removed, uncovered = self.model.compact(before_ms)
        assert compacted.removed == removed
        assert len(compacted.uncovered) == min(len(uncovered), LIMITS.uncovered_streams_max)
        assert set(compacted.uncovered) <= set(uncovered)

    @rule()
    def restart(self) -> None:
        self.loop.call(self.store.close)
        self.store = self.loop.call(self.open_store)

    @rule(torn=st.binary(max_size=64))
    def crash(self, torn: bytes) -> None:
        self.crash_store(torn)
        self.store = self.loop.call(self.open_store)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        for stream in STREAMS:
            assert self.loop.call(lambda stream=stream: self.store.load(stream)) == self.model.load(stream)  # type: ignore[misc]

    @precondition(lambda self: any(self.model.version.values()))
    @invariant()
    def reads_like_the_model(self) -> None:
        for stream in STREAMS:
            read = self.loop.call(lambda stream=stream: self.store.read(stream, after=1, limit=3))  # type: ignore[misc]
            assert list(read) == [event for event in self.model.events[stream] if event.version > 1][:3]
        open_streams = tuple(stream for stream in STREAMS if self.model.items[stream])
        assert self.loop.call(self.store.open_streams) == open_streams

    def teardown(self) -> None:
        self.loop.call(self.store.close)
        self.loop.stop()


class SqliteMachine(LogMachine):
    """A log in a file."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="heliograph-log-"))
        self.path = self.folder / "log.db"
        self.lives = 0
        super().__init__()

    async def open_store(self) -> LogStore:
        return await SqliteStore.open(self.path, LIMITS)

    def crash_store(self, torn: bytes) -> None:
        self.loop.call(lambda: self.store.compact(0))  # a turn of the writer: it has nothing under way now
        self.lives += 1
        copy = self.folder / f"life-{self.lives}.db"
        shutil.copy(self.path, copy)
        shutil.copy(wal_of(self.path), wal_of(copy))
        with wal_of(copy).open("ab") as wal:
            wal.write(torn)
        self.loop.call(self.store.close)
        self.path = copy

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


class MemoryMachine(LogMachine):
    """A log in memory."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        super().__init__()

    async def open_store(self) -> LogStore:
        return MemoryStore(self.disk, LIMITS)

    def crash_store(self, torn: bytes) -> None:
        del torn
        assert isinstance(self.store, MemoryStore)
        self.store.crash()


class NatsMachine(LogMachine):
    """A log in JetStream. A crash is a connection that ends, and a server that does so now and then."""

    server: ServerRun

    def __init__(self) -> None:
        self.shelf = NatsShelf(self.server)
        super().__init__()

    async def open_store(self) -> LogStore:
        return await self.shelf.open(LIMITS)

    def crash_store(self, torn: bytes) -> None:
        assert isinstance(self.store, ShelvedNatsStore)
        if len(torn) > 48:
            self.server.kill()
        self.loop.call(self.store.link.aclose)
        if len(torn) > 48:
            trio.run(self.server.start)


class TestNatsLog(NatsMachine.TestCase):  # type: ignore[valid-type, misc]
    settings = settings(max_examples=40, stateful_step_count=25, deadline=None)

    @pytest.fixture(autouse=True)
    def server(self, tmp_path: Path) -> Iterator[None]:
        NatsMachine.server = ServerRun(tmp_path, 2**36)
        trio.run(NatsMachine.server.start)
        yield
        trio.run(NatsMachine.server.stop)


TestSqliteLog = SqliteMachine.TestCase
TestSqliteLog.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestMemoryLog = MemoryMachine.TestCase
TestMemoryLog.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
