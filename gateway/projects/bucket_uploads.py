"""Uploads by way of a bucket: URLs to it, and from then on looks for what was put there, until it is published.

An object is read once, streamed into where all published files lie, under the limits of any upload; then it is removed
from the bucket. So a bucket that is away harms no reader (docs/adr/0034). What is awaited is in the log, and looked for
again after a restart. A few tasks do all of it, each one upload at a time; what each does, `pending_rules` decides.
"""

from collections.abc import Callable

import structlog
import trio

from actors.node.moment import Moment
from actors.project.pending_rules import (
    RETRY_MS,
    Step,
    Turns,
    is_awaited,
    is_tried,
    next_look_ms,
    next_removal_ms,
    next_step,
)
from actors.project.pending_uploads import PendingUpload, PendingUploads
from actors.project.projects import Projects
from actors.project.site_objects import SiteObjects
from gateway.projects.s3_bucket import Bucket, Unseen
from gateway.projects.s3_settings import S3Settings
from gateway.projects.static_service import PresignedUpload, presigned
from schemas.echo.errors import EchoError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_WRONG_SIZE = "wrong_size"
_LATER = (EchoError.STORAGE_NOT_READY, EchoError.OVERLOADED)  # what passes


class BucketUploads:
    """`pending` is loaded already; `run` goes on for as long as the gateway does."""

    def __init__(
        self,
        bucket: Bucket,
        pending: PendingUploads,
        projects: Projects,
        objects: SiteObjects,
        settings: S3Settings,
        life_s: int,
        new_id: Callable[[], str],
        now: Callable[[], Moment],
    ) -> None:
        """`life_s` is that of a URL."""
        self._bucket = bucket
        self._pending = pending
        self._projects = projects
        self._objects = objects
        self._settings = settings
        self._life_s = life_s
        self._new_id = new_id
        self._now = now
        self._turns = Turns()
        self._wake = trio.Event()

    async def presign(self, project_id: str, path: str, content_type: str, size: int) -> PresignedUpload | EchoError:
        """It is awaited before anybody knows where it is to be put."""
        if not await self._bucket.is_ready():
            return EchoError.STORAGE_NOT_READY
        now_ms = self._now_ms()
        now_s = now_ms // 1000
        ends_at_ms = 1000 * (now_s + self._life_s)
        upload = PendingUpload(self._new_id().lower(), project_id, path, content_type, size, ends_at_ms)
        fault = await self._pending.add(upload, now_ms)
        if fault is not None:
            return fault
        self._put(upload, now_ms + self._look_ms)
        url = self._bucket.presigned_put(upload.key, content_type, size, now_s, self._life_s)
        return presigned(url, path, content_type, ends_at_ms)

    async def run(self) -> None:
        self._turns = Turns()
        now_ms = self._now_ms()
        for upload in self._pending:
            self._put(upload, next_removal_ms(upload.ends_at_ms, now_ms) if upload.is_settled else now_ms)
        async with trio.open_nursery() as nursery:
            for _ in range(self._settings.looks_max):
                nursery.start_soon(self._work)

    async def _work(self) -> None:
        while True:
            upload_id = self._turns.take(self._now_ms())
            if upload_id is None:
                wake = self._wake
                with trio.move_on_after(self._wait_s()):
                    await wake.wait()
            elif (upload := self._pending.get(upload_id)) is not None:
                await self._serve(upload)

    def _wait_s(self) -> float:
        """Until the next one's turn; never for long, if there is one: the wall clock may be set meanwhile."""
        next_ms = self._turns.next_ms
        if next_ms is None:
            return float("inf")
        return max(0.001, min(self._settings.look_s, (next_ms - self._now_ms()) / 1000))

    async def _serve(self, upload: PendingUpload) -> None:
        """Whose turn it is."""
        match next_step(upload.is_settled, upload.ends_at_ms, self._now_ms()):
            case Step.LOOK:
                await self._look(upload)
            case Step.REMOVE:
                await self._remove(upload, then_forget=True)
            case Step.FORGET:
                log.warning("bucket_object_left", project_id=upload.project_id, upload_id=upload.upload_id)
                await self._forget(upload)

    async def _look(self, upload: PendingUpload) -> None:
        looked_at_ms = self._now_ms()
        if self._projects.get(upload.project_id) is None:
            await self._settle(upload, EchoError.PROJECT_NOT_FOUND.word)
            return
        size = await self._bucket.size(upload.key)
        if size is Unseen.MISSING and is_awaited(upload.ends_at_ms, looked_at_ms):
            self._put(upload, next_look_ms(upload.ends_at_ms, self._now_ms(), self._look_ms))
        elif size is Unseen.MISSING:
            await self._settle(upload, None)
        elif size is Unseen.UNKNOWN:
            await self._try_later(upload, EchoError.STORAGE_NOT_READY)
        elif size != upload.size:
            await self._settle(upload, _WRONG_SIZE)
        else:
            await self._publish(upload)

    async def _publish(self, upload: PendingUpload) -> None:
        fault = await self._fetch(upload)
        if fault is None:
            await self._remove(upload, then_forget=False)
        elif fault in _LATER:
            await self._try_later(upload, fault)
        else:
            await self._settle(upload, fault.word)

    async def _fetch(self, upload: PendingUpload) -> EchoError | None:
        """None: it is published, and settled by the very same append."""
        coming = self._objects.begin(upload.project_id, upload.path, upload.content_type, upload.size)
        if isinstance(coming, EchoError):
            return coming
        async with coming:
            fetched = await self._bucket.fetch(upload.key, coming.append)
            if isinstance(fetched, EchoError):
                return fetched
            if not fetched or coming.size != upload.size:
                return EchoError.STORAGE_NOT_READY  # it broke off
            with trio.CancelScope(shield=True):
                published = await coming.finish(self._pending.settled(upload, self._now_ms()))
                if isinstance(published, EchoError):
                    return published
                self._pending.note_settled(upload)
        return None

    async def _try_later(self, upload: PendingUpload, fault: EchoError) -> None:
        now_ms = self._now_ms()
        if is_tried(upload.ends_at_ms, now_ms):
            self._put(upload, now_ms + RETRY_MS)
        else:
            await self._settle(upload, fault.word)

    async def _settle(self, upload: PendingUpload, reason: str | None) -> None:
        """It will not be published; None: because nothing was put there."""
        if reason is not None:
            log.warning("bucket_upload_refused", project_id=upload.project_id, reason=reason)
        settled = await self._pending.settle(upload, self._now_ms())
        await self._remove(settled, then_forget=False)

    async def _remove(self, upload: PendingUpload, *, then_forget: bool) -> None:
        if await self._bucket.remove(upload.key) and then_forget:
            await self._forget(upload)
        else:
            self._put(upload, next_removal_ms(upload.ends_at_ms, self._now_ms()))

    async def _forget(self, upload: PendingUpload) -> None:
        if not await self._pending.close(upload, self._now_ms()):
            self._put(upload, self._now_ms() + RETRY_MS)

    def _put(self, upload: PendingUpload, at_ms: int) -> None:
        self._turns.put(upload.upload_id, at_ms)
        self._wake.set()
        self._wake = trio.Event()

    @property
    def _look_ms(self) -> int:
        return round(1000 * self._settings.look_s)

    def _now_ms(self) -> int:
        return self._now().wall_ms
