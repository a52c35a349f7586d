"""`POST /admin/backup`: a backup of the whole folder, keys and all, as it is made.

{"spaces"?: false, "audit"?: true} → application/x-tar, the manifest last

Whoever has a backup is the gateway: it can mint every token and be every node's CA. So this takes all scopes that an
operator can have. The response begins once databases are copied; one that ends without its last chunk is no backup.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import structlog

from gateway.api.about import About
from gateway.api.actions import Actions, BrokenOff, Declined, Download, OperatorRoutes
from gateway.backup.gathering import BackupError, Wish
from gateway.backup.live_backups import LiveBackup, LiveBackups
from gateway.identity.tokens import OperatorScope
from schemas.errors import Code

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

MEDIA_TYPE = "application/x-tar"


class AdminBackup:
    def __init__(self, actions: Actions, backups: LiveBackups, wall_ms: Callable[[], int]) -> None:
        self._backups = backups
        self._wall_ms = wall_ms
        self.routes: OperatorRoutes = {
            "/admin/backup": actions.download(
                "backup",
                tuple(OperatorScope),
                Wish,
                self._take,
                lambda: backups.settings.download_s_max,
                About("Take a backup, as it is made: a tar archive, the manifest last.", None, refuses=(429,)),
                MEDIA_TYPE,
            )
        }

    @asynccontextmanager
    async def _take(self, wish: Wish) -> AsyncIterator[Download | Declined]:
        if self._backups.is_busy:
            fix = "Try again when it has ended."
            yield Declined("busy", "Another backup is being taken.", fix, Code.RATE_LIMITED)
            return
        async with AsyncExitStack() as stack:
            offered: Download | Declined
            try:
                backup = await stack.enter_async_context(self._backups.taken(wish, self._wall_ms()))
            except BackupError as error:
                offered = Declined("not_taken", f"No backup was taken: {error}.", "See the reference.", Code.INTERNAL)
            else:
                offered = Download(MEDIA_TYPE, partial(_next, backup), lambda: _target(wish, backup))
            yield offered


async def _next(backup: LiveBackup) -> bytes | None:
    try:
        return await backup.next()
    except BackupError as error:
        log.error("backup_broke_off", message=str(error))
        raise BrokenOff from error


def _target(wish: Wish, backup: LiveBackup) -> dict[str, Any]:
    return {"spaces": wish.spaces, "audit": wish.audit, "bytes": backup.size_bytes}
