"""What the log's writer thread does: appends in groups, compaction, forgetting.

The thread itself, and what an error of the disk means, is `commit_thread`. Of the log alone is this: a batch that could
not be written takes with it everything queued for the same streams, because that was decided on events that do not
exist.

Waiting and waking are left to `sqlite_store`, which is the only caller.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from actors.log.commit_thread import CommitThread, Queued
from actors.log.sqlite_batch import Batch, Head
from actors.log.sqlite_compaction import Piece, compact_some
from actors.log.sqlite_files import Files, is_disk_full
from actors.log.store import AppendAnswer, AppendRefused, BlindEvents, LogLimits, Part, RefusalReason

_COMMIT_PAGES = 4  # that a commit writes besides one for each row
_FORGET = (
    "DELETE FROM run WHERE stream = ?",
    "DELETE FROM snapshot WHERE stream = ?",
    "DELETE FROM open_item WHERE stream = ?",
    "DELETE FROM stream WHERE id = ?",
)


class Request(Queued):
    """Something asked of the writer: an append, or other work to be done between batches."""

    __slots__ = ("blind_events", "parts")

    def __init__(
        self,
        parts: tuple[Part, ...],
        then: Callable[[Any], None],
        blind_events: BlindEvents = (),
        work: Callable[[], object] | None = None,
    ) -> None:
        size_bytes = 0
        for part in parts:
            size_bytes += part.size_bytes
        for _, data in blind_events:
            size_bytes += len(data)
        super().__init__(then, size_bytes, work)
        self.parts = parts
        self.blind_events = blind_events

    @property
    def streams(self) -> set[str]:
        return {part.stream for part in self.parts} | {stream for stream, _ in self.blind_events}


class Writer(CommitThread[Request]):
    """The log's `CommitThread`."""

    def __init__(self, files: Files, limits: LogLimits, deliver: Callable[[Sequence[Request]], None]) -> None:
        super().__init__("log", files.writer, limits.batch_appends_max, limits.wal_bytes_max, deliver)
        self._files = files
        self._limits = limits
        self._known: dict[str, Head] = {}

    def forget_known(self) -> None:
        self._known.clear()

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

    def forget(self, names: Sequence[str]) -> AppendRefused | None:
        """Remove streams, or say why they are still there."""

        def work() -> None:
            for name in names:
                for (stream,) in self._connection.execute("SELECT id FROM stream WHERE name = ?", (name,)).fetchall():
                    for statement in _FORGET:
                        rows = self._connection.execute(statement, (stream,)).rowcount
                        self._wal_bytes += rows * self._files.page_bytes

        error = self._transact(work)
        for name in names:
            self._known.pop(name, None)
        self._bound_wal()
        return None if error is None else AppendRefused(_reason_of(error))


def _reason_of(error: sqlite3.Error) -> RefusalReason:
    return RefusalReason.DISK_FULL if is_disk_full(error) else RefusalReason.STORE_ERROR
