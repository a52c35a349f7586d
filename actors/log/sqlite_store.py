"""The embedded store: SQLite behind the log's port. The side of it that lives in trio.

An append is queued at once and answered when its transaction is durable. The writer thread is woken when every task
that could run has run and the event loop turns to I/O: a commit costs as much as several appends, and until then there
may be more of them; a lone caller waits no longer for it. Whatever comes during a commit goes together in the next. One
`run_sync_soon` brings a whole batch of answers back. Reads run on a connection of their own, in a worker thread, and do
not wait for writes.

Whoever runs the process should set `sys.setswitchinterval` to half a millisecond or so: at Python's 5 ms, a trio thread
that computes without a pause can keep the writer thread from running for seconds (measured).

What is written is in `sqlite_writer`, what an error means in `commit_thread`. One process at a time may have the file
open: holding the data folder's lock is left to whoever opens the store.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import trio

from actors.log.commit_thread import HandingOver, retold
from actors.log.compaction_rules import Uncovered
from actors.log.sqlite_files import Files, name_of, open_files
from actors.log.sqlite_runs import read_events
from actors.log.sqlite_writer import Request, Writer
from actors.log.store import (
    DEFAULT_LIMITS,
    AppendAnswer,
    AppendRefused,
    BlindEvents,
    Compacted,
    Loaded,
    LogLimits,
    OpenItem,
    Part,
    Recorded,
    RefusalReason,
    Snapshot,
    StoreFailedError,
    Then,
    UnreadableError,
    answered,
    check_append,
)

_T = TypeVar("_T")

_OPEN_ITEMS = "SELECT key, data FROM open_item WHERE stream = ? ORDER BY key"
_SNAPSHOT = "SELECT version, data FROM snapshot WHERE stream = ?"
_STREAM = "SELECT id FROM stream WHERE name = ?"
_NAMES = "SELECT name FROM stream WHERE name >= ? AND name < ? AND substr(name, length(name) - ? + 1) = ? ORDER BY name"
_OPEN_STREAMS = "SELECT name FROM stream WHERE id IN (SELECT stream FROM open_item) ORDER BY name"


class SqliteStore:
    """A `LogStore` in one SQLite file. Made by `open`, ended by `close` or as an async context manager."""

    def __init__(self, files: Files, limits: LogLimits) -> None:
        """Use `open`."""
        self._limits = limits
        self._token = trio.lowlevel.current_trio_token()
        self._files = files
        self._writer = Writer(files, limits, self._deliver)
        self._reading = trio.CapacityLimiter(1)  # one connection, so one read at a time
        self.answered: Counter[type[object]] = Counter()  # appends so far, by the kind of answer
        self._queued_appends = 0
        self._queued_bytes = 0
        self._uncovered_through = ""  # the last stream that compaction has named as one without a snapshot
        self._is_closed = False
        self._ended = trio.Event()
        self._fault: Exception | None = None  # of somebody's `then`
        self._handing_over = HandingOver(self._writer)
        trio.lowlevel.add_instrument(self._handing_over)
        self._writer.thread.start()

    @classmethod
    async def open(cls, path: Path, limits: LogLimits = DEFAULT_LIMITS) -> "SqliteStore":
        """Open the log, or make one. The caller holds whatever lock keeps other processes out."""
        return cls(await trio.to_thread.run_sync(open_files, path), limits)

    async def __aenter__(self) -> "SqliteStore":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def queued_appends(self) -> int:
        """Not durable yet."""
        return self._queued_appends

    @property
    def log_id(self) -> str:
        return self._files.log_id

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
        check_append(parts, blind_events)
        request = Request(parts, then, blind_events)
        full = (
            self._queued_appends >= self._limits.queue_appends_max
            or self._queued_bytes + request.size_bytes > self._limits.queue_bytes_max
        )
        if full and self._writer.failure is None and not self._is_closed:
            self.answered[AppendRefused] += 1
            return AppendRefused(RefusalReason.OVERLOADED)
        self._submit(request)
        self._queued_appends += 1
        self._queued_bytes += request.size_bytes
        return None

    async def append(self, *parts: Part, blind_events: BlindEvents = ()) -> AppendAnswer:
        return await answered(lambda then: self.submit(parts, then, blind_events))

    async def compact(self, before_ms: int) -> Compacted:
        removed, uncovered = 0, Uncovered(self._uncovered_through, self._limits.uncovered_streams_max)
        after: str | None = ""
        while after is not None:
            piece = await self._done(partial(self._writer.compact, before_ms, after))
            removed += piece.removed
            uncovered.add(piece.uncovered)
            after = piece.go_on_after
        if uncovered.names:
            self._uncovered_through = uncovered.names[-1]
        return Compacted(removed, uncovered.names)

    async def forget(self, *streams: str) -> AppendRefused | None:
        return await self._done(partial(self._writer.forget, streams))

    async def _done(self, work: Callable[[], _T]) -> _T:
        """Have the writer do this in its turn among the appends."""

        def submit(then: Callable[[Any], None]) -> None:
            self._submit(Request((), then, work=work))

        return await answered(submit)

    def _submit(self, request: Request) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("the log is closed")
        self._writer.submit(request)

    def _deliver(self, requests: Sequence[Request]) -> None:
        """Called in the writer thread."""
        with suppress(trio.RunFinishedError):  # then nobody is left to be told
            self._token.run_sync_soon(self._answer, requests)

    def _answer(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if request.work is None:
                self._queued_appends -= 1
                self._queued_bytes -= request.size_bytes
                self.answered[type(request.answer)] += 1
            try:
                request.then(request.answer)
            except Exception as error:  # whoever asked is broken: we stop in order, and the others hear their answers
                self._fault = self._fault or error
        if self._writer.failure is not None or self._fault is not None:
            self._ended.set()

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def load(self, stream: str) -> Loaded:
        return await self._read(lambda reader: _load(reader, stream))

    async def names(self, prefix: str, suffix: str) -> tuple[str, ...]:
        """As `actors.ledger.ledgers.LedgerStore` says."""
        bounds = (prefix, f"{prefix}\U0010ffff", len(suffix), suffix)
        return await self._read(lambda reader: tuple(name for (name,) in reader.execute(_NAMES, bounds)))

    async def read(self, stream: str, after: int = 0, limit: int | None = None) -> tuple[Recorded, ...]:
        bounded = min(limit or self._limits.read_events_max, self._limits.read_events_max)
        return await self._read(lambda reader: read_events(reader, _id_of(reader, stream), after, bounded))

    async def open_streams(self) -> tuple[str, ...]:
        return await self._read(lambda reader: tuple(name for (name,) in reader.execute(_OPEN_STREAMS)))

    async def _read(self, query: Callable[[sqlite3.Connection], _T]) -> _T:
        def run() -> _T:
            if self._is_closed:  # perhaps while this waited for its turn
                raise trio.ClosedResourceError("the log is closed")
            reader = self._files.reader
            try:
                reader.execute("BEGIN")  # one moment: streams are cut and forgotten meanwhile, and their ids used again
                try:
                    return query(reader)
                finally:
                    if reader.in_transaction:
                        reader.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise UnreadableError(name_of(error)) from None  # its text may quote what was being read

        return await trio.to_thread.run_sync(run, limiter=self._reading)

    # ── ending ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def watch(self) -> None:
        await self._ended.wait()
        if self._fault is not None:
            raise StoreFailedError("an answer of the log was not taken") from self._fault
        if self._writer.failure is not None:
            raise retold(self._writer.failure)

    async def close(self) -> None:
        """Raises `StoreFailedError` if the last writes failed; the files are let go of in any case."""
        if self._is_closed:
            await trio.lowlevel.checkpoint()
            return
        self._is_closed = True
        failed_before = self._writer.failure
        trio.lowlevel.remove_instrument(self._handing_over)
        with trio.CancelScope(shield=True):  # bounded by the writer's queue, which takes nothing more
            async with self._reading:  # no reader is in the way of the last checkpoint
                self._writer.finish()
                await trio.to_thread.run_sync(self._writer.thread.join)
                failure = self._writer.failure
                self._files.close(has_failed=failure is not None)
        self._ended.set()
        if failure is not failed_before:
            assert failure is not None
            raise retold(failure)


def _load(reader: sqlite3.Connection, name: str) -> Loaded:
    stream = _id_of(reader, name)
    found = reader.execute(_SNAPSHOT, (stream,)).fetchone()
    snapshot = None if found is None else Snapshot(*found)
    covered = 0 if snapshot is None else snapshot.version
    events = read_events(reader, stream, covered, None)
    items = tuple(OpenItem(*row) for row in reader.execute(_OPEN_ITEMS, (stream,)))
    return Loaded(name, events[-1].version if events else covered, snapshot, events, items)


def _id_of(reader: sqlite3.Connection, name: str) -> int:
    """0, which no stream has, if there is none of this name."""
    row: tuple[int] | None = reader.execute(_STREAM, (name,)).fetchone()
    return 0 if row is None else row[0]
