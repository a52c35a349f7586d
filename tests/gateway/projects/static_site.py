"""The routes of published files on a real folder, with a client that speaks ASGI and a clock that tests move."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from actors.project.project_rules import Project
from actors.project.site import SiteObject
from gateway.net.exchange import Exchange
from gateway.net.router import Router
from gateway.projects.bearer import ProjectBearer
from gateway.projects.project_routes import Methods, ProjectRoutes
from gateway.projects.put_signature_rules import PutSignatures
from gateway.projects.settings import ProjectsSettings
from gateway.projects.site_content_rules import type_of
from gateway.projects.static_routes import StaticRoutes
from gateway.projects.static_service import BucketUploads, SiteFace, StaticService
from schemas.ulids import Mint
from tests.actors.project.depot import Depot, Process
from tests.gateway.spaces.site import Answer, AsgiClient

BASE, BEARER, ECHO_KEY = "http://localhost:8420", "b" * 40, bytes(32)


def _url(project: Project) -> str:
    return f"http://{project.record.label}.localhost:8420"


async def _admit(_exchange: Exchange, _headers: Mapping[bytes, bytes]) -> bool:
    await trio.lowlevel.checkpoint()
    return True


@dataclass
class StaticSite:
    depot: Depot
    process: Process
    client: AsgiClient
    project_id: str
    table: Mapping[str, Methods]
    static: str = field(init=False)
    auth: dict[str, str] = field(default_factory=lambda: {"authorization": f"Bearer {BEARER}"})

    def __post_init__(self) -> None:
        self.static = f"/api/projects/{self.project_id}/static"

    async def ask(
        self,
        method: str,
        target: str,
        body: bytes | Sequence[bytes | trio.Event] = b"",
        client: str = "192.0.2.1",
        /,
        **headers: str,
    ) -> Answer:
        return await self.client.ask(method, target, body, client, **headers)

    async def put(self, path: str, body: bytes | Sequence[bytes | trio.Event] = b"x", **headers: str) -> Answer:
        return await self.ask("PUT", f"{self.static}/{path}", body, **self.auth, **headers)

    async def presign(self, **body: Any) -> Any:
        answer = await self.ask("POST", f"{self.static}/presign", json.dumps(body).encode(), **self.auth)
        assert answer.status == 200, answer
        return answer.json

    async def upload(
        self, presigned: Any, body: bytes | Sequence[bytes | trio.Event], client: str = "192.0.2.1", /, **changes: str
    ) -> Answer:
        headers = {"content_type": presigned["headers"]["Content-Type"], **changes}
        return await self.ask("PUT", presigned["url"].removeprefix(BASE), body, client, **headers)

    def read(self, path: str) -> bytes | None:
        return self.process.read(self.project_id, path)

    def is_empty(self) -> bool:
        """Whether nothing is left of anything."""
        return (self.depot.files(), self.process.blobs.bytes, len(self.process.objects)) == (set(), 0, 0)


@asynccontextmanager
async def static_site(
    folder: Path,
    settings: ProjectsSettings | None = None,
    bearer: str | None = BEARER,
    bucket: BucketUploads | None = None,
) -> AsyncIterator[StaticSite]:
    settings = settings or ProjectsSettings()
    depot = Depot(folder / "data", settings)
    process = await depot.start()
    mint = Mint(lambda count: bytes(count))

    def now_ms() -> int:
        return depot.estate.now_ms

    kept = ProjectBearer(bearer)
    signatures = None if kept.sha256 is None else PutSignatures(ECHO_KEY, kept.sha256)
    face = SiteFace(_url, type_of, lambda path: type_of(SiteObject(path, "", 0, "", 0)))
    service = StaticService(process.projects, process.objects, settings, face, signatures, lambda: BASE, now_ms, bucket)
    static = StaticRoutes(service, settings, signatures, _admit, now_ms)
    table = ProjectRoutes(kept, _admit, {})
    table.add(static.table)
    app = Router(lambda: mint.mint(now_ms()), table.routes, static.routes)
    yield StaticSite(depot, process, AsgiClient(app), await process.project(), static.table)
