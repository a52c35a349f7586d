"""Echo spaces and projects, joined to a gateway. Where spaces are off, those that are left still end on time."""

from collections.abc import Callable
from dataclasses import dataclass

from actors.log.store import LogStore
from actors.project.projects import Projects
from actors.space.rooms import Rooms
from actors.space.spaces import EchoSpaces
from actors.supervision.supervisor import Supervisor
from gateway.calls.audit import Audit
from gateway.identity.oauth.worlds import Worlds
from gateway.identity.passkeys.ceremony_rules import Ceremonies
from gateway.main.feature import Feature
from gateway.main.public_base import PublicBase
from gateway.main.settings import Settings
from gateway.net.pump import Pump
from gateway.projects.opening import opened_projects, projects_feature
from gateway.projects.service_text import service_text
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.documents import Documents, app_prompt
from gateway.spaces.feature import ends_feature, spaces_feature
from gateway.spaces.iam_passkeys import passkeys_at
from gateway.spaces.oauth_world import SpaceWorld
from gateway.spaces.opening import OpenedSpaces, join_iam
from gateway.spaces.room_entrance import RoomEntrance


@dataclass(frozen=True, slots=True)
class EchoSide:
    """What there is where spaces are on; else nothing but what ends the last of them."""

    features: tuple[Feature, ...] = ()  # in the order in which they are asked whose a credential is
    spaces: EchoSpaces | None = None
    rooms: Rooms | None = None
    projects: Projects | None = None
    world: Worlds | None = None  # where members sign in; None: nowhere


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
) -> EchoSide:
    """`is_of_fleet`: whether this passkey is of a member of a tenant."""
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
    routes = spaces_feature(
        spaces,
        iam,
        admission,
        echo,
        base,
        new_id,
        audit,
        passkeys,
        app_prompt_of=app_prompt_of,
        sections=[lambda: service_text(settings.projects)],
        has_mcp=settings.mcp.enabled,
    )
    prompt_of = Documents(echo, base, app_prompt_of).prompt
    project_api = projects_feature(
        projects, spaces, iam, settings.projects, base, new_id, prompt_of, app_prompt, admission.admit_address
    )
    features = (ends, project_api.feature, routes, entrance.feature)
    return EchoSide(features, spaces, rooms, projects, None if passkeys is None else SpaceWorld(iam))
