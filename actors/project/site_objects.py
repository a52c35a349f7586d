"""The published files of projects: what may come in, counted while it comes, and what goes. Bytes are the store's.

An upload ends as a content that is durable, and then as one event (`SitePublisher.publish`): a reader sees the old
object or the new one. A content that no object has any more is removed, those of a deleted project by `run`.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog
import trio

from actors.node.moment import Moment
from actors.project.blob_files import Stored
from actors.project.blob_store import BLOB_OVERHEAD_BYTES, BlobStore
from actors.project.blob_upload import BlobUpload
from actors.project.coming_rules import Coming, ComingUploads, SiteLimits, SiteUsage
from actors.project.site import SiteObject
from schemas.echo.errors import EchoError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

StillGood = Callable[[], EchoError | None]


class PublishedLike(Protocol):
    """An object is published."""

    @property
    def is_new(self) -> bool: ...

    @property
    def replaced(self) -> SiteObject | None: ...


class SitePublisher(Protocol):
    """The projects, as far as they have objects. Once begun, what changes them is finished, whoever still waits."""

    def get(self, project_id: str) -> SiteUsage | None: ...

    def publish(self, project_id: str, wish: SiteObject, still_good: StillGood) -> Awaitable[PublishedLike | EchoError]:
        """`still_good` is asked when nothing more can come between: what it says is the answer."""

    def unpublish(self, project_id: str, path: str) -> Awaitable[SiteObject | EchoError]:
        """What was there."""

    def uses(self, sha256: str) -> bool:
        """Whether any object has this content."""


class SiteObjects:
    """`disk_fault` says why as many bytes may not be written at present, to anything on this disk."""

    def __init__(
        self,
        sites: SitePublisher,
        blobs: BlobStore,
        limits: SiteLimits,
        now: Callable[[], Moment],
        disk_fault: Callable[[int], EchoError | None],
    ) -> None:
        self._sites = sites
        self._blobs = blobs
        self._coming = ComingUploads(limits)
        self._now = now
        self._disk_fault = disk_fault
        self._swept = trio.Event()
        blobs.uses = sites.uses

    def begin(
        self,
        project_id: str,
        path: str,
        content_type: str,
        bytes_max: int,
        address: str | None = None,
        still_good: StillGood = lambda: None,
    ) -> "ObjectComing | EchoError":
        """An object on its way in. It is a context manager, and nothing is left of it unless it is finished.

        `still_good` is asked just before it is published. Without `address` it takes nobody's place.
        """
        site = self._sites.get(project_id)
        if site is None:
            return EchoError.PROJECT_NOT_FOUND
        coming = Coming(project_id, path, bytes_max, address)
        fault = self._disk_fault(BLOB_OVERHEAD_BYTES) or self._coming.begin(coming, site)
        if fault is not None:
            return fault
        upload = self._blobs.begin()
        if isinstance(upload, EchoError):
            self._coming.end(coming)
            return upload
        return ObjectComing(self._sites, self._coming, coming, upload, content_type, self._now, self._disk_fault, self)
