"""Disks that stop, fail, or tell what was done to them."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import trio

from actors.space.key_files import Disk


class Crash(BaseException):
    """The machine stopped."""


class CrashingDisk(Disk):
    """Stops at its nth step: writes by half, does all else not at all."""

    def __init__(self, nth: int) -> None:
        self.nth = nth
        self.steps = 0

    def _step(self) -> bool:
        self.steps += 1
        if self.steps > self.nth:
            raise Crash
        return self.steps == self.nth

    def write(self, descriptor: int, data: bytes) -> None:
        if self._step():
            super().write(descriptor, data[: len(data) // 2])
            raise Crash
        super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        if self._step():
            raise Crash
        super().sync(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        if self._step():
            raise Crash
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        if self._step():
            raise Crash
        super().unlink(path)

    def sync_folder(self, folder: Path) -> None:
        if self._step():
            raise Crash
        super().sync_folder(folder)


class FailingDisk(Disk):
    """One kind of step fails, as on a bad disk."""

    def __init__(self, step: str) -> None:
        self.failing: str | None = step

    def _check(self, step: str) -> None:
        if step == self.failing:
            raise OSError(5, "no")

    def write(self, descriptor: int, data: bytes) -> None:
        self._check("write")
        super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._check("sync")
        super().sync(descriptor)

    def unlink(self, path: Path) -> None:
        self._check("unlink")
        super().unlink(path)

    def sync_folder(self, folder: Path) -> None:
        self._check("sync_folder")
        super().sync_folder(folder)


class WitnessDisk(Disk):
    """Tells each step, and how many rows of values and files there are at that moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: list[tuple[str, str, int]] = []

    def _note(self, step: str, name: str) -> None:
        with closing(sqlite3.connect(self.folder / "spaces.sqlite")) as connection:
            (rows,) = connection.execute("SELECT (SELECT count(*) FROM kv) + (SELECT count(*) FROM file)").fetchone()
        self.steps.append((step, name, rows))

    def write(self, descriptor: int, data: bytes) -> None:
        self._note("write", Path(f"/proc/self/fd/{descriptor}").readlink().name)
        super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._note("sync", Path(f"/proc/self/fd/{descriptor}").readlink().name)
        super().sync(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        self._note("rename", new.name)
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._note("unlink", path.name)
        super().unlink(path)

    def sync_folder(self, folder: Path) -> None:
        self._note("sync_folder", folder.name)
        super().sync_folder(folder)


class WaitingDisk(Disk):
    """Waits in the middle of a rename; says when it is there, and when a folder of this name was synced."""

    def __init__(self, folder_name: str) -> None:
        self.folder_name = folder_name
        self.is_renaming = trio.Event()
        self.is_synced = trio.Event()
        self.go_on = threading.Event()

    def rename(self, old: Path, new: Path) -> None:
        if new.parent.name != self.folder_name:
            trio.from_thread.run_sync(self.is_renaming.set)
            assert self.go_on.wait(30)
        super().rename(old, new)

    def sync_folder(self, folder: Path) -> None:
        super().sync_folder(folder)
        if folder.name == self.folder_name and self.is_renaming.is_set():
            trio.from_thread.run_sync(self.is_synced.set)
