"""Backups of a running gateway: one at a time, in threads, beside the calls.

Nothing is held up: the log is copied from a read of its own (`database_copy`), and files are read where they lie. Until
a backup is fetched no published file is removed from the disk, so that those which the copied log names are there; what
was to go meanwhile goes then. What is in a backup, and in which order, is `gathering`'s; who may have one the route's.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

import trio

from actors.project.blob_store import BlobStore
from gateway.backup.archive import Archive, Pieces
from gateway.backup.gathering import Wish, gather, remove_staging
from gateway.backup.settings import BackupSettings
from gateway.observe.audit.audit_store import AuditStore

STAGING = "backup.tmp"  # of the first process of a folder; behind a dot, the number of each that shares it


class LiveBackup:
    """One that is being fetched."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._pieces: Pieces = archive.pieces()
        self.size_bytes = 0

    async def next(self) -> bytes | None:
        """The next bytes of it; None after the last. Raises BackupError: then it is not whole, and never will be."""
        piece: bytes | None = await trio.to_thread.run_sync(next, self._pieces, None)
        self.size_bytes += len(piece or b"")
        return piece

    @property
    def members(self) -> int:
        """Known at its end."""
        return 0 if self._archive.manifest is None else len(self._archive.manifest.members)


class LiveBackups:
    def __init__(
        self,
        folder: Path,
        settings: BackupSettings,
        version: str,
        audit: AuditStore | None,
        blobs: BlobStore | None,
        process: int = 0,
    ) -> None:
        """`process`: which one, among those that share the folder. Each has copies of its own."""
        self.settings = settings
        self.is_busy = False
        self._turn = trio.Lock()
        self._folder = folder
        self._version = version
        self._audit = audit
        self._blobs = blobs
        self._staging = folder / (f"{STAGING}.{process}" if process else STAGING)
        remove_staging(self._staging)  # of one that a killed gateway was taking

    @asynccontextmanager
    async def taken(self, wish: Wish, made_at_ms: int) -> AsyncIterator[LiveBackup]:
        """For a caller that has found `is_busy` false. Raises BackupError. Whoever is cancelled leaves nothing."""
        assert not self.is_busy
        self.is_busy = True
        staging = self._staging
        try:
            await self._turn.acquire()  # what the one before has left is removed first
        except trio.Cancelled:
            self.is_busy = False
            raise
        try:
            with nullcontext() if self._blobs is None else self._blobs.keeping_all():
                if self._audit is not None and wish.audit:
                    await self._audit.flush()
                gathered = await trio.to_thread.run_sync(
                    partial(
                        gather,
                        self._folder,
                        staging,
                        wish,
                        is_live=True,
                        still_wanted=trio.from_thread.check_cancelled,
                        room_left_bytes_min=self.settings.room_left_bytes_min,
                    )
                )
                yield LiveBackup(Archive(gathered, self._version, made_at_ms))
        finally:
            self.is_busy = False  # the next one may come, and waits for its turn
            try:
                with trio.CancelScope(shield=True):
                    await self._clean_up(staging)
            finally:
                self._turn.release()

    async def _clean_up(self, staging: Path) -> None:
        await trio.to_thread.run_sync(remove_staging, staging)
        if self._blobs is not None:
            await self._blobs.sweep()
