"""The files of a space: what may come in, counted while it comes, and what is read out. Content is the store's."""

from collections.abc import Callable

from actors.space.counts import Operation
from actors.space.events import Space
from actors.space.spaces import EchoSpaces, error_of
from actors.space.store import FILE_OVERHEAD_BYTES, Refused, StoredFile, Upload
from schemas.echo.errors import EchoError
from schemas.echo.names import is_ulid


class SpaceFiles:
    def __init__(self, spaces: EchoSpaces, new_id: Callable[[], str]) -> None:
        self._spaces = spaces
        self._store = spaces.store
        self._new_id = new_id

    async def begin(self, space: Space, name: str, content_type: str) -> "FileComing | EchoError":
        """A file on its way in. It is a context manager, and nothing is left of it unless it is finished."""
        if not await self._spaces.opened(space.space_id):
            return EchoError.SPACE_NOT_FOUND
        if self._store.usage(space.space_id).files >= self._spaces.settings.files_max:
            return EchoError.SPACE_FULL
        fault = self._spaces.disk_fault(FILE_OVERHEAD_BYTES)
        if fault is not None:
            return fault
        upload = await self._store.begin_file(space.space_id, self._new_id().lower(), name, content_type)
        return error_of(upload) if isinstance(upload, Refused) else FileComing(self._spaces, space, upload)

    async def list(self, space: Space) -> tuple[StoredFile, ...] | EchoError:
        if not await self._spaces.opened(space.space_id):
            return EchoError.SPACE_NOT_FOUND
        return self._store.list_files(space.space_id)

    async def find(self, space: Space, file_id: str) -> StoredFile | EchoError:
        if not await self._spaces.opened(space.space_id):
            return EchoError.SPACE_NOT_FOUND
        found = self._store.file(space.space_id, file_id) if is_ulid(file_id) else None
        return EchoError.FILE_NOT_FOUND if found is None else found

    async def read(self, space: Space, file_id: str, start: int, length: int) -> bytes | None:
        """Some bytes from `start` on, at least one; None: the file or the space has gone meanwhile."""
        if not await self._spaces.opened(space.space_id):
            return None
        return await self._store.read_file(space.space_id, file_id, start, length) or None

    async def delete(self, space: Space, file_id: str) -> EchoError | None:
        found = await self.find(space, file_id)
        if isinstance(found, EchoError):
            return found
        answer = await self._store.delete_file(space.space_id, file_id)
        if isinstance(answer, Refused):
            return error_of(answer)
        if not answer:
            return EchoError.FILE_NOT_FOUND
        self._spaces.counts.operations[Operation.FILE_DELETE] += 1
        return None


class FileComing:
    def __init__(self, spaces: EchoSpaces, space: Space, upload: Upload) -> None:
        self._spaces = spaces
        self._space = space
        self._upload = upload

    async def append(self, data: bytes) -> EchoError | None:
        """What there is against the file, if anything: then it is over."""
        settings, space_id = self._spaces.settings, self._space.space_id
        if not self._spaces.is_live(space_id):
            return EchoError.SPACE_NOT_FOUND
        if self._upload.size + len(data) > settings.file_bytes_max:
            return EchoError.PAYLOAD_TOO_LARGE
        if self._spaces.store.usage(space_id).file_bytes + len(data) > settings.files_bytes_max:
            return EchoError.SPACE_FULL
        fault = self._spaces.disk_fault(len(data))
        if fault is not None:
            return fault
        refused = await self._upload.append(data)
        return None if refused is None else error_of(refused)

    async def finish(self) -> StoredFile | EchoError:
        if not self._spaces.is_live(self._space.space_id):
            return EchoError.SPACE_NOT_FOUND
        stored = await self._upload.finish(self._spaces.now().wall_ms)
        if isinstance(stored, Refused):
            return error_of(stored)
        self._spaces.counts.operations[Operation.FILE_UPLOAD] += 1
        return stored

    async def __aenter__(self) -> "FileComing":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._upload.abort()
