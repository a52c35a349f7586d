"""Uploads that were let go to a bucket and are awaited from there: recorded before anybody is told where to put them.

They are open items of one stream, so that a restart goes on looking, and none of them is left for ever: a *settled* one
is published or not to be, and is kept until its URL has ended only so that what lies in the bucket is removed for good.
What to do with one, and when, is decided by `pending_rules`.
"""

from collections.abc import Iterator

import msgspec
import structlog
import trio

from actors.log.store import LogStore, OpenItem, Part
from actors.space.space_log import fault_of
from actors.supervision.crash_report import report
from schemas.echo.errors import EchoError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_STREAM = "project_uploads"


class PendingUpload(msgspec.Struct, frozen=True):
    upload_id: str
    project_id: str
    path: str
    content_type: str
    size: int
    ends_at_ms: int  # of its URL
    is_settled: bool = False

    @property
    def key(self) -> str:
        """In the bucket."""
        return f"{self.project_id}/{self.upload_id}"


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(PendingUpload)


class PendingUploads:
    """`load` comes first."""

    def __init__(self, store: LogStore, count_max: int) -> None:
        self._store = store
        self._count_max = count_max
        self._uploads: dict[str, PendingUpload] = {}
        self._being_added = 0

    def __len__(self) -> int:
        return len(self._uploads)

    def __iter__(self) -> Iterator[PendingUpload]:
        return iter(list(self._uploads.values()))

    def get(self, upload_id: str) -> PendingUpload | None:
        return self._uploads.get(upload_id)

    async def load(self) -> None:
        for item in (await self._store.load(_STREAM)).open_items:
            try:
                upload = _decoder.decode(item.data)
            except msgspec.MsgspecError as error:  # damaged, or of a newer version: it is left as it is
                log.error("pending_upload_unreadable", upload_id=item.key, causes=report(error))
                continue
            self._uploads[upload.upload_id] = upload

    async def add(self, upload: PendingUpload, now_ms: int) -> EchoError | None:
        """None once it is durable. Once begun it is finished, whoever still waits."""
        if len(self._uploads) + self._being_added >= self._count_max:
            return EchoError.OVERLOADED
        self._being_added += 1
        fault: EchoError | None
        try:
            with trio.CancelScope(shield=True):
                fault = fault_of(await self._store.append(_written(upload, now_ms)))
        finally:
            self._being_added -= 1
        if fault is None:
            self._uploads[upload.upload_id] = upload
        return fault

    def settled(self, upload: PendingUpload, now_ms: int) -> Part:
        """What says so, to be written with the event that settles it."""
        return _written(msgspec.structs.replace(upload, is_settled=True), now_ms)

    def note_settled(self, upload: PendingUpload) -> PendingUpload:
        """It is written, or will be found to be so again after a restart."""
        self._uploads[upload.upload_id] = settled = msgspec.structs.replace(upload, is_settled=True)
        return settled

    async def settle(self, upload: PendingUpload, now_ms: int) -> PendingUpload:
        """It will not be published."""
        await self._store.append(self.settled(upload, now_ms))  # refused, the next start settles it again
        return self.note_settled(upload)

    async def close(self, upload: PendingUpload, now_ms: int) -> bool:
        """Forget it; whether that is durable. If not it stays, to be asked for again."""
        answer = await self._store.append(Part(_STREAM, None, now_ms, closed=(upload.upload_id,)))
        is_closed = fault_of(answer) is None
        if is_closed:
            self._uploads.pop(upload.upload_id, None)
        return is_closed


def _written(upload: PendingUpload, now_ms: int) -> Part:
    return Part(_STREAM, None, now_ms, opened=(OpenItem(upload.upload_id, _encoder.encode(upload)),))
