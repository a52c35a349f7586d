"""A small file that an operator edits while the gateway runs: read again whenever it has changed.

A changed file is read once two looks in a row have found it the same, so that one that is still being written is not
taken for what it is going to be. What the file means, and what becomes of a broken one, is for whoever reads it.
"""

import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import trio

Look: TypeAlias = tuple[int, ...] | None  # what a file looks like from outside; None: it cannot be seen
Read = TypeVar("Read")
Reading: TypeAlias = Callable[[Callable[[Path], Read], Path], Awaitable[Read]]


class WatchedFile(Generic[Read]):
    """`read` judges the file, as it is now in a thread: a long one takes longer than a call may wait."""

    def __init__(
        self,
        path: Path,
        reload_s: float,
        read: Callable[[Path], Read],
        take: Callable[[Read], None],
        reading: Reading[Read] = trio.to_thread.run_sync,
    ) -> None:
        self._path = path
        self._reload_s = reload_s
        self._read = read
        self._take = take
        self._reading = reading
        self._judged = look(path)

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        before = self._judged
        while True:
            await trio.sleep(self._reload_s)
            seen = look(self._path)
            if seen == before and seen != self._judged:
                await self._judge(seen)
            before = seen

    async def _judge(self, seen: Look) -> None:
        read = await self._reading(self._read, self._path)
        if look(self._path) != seen:
            return  # it changed meanwhile: the next looks will tell
        self._judged = seen
        self._take(read)


def look(path: Path) -> Look:
    try:
        seen = os.stat(path)  # noqa: PTH116  # as little work as can be, in the event loop
    except OSError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def read_regular(path: Path, bytes_max: int) -> bytes | None:
    """The whole file, and one byte more if it is longer than this; None when it is no regular file. Raises OSError."""
    # Without blocking: a pipe would keep us waiting for ever.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(bytes_max + 1)
    finally:
        os.close(fd)
