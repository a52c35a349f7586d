"""The published files of projects, as REST and the operator's tools offer them: presigned, put, listed, deleted.

Every answer is the document that a client sees, or an error. Who may ask is for whoever calls; how requests and tools
say it, too. Bodies are validated here and nowhere else.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypedDict

from actors.project.project_rules import Project
from actors.project.projects import Projects
from actors.project.site import SiteObject
from actors.project.site_objects import SiteObjects, StillGood
from gateway.projects.presign_rules import UploadWish, is_content_type, list_wish, upload_wish
from gateway.projects.put_signature_rules import PutGrant, PutSignatures
from gateway.projects.settings import ProjectsSettings
from schemas.echo.errors import EchoError
from schemas.echo.site_paths import is_site_path, quoted_path
from schemas.echo.times import rfc3339

NextPiece: TypeAlias = Callable[[], Awaitable[bytes | None]]  # of a body, as it comes; None at its end


class ObjectDocument(TypedDict):
    path: str
    size: int
    content_type: str  # as it is served
    etag: str  # as the header has it, in its quotes
    sha256: str
    updated_at: str
    url: str


class ObjectPage(TypedDict):
    objects: list[ObjectDocument]
    next_cursor: str | None


class PresignedUpload(TypedDict):
    method: str
    url: str
    headers: dict[str, str]
    path: str
    expires_at: str


@dataclass(frozen=True, slots=True)
class Put:
    """A file is published: in a new place, or instead of another."""

    document: ObjectDocument
    is_new: bool


@dataclass(frozen=True, slots=True)
class SiteFace:
    """How a site shows itself: where it is, and the type that a file is served with."""

    url: Callable[[Project], str]  # without a slash at its end
    content_type: Callable[[SiteObject], str]
    default_type: Callable[[str], str]  # by path, of a file that comes without one


class BucketUploads(Protocol):
    """Uploads to a bucket, from where we fetch them."""

    async def presign(self, project_id: str, path: str, content_type: str, size: int) -> PresignedUpload | EchoError:
        """`storage_not_ready` where the bucket does not answer."""


class StaticService:
    def __init__(
        self,
        projects: Projects,
        objects: SiteObjects,
        settings: ProjectsSettings,
        face: SiteFace,
        signatures: PutSignatures | None,
        base: Callable[[], str],
        now_ms: Callable[[], int],
        bucket: BucketUploads | None = None,
    ) -> None:
        """`signatures` need a bearer, and there may be none. With a `bucket`, all that is presigned goes there."""
        self._projects = projects
        self._objects = objects
        self._settings = settings
        self._face = face
        self._signatures = signatures
        self._base = base
        self._now_ms = now_ms
        self._bucket = bucket

    async def presign(self, project_id: str, body: Any) -> PresignedUpload | EchoError:
        """`body` is `{"path", "content_type"?, "size"?}`, decoded; with a bucket the size is required."""
        if self._projects.get(project_id) is None:
            return EchoError.PROJECT_NOT_FOUND
        wish = upload_wish(body, self._settings)
        if isinstance(wish, EchoError):
            return wish
        content_type = self._face.default_type(wish.path) if wish.content_type is None else wish.content_type
        if self._bucket is not None:
            if wish.size is None:
                return EchoError.INVALID_PAYLOAD
            return await self._bucket.presign(project_id, wish.path, content_type, wish.size)
        return self._presign(project_id, wish, content_type)

    def _presign(self, project_id: str, wish: UploadWish, content_type: str) -> PresignedUpload | EchoError:
        if self._signatures is None:
            return EchoError.API_AUTH_NOT_CONFIGURED
        ends_at_s = self._now_ms() // 1000 + self._settings.presign_s
        bytes_max = self._settings.object_bytes_max if wish.size is None else wish.size
        grant = PutGrant(project_id, wish.path, content_type, ends_at_s, bytes_max)
        return presigned(
            f"{self._base()}{self._signatures.target(grant)}", wish.path, content_type, 1000 * grant.ends_at_s
        )

    def list(
        self, project_id: str, prefix: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> ObjectPage | EchoError:
        project = self._projects.get(project_id)
        if project is None:
            return EchoError.PROJECT_NOT_FOUND
        wish = list_wish(prefix, cursor, limit, self._settings)
        if isinstance(wish, EchoError):
            return wish
        found = project.objects_behind(wish.prefix, wish.after, wish.limit + 1)
        page = found[: wish.limit]
        next_cursor = page[-1].path if len(found) > wish.limit else None
        return ObjectPage(objects=[self.document(project, one) for one in page], next_cursor=next_cursor)

    async def delete(self, project_id: str, path: str) -> EchoError | None:
        if self._projects.get(project_id) is None:
            return EchoError.PROJECT_NOT_FOUND
        return await self._objects.delete(project_id, path) if is_site_path(path) else EchoError.INVALID_PATH

    async def put(
        self,
        project_id: str,
        path: str,
        content_type: str,
        next_piece: NextPiece,
        address: str,
        bytes_max: int | None = None,
        still_good: StillGood = lambda: None,
    ) -> Put | EchoError:
        """A file as its bytes come. Whatever ends this early, an exception of `next_piece` too, leaves nothing of it.

        An empty `content_type` is that of a table, by path. `still_good` is asked just before it is published.
        """
        if not is_site_path(path):
            return EchoError.INVALID_PATH
        if content_type and not is_content_type(content_type):
            return EchoError.INVALID_PAYLOAD
        most = self._settings.object_bytes_max if bytes_max is None else bytes_max
        coming = self._objects.begin(project_id, path, content_type, most, address, still_good)
        if isinstance(coming, EchoError):
            return coming
        async with coming:
            while (piece := await next_piece()) is not None:
                fault = await coming.append(piece) if piece else None
                if fault is not None:
                    return fault
            published = await coming.finish()
        project = self._projects.get(project_id)
        if isinstance(published, EchoError) or project is None:  # deleted since
            return published if isinstance(published, EchoError) else EchoError.PROJECT_NOT_FOUND
        return Put(self.document(project, published.object), published.is_new)

    def document(self, project: Project, one: SiteObject) -> ObjectDocument:
        return ObjectDocument(
            path=one.path,
            size=one.size,
            content_type=self._face.content_type(one),
            etag=f'"{one.sha256}"',
            sha256=one.sha256,
            updated_at=rfc3339(one.updated_at_ms),
            url=f"{self._face.url(project)}/{quoted_path(one.path)}",
        )


def presigned(url: str, path: str, content_type: str, ends_at_ms: int) -> PresignedUpload:
    headers = {"Content-Type": content_type}
    return PresignedUpload(method="PUT", url=url, headers=headers, path=path, expires_at=rfc3339(ends_at_ms))
