"""Published files on a real folder, beside projects on a log in memory; restarted as often as a test likes."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from actors.project.blob_store import BlobStore
from actors.project.projects import Projects, Published
from actors.project.settings import ProjectSettings
from actors.project.site_objects import ObjectComing, SiteObjects, StillGood
from actors.space.key_files import Disk
from schemas.echo.errors import EchoError
from tests.actors.project.estate import Estate, made


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Process:
    projects: Projects
    blobs: BlobStore
    objects: SiteObjects
    missing: int  # contents that were not there at the start

    async def put(
        self,
        project_id: str,
        path: str,
        content: bytes | Iterable[bytes],
        content_type: str = "text/plain",
        bytes_max: int = 10**9,
        address: str | None = None,
    ) -> Published | EchoError:
        coming = self.objects.begin(project_id, path, content_type, bytes_max, address)
        if isinstance(coming, EchoError):
            return coming
        async with coming:
            for piece in [content] if isinstance(content, bytes) else content:
                fault = await coming.append(piece)
                if fault is not None:
                    return fault
            return await coming.finish()

    def begin(self, project_id: str, path: str, still_good: StillGood = lambda: None) -> ObjectComing:
        coming = self.objects.begin(project_id, path, "text/plain", 10**9, None, still_good)
        assert isinstance(coming, ObjectComing), coming
        return coming

    def read(self, project_id: str, path: str) -> bytes | None:
        project = self.projects.get(project_id)
        found = None if project is None else project.object(path)
        return None if found is None else self.content(found.sha256)

    def content(self, content_hash: str) -> bytes:
        with os.fdopen(self.blobs.open(content_hash), "rb") as file:
            return file.read()

    async def project(self, name: str = "Board") -> str:
        return (await made(self.projects, name)).project_id


@dataclass
class Depot:
    folder: Path
    settings: ProjectSettings = field(default_factory=ProjectSettings)
    disk_fault: EchoError | None = None

    def __post_init__(self) -> None:
        self.estate = Estate(self.settings)
        self.folder.mkdir(exist_ok=True)

    async def start(self, disk: Disk | None = None) -> Process:
        projects = await self.estate.projects()
        blobs = await BlobStore.at(self.folder / "sites", self.settings.blob_limits, disk)
        missing = await blobs.load(projects.uses, projects.hashes_in_use())
        return Process(projects, blobs, SiteObjects(projects, blobs, lambda _: self.disk_fault), missing)

    def files(self) -> set[str]:
        """Of contents, by hash; and whatever else is there, by its path."""
        sites = self.folder / "sites"
        found = [path for path in sites.rglob("*") if not path.is_dir()]
        return {path.name if len(path.name) == 64 else str(path.relative_to(sites)) for path in found}
