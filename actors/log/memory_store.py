"""The log's port in memory: the same answers as SQLite, no threads, nothing random. For simulations and tests.

`MemoryDisk` is what survives; `MemoryStore` is one process's access to it, and two of them over one disk are two
gateways over one log. Appends commit in the order they were asked for, each after a checkpoint (of a system task), so
that a simulation can let anything happen in between; a second one lies between the commit and its answer. Hooks:

  - `crash()`: this process is gone. What was not committed never will be; nobody hears of what was.
  - `fail(...)`: the outcome of the next commit is unknown: it may be on the disk, its callers get StoreFailedError.
  - `disk.is_full`: nothing can be written, reads go on.
  - `disk.unreadable`: streams that cannot be read, whoever asks; appends to them go on.
  - `before_commit`, `before_answer`: what happens instead of those two checkpoints (a sleep on a mock clock, say).

Durability of real files and group commit are the SQLite store's business.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import dropwhile
from typing import Any

import trio

from actors.log.compaction_rules import Bounds, Uncovered
from actors.log.store import (
    DEFAULT_LIMITS,
    AppendAnswer,
    Appended,
    AppendRefused,
    BlindEvents,
    Compacted,
    Conflict,
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


@dataclass(slots=True)
class _Stream:
    version: int = 0
    events: list[Recorded] = field(default_factory=list)
    snapshot: Snapshot | None = None
    open_items: dict[str, tuple[int, OpenItem]] = field(default_factory=dict)  # with the version they are open since


@dataclass(slots=True)
class MemoryDisk:
    """What every process sees, and what is left when one dies."""

    log_id: str = "01JD0000000000000000000000"
    is_full: bool = False
    unreadable: set[str] = field(default_factory=set)
    streams: dict[str, _Stream] = field(default_factory=dict)

    def commit(self, parts: tuple[Part, ...], blind_events: BlindEvents = ()) -> AppendAnswer:
        """Write parts and blind_events together, or none of them."""
        if self.is_full:
            return AppendRefused(RefusalReason.DISK_FULL)
        for part in parts:
            version = self.streams.get(part.stream, _Stream()).version
            if not part.fits(version):
                return Conflict(part.stream, version)
        for name, data in blind_events:
            self._write(Part(name, None, parts[0].at_ms, (data,)))
        return Appended(tuple(self._write(part) for part in parts))

    def _write(self, part: Part) -> int:
        stream = self.streams.setdefault(part.stream, _Stream())
        first = stream.version + 1
        stream.events += [Recorded(first + n, part.at_ms, data) for n, data in enumerate(part.events)]
        stream.version += len(part.events)
        if part.snapshot is not None:
            stream.snapshot = Snapshot(stream.version, part.snapshot)
        for item in part.opened:
            since, _ = stream.open_items.get(item.key, (first, item))
            stream.open_items[item.key] = (since, item)
        for key in part.closed:
            stream.open_items.pop(key, None)
        return stream.version

    def find(self, stream: str) -> _Stream:
        """The stream as it is, empty if there is none."""
        if stream in self.unreadable:
            raise UnreadableError("SQLITE_IOERR_READ")
        return self.streams.get(stream, _Stream())

    def load(self, stream: str) -> Loaded:
        """As `LogStore.load` says."""
        found = self.find(stream)
        covered = 0 if found.snapshot is None else found.snapshot.version
        events = tuple(event for event in found.events if event.version > covered)
        items = tuple(item for _, (_, item) in sorted(found.open_items.items()))
        return Loaded(stream, found.version, found.snapshot, events, items)

    def forget(self, *streams: str) -> AppendRefused | None:
        """As `LogStore.forget` says."""
        if self.is_full:
            return AppendRefused(RefusalReason.DISK_FULL)
        for stream in streams:
            self.streams.pop(stream, None)
            self.unreadable.discard(stream)
        return None

    def compact(self, before_ms: int, after: str = "", limits: LogLimits = DEFAULT_LIMITS) -> Compacted:
        """As `LogStore.compact` says; `after` is the last stream that was named as one without a snapshot."""
        removed, uncovered = 0, Uncovered(after, limits.uncovered_streams_max)
        for name, stream in sorted(self.streams.items()):
            covered = 0 if stream.snapshot is None else stream.snapshot.version
            open_since = min((since for since, _ in stream.open_items.values()), default=None)
            bounds = Bounds(before_ms, covered, open_since)
            kept = list(dropwhile(bounds.may_go, stream.events))
            removed += len(stream.events) - len(kept)
            stream.events = kept
            if kept and bounds.lacks_snapshot(kept[0]):
                uncovered.add([name])
        return Compacted(removed, uncovered.names)


@dataclass(slots=True, eq=False)
class _Pending:
    commit: Callable[[], object]
    then: Callable[[Any], None]
    size_bytes: int = 0
    is_committed: bool = False
    is_ready: bool = False  # to be answered
    answer: object = None


class MemoryStore:
    """A `LogStore` over a `MemoryDisk`."""

    def __init__(
        self,
        disk: MemoryDisk | None = None,
        limits: LogLimits = DEFAULT_LIMITS,
        before_commit: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint,
        before_answer: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint,
    ) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        self._limits = limits
        self._before_commit = before_commit
        self._before_answer = before_answer
        self._pending: deque[_Pending] = deque()
        self._unheard: deque[_Pending] = deque()  # whose answer is not told yet
        self._unanswered = 0
        self._unanswered_bytes = 0
        self._failure: str | None = None
        self._uncovered_through = ""  # the last stream that compaction has named as one without a snapshot
        self._next_commit_fails: bool | None = None  # the value: whether it is on the disk nevertheless
        self._is_closed = False
        self._ended = trio.Event()

    @property
    def log_id(self) -> str:
        return self.disk.log_id

    # ── what a simulation does to it ────────────────────────────────────────────────────────────────────────────────

    def crash(self) -> None:
        """This process is gone: uncommitted appends are dropped, and whoever still waits is told nothing but so."""
        self._break("the process has crashed")

    def fail(self, *, reaches_disk: bool) -> None:
        """Let the next commit end with an unknown outcome."""
        self._next_commit_fails = reaches_disk

    # ── the port ────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
        check_append(parts, blind_events)
        self._check_usable()
        size_bytes = sum(part.size_bytes for part in parts) + sum(len(data) for _, data in blind_events)
        is_crowded = self._unanswered_bytes + size_bytes > self._limits.queue_bytes_max
        if self._unanswered >= self._limits.queue_appends_max or is_crowded:
            return AppendRefused(RefusalReason.OVERLOADED)
        self._queue(_Pending(partial(self.disk.commit, parts, blind_events), then, size_bytes))
        return None

    async def append(self, *parts: Part, blind_events: BlindEvents = ()) -> AppendAnswer:
        return await answered(lambda then: self.submit(parts, then, blind_events))

    async def forget(self, *streams: str) -> AppendRefused | None:
        self._check_usable()
        return await answered(lambda then: self._queue(_Pending(partial(self.disk.forget, *streams), then)))

    def _queue(self, pending: _Pending) -> None:
        self._pending.append(pending)
        self._unanswered += 1
        self._unanswered_bytes += pending.size_bytes
        self._unheard.append(pending)
        trio.lowlevel.spawn_system_task(self._carry_out, pending)

    async def _carry_out(self, pending: _Pending) -> None:
        try:
            await self._before_commit()
            self._commit_through(pending)
            await self._before_answer()
        finally:
            self._unanswered -= 1
            self._unanswered_bytes -= pending.size_bytes
        pending.is_ready = True
        while self._unheard and self._unheard[0].is_ready:  # in the order in which they were asked for
            first = self._unheard.popleft()
            failed = self._failure is not None or not first.is_committed
            first.then(StoreFailedError(self._failure) if failed else first.answer)

    def _commit_through(self, last: _Pending) -> None:
        """Commit what was asked for up to and including this append, unless another task has already."""
        while not last.is_committed and self._failure is None:
            pending = self._pending.popleft()
            if self._next_commit_fails is not None:
                if self._next_commit_fails:
                    pending.commit()
                self._break("the outcome of a commit is unknown")
                return
            pending.answer, pending.is_committed = pending.commit(), True

    async def load(self, stream: str) -> Loaded:
        await self._checkpoint()
        return self.disk.load(stream)

    async def names(self, prefix: str, suffix: str) -> tuple[str, ...]:
        """As `actors.ledger.ledgers.LedgerStore` says."""
        await self._checkpoint()
        return tuple(sorted(name for name in self.disk.streams if name.startswith(prefix) and name.endswith(suffix)))

    async def read(self, stream: str, after: int = 0, limit: int | None = None) -> tuple[Recorded, ...]:
        await self._checkpoint()
        found = self.disk.find(stream)
        bounded = min(limit or self._limits.read_events_max, self._limits.read_events_max)
        return tuple([event for event in found.events if event.version > after][:bounded])

    async def open_streams(self) -> tuple[str, ...]:
        await self._checkpoint()
        return tuple(sorted(name for name, stream in self.disk.streams.items() if stream.open_items))

    async def compact(self, before_ms: int) -> Compacted:
        self._check_usable()
        await trio.lowlevel.checkpoint()
        compacted = self.disk.compact(before_ms, self._uncovered_through, self._limits)
        self._uncovered_through = compacted.uncovered[-1] if compacted.uncovered else self._uncovered_through
        return compacted

    async def watch(self) -> None:
        await self._ended.wait()
        if self._failure is not None:
            raise StoreFailedError(self._failure)

    async def close(self) -> None:
        self._is_closed = True
        if self._pending:
            self._commit_through(self._pending[-1])
        self._ended.set()
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def __aenter__(self) -> "MemoryStore":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _break(self, failure: str) -> None:
        self._failure = self._failure or failure
        self._pending.clear()
        self._ended.set()

    def _check_usable(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("the log is closed")
        if self._failure is not None:
            raise StoreFailedError(self._failure)

    async def _checkpoint(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("the log is closed")
        await trio.lowlevel.checkpoint()
