"""The database of spaces as trio sees it: writes that are committed in groups by a thread, reads that wait for none.

A write is a function of the connection; it runs in the writer's thread, in one transaction with others, and one that
fails takes the whole transaction with it. Which rows there are is left to `sqlite_space_rows`, and to whoever asks.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import trio

from actors.log.commit_thread import CommitThread, HandingOver, Queued, retold
from actors.log.sqlite_files import name_of
from actors.log.store import StoreFailedError, UnreadableError, answered
from actors.space.sqlite_space_rows import Connections
from actors.space.store import NOT_READY, OVERLOADED, Refused, SpaceStoreLimits

_T = TypeVar("_T")
_WRITE_BYTES = 4 * 4096  # that a write puts into the write-ahead file besides its data, about


class _Write(Queued):
    """A change of rows, to be made in one transaction with others."""

    __slots__ = ("run",)

    def __init__(
        self, run: Callable[[sqlite3.Connection], object], then: Callable[[Any], None], size_bytes: int
    ) -> None:
        super().__init__(then, size_bytes)
        self.run = run


class _Writer(CommitThread[_Write]):
    """Spaces' `CommitThread`."""

    def write(self, requests: list[_Write]) -> None:
        answers: list[object] = []
        error = self._transact(lambda: answers.extend([request.run(self._connection) for request in requests]))
        for number, request in enumerate(requests):
            request.answer = NOT_READY if error is not None else answers[number]
        self._answer(requests)
        self._wal_bytes += sum(request.size_bytes for request in requests) + len(requests) * _WRITE_BYTES
        self._bound_wal()


class SpaceDatabase:
    """Open connections and the thread that writes."""

    def __init__(self, connections: Connections, limits: SpaceStoreLimits) -> None:
        self._connections = connections
        self._limits = limits
        self._token = trio.lowlevel.current_trio_token()
        self._writer = _Writer("spaces", connections[0], limits.batch_writes_max, limits.wal_bytes_max, self._deliver)
        self._queued_writes = 0
        self._queued_bytes = 0
        self._reading = trio.CapacityLimiter(1)  # one connection, so one read at a time
        self._is_closed = False
        self._ended = trio.Event()
        self._fault: Exception | None = None  # of somebody's `arrived`
        self._handing_over = HandingOver(self._writer)
        trio.lowlevel.add_instrument(self._handing_over)
        self._writer.thread.start()

    async def commit(
        self,
        run: Callable[[sqlite3.Connection], _T],
        arrived: Callable[[_T | Refused | StoreFailedError], None] | None = None,
        size_bytes: int = 0,
        is_bounded: bool = True,
    ) -> _T | Refused:
        """Have this written, and wait. `arrived` is called with the answer even if the caller has stopped waiting."""

        def submit(then: Callable[[Any], None]) -> Refused | None:
            if self._is_closed:
                raise trio.ClosedResourceError("the store of spaces is closed")
            is_full = (
                self._queued_writes >= self._limits.queue_writes_max
                or self._queued_bytes + size_bytes > self._limits.queue_bytes_max
            )
            if is_bounded and is_full:
                if arrived is not None:
                    arrived(OVERLOADED)
                return OVERLOADED

            def answer_with(answer: Any) -> None:
                self._queued_writes -= 1
                self._queued_bytes -= size_bytes
                try:
                    if arrived is not None:
                        arrived(answer)
                finally:
                    then(answer)

            self._writer.submit(_Write(run, answer_with, size_bytes))
            self._queued_writes += 1
            self._queued_bytes += size_bytes
            return None

        return await answered(submit)

    async def read(self, query: Callable[[sqlite3.Connection], _T]) -> _T:
        """Ask for something, as of one moment. Raises `UnreadableError`."""

        def run() -> _T:
            if self._is_closed:  # perhaps while this waited for its turn
                raise trio.ClosedResourceError("the store of spaces is closed")
            reader = self._connections[1]
            try:
                reader.execute("BEGIN")
                try:
                    return query(reader)
                finally:
                    if reader.in_transaction:
                        reader.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise UnreadableError(name_of(error)) from None

        return await trio.to_thread.run_sync(run, limiter=self._reading)

    def _deliver(self, requests: Sequence[_Write]) -> None:
        """Called in the writer thread."""
        with suppress(trio.RunFinishedError):  # then nobody is left to be told
            self._token.run_sync_soon(self._answer, requests)

    def _answer(self, requests: Sequence[_Write]) -> None:
        for request in requests:
            try:
                request.then(request.answer)
            except Exception as error:  # whoever asked is broken: we stop in order, and the others hear their answers
                self._fault = self._fault or error
        if self._writer.failure is not None or self._fault is not None:
            self._ended.set()

    async def watch(self) -> None:
        """As `SpaceStore.watch` says."""
        await self._ended.wait()
        if self._fault is not None:
            raise StoreFailedError("an answer of the store of spaces was not taken") from self._fault
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
            async with self._reading:
                self._writer.finish()
                await trio.to_thread.run_sync(self._writer.thread.join)
                failure = self._writer.failure
                writer, reader = self._connections
                # After a failure the one that can only read is closed last, so that nothing is folded in: see the log.
                for connection in (writer, reader) if failure is not None else (reader, writer):
                    connection.close()
        self._ended.set()
        if failure is not failed_before:
            assert failure is not None
            raise retold(failure)
