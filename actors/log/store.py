"""The port behind which the log is kept: streams of events, appended at an expected version, all or nothing.

A store knows nothing of nodes or commands. It keeps, for each stream, numbered events (bytes), at most one snapshot,
and *open items*: what is unfinished, so that a restart reads that and not history. One append may carry parts for
several streams, and *blind events*: single ones for streams of others. They are written together or not at all, so two
aggregates can share a commit. Nothing that has to be erased at once belongs here: what is removed is gone for readers,
not from every block of the disk.

A version conflict is an answer, a full disk is an answer, a full queue is an answer. `StoreFailedError` is none: the
outcome of a commit is unknown, and the process has to stop and find out by reopening. `UnreadableError` is the trouble
of whoever asked: one stream cannot be read, all others go on.

Which events to write, and what they mean, is the rules' business; who may open the folder, the process's.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias, TypeVar

import msgspec
import outcome
import trio

_T = TypeVar("_T")


class LogLimits(msgspec.Struct, frozen=True):
    """Every bound of the log in one place, each with what happens when it is reached."""

    queue_appends_max: int = 8_192  # unanswered appends; the next one is AppendRefused(OVERLOADED)
    queue_bytes_max: int = 64 * 1024 * 1024  # bytes in unanswered appends; the next one is AppendRefused(OVERLOADED)
    batch_appends_max: int = 512  # appends in one transaction; the rest wait for the next
    wal_bytes_max: int = 16 * 1024 * 1024  # written (as estimated) since the last checkpoint; then there is one
    known_versions_max: int = 65_536  # streams whose version is held in memory; then they are looked up again
    read_events_max: int = 10_000  # events in one answer of `read`; ask again after the last
    compact_events_max: int = 2_000  # events removed in one transaction; appends go in between
    uncovered_streams_max: int = 256  # named in one answer of `compact`; the others come first in the next


DEFAULT_LIMITS = LogLimits()


class StoreFailedError(Exception):
    """The store is broken and what it last wrote may or may not be there: stop the process, never retry."""


class CannotOpenError(StoreFailedError):
    """There is a file, and it is damaged or of a newer form; nothing of it was changed. The text says what to do."""


class UnreadableError(Exception):
    """What was asked for cannot be read: the disk failed, or the file is damaged there.

    The words are SQLite's name for it or a kind of error, never anything out of the data.
    """


class OpenItem(msgspec.Struct, frozen=True):
    """Something unfinished. Written again, it replaces what was there."""

    key: str
    data: bytes


class Part(msgspec.Struct, frozen=True):
    """What one append does to one stream.

    Versions count from 1, so a stream that has nothing yet is at version 0. `snapshot` is the state after `events`; a
    part without events may carry just that. With an expected version of None the events go behind whatever is there:
    for streams with one writer, which knows their order without asking.
    """

    stream: str
    expected_version: int | None
    at_ms: int
    events: tuple[bytes, ...] = ()
    opened: tuple[OpenItem, ...] = ()
    closed: tuple[str, ...] = ()
    snapshot: bytes | None = None

    def fits(self, version: int) -> bool:
        """Whether it can be written to a stream of this version."""
        return self.expected_version is None or self.expected_version == version

    @property
    def size_bytes(self) -> int:
        """About what it takes to hold it in a queue."""
        size = 0 if self.snapshot is None else len(self.snapshot)
        for data in self.events:
            size += len(data)
        for item in self.opened:
            size += len(item.data)
        return size


BlindEvents: TypeAlias = tuple[tuple[str, bytes], ...]
"""Streams that have one writer, and an event for each, to go behind whatever is there: as a part with an expected
version of None and nothing but this event, of the time of the append's first part, at a fraction of the cost."""


