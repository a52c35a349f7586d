"""The journal in a file: append-only, each append one checksummed line, on the disk before `append` returns.

    line    = crc32 of the JSON (8 hex digits) SP JSON array of records LF

A crash can tear only the last line, before its LF: it was never answered, so it is cut. A whole line that does not
check out is damage to what was durable; cut there, the journal would be rolled back under its old name, and a gateway
could send a command again that did run. So the whole journal counts as lost: the next session starts a new one, and
the gateway files what is in doubt as unknown.

A new journal and a compacted one are written beside the old one and renamed over it. A lock file keeps a second agent
off the same folder. Writing runs in a thread; after an I/O error nobody knows what the disk holds, so the journal
refuses everything from then on.
"""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import msgspec
import trio

from actors.device.journal import AnyRecord, JournalFailedError, JournalState, Opened, Record

JOURNAL_FILE = "journal"
LOCK_FILE = "journal.lock"
COMPACT_ABOVE_LINES = 1000
"""A file with more lines is rewritten once most of them say nothing any more."""

_decode = msgspec.json.Decoder(list[AnyRecord]).decode


class JournalInUseError(Exception):
    """Another agent has this folder. Two of them would run a command twice."""


class FileJournal:
    def __init__(self, folder: Path, *, compact_above_lines: int = COMPACT_ABOVE_LINES) -> None:
        self._path = folder / JOURNAL_FILE
        self._new_path = folder / f"{JOURNAL_FILE}.new"
        self._folder = folder
        self._compact_above_lines = compact_above_lines
        self._thread = trio.CapacityLimiter(1)  # of our own: what hangs in a handler's threads must not hold us up
        self._failed = False
        self._fd: int | None = None
        self._lines = 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_fd = _lock(folder / LOCK_FILE)
        try:
            self.state = self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let the folder go. Everything is durable already."""
        if self._fd is not None:
            os.close(self._fd)
        os.close(self._lock_fd)
        self._fd = None
        self._failed = True

    async def append(self, records: Sequence[Record]) -> None:
        await trio.to_thread.run_sync(self.append_sync, records, limiter=self._thread)

    async def start(self, log_id: str, journal_id: str) -> None:
        await trio.to_thread.run_sync(self._start_sync, log_id, journal_id, limiter=self._thread)

    def append_sync(self, records: Sequence[Record]) -> None:
        """`append` without the thread."""
        if self._failed or self._fd is None:
            raise JournalFailedError("there is no journal to append to")
        self._failed = True  # until all of it has gone well
        try:
            _write(self._fd, _line(records))
            os.fsync(self._fd)
            self._lines += 1
            for record in records:
                self.state.apply(record)
            if self._is_mostly_dead():
                self._rewrite(self.state.snapshot())
        except OSError as error:
            raise JournalFailedError("the journal could not be written") from error
        self._failed = False

    def _start_sync(self, log_id: str, journal_id: str) -> None:
        if self._failed:
            raise JournalFailedError("there is no journal to replace")
        self._failed = True
        opened = Opened(log_id, journal_id)
        try:
            self._rewrite([opened])
        except OSError as error:
            raise JournalFailedError("the new journal could not be written") from error
        self.state.apply(opened)
        self._failed = False

    def _is_mostly_dead(self) -> bool:
        alive = len(self.state.ended) + len(self.state.unfinished)
        return self._lines > self._compact_above_lines and self._lines > 2 * alive

    def _rewrite(self, records: Sequence[AnyRecord]) -> None:
        """Put a file with these records in the place of the old one, whole or not at all."""
        fd = os.open(self._new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            _write(fd, b"".join(_line([record]) for record in records))
            os.fsync(fd)
            self._new_path.replace(self._path)
            _sync_folder(self._folder)
        except BaseException:
            os.close(fd)
            raise
        if self._fd is not None:
            os.close(self._fd)
        self._fd = fd
        self._lines = len(records)

    def _load(self) -> JournalState:
        self._new_path.unlink(missing_ok=True)  # a rewrite that a crash cut short
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return JournalState()
        lines, sound_bytes = _read(data)
        is_damaged = b"\n" in data[sound_bytes:]
        if is_damaged or not lines or not isinstance(lines[0][0], Opened):
            return JournalState()  # lost; `start` will replace the file
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        if sound_bytes < len(data):
            os.ftruncate(self._fd, sound_bytes)
            os.fsync(self._fd)
        self._lines = len(lines)
        return JournalState(record for line in lines for record in line)


def _line(records: Sequence[AnyRecord]) -> bytes:
    body = msgspec.json.encode(records)
    return b"%08x %s\n" % (crc32(body), body)


def _parse(line: bytes) -> list[AnyRecord] | None:
    checksum, _, body = line.partition(b" ")
    if checksum != b"%08x" % crc32(body):
        return None
    try:
        return _decode(body) or None
    except msgspec.MsgspecError:
        return None


def _read(data: bytes) -> tuple[list[list[AnyRecord]], int]:
    """The lines that check out, up to the first that does not, and how many bytes they take."""
    lines: list[list[AnyRecord]] = []
    position = 0
    while (end := data.find(b"\n", position)) >= 0 and (records := _parse(data[position:end])) is not None:
        lines.append(records)
        position = end + 1
    return lines, position


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock(path: Path) -> int:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise JournalInUseError(f"another agent uses {path.parent}") from error
    return fd
