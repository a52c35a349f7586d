"""Projects on a log in memory, with a clock that the test sets, and rooms that are nothing but their ids."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import LogStore, Part
from actors.project.project_rules import NewProject, Project
from actors.project.projects import Projects
from actors.project.rooms import NewRoom
from actors.project.settings import ProjectSettings
from actors.project.site import SiteObject
from actors.space.space_log import fault_of
from schemas.echo.errors import EchoError
from schemas.ulids import Mint

START_MS = 1_790_000_000_000


@dataclass
class BareRooms:
    """Implements `ProjectRooms`: what is live is what this says, and lost in no restart."""

    store: LogStore
    live: dict[str, NewRoom] = field(default_factory=dict)
    iam: dict[str, bool] = field(default_factory=dict)

    def is_live(self, space_id: str) -> bool:
        return space_id in self.live

    async def open(self, wish: NewRoom, *parts: Part) -> EchoError | None:
        fault = fault_of(await self.store.append(*parts))
        if fault is None:
            self.live[wish.space_id] = wish
            old_iam = self.iam.pop(wish.replaces or "", wish.has_iam)
            self.iam[wish.space_id] = old_iam if self.live.pop(wish.replaces or "", None) else wish.has_iam
        return fault

    async def set_iam(self, space_id: str, *parts: Part, is_enabled: bool) -> EchoError | None:
        if space_id not in self.live:
            return EchoError.SPACE_NOT_FOUND
        fault = fault_of(await self.store.append(*parts))
        if fault is None:
            self.iam[space_id] = is_enabled
        return fault

    async def end(self, space_ids: Sequence[str], *parts: Part) -> EchoError | None:
        fault = fault_of(await self.store.append(*parts))
        for space_id in space_ids if fault is None else ():
            self.live.pop(space_id, None)
        return fault


@dataclass
class Estate:
    settings: ProjectSettings = field(default_factory=ProjectSettings)
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    now_ms: int = START_MS
    deleted: list[str] = field(default_factory=list)
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.ids = Mint(lambda count: next(self.numbers).to_bytes(count))
        self.rooms = BareRooms(MemoryStore(self.disk))

    async def projects(self, store: LogStore | None = None) -> Projects:
        """As after a start."""
        self.rooms.store = store or MemoryStore(self.disk)
        projects = Projects(
            self.rooms.store,
            self.rooms,
            self.settings,
            lambda: self.now_ms,
            lambda count: next(self.numbers).to_bytes(count),
            lambda: self.ids.mint(self.now_ms),
            frozenset({"gateway"}),
        )
        projects.on_delete.append(self.deleted.append)
        await projects.load()
        return projects


def file(path: str, content: str = "a", size: int = 10, content_type: str = "") -> SiteObject:
    return SiteObject(path, content * 64, size, content_type, 0)


async def made(projects: Projects, name: str = "Board", domain: str | None = None, **more: bool) -> Project:
    project = await projects.create(NewProject(name, domain=domain, **more))  # type: ignore[arg-type]
    assert isinstance(project, Project), project
    return project