class Recorded(msgspec.Struct, frozen=True):
    """An event as it lies in its stream."""

    version: int
    at_ms: int
    data: bytes


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a stream at a version."""

    version: int
    data: bytes


class Loaded(msgspec.Struct, frozen=True):
    """A stream as of one moment: the snapshot, what came after it, and what is open, in the order of the keys."""

    stream: str
    version: int
    snapshot: Snapshot | None
    events: tuple[Recorded, ...]
    open_items: tuple[OpenItem, ...]


class RefusalReason(StrEnum):
    """Why nothing was written. In each case the caller may try again later."""

    OVERLOADED = "overloaded"
    DISK_FULL = "disk_full"
    STORE_ERROR = "store_error"
    UNREACHABLE = "unreachable"  # of a log that is elsewhere: nobody took it, for as long as one waits for that


class Appended(msgspec.Struct, frozen=True):
    """It is durable. `versions` are those of its streams now, in the order of the parts."""

    versions: tuple[int, ...]

    @property
    def version(self) -> int:
        """The version of the first (mostly: the only) stream."""
        return self.versions[0]


class Conflict(msgspec.Struct, frozen=True):
    """Somebody else has appended to this stream; nothing of this append was written."""

    stream: str
    actual_version: int


class AppendRefused(msgspec.Struct, frozen=True):
    """Nothing of this append was written, for certain."""

    reason: RefusalReason


class Compacted(msgspec.Struct, frozen=True):
    """What one round of compaction came to."""

    removed: int  # events
    uncovered: tuple[str, ...]
    """Streams whose oldest event would have been removed too, if a snapshot covered it: for their owners to write one.
    Not all of them, if there are very many."""


AppendAnswer = Appended | Conflict | AppendRefused
Then: TypeAlias = Callable[[AppendAnswer | StoreFailedError], None]


class LogStore(Protocol):
    """What every store does; `tests/actors/log/test_store_contract.py` holds each of them to it."""

    @property
    def log_id(self) -> str:
        """The identity of this log, made with it: a node keeps one journal for each (§7.3)."""

    def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
        """Write parts and blind_events durably, together, and say how that ended by `then`, or refuse at once.

        Appends are taken, and answered, in the order of the calls. `then` is called once, later, between two steps of
        the event loop: it neither waits nor raises.
        """

    async def append(self, *parts: Part, blind_events: BlindEvents = ()) -> AppendAnswer:
        """The same for a task that waits. A cancelled one only stops waiting: the append goes on."""

    async def load(self, stream: str) -> Loaded:
        """Everything needed to rebuild the stream's state, as of one moment. Raises `UnreadableError`, as all reads."""

    async def read(self, stream: str, after: int = 0, limit: int | None = None) -> tuple[Recorded, ...]:
        """Events with a version above `after`, oldest first; those compacted away are left out."""

    async def open_streams(self) -> tuple[str, ...]:
        """The streams that have open items, in the order of their names."""

    async def compact(self, before_ms: int) -> Compacted:
        """Remove settled history: events written before then, that a snapshot covers, older than anything open."""

    async def forget(self, *streams: str) -> AppendRefused | None:
        """Remove streams and all that is in them, in one turn among the appends; None once that is durable.

        Each is as if it had never been, at version 0. Refused, all are there. A cancelled caller only stops waiting.
        """

    async def watch(self) -> None:
        """Wait until the store is closed, or raise `StoreFailedError` as soon as it has failed."""

    async def close(self) -> None:
        """Write what is queued, let go of the files."""


async def answered(submit: Callable[[Callable[[_T | StoreFailedError], None]], _T | None]) -> _T:
    """Submit, and wait for how it ended."""
    task: trio.lowlevel.Task | None = trio.lowlevel.current_task()

    def then(answer: _T | StoreFailedError) -> None:
        if task is not None:
            trio.lowlevel.reschedule(
                task, outcome.Error(answer) if isinstance(answer, StoreFailedError) else outcome.Value(answer)
            )

    def stop_waiting(_: object) -> trio.lowlevel.Abort:
        nonlocal task
        task = None
        return trio.lowlevel.Abort.SUCCEEDED

    at_once = submit(then)
    if at_once is not None:
        await trio.lowlevel.checkpoint()
        return at_once
    answer: _T = await trio.lowlevel.wait_task_rescheduled(stop_waiting)
    return answer


def check_append(parts: Sequence[Part], blind_events: BlindEvents) -> None:
    """Refuse what no caller may ask, before it is queued: it would be ambiguous what comes first."""
    if not parts:
        raise ValueError("an append needs at least one part")
    if len(parts) > 1 and len({part.stream for part in parts}) != len(parts):
        raise ValueError("an append may have one part for each stream")
    for stream, _ in blind_events:
        for part in parts:
            if part.stream == stream:
                raise ValueError("an append may have a part for a stream or blind_events, not both")
