"""The projects of a log, opened for as long as a gateway runs, and what is warned of at its start."""

import os
from collections.abc import Callable
from urllib.parse import urlsplit

import structlog

from actors.log.store import LogStore
from actors.project.projects import Projects
from actors.project.space_rooms import SpaceRooms
from actors.space.events import Space
from actors.space.iam import SpaceIam
from actors.space.operator_iam import OperatorIam
from actors.space.spaces import EchoSpaces
from gateway.projects.bearer import ProjectBearer
from gateway.projects.documents import ProjectDocuments
from gateway.projects.feature import ProjectsFeature
from gateway.projects.iam_service import IamService
from gateway.projects.project_routes import AdmitAddress
from gateway.projects.project_service import ProjectService
from gateway.projects.settings import ProjectsSettings
from schemas.echo.site_labels import label_under

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_LOCAL = "localhost"  # which browsers resolve by themselves, for a try on one machine


async def opened_projects(
    store: LogStore,
    spaces: EchoSpaces,
    iam: SpaceIam,
    settings: ProjectsSettings,
    base: Callable[[], str],
    new_id: Callable[[], str],
) -> Projects:
    """After `spaces` are loaded. A label under which the gateway itself is reached is no project's."""
    host, suffix = host_of(base()), settings.site_suffix
    if is_same_site(host, suffix):
        log.warning("site_suffix_under_base", site_suffix=suffix)
    own = label_under(host, suffix)
    rooms = SpaceRooms(spaces, iam)
    own_labels = frozenset(() if own is None else (own,))
    projects = Projects(store, rooms, settings, lambda: spaces.now().wall_ms, os.urandom, new_id, own_labels)
    await projects.load()
    return projects


def projects_feature(
    projects: Projects,
    spaces: EchoSpaces,
    iam: SpaceIam,
    settings: ProjectsSettings,
    base: Callable[[], str],
    new_id: Callable[[], str],
    prompt_of: Callable[[Space, str], str],
    app_prompt: Callable[[str | None], str],
    admit_address: AdmitAddress,
) -> ProjectsFeature:
    """`prompt_of` and `app_prompt` as `ProjectDocuments` says; `admit_address` as `ProjectRoutes` does."""
    documents = ProjectDocuments(spaces, settings.site_suffix, base, prompt_of, app_prompt)
    service = ProjectService(projects, spaces, documents)
    operator = OperatorIam(iam, spaces.settings, spaces.random, new_id)
    return ProjectsFeature(
        service,
        IamService(service, operator, spaces, base),
        ProjectBearer(settings.api_bearer_token),
        admit_address,
        spaces.settings.body_bytes_max,
        settings.list_projects_max,
        spaces.counts.requests_refused,
    )


def host_of(base: str) -> str:
    """In lower case, without a port."""
    return urlsplit(base).hostname or ""


def is_same_site(host: str, suffix: str) -> bool:
    """Whether sites under this suffix share a domain with the gateway: then what a browser calls same-site protects
    neither from the other."""
    if suffix == _LOCAL:
        return False
    return host == suffix or suffix.endswith(f".{host}") or host.endswith(f".{suffix}")
