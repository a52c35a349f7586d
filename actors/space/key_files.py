"""The files in which the keys of spaces lie, and how one of them is erased. A space is there as long as its key is.

    spaces/keys/<space id>      the key (32 bytes) and a check of it (16 bytes), readable by the owner alone

The check tells a key from random bytes: one that does not fit is what an erasure leaves that was interrupted between
overwriting and unlinking, and is finished at the next start.

`Disk` is each thing that is done to a file: every one of its methods is a point at which a machine may stop.
"""

import hashlib
import hmac
import os
from contextlib import suppress
from pathlib import Path

from actors.log.sqlite_files import sync_folder
from actors.space.sealing import KEY_BYTES, SpaceKey
from actors.space.store import check_id

_CHECK_BYTES = 16
_NEW = ".new"


class Disk:
    """What is done to files, one step a method."""

    def write(self, descriptor: int, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_folder(self, folder: Path) -> None:
        sync_folder(folder)


class KeyFiles:
    """The keys in a folder. Everything here blocks: it is called in threads."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def make(self, space_id: str) -> SpaceKey:
        """A new key, durable; or OSError, and there is none."""
        path = self._folder / check_id(space_id)
        new = path.with_name(path.name + _NEW)
        key = os.urandom(KEY_BYTES)
        try:
            self._disk.unlink(new)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                self._disk.write(descriptor, key + _check_of(space_id, key))
                self._disk.sync(descriptor)
            finally:
                os.close(descriptor)
            self._disk.rename(new, path)
            self._disk.sync_folder(self._folder)
        except OSError:
            self._erase(new)
            self._erase(path)
            raise
        return SpaceKey(space_id, key)

    def erase(self, *space_ids: str) -> list[str]:
        """Overwrite keys, then remove them; answers whose are gone for certain.

        Where overwriting fails the key is removed nevertheless. The folder is synced once for all of them.
        """
        gone: list[str] = []
        for space_id in space_ids:
            with suppress(OSError):
                self._overwrite_and_unlink(self._folder / check_id(space_id))
                gone.append(space_id)
        try:
            self._disk.sync_folder(self._folder)
        except OSError:
            return []
        return gone

    def load(self) -> dict[str, SpaceKey]:
        """All keys, once what is not one any more, or not yet, is erased."""
        keys: dict[str, SpaceKey] = {}
        for path in sorted(self._folder.iterdir()):
            data = path.read_bytes()
            key, check = data[:KEY_BYTES], data[KEY_BYTES:]
            if path.suffix != _NEW and hmac.compare_digest(check, _check_of(path.name, key)):
                keys[path.name] = SpaceKey(check_id(path.name), key)
            else:
                self._erase(path)
        return keys

    def _erase(self, path: Path) -> None:
        self._overwrite_and_unlink(path)
        self._disk.sync_folder(self._folder)

    def _overwrite_and_unlink(self, path: Path) -> None:
        failure: OSError | None = None
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            pass  # by an erasure whose last step may have been missing
        else:
            try:
                self._disk.write(descriptor, os.urandom(KEY_BYTES + _CHECK_BYTES))
                self._disk.sync(descriptor)
            except OSError as error:
                failure = error
            finally:
                os.close(descriptor)
            self._disk.unlink(path)
        if failure is not None:
            raise failure


def _check_of(space_id: str, key: bytes) -> bytes:
    # Of a sub-key's length and purpose: it says nothing about the key to somebody who does not have it.
    return hashlib.blake2b(space_id.encode(), digest_size=_CHECK_BYTES, key=key, person=b"key file").digest()
