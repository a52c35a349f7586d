"""The content of spaces' files on the disk: sealed chunks, written under a temporary name and published by a rename.

    spaces/<space id>/<file id>         a file's sealed chunks, one after the other
    spaces/<space id>/<file id>.part    one that is still coming

Names, types and sizes lie in the database, and a file without a row there is none. Everything here blocks: it is called
in threads, one at a time for a space.
"""

import hashlib
import os
from pathlib import Path

from actors.log.store import UnreadableError
from actors.space.key_files import Disk
from actors.space.sealing import CHUNK_BYTES, PREFIX_BYTES, TAG_BYTES, SpaceKey, chunk_count, sealed_size
from actors.space.store import check_id

_PART = ".part"
_SEALED_CHUNK_BYTES = CHUNK_BYTES + TAG_BYTES


class ContentFiles:
    """The folder in which each space has one."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def begin(self, key: SpaceKey, file_id: str) -> "ContentWriter":
        self._of(key.space_id).mkdir(mode=0o700, exist_ok=True)
        return ContentWriter(self._path(key.space_id, file_id), key, file_id, self._disk)

    def read(self, key: SpaceKey, file_id: str, prefix: bytes, size: int, start: int, length: int) -> bytes:
        """The bytes from `start` on; raises `UnreadableError` unless they are those that were written there."""
        end = min(size, start + length)
        if start >= end:
            return b""
        first, last, final = start // CHUNK_BYTES, (end - 1) // CHUNK_BYTES, chunk_count(size) - 1
        try:
            descriptor = os.open(self._path(key.space_id, file_id), os.O_RDONLY | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_size != sealed_size(size):
                    raise UnreadableError("a file is not as long as it was")
                span = (last - first + 1) * _SEALED_CHUNK_BYTES
                sealed = memoryview(os.pread(descriptor, span, first * _SEALED_CHUNK_BYTES))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise UnreadableError(type(error).__name__) from None
        content = b"".join(
            key.unseal_chunk(file_id, prefix, number, number == final, bytes(sealed[at : at + _SEALED_CHUNK_BYTES]))
            for number, at in zip(range(first, last + 1), range(0, len(sealed), _SEALED_CHUNK_BYTES), strict=True)
        )
        return content[start - first * CHUNK_BYTES : end - first * CHUNK_BYTES]

    def remove(self, space_id: str, file_id: str) -> None:
        self._disk.unlink(self._path(space_id, file_id))

    def remove_all(self, space_id: str) -> None:
        """Everything of a space."""
        folder = self._of(space_id)
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                self._disk.unlink(path)
            folder.rmdir()

    def sweep(self, kept: dict[str, set[str]]) -> dict[str, set[str]]:
        """Remove whatever is not among the files of these spaces; answers those that are there."""
        present: dict[str, set[str]] = {}
        for folder in sorted(self._folder.iterdir()):
            if not _is_id(folder.name):
                continue
            files = kept.get(folder.name, set())
            for path in sorted(folder.iterdir()):
                if path.name not in files:
                    self._disk.unlink(path)
            if folder.name in kept:
                present[folder.name] = {path.name for path in folder.iterdir()}
            else:
                folder.rmdir()
        return present

    def free_ratio(self) -> float:
        disk = os.statvfs(self._folder)
        of_bytes = disk.f_bavail / max(1, disk.f_blocks)
        # Some file systems make inodes as they are needed, and say that they have none.
        return of_bytes if disk.f_files == 0 else min(of_bytes, disk.f_favail / disk.f_files)

    def _of(self, space_id: str) -> Path:
        return self._folder / check_id(space_id)

    def _path(self, space_id: str, file_id: str) -> Path:
        return self._of(space_id) / check_id(file_id)


class ContentWriter:
    """One file as it is written. After an OSError it can only be discarded."""

    def __init__(self, path: Path, key: SpaceKey, file_id: str, disk: Disk) -> None:
        self.prefix = os.urandom(PREFIX_BYTES)
        self.size = 0
        self._path = path
        self._part = path.with_name(path.name + _PART)
        self._key = key
        self._file_id = file_id
        self._disk = disk
        self._hash = hashlib.sha256()
        self._rest = b""  # not sealed yet: at most one chunk, as it may turn out to be the last
        self._number = 0
        self._descriptor: int | None = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        self._hash.update(data)
        self.size += len(data)
        data = self._rest + data
        whole = max(0, (len(data) - 1) // CHUNK_BYTES * CHUNK_BYTES)
        sealed = [self._seal(data[at : at + CHUNK_BYTES], is_last=False) for at in range(0, whole, CHUNK_BYTES)]
        self._rest = data[whole:]
        if sealed:
            assert self._descriptor is not None
            self._disk.write(self._descriptor, b"".join(sealed))

    def publish(self) -> str:
        """Write the rest and give the file its name, durably. Answers the content's SHA-256."""
        assert self._descriptor is not None
        self._disk.write(self._descriptor, self._seal(self._rest, is_last=True))
        self._disk.sync(self._descriptor)
        self._close()
        self._disk.rename(self._part, self._path)
        self._disk.sync_folder(self._path.parent)
        return self._hash.hexdigest()

    def discard(self) -> None:
        """Leave nothing, under either name."""
        self._close()
        self._disk.unlink(self._part)
        self._disk.unlink(self._path)

    def _seal(self, data: bytes, is_last: bool) -> bytes:
        sealed = self._key.seal_chunk(self._file_id, self.prefix, self._number, is_last, data)
        self._number += 1
        return sealed

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _is_id(name: str) -> bool:
    try:
        return check_id(name) == name
    except ValueError:
        return False
