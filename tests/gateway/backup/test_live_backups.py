"""Backups of a running gateway, one after the other, whatever becomes of the one before."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from actors.project.blob_store import BlobStore
from gateway.backup.gathering import Wish
from gateway.backup.live_backups import LiveBackups
from gateway.backup.settings import BackupSettings
from tests.gateway.backup.folders import NOW_MS, made

SETTINGS = BackupSettings(room_left_bytes_min=0)


class SpoiledBlobs:
    """A fault of ours, in what is done when a backup is over."""

    @contextmanager
    def keeping_all(self) -> Iterator[None]:
        yield

    async def sweep(self) -> None:
        raise RuntimeError


async def test_fault_in_cleaning_up_does_not_hold_up_the_next_one(tmp_path: Path) -> None:
    backups = LiveBackups(made(tmp_path / "data"), SETTINGS, "0.1.0", None, cast(BlobStore, SpoiledBlobs()))
    for _ in range(2):
        with pytest.raises(RuntimeError):
            async with backups.taken(Wish(), NOW_MS):
                pass
        assert not backups.is_busy


async def test_processes_that_share_a_folder_leave_the_copies_of_each_other(tmp_path: Path) -> None:
    folder = made(tmp_path / "data")
    first, second = (LiveBackups(folder, SETTINGS, "0.1.0", None, None, process) for process in (0, 1))
    async with first.taken(Wish(), NOW_MS), second.taken(Wish(), NOW_MS):
        LiveBackups(folder, SETTINGS, "0.1.0", None, None, 2)  # one that starts removes what it has left itself
        assert (folder / "backup.tmp" / "log.sqlite").exists()
        assert (folder / "backup.tmp.1" / "log.sqlite").exists()
    assert not list(folder.glob("backup.tmp*"))
