"""The kept audit of a gateway: lines are taken at once, written together a moment later, found again, removed in time.

DATA/audit/NUMBER.sqlite      lines from this number on, until the file is full; the last file is being written

A file is for a day at most, and is removed whole, the oldest first: when all of its lines are too old, or when there is
no room for more. Only the last one always stays. Taking a line never waits and never fails. One that cannot be written
(a full disk, a damaged file, too many at once) is lost; that is counted and told in the log, where each line is as
well. A crash of the process loses what it took within `write_s`, a loss of power perhaps a little more.

What is worth a line is the audit's business (`gateway/calls/audit.py`), who may look the routes'.
"""

import re
import sqlite3
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import TypeVar

import structlog
import trio

from actors.log_throttle import LogThrottle
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.observe.audit.audit_file import WINDOW, AuditFile
from gateway.observe.audit.query_rules import AuditQuery, Found, KeptLine
from gateway.observe.audit.retention_rules import DAY_MS, RetentionClock
from gateway.observe.audit.settings import AuditSettings

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

FOLDER = "audit"
SUFFIX = ".sqlite"
_DIGITS = 16  # of the number that is the name of a file
_NUMBER_MAX = 10**_DIGITS - 1
_NAME = re.compile(f"[0-9]{{{_DIGITS}}}", re.ASCII)
BATCH_LINES_MAX = 4_096  # written in one transaction
LOOK_S_MAX = 0.5  # of a search; then it answers with what it has, and where to go on
LOOKS_AT_ONCE_MAX = 2  # threads that search; the next search waits for one
COMPLAIN_EVERY_S = 60.0
TIDY_S = 3_600.0  # between looks for files that are too old, where nothing is written

Line = tuple[int, str, dict[str, object]]  # when, which event, its fields
T = TypeVar("T")


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """The files of an audit with the numbers that they begin with, in order; nothing else that lies there."""
    files = [path for path in folder.glob(f"*{SUFFIX}") if _NAME.fullmatch(path.stem) and path.is_file()]
    return sorted((int(path.stem), path) for path in files)


def search(folder: Path, query: AuditQuery, seconds_max: float = LOOK_S_MAX) -> Found:
    """Look through the files, for so long at most. For a thread, or a command on a folder that nobody writes to."""
    files = numbered(folder)
    until_s = time.monotonic() + seconds_max
    found: list[KeptLine] = []
    upwards = query.after is not None
    ends = [start for start, _ in files[1:]] + [None]
    spans = [(start, end, path) for (start, path), end in zip(files, ends, strict=False)]
    for start, end, path in spans if upwards else reversed(spans):
        if _has_nothing_of(query, start, end):
            continue
        try:
            with closing(AuditFile(path)) as file:
                low, high = _bounds(query, start, min(file.last_number() + 1, end or sys.maxsize))
                place = _windows(file, query, low, high, found, until_s)
        except sqlite3.Error:
            continue  # damaged, or removed meanwhile: the others are still to be had
        if place is not None:
            return Found(tuple(found), place)
    return Found(tuple(found), None)


def _has_nothing_of(query: AuditQuery, start: int, end: int | None) -> bool:
    """Whether that is known of a file by the numbers in it: there may be thousands of files, each to be opened."""
    is_below = query.after is not None and end is not None and end <= query.after + 1
    return is_below or (query.before is not None and start >= query.before)


def _bounds(query: AuditQuery, start: int, end: int) -> tuple[int, int]:
    low = start if query.after is None else max(start, query.after + 1)
    return low, end if query.before is None else min(end, query.before)


def _windows(
    file: AuditFile, query: AuditQuery, low: int, high: int, found: list[KeptLine], until_s: float
) -> int | None:
    """Add what one file has, window by window; where to go on if it is enough, or the time is up."""
    upwards = query.after is not None
    while low < high:
        start, end = (low, min(low + WINDOW, high)) if upwards else (max(high - WINDOW, low), high)
        lines = file.look(query, start, end, query.limit - len(found))
        found += lines
        if len(found) >= query.limit:
            return lines[-1].number
        low, high = (end, high) if upwards else (low, start)
        if time.monotonic() >= until_s:
            return end - 1 if upwards else start
    return None


