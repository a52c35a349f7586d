"""A content on its way in: buffered up to a bound, hashed and written in a thread, kept under its hash, published.

Where contents lie, and which of them are wanted, is the store's (`blob_store`). Once an upload has begun to be finished
it is finished, whoever still waits: published, or nothing of it is left.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

import trio

from actors.project.blob_files import BlobFiles, BlobWriter, Stored
from schemas.echo.errors import EchoError

_T = TypeVar("_T")


class Keep(Protocol):
    """Give a content its name, and have it published. `over` is called when it is no longer the upload's to count."""

    async def __call__(
        self, writer: BlobWriter, stored: Stored, over: Callable[[], None], publish: Callable[[Stored], Awaitable[_T]]
    ) -> _T | EchoError: ...


class BlobUpload:
    """As a context manager it ends aborted unless it is finished."""

    def __init__(
        self,
        files: BlobFiles,
        buffer_bytes_max: int,
        in_thread: Callable[[Callable[[], object]], Awaitable[object]],
        keep: Keep,
        over: Callable[["BlobUpload"], None],
    ) -> None:
        self.size = 0
        """How many bytes have come so far."""
        self._files = files
        self._buffer_bytes_max = buffer_bytes_max
        self._in_thread = in_thread
        self._keep = keep
        self._over = over
        self._writer: BlobWriter | None = None  # there is nothing on the disk before the first bytes are written
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0
        self._is_over = False

    async def __aenter__(self) -> "BlobUpload":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.abort()

    async def append(self, data: bytes) -> EchoError | None:
        """Take some more bytes, of any number. After an error it is over."""
        self._check_open()
        # Counted before anything is waited for: whoever has looked whether there is room for this relies on it.
        self._buffer.append(data)
        self._buffered_bytes += len(data)
        self.size += len(data)
        await trio.lowlevel.checkpoint()
        fault: EchoError | None = None
        if self._buffered_bytes >= self._buffer_bytes_max:
            with trio.CancelScope(shield=True):
                fault = await self._attempt(self._write_buffer)
        return fault

    async def finish(self, publish: Callable[[Stored], Awaitable[_T]]) -> _T | EchoError:
        """What `publish` answers, once the content is durable; it is asked in a shield, so that its outcome is known.

        The content stays if an object has it by then.
        """
        self._check_open()
        answer: _T | EchoError
        with trio.CancelScope(shield=True):
            answer = await self._finish(publish)
        return answer

    async def _finish(self, publish: Callable[[Stored], Awaitable[_T]]) -> _T | EchoError:
        stored: list[Stored] = []
        fault = await self._attempt(lambda: stored.append(self._finish_content()))
        if fault is not None:
            return fault
        assert self._writer is not None
        return await self._keep(self._writer, stored[0], self._end, publish)

    async def abort(self) -> None:
        """Leave nothing of it. Nothing happens if it is finished or aborted already."""
        if not self._is_over:
            with trio.CancelScope(shield=True):
                await self._give_up()
        await trio.lowlevel.checkpoint()

    def _check_open(self) -> None:
        if self._is_over:
            raise RuntimeError("the upload is over")

    def _write_buffer(self) -> None:
        pieces, self._buffer, self._buffered_bytes = self._buffer, [], 0
        if self._writer is None:
            self._writer = self._files.begin()
        self._writer.write(pieces)

    def _finish_content(self) -> Stored:
        self._write_buffer()
        assert self._writer is not None
        return self._writer.finish()

    async def _attempt(self, step: Callable[[], None]) -> EchoError | None:
        try:
            await self._in_thread(step)
        except OSError:
            await self._give_up()
            return EchoError.STORAGE_NOT_READY
        return None

    async def _give_up(self) -> None:
        """A disk that does not even unlink leaves the rest to the next start."""
        self._end()
        if self._writer is not None:
            with suppress(OSError):
                await self._in_thread(self._writer.discard)

    def _end(self) -> None:
        self._is_over = True
        self._buffer.clear()
        self._over(self)
