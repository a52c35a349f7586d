"""The published files of projects: what may come in, counted while it comes, and what goes. Bytes are the store's.

An upload ends as a content that is durable, and then as one event of its project: a reader sees the old file or the new
one. A content that no file has any more is removed; those of a deleted project by `run`.
"""

from collections.abc import Callable
from typing import TypeAlias

import trio

from actors.log.store import Part
from actors.project.blob_files import Stored
from actors.project.blob_store import BLOB_OVERHEAD_BYTES, BlobStore
from actors.project.blob_upload import BlobUpload
from actors.project.coming_rules import Coming, ComingUploads
from actors.project.projects import Projects, Published
from actors.project.site import SiteObject
from schemas.echo.errors import EchoError

StillGood: TypeAlias = Callable[[], EchoError | None]
DiskFault: TypeAlias = Callable[[int], EchoError | None]


def _is_good() -> EchoError | None:
    return None


class SiteObjects:
    """`disk_fault` says why as many bytes may not be written at present, whatever they are for."""

    def __init__(self, projects: Projects, blobs: BlobStore, disk_fault: DiskFault) -> None:
        self._projects = projects
        self._blobs = blobs
        self._disk_fault = disk_fault
        self._coming = ComingUploads(projects.settings)
        self._is_one_deleted = trio.Event()
        projects.on_delete.append(self._project_deleted)

    def __len__(self) -> int:
        """How many are on their way in."""
        return len(self._coming)

    def begin(
        self,
        project_id: str,
        path: str,
        content_type: str,
        bytes_max: int,
        address: str | None = None,
        still_good: StillGood = _is_good,
    ) -> "ObjectComing | EchoError":
        """A file on its way in. It is a context manager, and nothing is left of it unless it is finished.

        `still_good` is asked just before it is published. Without an address it takes nobody's place.
        """
        project = self._projects.get(project_id)
        if project is None:
            return EchoError.PROJECT_NOT_FOUND
        coming = Coming(project_id, path, bytes_max, address)
        fault = self._disk_fault(BLOB_OVERHEAD_BYTES) or self._coming.begin(coming, project)
        if fault is not None:
            return fault
        upload = self._blobs.begin()
        if isinstance(upload, EchoError):
            self._coming.end(coming)
            return upload
        return ObjectComing(
            self._projects, self._blobs, self._coming, coming, upload, content_type, self._disk_fault, still_good
        )

    async def delete(self, project_id: str, path: str) -> EchoError | None:
        """None when nobody finds it any more. Bytes that the disk does not let go of are removed later."""
        gone = await self._projects.unpublish(project_id, path)
        if isinstance(gone, EchoError):
            return gone
        await self._blobs.drop(gone.sha256)
        return None

    async def run(self) -> None:
        """Remove the contents of projects that are deleted, for as long as the gateway runs."""
        while True:
            await self._is_one_deleted.wait()
            self._is_one_deleted = trio.Event()
            await self._blobs.sweep()

    def _project_deleted(self, _: str) -> None:
        self._is_one_deleted.set()


class ObjectComing:
    def __init__(
        self,
        projects: Projects,
        blobs: BlobStore,
        uploads: ComingUploads,
        coming: Coming,
        upload: BlobUpload,
        content_type: str,
        disk_fault: DiskFault,
        still_good: StillGood,
    ) -> None:
        self._projects = projects
        self._blobs = blobs
        self._uploads = uploads
        self._coming = coming
        self._upload = upload
        self._content_type = content_type
        self._disk_fault = disk_fault
        self._still_good = still_good

    async def __aenter__(self) -> "ObjectComing":
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._upload.abort()
        finally:
            self._uploads.end(self._coming)

    @property
    def size(self) -> int:
        """How many bytes have come so far."""
        return self._coming.size

    async def append(self, data: bytes) -> EchoError | None:
        """What there is against the file, if anything: then leave the block, and nothing is left of it."""
        project = self._projects.get(self._coming.project_id)
        if project is None:
            return EchoError.PROJECT_NOT_FOUND
        fault = self._disk_fault(len(data)) or self._uploads.grow(self._coming, len(data), project)
        return await self._upload.append(data) if fault is None else fault

    async def finish(self, *more: Part) -> Published | EchoError:
        """Published, or nothing is left of it, whoever still waits. `more` is written with it, or not at all."""
        published = await self._upload.finish(lambda stored: self._publish(stored, more))
        if isinstance(published, Published) and published.replaced is not None:
            await self._blobs.drop(published.replaced.sha256)
        return published

    async def _publish(self, stored: Stored, more: tuple[Part, ...]) -> Published | EchoError:
        wish = SiteObject(self._coming.path, stored.sha256, stored.size, self._content_type, 0)
        return await self._projects.publish(self._coming.project_id, wish, self._still_good, *more)
