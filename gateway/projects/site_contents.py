"""The bytes of published files at hand: small contents in memory, descriptors of larger ones, both bounded.

A content is known by its hash and never changes, so what is kept here cannot be out of date. Opening and reading happen
in threads, for a disk may be slow. A descriptor stays good though its file is replaced or deleted; as it keeps the disk
from giving the space back, one that nobody uses is closed soon.
"""

import os
from dataclasses import dataclass

import trio

from actors.project.site import ContentReader, SiteObject
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.net.file_sending import UnreadableFileError

SMALL_BYTES_MAX = 32 * 1024  # a larger content is sent from its file
KEPT_BYTES_MAX = 16 * 1024 * 1024  # of small contents, each with the next; then the one asked for least recently goes
_KEPT_OVERHEAD_BYTES = 256
DESCRIPTORS_MAX = 64  # that nobody uses; then the one used least recently is closed, and opened again when asked for
DESCRIPTOR_IDLE_S = 10.0  # without use; then it is closed
OPENING_MAX = 4  # contents being opened or read at a time; the next one waits for them


@dataclass(slots=True, eq=False)
class OpenContent:
    """Take `descriptor`, and give this back."""

    sha256: str
    descriptor: int
    users: int = 0
    idle_since_s: float = 0.0


class SiteContents:
    def __init__(self, reader: ContentReader) -> None:
        self._reader = reader
        self._threads = trio.CapacityLimiter(OPENING_MAX)
        self._small: dict[str, bytes] = {}  # the one asked for least recently comes first
        self._small_bytes = 0
        self._open: dict[str, OpenContent] = {}  # the same
        self._is_closed = False

    def start(self, supervisor: Supervisor) -> None:
        supervisor.start(
            ChildSpec(
                name="site_contents",
                run=self._sweep,
                kind=Kind.PERMANENT,
                stage=Stage.CORE,
                on_end=lambda crash: None if crash else self.close(),
            )
        )

    # ---- small ones --------------------------------------------------------------------------------------------------

    def known(self, sha256: str) -> bytes | None:
        """A small content, if no moment passes until it is here."""
        content = self._small.pop(sha256, None)
        if content is not None:
            self._small[sha256] = content
        return content

    async def read(self, file: SiteObject) -> bytes:
        """A small content. Raises OSError or UnreadableFileError: the disk does not have what it should."""
        content = await trio.to_thread.run_sync(self._read, file, limiter=self._threads)
        if file.sha256 not in self._small:
            self._small[file.sha256] = content
            self._small_bytes += len(content) + _KEPT_OVERHEAD_BYTES
            while self._small_bytes > KEPT_BYTES_MAX:
                oldest = self._small.pop(next(iter(self._small)))
                self._small_bytes -= len(oldest) + _KEPT_OVERHEAD_BYTES
        return content

    def _read(self, file: SiteObject) -> bytes:
        descriptor = self._open_now(file)
        try:
            content = os.pread(descriptor, file.size, 0)
        finally:
            os.close(descriptor)
        if len(content) != file.size:
            raise UnreadableFileError
        return content

    # ---- larger ones -------------------------------------------------------------------------------------------------

    async def take(self, file: SiteObject) -> OpenContent:
        """Open, until it is given back. Raises as `read` does."""
        content = self._open.pop(file.sha256, None)
        if content is None:
            descriptor = await trio.to_thread.run_sync(self._open_now, file, limiter=self._threads)
            content = self._open.pop(file.sha256, None)  # somebody else may have opened it meanwhile
            if content is None:
                content = OpenContent(file.sha256, descriptor)
            else:
                os.close(descriptor)
        self._open[file.sha256] = content
        content.users += 1
        return content

    def give_back(self, content: OpenContent) -> None:
        content.users -= 1
        if not content.users:
            content.idle_since_s = trio.current_time()
            if self._is_closed:
                self._close(content)
            elif len(self._open) > DESCRIPTORS_MAX:
                self._close(next(one for one in self._open.values() if not one.users))

    def _open_now(self, file: SiteObject) -> int:
        """In a thread."""
        descriptor = self._reader.open(file.sha256)
        if os.fstat(descriptor).st_size != file.size:
            os.close(descriptor)
            raise UnreadableFileError
        return descriptor

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(DESCRIPTOR_IDLE_S)
            self.close_idle(trio.current_time() - DESCRIPTOR_IDLE_S)

    def close_idle(self, since_s: float) -> None:
        """Those that nobody has used since then."""
        for content in [one for one in self._open.values() if not one.users and one.idle_since_s <= since_s]:
            self._close(content)

    def close(self) -> None:
        """All that nobody uses; the others as they are given back."""
        self._is_closed = True
        for content in [one for one in self._open.values() if not one.users]:
            self._close(content)

    def _close(self, content: OpenContent) -> None:
        del self._open[content.sha256]
        os.close(content.descriptor)
