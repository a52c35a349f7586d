"""Echo spaces and projects, joined to a gateway. Where spaces are off, those that are left still end on time."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from actors.log.store import LogStore
from actors.project.projects import Projects
from actors.space.rooms import Rooms
from actors.space.spaces import EchoSpaces
from actors.space.store import SpaceStore
from actors.supervision.supervisor import Supervisor
from gateway.calls.audit import Audit
from gateway.identity.oauth.worlds import Worlds
from gateway.identity.passkeys.ceremony_rules import Ceremonies
from gateway.main.feature import Feature
from gateway.main.public_base import PublicBase
from gateway.main.settings import Settings
from gateway.net.applications import SitesAt
from gateway.net.pump import Pump
from gateway.projects.feature import ProjectsFeature
from gateway.projects.opening import opened_projects, projects_feature
from gateway.projects.operator_sessions import OperatorLimits, OperatorSessions
from gateway.projects.operator_tools import OperatorTools
from gateway.projects.s3_bucket import S3Bucket
from gateway.projects.service_text import service_text
from gateway.projects.site_opening import opened_sites
from gateway.projects.static_opening import StaticSide, opened_static
from gateway.projects.static_service import StaticService
from gateway.push.opening import project_push_feature, push_of_spaces
from gateway.push.push_service import PushTools
from gateway.push.service_text import service_text as push_text
from gateway.push.space_push import SpacePush
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.documents import Documents, app_prompt
from gateway.spaces.feature import ends_feature, spaces_feature
from gateway.spaces.iam_passkeys import passkeys_at
from gateway.spaces.oauth_world import SpaceWorld
from gateway.spaces.opening import OpenedSpaces, join_iam
from gateway.spaces.refusals import form_of_sessions
from gateway.spaces.room_entrance import RoomEntrance


@dataclass(frozen=True, slots=True)
class EchoSide:
    """What there is where spaces are on; else nothing but what ends the last of them."""

    features: tuple[Feature, ...] = ()  # in the order in which they are asked whose a credential is
    spaces: EchoSpaces | None = None
    rooms: Rooms | None = None
    projects: Projects | None = None
    world: Worlds | None = None  # where members sign in; None: nowhere
    static: StaticSide | None = None
    sites: SitesAt | None = None  # by host; None: every host is the gateway's own


async def echo_side(
    kept: OpenedSpaces | None,
    settings: Settings,
    base: PublicBase | None,
    store: LogStore,
    supervisor: Supervisor,
    pump: Pump,
    ceremonies: Ceremonies,
    audit: Audit,
    is_of_fleet: Callable[[bytes], bool],
    new_id: Callable[[], str],
    folder: Path,
    echo_key: bytes,
    bucket: S3Bucket | None,
    push: PushTools | None,
    push_store: SpaceStore | None,
) -> EchoSide:
    """`is_of_fleet`: whether this passkey is of a member of a tenant. `folder` is where data lies. `push` is None where
    no keys are set, and `push_store` where no keys ever were."""
    if kept is None:
        return EchoSide()
    ends = ends_feature(kept.spaces, kept.iam)
    if not settings.echo.enabled or base is None:
        return EchoSide((ends,))
    echo, spaces, iam = settings.echo, kept.spaces, kept.iam
    rooms = Rooms(supervisor, echo, spaces.now, spaces.counts, pump.at_end_of_batch)
    join_iam(iam, spaces, rooms)
    projects = await opened_projects(store, spaces, iam, settings.projects, base, new_id)

    def app_prompt_of(project_id: str) -> str | None:
        project = projects.get(project_id)
        return None if project is None else project.record.system_prompt

    admission = SpaceAdmission(spaces.find, spaces.now, echo, iam.find, iam.opened_until_ms)
    entrance = RoomEntrance(admission, rooms, supervisor, pump, echo)
    passkeys = passkeys_at(base, ceremonies, iam, lambda: spaces.now().mono_s, is_of_fleet)
    room_push = None if push is None else push_of_spaces(spaces, push, settings.push)
    routes = spaces_feature(
        spaces,
        iam,
        admission,
        echo,
        base,
        new_id,
        audit,
        passkeys,
        None if room_push is None else SpacePush(room_push, iam, admission.access),
        app_prompt_of=app_prompt_of,
        sections=[
            lambda: service_text(
                settings.projects, base(), has_bucket=bucket is not None, has_mcp=settings.mcp.enabled
            ),
            lambda: push_text(is_configured=push is not None),
        ],
        has_mcp=settings.mcp.enabled,
    )
    prompt_of = Documents(echo, base, app_prompt_of, has_push=push is not None).prompt
    project_api = projects_feature(
        projects, spaces, iam, settings.projects, base, new_id, prompt_of, app_prompt, admission.admit_address
    )
    static = await opened_static(
        folder,
        store,
        projects,
        spaces,
        project_api,
        settings.projects,
        echo_key,
        base,
        new_id,
        admission.admit_address,
        bucket,
        settings.echo.s3,
    )
    if settings.projects.api_bearer_token is not None:
        operator = _operator(project_api, static.service, settings, admission, spaces, audit, new_id)
        project_api.kinds.append(operator)
    sites = opened_sites(projects, static.blobs, project_api, settings.projects, base)
    project_push = await project_push_feature(
        push,
        push_store,
        store,
        projects,
        spaces,
        project_api.bearer.fault,
        admission.admit_address,
        settings.push,
    )
    features = (ends, project_api.feature, project_push, routes, entrance.feature)
    world = None if passkeys is None else SpaceWorld(iam)
    return EchoSide(features, spaces, rooms, projects, world, static, sites)


def _operator(
    api: ProjectsFeature,
    files: StaticService,
    settings: Settings,
    admission: SpaceAdmission,
    spaces: EchoSpaces,
    audit: Audit,
    new_id: Callable[[], str],
) -> OperatorSessions:
    echo, refused = settings.echo, spaces.counts.requests_refused
    sessions = settings.projects.mcp_session_limits
    limits = OperatorLimits(sessions, echo.mcp_body_bytes, echo.body_pace, echo.mcp_large_max)
    return OperatorSessions(
        OperatorTools(api.service, files),
        api.bearer.is_mine,
        lambda project_id: api.service.projects.get(project_id) is not None,
        admission.over_rate,
        limits,
        audit,
        refused,
        form_of_sessions(refused),
        spaces.now,
        new_id,
    )
