"""The log's one writer thread: takes what is queued, commits it in groups, checkpoints, compacts, forgets.

Everything that writes to the database happens here, in order, on one connection. What an error means is decided here:

  - before COMMIT, or no room at COMMIT: nothing was written. The batch is refused, and so is everything queued for the
    same streams, because it was decided on events that do not exist.
  - any other error at COMMIT, an I/O error in a checkpoint, damage, a fault of our own: nobody knows what is on disk.
    The writer stops for good; every waiter gets `StoreFailedError`. A checkpoint counts because a failed fsync leaves
    pages that look clean: the next one would succeed, and the write-ahead file, the only good copy, would be dropped.

Waiting and waking are left to `sqlite_store`, which is the only caller.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from actors.log.sqlite_batch import Batch, Head
from actors.log.sqlite_compaction import Piece, compact_some
from actors.log.sqlite_files import Files, is_busy, is_damage, is_disk_full, name_of
from actors.log.store import AppendAnswer, AppendRefused, BlindEvents, LogLimits, Part, RefusalReason, StoreFailedError

_COMMIT_PAGES = 4  # that a commit writes besides one for each row
_FORGET = (
    "DELETE FROM run WHERE stream = ?",
    "DELETE FROM snapshot WHERE stream = ?",
    "DELETE FROM open_item WHERE stream = ?",
    "DELETE FROM stream WHERE id = ?",
)


class Request:
    """Something asked of the writer: an append, or other work to be done between batches. Answered exactly once."""

    __slots__ = ("answer", "blind_events", "parts", "size_bytes", "then", "work")

    def __init__(
        self,
        parts: tuple[Part, ...],
        then: Callable[[Any], None],
        blind_events: BlindEvents = (),
        work: Callable[[], object] | None = None,
    ) -> None:
        self.parts = parts
        self.blind_events = blind_events
        self.then = then
        self.work = work
        size_bytes = 0
        for part in parts:
            size_bytes += part.size_bytes
        for _, data in blind_events:
            size_bytes += len(data)
        self.size_bytes = size_bytes
        self.answer: object = None  # a StoreFailedError where the outcome is unknown

    @property
    def streams(self) -> set[str]:
        return {part.stream for part in self.parts} | {stream for stream, _ in self.blind_events}


class Writer:
    """Runs in its own thread. `deliver` is called there with requests that have just been answered."""

    def __init__(self, files: Files, limits: LogLimits, deliver: Callable[[Sequence[Request]], None]) -> None:
        self.failure: StoreFailedError | None = None
        self._files = files
        self._connection = files.writer
        self._limits = limits
        self._deliver = deliver
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._queue: deque[Request] = deque()
        self._is_due = False  # what is queued is to be written now
        self._in_hand: list[Request] = []  # taken from the queue, and not answered yet
        self._closing = False
        self._known: dict[str, Head] = {}
        self._is_idle = False  # asleep until there is something to do
        self._wal_bytes = 0  # estimated, since the last checkpoint
        self.thread = threading.Thread(target=self._run, name="heliograph-log", daemon=True)

    # ── called from the trio thread ─────────────────────────────────────────────────────────────────────────────────

    def submit(self, request: Request) -> None:
        """Queue a request, to be written after the next `wake`. Raises if the writer has stopped for good."""
        with self._lock:
            if self.failure is not None:
                raise retold(self.failure)
            self._queue.append(request)

    def wake(self) -> None:
        """Have written what is queued: now, or together when the commit that is under way is done."""
        if self._queue and not self._is_due:
            with self._lock:
                self._is_due = True
                if self._is_idle:
                    self._condition.notify()

    def finish(self) -> None:
        """Do what is queued, then end; the connection is left open."""
        with self._lock:
            self._closing = True
            self._condition.notify()

    # ── the thread ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            self._checkpoint()  # what a process that crashed has left; one that keeps crashing would pile it up
            while self._take_turn():
                pass
            self._checkpoint()
        except StoreFailedError as failure:
            self._fail(failure)
        except BaseException as error:
            crash = StoreFailedError(f"the log writer crashed: {type(error).__name__}")
            crash.__cause__ = error
            self._fail(crash)

    def _take_turn(self) -> bool:
        batch, closing = self._take()
        self._in_hand = batch
        if batch and batch[0].work is not None:
            batch[0].answer = batch[0].work()
            self._answer(batch)
        elif batch:
            self.write(batch)
        return bool(batch) or not closing

    def _take(self) -> tuple[list[Request], bool]:
        """The next batch, or a single piece of other work, or nothing because the end is near."""
        with self._lock:
            while not self._is_due and not self._closing:
                self._is_idle = True
                self._condition.wait()
                self._is_idle = False
            batch: list[Request] = []
            while self._queue and len(batch) < self._limits.batch_appends_max:
                if self._queue[0].work is not None:
                    if not batch:
                        batch.append(self._queue.popleft())
                    break
                batch.append(self._queue.popleft())
            self._is_due = bool(self._queue)
            return batch, self._closing

    def write(self, requests: list[Request]) -> None:
        """Commit appends together and answer them."""
        if len(self._known) > self._limits.known_versions_max:
            self._known.clear()
        batch = Batch(self._connection, self._known)
        answers: list[AppendAnswer] = []

        def work() -> None:
            answers.extend([batch.add(request.parts, request.blind_events) for request in requests])
            batch.write()

        error = self._transact(work)
        if error is not None:
            self._refuse(requests, error)
            return
        for request, answer in zip(requests, answers, strict=True):
            request.answer = answer
        self._answer(requests)
        data_bytes = sum([request.size_bytes for request in requests])
        self._wal_bytes += (batch.rows + _COMMIT_PAGES) * self._files.page_bytes + data_bytes
        self._bound_wal()

    def _transact(self, work: Callable[[], None]) -> sqlite3.Error | None:
        """Do `work` durably. An error that is returned undid all of it; `StoreFailedError` means nobody knows."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            work()
        except sqlite3.Error as error:
            self._roll_back(error)
            return error
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if not is_disk_full(error):
                raise StoreFailedError(f"{name_of(error)} at commit: its outcome is unknown") from error
            self._roll_back(error)
            return error
        return None

    def _roll_back(self, error: sqlite3.Error) -> None:
        self._known.clear()
        try:
            # A full disk may have rolled everything back already; what followed would have been committed by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as second:
            raise StoreFailedError(f"{name_of(second)} at rollback after {name_of(error)}") from second
        if is_damage(error):
            raise StoreFailedError(f"{name_of(error)}: the database is damaged") from error
        if is_disk_full(error):
            self._checkpoint()  # an emptied write-ahead file may be all the room that is needed

    def _refuse(self, requests: list[Request], error: sqlite3.Error) -> None:
        streams = set[str]().union(*[request.streams for request in requests])
        with self._lock:
            queued = list(self._queue)
            doomed: list[Request] = []
            self._queue.clear()
            for request in queued:
                (self._queue if streams.isdisjoint(request.streams) else doomed).append(request)
        for request in (*requests, *doomed):
            request.answer = AppendRefused(_reason_of(error))
        self._answer([*requests, *doomed])

    def _answer(self, requests: Sequence[Request]) -> None:
        self._in_hand = []
        self._deliver(requests)

    # ── keeping the files in order ──────────────────────────────────────────────────────────────────────────────────

    def _bound_wal(self) -> None:
        # Passive: it waits for nobody, and leaves the file its length: overwriting is cheaper than growing it again.
        if self._wal_bytes > self._limits.wal_bytes_max:
            self._checkpoint("PASSIVE")

    def _checkpoint(self, mode: str = "TRUNCATE") -> None:
        """Fold the write-ahead file into the database, or what a reader or lack of room leaves possible of it."""
        self._wal_bytes = 0
        try:
            self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:
            if not is_disk_full(error) and not is_busy(error):
                raise StoreFailedError(
                    f"{name_of(error)} in a checkpoint: the database may be behind its log"
                ) from error

    def compact(self, before_ms: int, after: str) -> Piece:
        """Remove a bounded piece of settled history, of the streams whose names come after this one."""
        piece = Piece(0, [], None)

        def work() -> None:
            nonlocal piece
            piece = compact_some(self._connection, before_ms, after, self._limits.compact_events_max)

        if self._transact(work) is not None:
            return Piece(0, [], None)
        self._wal_bytes += piece.removed * self._files.page_bytes  # one stream's events lie scattered
        self._bound_wal()
        return piece

    def forget(self, name: str) -> AppendRefused | None:
        """Remove a stream, or say why it is still there."""

        def work() -> None:
            for (stream,) in self._connection.execute("SELECT id FROM stream WHERE name = ?", (name,)).fetchall():
                for statement in _FORGET:
                    self._wal_bytes += self._connection.execute(statement, (stream,)).rowcount * self._files.page_bytes

        error = self._transact(work)
        self._known.pop(name, None)
        self._bound_wal()
        return None if error is None else AppendRefused(_reason_of(error))

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fail(self, failure: StoreFailedError) -> None:
        with self._lock:
            self.failure = failure
            waiting = [*self._in_hand, *self._queue]
            self._queue.clear()
        for request in waiting:
            request.answer = retold(failure)
        self._answer(waiting)


def _reason_of(error: sqlite3.Error) -> RefusalReason:
    return RefusalReason.DISK_FULL if is_disk_full(error) else RefusalReason.STORE_ERROR


def retold(failure: StoreFailedError) -> StoreFailedError:
    """The same failure for one more task: an exception raised in several would collect all their tracebacks."""
    copy = StoreFailedError(*failure.args)
    copy.__cause__ = failure.__cause__
    return copy
