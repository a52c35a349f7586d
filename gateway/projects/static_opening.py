"""The published files of a data folder, opened for as long as a gateway runs, and joined to the project API.

DATA/sites/      their bytes, by hash: `actors/project/blob_files.py`
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from actors.log.store import LogStore
from actors.project.blob_store import BlobStore
from actors.project.pending_uploads import PendingUploads
from actors.project.projects import Projects
from actors.project.site import SiteObject
from actors.project.site_objects import SiteObjects
from actors.space.spaces import EchoSpaces
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.projects.bucket_uploads import BucketUploads
from gateway.projects.feature import ProjectsFeature
from gateway.projects.project_routes import AdmitAddress
from gateway.projects.put_signature_rules import PutSignatures
from gateway.projects.s3_bucket import Bucket
from gateway.projects.s3_settings import S3Settings
from gateway.projects.settings import ProjectsSettings
from gateway.projects.site_content_rules import type_of
from gateway.projects.static_routes import StaticRoutes
from gateway.projects.static_service import SiteFace, StaticService

SITES = "sites"


@dataclass(frozen=True, slots=True)
class StaticSide:
    blobs: BlobStore  # where whoever serves them reads bytes
    objects: SiteObjects
    service: StaticService
    routes: StaticRoutes
    bucket: BucketUploads | None

    def start(self, supervisor: Supervisor) -> None:
        permanent = {"site_objects": self.objects.run}
        if self.bucket is not None:
            permanent["bucket_uploads"] = self.bucket.run
        for name, run in permanent.items():
            supervisor.start(ChildSpec(name=name, run=run, kind=Kind.PERMANENT, stage=Stage.CORE))


async def opened_static(
    folder: Path,
    log: LogStore,
    projects: Projects,
    spaces: EchoSpaces,
    api: ProjectsFeature,
    settings: ProjectsSettings,
    echo_key: bytes,
    base: Callable[[], str],
    new_id: Callable[[], str],
    admit_address: AdmitAddress,
    bucket: Bucket | None = None,
    s3: S3Settings | None = None,
) -> StaticSide:
    """Once `projects` are loaded. What of the folder no project has is removed before this returns.

    The room on the disk is that of spaces and sites together.
    """
    blobs = await BlobStore.at(folder / SITES, settings.blob_limits)
    await blobs.load(projects.uses, projects.hashes_in_use())
    spaces.bytes_beside = lambda: blobs.bytes
    objects = SiteObjects(projects, blobs, spaces.disk_fault)
    uploads = None
    if bucket is not None and s3 is not None:
        pending = PendingUploads(log, s3.pending_max)
        await pending.load()
        uploads = BucketUploads(bucket, pending, projects, objects, s3, settings.presign_s, new_id, spaces.now)

    def now_ms() -> int:
        return spaces.now().wall_ms

    bearer_sha256 = api.bearer.sha256
    signatures = None if bearer_sha256 is None else PutSignatures(echo_key, bearer_sha256)
    face = SiteFace(api.service.documents.url, type_of, lambda path: type_of(SiteObject(path, "", 0, "", 0)))
    service = StaticService(projects, objects, settings, face, signatures, base, now_ms, uploads)
    routes = StaticRoutes(service, settings, signatures, admit_address, now_ms)
    side = StaticSide(blobs, objects, service, routes, uploads)
    api.table.add(routes.table)
    api.more.update(routes.routes)
    api.starts.append(side.start)
    return side
