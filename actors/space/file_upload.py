"""A file on its way into a space: buffered up to a bound, sealed and written in a thread, published with its row.

Its space may end at any time; from then on it is refused and leaves nothing. Whatever touches the disk is shielded from
cancellation, so that it happens wholly or not at all; it is bounded by the buffer's size.
"""

from collections.abc import Awaitable, Callable

import trio

from actors.space.content_files import ContentWriter
from actors.space.kept_spaces import KeptSpace
from actors.space.sqlite_space_rows import FileRow
from actors.space.store import FILE_OVERHEAD_BYTES, NOT_FOUND, NOT_READY, Refused, StoredFile


class FileUpload:
    """An `Upload` whose content goes to a `ContentWriter`. It is among the index's uploads already, and counted.

    `in_thread` runs what blocks, `publish` writes the row, `count` hears of bytes that come or are not to come.
    """

    def __init__(
        self,
        space: KeptSpace,
        content: ContentWriter,
        draft: StoredFile,
        buffer_bytes_max: int,
        in_thread: Callable[[Callable[[], object]], Awaitable[object]],
        publish: Callable[[FileRow], Awaitable[StoredFile | Refused]],
        count: Callable[[int], None],
        over: Callable[["FileUpload"], None],
    ) -> None:
        assert space.index is not None
        self._space = space
        self._index = space.index
        self._content = content
        self._draft = draft
        self._buffer_bytes_max = buffer_bytes_max
        self._in_thread = in_thread
        self._publish = publish
        self._count = count
        self._over = over
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0
        self._size = 0
        self._sha256 = ""
        self._ended_by: Refused | None = None
        self._is_over = False

    @property
    def file_id(self) -> str:
        return self._draft.file_id

    @property
    def size(self) -> int:
        return self._size

    async def __aenter__(self) -> "FileUpload":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.abort()

    async def append(self, data: bytes) -> Refused | None:
        # Counted before anything is waited for: whoever has looked whether there is room for this relies on it.
        if (refused := self._refusal()) is None:
            self._buffer.append(data)
            self._buffered_bytes += len(data)
            self._size += len(data)
            self._index.upload_bytes += len(data)
            self._count(len(data))
        await trio.lowlevel.checkpoint()
        if refused is not None or self._buffered_bytes < self._buffer_bytes_max:
            return refused
        with trio.CancelScope(shield=True):
            async with self._space.files:
                refused = await self._attempt(self._write_buffer)
        return refused

    async def finish(self, now_ms: int) -> StoredFile | Refused:
        with trio.CancelScope(shield=True):
            async with self._space.files:
                answer = await self._finish(now_ms)
        return answer

    async def _finish(self, now_ms: int) -> StoredFile | Refused:
        refused = await self._attempt(self._write_buffer) or await self._attempt(self._publish_content)
        if refused is not None:
            return refused
        answer = await self._publish(FileRow(self._stored(now_ms), self._content.prefix))
        if self._space.is_ended:  # meanwhile: its rows and files are going already
            answer = NOT_FOUND
        if isinstance(answer, Refused):
            await self._give_up(answer)
        else:
            self._end()
        return answer

    async def abort(self) -> None:
        if self._is_over:
            await trio.lowlevel.checkpoint()
            return
        with trio.CancelScope(shield=True):
            async with self._space.files:
                await self._give_up(None)

    def _stored(self, now_ms: int) -> StoredFile:
        draft = self._draft
        return StoredFile(draft.file_id, draft.name, draft.content_type, self._size, self._sha256, now_ms)

    def _write_buffer(self) -> None:
        data = b"".join(self._buffer)
        self._buffer.clear()
        self._buffered_bytes = 0
        self._content.write(data)

    def _publish_content(self) -> None:
        self._sha256 = self._content.publish()

    def _refusal(self) -> Refused | None:
        """Why it cannot go on. Going on after its own end is the caller's mistake."""
        if self._space.is_ended:
            return NOT_FOUND
        if self._is_over and self._ended_by is None:
            raise RuntimeError("the upload is over")
        return self._ended_by

    async def _attempt(self, step: Callable[[], None]) -> Refused | None:
        if (refused := self._refusal()) is None:
            try:
                await self._in_thread(step)
                return None
            except OSError:
                refused = NOT_READY
        await self._give_up(refused)
        return refused

    async def _give_up(self, refused: Refused | None) -> None:
        """A disk that does not even unlink leaves the rest to the next start."""
        if self._is_over:
            return
        self._ended_by = refused
        self._end()
        try:
            await self._in_thread(self._content.discard)
        except OSError:
            return

    def _end(self) -> None:
        self._is_over = True
        self._buffer.clear()
        self._index.uploads -= 1
        self._index.upload_bytes -= self._size
        self._count(-self._size - FILE_OVERHEAD_BYTES)
        self._over(self)