class AuditStore:
    """Made by `opened_audit`. `run` writes for as long as the gateway runs."""

    def __init__(
        self,
        folder: Path,
        settings: AuditSettings,
        wall_ms: Callable[[], int],
        mono_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self.kept_lines = 0
        self.lost_lines = 0
        self._settings = settings
        self._wall_ms = wall_ms
        self._mono_s = mono_s
        self._retention = RetentionClock()
        self._queue: deque[Line] = deque()
        self._wake = trio.Event()
        self._writing = trio.Lock()
        self._file: AuditFile | None = None
        self._file_began_ms = 0
        self._next = 1
        self._tidy_at_s = -inf
        self._looks = trio.CapacityLimiter(LOOKS_AT_ONCE_MAX)
        self._complaints = LogThrottle(COMPLAIN_EVERY_S)

    @property
    def _file_bytes_max(self) -> int:
        return min(self._settings.file_bytes_max, self._settings.bytes_max // 4)  # so that there are some

    def use_settings(self, settings: AuditSettings) -> None:
        """From the next line on."""
        self._settings = settings

    def add(self, event: str, fields: dict[str, object]) -> None:
        """Keep a line. The fields are the store's from now on: nobody may change them."""
        if len(self._queue) >= self._settings.queue_lines_max:
            self._lose(1, "queue_full")
            return
        self._queue.append((self._wall_ms(), event, fields))
        if len(self._queue) == 1:
            self._wake.set()

    def start(self, supervisor: Supervisor) -> None:
        supervisor.start(ChildSpec(name="audit", run=self.run, kind=Kind.PERMANENT, stage=Stage.LOG))

    async def run(self) -> None:
        while True:
            with trio.move_on_after(TIDY_S):
                await self._wake.wait()
                await trio.sleep(self._settings.write_s)
            self._wake = trio.Event()
            await self.flush()
            await self._tidy()

    async def flush(self) -> None:
        """Write what has been taken. Once begun it is finished, whoever still waits."""
        async with self._writing:
            with trio.CancelScope(shield=True):
                while self._queue:
                    batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_LINES_MAX))]
                    try:
                        await trio.to_thread.run_sync(partial(self._write, batch))
                    except (sqlite3.Error, OSError, ValueError, TypeError, OverflowError) as error:
                        # The last three: a line that nobody can write is no reason for the gateway to stop.
                        self._lose(len(batch), type(error).__name__)
                    else:
                        self.kept_lines += len(batch)

    async def _tidy(self) -> None:
        """Remove what is too old, at most once an hour, or when a file is begun (`_write`)."""
        if trio.current_time() < self._tidy_at_s:
            return
        self._tidy_at_s = trio.current_time() + TIDY_S
        async with self._writing:
            with trio.CancelScope(shield=True), suppress(OSError):
                await trio.to_thread.run_sync(self._remove_old)

    def _lose(self, lines: int, reason: str) -> None:
        self.lost_lines += lines
        if self._complaints.hit(trio.current_time()):
            log.warning("audit_lines_lost", lines=self.lost_lines, reason=reason)

    @property
    def last_number(self) -> int:
        """Of the lines that have been written."""
        return self._next - 1

    async def search(self, query: AuditQuery) -> Found:
        return await self.look(partial(search, query=query))

    async def look(self, work: Callable[[Path], T]) -> T:
        """What `work` makes of the folder, in a thread that may look into its files."""
        return await trio.to_thread.run_sync(partial(work, self.folder), limiter=self._looks)

    # ---- in a thread -------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Once, before lines are taken. Raises OSError."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        files = numbered(self.folder)
        self._next = files[-1][0] if files else 1
        if files:
            last = _last_line(files[-1][1])
            if last is None:
                # Nobody knows how far it went. It stays where it is, for whoever can mend it; numbers go on far behind.
                self._next += DAY_MS
            else:
                number, at_ms = last
                self._next = max(self._next, number + 1)
                self._retention.learn(self._mono_s(), at_ms or self._wall_ms())
        self._remove_old()

    def _write(self, batch: list[Line]) -> None:
        now_ms = self._wall_ms()
        if self._file is not None and (
            self._file.size_bytes >= self._file_bytes_max or abs(now_ms - self._file_began_ms) >= DAY_MS
        ):
            self._end_file()
        if self._file is None:
            self._file, self._file_began_ms = self._last_file(now_ms) or (self._new_file(), now_ms)
            with suppress(OSError):  # somebody else removed one
                self._remove_old()
        try:
            self._file.write(self._next, batch)
        except sqlite3.Error:
            self._end_file()
            raise
        self._next += len(batch)

    def _last_file(self, now_ms: int) -> tuple[AuditFile, int] | None:
        """The one that was written last and when it began, if there is room in it and it is of today."""
        files = numbered(self.folder)
        if not files or files[-1][1].stat().st_size >= self._file_bytes_max:
            return None
        try:
            file = AuditFile(files[-1][1], writes=True)
        except sqlite3.Error:  # damaged, or of another version
            return None
        began_ms, number = file.oldest_ms() or now_ms, file.last_number()
        if number < _NUMBER_MAX:  # else it is damaged: no line is ever given that one
            # More than what was said to be written: nobody knew whether it was, when the disk failed. It is kept.
            self._next = max(self._next, number + 1)
            if abs(now_ms - began_ms) < DAY_MS:
                return file, began_ms
        file.close()
        return None

    def _new_file(self) -> AuditFile:
        while (path := self.folder / f"{self._next:0{_DIGITS}d}{SUFFIX}").exists():  # damaged before it had a line
            self._next += 1
        return AuditFile(path, writes=True)

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _remove_old(self) -> None:
        """Files whose every line is too old; then the oldest ones, as long as there is too much of them."""
        files = numbered(self.folder)
        oldest_ms = self._retention.at(self._mono_s(), self._wall_ms()) - self._settings.keep_days * DAY_MS
        sizes = {path: path.stat().st_size for _, path in files}
        room = self._settings.bytes_max - self._file_bytes_max  # the last one may fill
        for _, path in files[:-1]:
            if sum(sizes.values()) <= room and _newest_ms(path) >= oldest_ms:
                break
            del sizes[path]
            for name in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
                name.unlink(missing_ok=True)

    def close(self) -> None:
        self._end_file()


