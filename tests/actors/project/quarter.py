"""Projects with real rooms, over stores in memory that outlive a process, and a clock that tests move."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.project.project_rules import NewProject, Project
from actors.project.projects import Projects
from actors.project.settings import ProjectSettings
from actors.project.space_rooms import SpaceRooms
from actors.space.iam import SpaceIam
from actors.space.iam_events import Passkey
from actors.space.iam_tokens import Invited, Tokens
from actors.space.operator_iam import OperatorIam
from actors.space.settings import SpaceSettings
from actors.space.spaces import EchoSpaces
from actors.space.token_seal import TokenSeal
from schemas.echo.scopes import FULL
from schemas.ulids import Mint
from tests.actors.space.driver import World


@dataclass
class Process:
    log: MemoryStore
    spaces: EchoSpaces
    iam: SpaceIam
    operator: OperatorIam
    projects: Projects
    new_id: Callable[[], str]

    async def make(self, name: str = "Board", **more: object) -> Project:
        project = await self.projects.create(NewProject(name, **more))  # type: ignore[arg-type]
        assert isinstance(project, Project), project
        return project

    def room(self, project: Project, place: int = 0) -> str:
        return project.record.spaces[place].space_id

    def token(self, space_id: str) -> str:
        space = self.spaces.get(space_id)
        token = None if space is None else self.spaces.token_of(space)
        assert token is not None
        return token

    async def join(self, space_id: str, name: bytes = b"key", *scopes: str) -> Tokens:
        """A new member, invited by the operator."""
        invited = await self.operator.invite(space_id, frozenset(scopes or (FULL,)), None)
        assert isinstance(invited, Invited), invited
        tokens = await self.iam.add_member(space_id, invited.invite, b"handle", "Ada", Passkey(name, b"public", 3))
        assert isinstance(tokens, Tokens), tokens
        return tokens


@dataclass
class Quarter:
    world: World = field(default_factory=lambda: World(SpaceSettings(disk_free_min=0.0)))
    settings: ProjectSettings = field(default_factory=ProjectSettings)
    deleted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world.seal = TokenSeal(bytes(32))
        self._mint = Mint(self.world.random)

    @asynccontextmanager
    async def process(self) -> AsyncIterator[Process]:
        logs: list[MemoryStore] = []
        iams: list[SpaceIam] = []

        def log_over(disk: MemoryDisk) -> MemoryStore:
            logs.append(MemoryStore(disk))
            return logs[0]

        self.world.log_over = log_over
        self.world.before_load = lambda spaces: iams.append(SpaceIam(spaces, self._new_id))
        async with self.world.process() as spaces:
            (log,), (iam,) = logs, iams
            spaces.on_end.append(iam.end)
            projects = Projects(
                log,
                SpaceRooms(spaces, iam),
                self.settings,
                lambda: spaces.now().wall_ms,
                self.world.random,
                self._new_id,
                frozenset({"gateway"}),
            )
            projects.on_delete.append(self.deleted.append)
            await projects.load()
            operator = OperatorIam(iam, self.world.settings, self.world.random, self._new_id)
            yield Process(log, spaces, iam, operator, projects, self._new_id)

    def _new_id(self) -> str:
        return self._mint.mint(self.world.now_ms)
