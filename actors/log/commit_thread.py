"""A thread that owns a database's one writing connection: takes what is queued, commits it in groups, checkpoints.

Everything that writes to the database happens here, in order. What an error means is decided here:

  - before COMMIT, or no room at COMMIT: nothing was written, and the batch is refused.
  - any other error at COMMIT, an I/O error in a checkpoint, damage, a fault of our own: nobody knows what is on disk.
    The thread stops for good; every waiter gets `StoreFailedError`. A checkpoint counts because a failed fsync leaves
    pages that look clean: the next one would succeed, and the write-ahead file, the only good copy, would be dropped.

What a batch writes is left to the subclass that has the tables; waiting and waking, to the store that is its caller.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import trio

from actors.log.sqlite_files import is_busy, is_damage, is_disk_full, name_of
from actors.log.store import StoreFailedError


class Queued:
    """Something asked of the thread: part of a batch, or other work to be done between two. Answered exactly once."""

    __slots__ = ("answer", "size_bytes", "then", "work")

    def __init__(
        self, then: Callable[[Any], None], size_bytes: int = 0, work: Callable[[], object] | None = None
    ) -> None:
        self.then = then
        self.size_bytes = size_bytes
        self.work = work
        self.answer: object = None  # a StoreFailedError where the outcome is unknown


_Q = TypeVar("_Q", bound=Queued)


class CommitThread(Generic[_Q]):
    """Runs in its own thread. `deliver` is called there with requests that have just been answered."""

    def __init__(
        self,
        name: str,
        connection: sqlite3.Connection,
        batch_max: int,
        wal_bytes_max: int,
        deliver: Callable[[Sequence[_Q]], None],
    ) -> None:
        self.failure: StoreFailedError | None = None
        self._name = name
        self._connection = connection
        self._batch_max = batch_max
        self._wal_bytes_max = wal_bytes_max
        self._deliver = deliver
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._queue: deque[_Q] = deque()
        self._is_due = False  # what is queued is to be written now
        self._in_hand: list[_Q] = []  # taken from the queue, and not answered yet
        self._closing = False
        self._is_idle = False  # asleep until there is something to do
        self._wal_bytes = 0  # estimated, since the last checkpoint
        self.thread = threading.Thread(target=self._run, name=f"heliograph-{name}", daemon=True)

    # ── called from the trio thread ─────────────────────────────────────────────────────────────────────────────────

    def submit(self, request: _Q) -> None:
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

    def write(self, requests: list[_Q]) -> None:
        """Commit these together and answer them, or refuse them."""
        raise NotImplementedError

    def forget_known(self) -> None:
        """What was remembered of the tables may be wrong: a transaction was rolled back."""

    def _run(self) -> None:
        try:
            self._checkpoint()  # what a process that crashed has left; one that keeps crashing would pile it up
            while self._take_turn():
                pass
            self._checkpoint()
        except StoreFailedError as failure:
            self._fail(failure)
        except BaseException as error:
            crash = StoreFailedError(f"the {self._name} writer crashed: {type(error).__name__}")
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

    def _take(self) -> tuple[list[_Q], bool]:
        """The next batch, or a single piece of other work, or nothing because the end is near."""
        with self._lock:
            while not self._is_due and not self._closing:
                self._is_idle = True
                self._condition.wait()
                self._is_idle = False
            batch: list[_Q] = []
            while self._queue and len(batch) < self._batch_max:
                if self._queue[0].work is not None:
                    if not batch:
                        batch.append(self._queue.popleft())
                    break
                batch.append(self._queue.popleft())
            self._is_due = bool(self._queue)
            return batch, self._closing

    def _transact(self, work: Callable[[], None]) -> sqlite3.Error | None:
        """Do `work` in a transaction. An error that is returned undid all of it; `StoreFailedError`: nobody knows."""
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
        self.forget_known()
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

    def _answer(self, requests: Sequence[_Q]) -> None:
        self._in_hand = []
        self._deliver(requests)

    # ── keeping the files in order ──────────────────────────────────────────────────────────────────────────────────

    def _bound_wal(self) -> None:
        # Passive: it waits for nobody, and leaves the file its length: overwriting is cheaper than growing it again.
        if self._wal_bytes > self._wal_bytes_max:
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

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fail(self, failure: StoreFailedError) -> None:
        with self._lock:
            self.failure = failure
            waiting = [*self._in_hand, *self._queue]
            self._queue.clear()
        for request in waiting:
            request.answer = retold(failure)
        self._answer(waiting)


class Wakeable(Protocol):
    """A thread that is given things to do."""

    def wake(self) -> None:
        """Have done what there is; cheap if there is nothing."""


class HandingOver(trio.abc.Instrument):
    """Wakes the thread at the end of each turn of the event loop that has something for it."""

    def __init__(self, thread: Wakeable) -> None:
        self._thread = thread

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002 trio's signature
        self._thread.wake()


def retold(failure: StoreFailedError) -> StoreFailedError:
    """The same failure for one more task: an exception raised in several would collect all their tracebacks."""
    copy = StoreFailedError(*failure.args)
    copy.__cause__ = failure.__cause__
    return copy
