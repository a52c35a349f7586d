"""Where the bytes of published files lie: content by hash, streamed to the disk, removed when no object has it.

The side of `blob_files` that lives in trio. Which contents objects have is not known here but by asking (`uses`): one
that is there and not used is garbage, unless an upload is just about to publish it. So an upload *holds* its content
from the moment that its hash is known until it is published or not, and a content is looked for, kept and removed by
one at a time (its turn): an object may be deleted while another upload of the same bytes ends.

Whatever touches the disk is shielded from cancellation, so that it happens wholly or not at all; it is bounded by the
buffer's size. A full disk is an answer, and nothing is left of what did not fit.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog
import trio

from actors.project.blob_files import BlobFiles, BlobWriter, Stored
from actors.project.blob_limits import DEFAULT_LIMITS, BlobLimits
from actors.project.blob_upload import BlobUpload
from actors.space.key_files import Disk
from schemas.echo.errors import EchoError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_T = TypeVar("_T")

BLOB_OVERHEAD_BYTES = 4_096  # a block of the disk and an inode, so that many empty files are not free
IN_ONE_GO_MAX = 1_000  # contents that are looked at in one go; then others have their turn


class BlobStore:
    """A `ContentReader`. Made by `at`; `load` comes before anything else."""

    def __init__(self, files: BlobFiles, limits: BlobLimits) -> None:
        """Use `at`."""
        self._uses: Callable[[str], bool] = lambda _: True
        self._files = files
        self._limits = limits
        self._threads = trio.CapacityLimiter(limits.threads_max)
        self._present: dict[str, int] = {}  # the size of each content that is durable, by hash
        self._present_bytes = 0
        self._held: Counter[str] = Counter()
        self._turns: dict[str, _Turn] = {}
        self._uploads: set[BlobUpload] = set()

    @classmethod
    async def at(cls, folder: Path, limits: BlobLimits = DEFAULT_LIMITS, disk: Disk | None = None) -> "BlobStore":
        """Open what is in the folder, or begin there. The caller holds the lock of the folder around it."""
        return cls(await trio.to_thread.run_sync(BlobFiles, folder, disk or Disk()), limits)

    async def load(self, uses: Callable[[str], bool], in_use: Collection[str]) -> int:
        """Once: remove what a crash has left, and all that no object uses. How many contents are missing."""
        self._uses = uses
        self._present = await trio.to_thread.run_sync(self._files.sweep, uses)
        self._present_bytes = sum(map(_on_disk, self._present.values()))
        missing = sum(sha256 not in self._present for sha256 in in_use)
        if missing:
            log.error("site_content_missing", contents=missing)
        return missing

    @property
    def bytes(self) -> int:
        """Of all contents, with the overhead of each, and with what is on its way."""
        return self._present_bytes + sum(_on_disk(upload.size) for upload in self._uploads)

    def open(self, sha256: str) -> int:
        return self._files.open(sha256)

    # ---- in ----------------------------------------------------------------------------------------------------------

    def begin(self) -> BlobUpload | EchoError:
        """A content on its way in. It is a context manager, and nothing is left of it unless it is finished."""
        if len(self._uploads) >= self._limits.uploads_max:
            return EchoError.OVERLOADED
        upload = BlobUpload(
            self._files, self._limits.upload_buffer_bytes_max, self._in_thread, self._keep, self._uploads.discard
        )
        self._uploads.add(upload)
        return upload

    async def _keep(
        self, writer: BlobWriter, stored: Stored, over: Callable[[], None], publish: Callable[[Stored], Awaitable[_T]]
    ) -> _T | EchoError:
        """Have the content under its name, and published; one that is not published after all goes again."""
        self._held[stored.sha256] += 1
        try:
            async with self._turn(stored.sha256):
                fault = await self._name(writer, stored)
                over()  # from here on it counts among the contents, if it does
            if fault is not None:
                return fault
            answer = await publish(stored)
        finally:
            # If publishing has failed with an exception nobody knows whether it is published: the next start does.
            self._held[stored.sha256] -= 1
            if not self._held[stored.sha256]:
                del self._held[stored.sha256]
        await self.drop(stored.sha256)
        return answer

    async def _name(self, writer: BlobWriter, stored: Stored) -> EchoError | None:
        is_known = stored.sha256 in self._present
        # What somebody has cut or removed by hand is mended by whoever uploads it again.
        if is_known and await self._in_thread(partial(self._files.is_whole, stored)):
            with suppress(OSError):  # what cannot be unlinked goes at the next start
                await self._in_thread(writer.discard)
            return None
        try:
            await self._in_thread(partial(self._files.keep, writer.part, stored.sha256))
        except OSError:
            with suppress(OSError):
                await self._in_thread(writer.discard)
            return EchoError.STORAGE_NOT_READY
        if not is_known:
            self._present[stored.sha256] = stored.size
            self._present_bytes += _on_disk(stored.size)
        return None

    # ---- out ---------------------------------------------------------------------------------------------------------

    async def drop(self, sha256: str) -> None:
        """Remove a content, if no object has it and none is about to. Once begun it is finished, whoever waits."""
        if self._is_garbage(sha256):
            with trio.CancelScope(shield=True):
                async with self._turn(sha256):
                    if self._is_garbage(sha256):  # still, now that it is its turn
                        await self._remove(sha256)
        await trio.lowlevel.checkpoint()

    async def sweep(self) -> None:
        """Remove all that no object has. What the disk refuses is tried again the next time, and at the next start."""
        for number, sha256 in enumerate(list(self._present), start=1):
            if self._is_garbage(sha256):
                await self.drop(sha256)
            elif number % IN_ONE_GO_MAX == 0:
                await trio.lowlevel.checkpoint()

    async def _remove(self, sha256: str) -> None:
        try:
            await self._in_thread(partial(self._files.remove, sha256))
        except OSError:
            return
        self._present_bytes -= _on_disk(self._present.pop(sha256))

    def _is_garbage(self, sha256: str) -> bool:
        return sha256 in self._present and sha256 not in self._held and not self._uses(sha256)

    # ---- turns, threads ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _turn(self, sha256: str) -> AsyncIterator[None]:
        """Nobody else looks for this content on the disk, or changes that, until the end of the block."""
        turn = self._turns.setdefault(sha256, _Turn())
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._turns[sha256]

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await trio.to_thread.run_sync(work, limiter=self._threads)


class _Turn:
    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.wanted = 0


def _on_disk(size: int) -> int:
    return size + BLOB_OVERHEAD_BYTES