def _last_line(path: Path) -> tuple[int, int] | None:
    """Its number and its time, 0 where there is none yet. None: the file is damaged, or of another version."""
    for writes in (False, True):  # a crash may have left it without its table
        try:
            with closing(AuditFile(path, writes=writes)) as file:
                number = file.last_number()
                return (number, file.last_ms()) if number < _NUMBER_MAX else None
        except sqlite3.Error:
            continue
    return None


def _newest_ms(path: Path) -> int:
    """When its last line was written; of a file that cannot be read, when it was."""
    try:
        with closing(AuditFile(path)) as file:
            return file.newest_ms()
    except sqlite3.Error:
        return int(path.stat().st_mtime * 1000)


@asynccontextmanager
async def opened_audit(
    data: Path, settings: AuditSettings, wall_ms: Callable[[], int], mono_s: Callable[[], float] = time.monotonic
) -> AsyncIterator[AuditStore | None]:
    """None where it is switched off. What was taken is written when the block is left."""
    if not settings.enabled:
        yield None
        return
    store = AuditStore(data / FOLDER, settings, wall_ms, mono_s)
    await trio.to_thread.run_sync(store.load)
    try:
        yield store
    finally:
        with trio.CancelScope(shield=True):
            await store.flush()
            await trio.to_thread.run_sync(store.close)
