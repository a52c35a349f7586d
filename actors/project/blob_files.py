"""The bytes of published files on the disk: each content once, under its SHA-256, written under another name first.

    sites/<first two digits>/<sha256>    a content, whole and durable
    sites/incoming/<number>              one that is still coming; what a crash leaves of it goes at the next start

Which of them are published, the log says; a content that no object has is garbage. Everything here blocks: it is called
in threads.
"""

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from actors.space.key_files import Disk

INCOMING = "incoming"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Stored:
    """A content that is wholly there, or will be."""

    sha256: str
    size: int


class BlobFiles:
    """The folder."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk
        self._numbers = count()
        self._shelves: set[str] = set()  # folders that are durable
        for made in (folder, folder / INCOMING):
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
        disk.sync_folder(folder)
        disk.sync_folder(folder.parent)

    def sweep(self, uses: Callable[[str], bool]) -> dict[str, int]:
        """Remove whatever is not used; the sizes of what is there, by hash. Before anything is written."""
        present: dict[str, int] = {}
        for shelf in sorted(path for path in self._folder.iterdir() if path.is_dir()):
            with os.scandir(shelf) as entries:
                for entry in entries:
                    if _is_content(entry.name, shelf.name) and uses(entry.name):
                        present[entry.name] = entry.stat(follow_symlinks=False).st_size
                    else:
                        self._disk.unlink(Path(entry.path))
        return present

    def begin(self) -> "BlobWriter":
        return BlobWriter(self._folder / INCOMING / f"{next(self._numbers)}", self._disk)

    def is_whole(self, stored: Stored) -> bool:
        """Whether the disk still has what it should, as far as its size tells."""
        try:
            return self.path(stored.sha256).stat().st_size == stored.size
        except OSError:
            return False

    def keep(self, part: Path, sha256: str) -> None:
        """Give a content that is durable its name, durably; or OSError, and it has neither name."""
        path = self.path(sha256)
        try:
            if path.parent.name not in self._shelves:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                self._disk.sync_folder(self._folder)
                self._shelves.add(path.parent.name)
            self._disk.rename(part, path)
            self._disk.sync_folder(path.parent)
        except OSError:
            self._disk.unlink(path)
            raise

    def remove(self, sha256: str) -> None:
        """Not durably: what comes back after a loss of power goes at the next start."""
        self._disk.unlink(self.path(sha256))

    def open(self, sha256: str) -> int:
        return os.open(self.path(sha256), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def path(self, sha256: str) -> Path:
        if _SHA256.fullmatch(sha256) is None:  # it becomes part of a path, so nothing else may ever come this far
            raise ValueError("a content is named by its SHA-256 in lower case")
        return self._folder / sha256[:2] / sha256


class BlobWriter:
    """One content as it is written. After an OSError it can only be discarded."""

    def __init__(self, part: Path, disk: Disk) -> None:
        self.part = part
        self._disk = disk
        self._hash = hashlib.sha256()
        self._size = 0
        self._descriptor: int | None = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, pieces: list[bytes]) -> None:
        assert self._descriptor is not None
        for piece in pieces:
            self._hash.update(piece)
            self._size += len(piece)
            self._disk.write(self._descriptor, piece)

    def finish(self) -> Stored:
        """Its bytes are durable, its name is not yet one to be read by."""
        assert self._descriptor is not None
        self._disk.sync(self._descriptor)
        self._close()
        return Stored(self._hash.hexdigest(), self._size)

    def discard(self) -> None:
        """Leave nothing."""
        self._close()
        self._disk.unlink(self.part)

    def _close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)


def _is_content(name: str, shelf: str) -> bool:
    return _SHA256.fullmatch(name) is not None and name[:2] == shelf
