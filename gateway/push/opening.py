"""What sending takes, from the settings, made before anything listens so that a mistake stops the start; and the tables
of subscriptions.

Those of spaces lie with the spaces. Those of projects have a store of their own:

DATA/projects/spaces.sqlite, DATA/projects/spaces/      as `actors/space/sqlite_space_store.py` has it
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from actors.log.store import LogStore
from actors.node.moment import Moment
from actors.project.projects import Projects, state_of
from actors.push.counts import PushCounts
from actors.push.project_owners import ProjectOwners
from actors.push.space_owners import SpaceOwners
from actors.push.subscriptions import Subscriptions
from actors.space.spaces import EchoSpaces
from actors.space.sqlite_space_store import DATABASE, SqliteSpaceStore
from actors.space.store import SpaceStore, SpaceStoreLimits
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.main.feature import Feature
from gateway.net.exchange import Exchange
from gateway.net.refusal_counts import counted
from gateway.push.endpoint_rules import PushHosts
from gateway.push.network import Internet, Network, tls_contexts
from gateway.push.notify_shares import NotifyShares
from gateway.push.operations import PROJECT_PUSH
from gateway.push.project_push import AdmitAddress, ProjectPush
from gateway.push.push_service import PushService, PushTools
from gateway.push.sender import Sender
from gateway.push.settings import PushSettings
from gateway.push.vapid import VapidTokens, read_keys
from schemas.echo.errors import EchoError

FOLDER = "projects"


def push_tools(
    settings: PushSettings, now: Callable[[], Moment], counts: PushCounts, network: Network | None = None
) -> PushTools | None:
    """None where no keys are set. `network` lets a test stand between. Raises SettingsError."""
    keys = read_keys(settings)
    if keys is None:
        return None
    sender = Sender(
        settings,
        VapidTokens(keys),
        network or Internet(),
        tls_contexts(settings.ca_certificates),
        os.urandom,
        lambda: now().wall_ms / 1000,
    )
    return PushTools(keys, PushHosts(settings.hosts), sender, NotifyShares(settings), counts)


def push_of_spaces(spaces: EchoSpaces, tools: PushTools, settings: PushSettings) -> PushService:
    subscriptions = Subscriptions(SpaceOwners(spaces), settings.subscriptions_per_space_max)
    return PushService("space_id", subscriptions, tools, lambda: spaces.now().wall_ms)


@asynccontextmanager
async def opened_project_store(
    folder: Path, limits: SpaceStoreLimits, *, is_wanted: bool
) -> AsyncIterator[SpaceStore | None]:
    """None where it is not wanted and there has never been one: what is left of deleted projects is erased anyway."""
    place = folder / FOLDER
    if not is_wanted and not (place / DATABASE).exists():
        yield None
        return
    place.mkdir(mode=0o700, exist_ok=True)
    async with await SqliteSpaceStore.at(place, limits) as store:
        await store.load()
        yield store


async def project_push_feature(
    tools: PushTools | None,
    store: SpaceStore | None,
    log: LogStore,
    projects: Projects,
    spaces: EchoSpaces,
    bearer_fault: Callable[[Exchange], EchoError | None],
    admit_address: AdmitAddress,
    settings: PushSettings,
) -> Feature:
    """The routes, which are there without keys too, and what erases subscriptions of projects that are deleted.

    `bearer_fault` and `admit_address` are as `ProjectPush` says.
    """

    def is_there(project_id: str) -> bool:
        return projects.get(project_id) is not None

    service = None
    start: Callable[[Supervisor], None] = _start_nothing
    if store is not None:
        owners = ProjectOwners(store, is_there, spaces.disk_fault, lambda: spaces.now().wall_ms)
        begin = state_of("")
        await owners.load({name.removeprefix(begin) for name in await log.open_streams() if name.startswith(begin)})
        projects.on_delete.append(owners.forget)
        start = partial(_start_owners, owners)
        service = None if tools is None else push_of_projects(owners, tools, settings)
    push = ProjectPush(service, is_there, bearer_fault, admit_address, settings, lambda: spaces.now().mono_s)
    return Feature(counted(push.routes, spaces.counts.requests_refused), operations=PROJECT_PUSH, start=start)


def push_of_projects(owners: ProjectOwners, tools: PushTools, settings: PushSettings) -> PushService:
    subscriptions = Subscriptions(owners, settings.subscriptions_per_project_max)
    return PushService("project_id", subscriptions, tools, owners.now_ms)


def _start_owners(owners: ProjectOwners, supervisor: Supervisor) -> None:
    """What erases, and what stops the process when the disk has failed."""
    supervisor.start(ChildSpec(name="push_store", run=owners.store.watch, kind=Kind.FATAL, stage=Stage.LOG))
    supervisor.start(ChildSpec(name="push_owners", run=owners.run, kind=Kind.PERMANENT, stage=Stage.CORE))


def _start_nothing(_: Supervisor) -> None:
    pass
