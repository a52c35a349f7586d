"""Published files on a disk, their sites at a door, and clients of either server that ask for them."""

import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from actors.project.blob_files import BlobFiles
from actors.project.events import ObjectDeleted, ObjectPublished, ProjectRecord
from actors.project.project_rules import Project
from actors.project.site import SiteObject
from actors.space.key_files import Disk
from gateway.net.http1.settings import DoorSettings
from gateway.projects.site_contents import SiteContents
from gateway.projects.site_host_rules import SiteHosts
from gateway.projects.site_routes import SiteRoutes
from schemas.echo.frames import Encoding
from tests.gateway.net.http1.site import Client, Response, Site, site
from tests.gateway.net.hypercorn.http2 import Http2

AT_MS = 1_700_000_000_999
LAST_MODIFIED = "Tue, 14 Nov 2023 22:13:20 GMT"


@dataclass
class Published:
    """Satisfies `SiteDirectory` and `ContentReader`."""

    files: BlobFiles
    projects: dict[str, Project] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)

    def site(self, label: str) -> Project | None:
        return self.projects.get(label)

    def open(self, sha256: str) -> int:
        self.opened.append(sha256)
        return self.files.open(sha256)

    def publish(self, label: str, path: str, content: bytes, content_type: str = "", at_ms: int = AT_MS) -> SiteObject:
        """Make the project, if there is none."""
        sha256 = self.stage(content)
        project = self.projects.get(label)
        if project is None:
            made = ProjectRecord(f"id-{label}", label, label, label, Encoding.JSON, False, False, False, None, AT_MS)
            project = self.projects[label] = Project(made)
        project.apply(ObjectPublished(at_ms, path, sha256, len(content), content_type))
        found = project.object(path)
        assert found is not None
        return found

    def stage(self, content: bytes) -> str:
        """Have it on the disk, wholly or not at all, under its hash."""
        sha256 = hashlib.sha256(content).hexdigest()
        path = self.files.path(sha256)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_bytes(content)
            part.rename(path)
        return sha256

    def unpublish(self, label: str, path: str) -> None:
        """Its content goes too."""
        project = self.projects[label]
        gone = project.object(path)
        assert gone is not None
        project.apply(ObjectDeleted(AT_MS, path))
        self.files.remove(gone.sha256)


@dataclass
class Here:
    """A door with sites. Requests go to the host of one of them, if no other is named."""

    door: Site
    published: Published
    contents: SiteContents

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with self.door.client() as client:
            yield client

    @contextlib.asynccontextmanager
    async def http2(self, *, unchecked: bool = False) -> AsyncIterator[Http2]:
        async with self.door.client() as client:
            http2 = Http2(client.stream, unchecked=unchecked)
            await http2.begin()
            yield http2

    async def get(self, target: str = "/", host: str = "a.localhost", method: str = "GET", **headers: str) -> Response:
        """On a connection of its own, at our own server."""
        async with self.door.client() as client:
            return await ask(client, target, host, method, **headers)

    async def get_2(
        self, target: str = "/", host: str = "a.localhost", method: str = "GET", **headers: str
    ) -> Response:
        """The same by HTTP/2, at the other one."""
        async with self.http2() as client:
            return await client.get(target, host, method, **headers)


async def ask(client: Client, target: str, host: str = "a.localhost", method: str = "GET", **headers: str) -> Response:
    lines = [
        f"{method} {target} HTTP/1.1",
        f"Host: {host}",
        *(f"{name.replace('_', '-')}: {headers[name]}" for name in headers),
    ]
    await client.send("\r\n".join([*lines, "", ""]).encode("latin-1"))
    return await client.response(to_head=method == "HEAD")


@contextlib.asynccontextmanager
async def sites(
    folder: Path,
    settings: DoorSettings | None = None,
    tls: ssl.SSLContext | None = None,
    suffix: str = "localhost",
    base_host: str = "localhost",
) -> AsyncIterator[Here]:
    """The main application says what it heard, as JSON."""
    published = Published(BlobFiles(folder / "sites", Disk()))
    contents = SiteContents(published)
    routes = SiteRoutes(published, contents, SiteHosts(suffix, base_host))
    try:
        async with site(settings=settings, tls=tls, sites=routes.at) as door:
            contents.start(door.supervisor)
            yield Here(door, published, contents)
    finally:
        contents.close()
