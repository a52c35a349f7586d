"""All routes of echo spaces but rooms, as one feature, and what ends spaces on time as another."""

from collections.abc import Callable, Sequence
from functools import partial

from actors.space.iam import SpaceIam
from actors.space.space_files import SpaceFiles
from actors.space.space_values import SpaceValues
from actors.space.spaces import EchoSpaces
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.calls.audit import Audit
from gateway.identity.passkeys.page_script import PASSKEY_SCRIPT
from gateway.main.feature import Feature
from gateway.net.operation import chosen
from gateway.net.refusal_counts import counted
from gateway.net.router import Route
from gateway.pages.assets import Assets
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.creation import CREATION_PATH, Creation
from gateway.spaces.documents import AppPromptOf, Documents, no_app_prompt
from gateway.spaces.file_routes import FileRoutes
from gateway.spaces.iam_ceremonies import IamCeremonies, PasskeyCeremonies
from gateway.spaces.iam_routes import IamRoutes
from gateway.spaces.kv_routes import KvRoutes
from gateway.spaces.mcp_sessions import RoomSessions
from gateway.spaces.operations import REST, ROOM, with_scopes
from gateway.spaces.pages import ASSETS, STATIC
from gateway.spaces.pages.page_routes import PageRoutes, Protection
from gateway.spaces.refusals import form_at
from gateway.spaces.room_push import NoPush, RoomPush
from gateway.spaces.room_tools import RoomTools
from gateway.spaces.settings import EchoSettings
from gateway.spaces.space_routes import PREFIX, Methods, SpaceRoutes
from gateway.spaces.text_routes import TextRoutes
from gateway.spaces.upload_shares import UploadShares


def spaces_feature(
    spaces: EchoSpaces,
    iam: SpaceIam,
    admission: SpaceAdmission,
    settings: EchoSettings,
    base: Callable[[], str],
    new_id: Callable[[], str],
    audit: Audit,
    passkeys: PasskeyCeremonies | None = None,
    push: RoomPush | None = None,
    *,
    app_prompt_of: AppPromptOf = no_app_prompt,
    sections: Sequence[Callable[[], str]] = (),
    has_mcp: bool = True,
) -> Feature:
    """`base` is how clients reach this gateway, without a slash at its end; it is asked once the gateway listens.
    `sections` are what other features say in `/service/description`.

    Without `passkeys` nobody can become a member, so IAM stays off but in rooms of projects. Without `push` nobody is
    notified.
    """
    push = push or NoPush()
    documents = Documents(
        settings,
        base,
        app_prompt_of,
        sections,
        has_mcp=has_mcp,
        has_sign_in=passkeys is not None,
        has_push=push.is_configured,
    )
    shares = UploadShares(settings)
    space_values, space_files = SpaceValues(spaces), SpaceFiles(spaces, new_id)
    kv = KvRoutes(space_values, settings, admission)
    files = FileRoutes(space_files, settings, documents, shares, admission)
    more: dict[tuple[str, bool], Methods] = {
        ("files", False): {"GET": files.list, "POST": files.upload},
        ("files", True): {"GET": files.download, "DELETE": files.delete},
        **IamRoutes(iam, admission, settings, base).methods,
        **push.methods,
    }
    if passkeys is not None:
        more |= IamCeremonies(iam, passkeys, admission, settings, base, lambda: spaces.now().mono_s).methods
    protection = Protection(passkeys is not None, iam.is_claim_used)
    pages = PageRoutes(
        admission,
        documents,
        settings,
        base,
        lambda: spaces.now().wall_ms,
        protection,
        has_push=push.is_configured,
    )
    assets = Assets(ASSETS, STATIC, PASSKEY_SCRIPT)
    of_spaces = SpaceRoutes(spaces, admission, kv, documents, settings, more)
    routes: dict[str, Route] = {
        **pages.routes,
        **assets.routes,
        **Creation(spaces, admission, documents, settings, base, pages.refuse).routes,
        **of_spaces.routes,
        **TextRoutes(admission, documents).routes,
    }
    refused = spaces.counts.requests_refused
    tools = RoomTools(space_values, space_files, documents, shares, settings, push)
    sessions = RoomSessions(tools, admission, spaces, iam, settings, audit, new_id)
    spaces.on_end.append(sessions.end)
    iam.on_iam.append(sessions.end)
    iam.on_grant_end.append(sessions.end_grant)
    return Feature(
        counted(routes, refused),
        operations={**REST, **with_scopes(chosen(of_spaces.endpoints, ROOM)), **assets.operations},
        refusal_form=partial(form_at, refused=refused),
        counts_bodies=counts_bodies,
        session_kinds=(sessions,),
    )


def ends_feature(spaces: EchoSpaces, iam: SpaceIam) -> Feature:
    """The supervised tasks that end spaces and grants on time, also those left where spaces are switched off."""

    def start(supervisor: Supervisor) -> None:
        supervisor.start(ChildSpec(name="space_store", run=spaces.store.watch, kind=Kind.FATAL, stage=Stage.LOG))
        supervisor.start(ChildSpec(name="spaces", run=spaces.run, kind=Kind.PERMANENT, stage=Stage.CORE))
        supervisor.start(ChildSpec(name="space_iam", run=iam.run, kind=Kind.PERMANENT, stage=Stage.CORE))

    return Feature(start=start)


def counts_bodies(path: str) -> bool:
    """Whether a route of spaces counts bodies itself as they come, by its own limit; the door need not."""
    return path.startswith(PREFIX) or path == CREATION_PATH
