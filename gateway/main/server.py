"""A whole gateway in one process: data folder, log, device side, HTTP application and door, under one supervisor."""

import gc
import os
import resource
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Protocol, TypeAlias

import trio

from actors.bus.renewal import NotRenewed, Renewed
from actors.member.members import Members
from actors.project.projects import Projects
from actors.push.counts import PushCounts
from actors.space.counts import SpaceCounts
from actors.space.rooms import Rooms
from actors.space.spaces import EchoSpaces
from actors.stream.streams import Streams
from actors.supervision.supervisor import Supervisor
from gateway.api.actions import Actions
from gateway.api.admin import Admin
from gateway.api.admin_audit import AdminAudit
from gateway.api.admin_backup import AdminBackup
from gateway.api.admin_console import AdminConsole
from gateway.api.admin_members import AdminMembers
from gateway.api.admin_nodes import ENROLMENT_BYTES_MAX, ENROLMENT_PATH, AdminNodes
from gateway.api.admin_policy import PUSH_BYTES_MAX, PUSH_PATH, AdminPolicy
from gateway.api.admin_spaces import AdminSpaces
from gateway.api.feature import api_feature
from gateway.api.health import is_ready
from gateway.api.metrics import FOR_SCRAPERS, MetricsRoute
from gateway.api.node_list import NodeList
from gateway.api.openapi_route import BOTH, OPERATORS, PUBLIC, OpenApiRoute
from gateway.backup.live_backups import LiveBackups
from gateway.calls.audit import Audit
from gateway.calls.tool_calls import ToolCalls
from gateway.calls.upstreams.calls import UpstreamCalls
from gateway.calls.upstreams.upstreams import Upstreams
from gateway.console.opening import Console
from gateway.devices.device_side import DeviceSide
from gateway.devices.listener import PATH
from gateway.governance.governor import Governor
from gateway.governance.policy.source import PolicySource
from gateway.identity.node_lives import NodeLives
from gateway.identity.operators import Operators
from gateway.identity.passkeys.ceremony_rules import Ceremonies, CeremonyLimits
from gateway.identity.token_keys import TokenKeys
from gateway.identity.tokens import OperatorScope, Principal
from gateway.main.clock import now, now_of_this_run
from gateway.main.console_side import ConsoleOrigin, console_origin, console_side
from gateway.main.data_folder import PLACES, RUNNING_FILE, DataFolder, Place
from gateway.main.desk import from_others
from gateway.main.echo_side import echo_side
from gateway.main.engine_check import check_engine
from gateway.main.feature import Feature
from gateway.main.public_base import PublicBase, is_known
from gateway.main.reload import Reload, TlsListeners
from gateway.main.running_note import RunningNote
from gateway.main.settings import UNIX, Address, Settings, UnixAddress
from gateway.main.siblings import Siblings
from gateway.main.side import opened_side
from gateway.main.sign_in import sign_in
from gateway.mcp.binding import Binding
from gateway.mcp.disabled import disabled_feature
from gateway.mcp.endpoint import McpEndpoint
from gateway.mcp.methods import Methods
from gateway.mcp.sessions import Sessions
from gateway.mcp.views import NAMED, VIEWS, View
from gateway.mcp.watch import Watches
from gateway.net.exchange import BODY_BYTES_MAX, Exchange
from gateway.net.http1.door import Door
from gateway.net.http1.tls_connection import ALPN
from gateway.net.refusal_form import RefusalForm
from gateway.net.router import Router, Routes
from gateway.net.tls import server_context
from gateway.observe.audit.audit_store import opened_audit
from gateway.observe.metrics.page import MetricsPage
from gateway.observe.metrics.space_families import SpaceFamilies
from gateway.observe.tracing import spans_to
from gateway.projects.s3_bucket import opened_bucket
from gateway.push.network import Network
from gateway.push.opening import opened_project_store, push_tools
from gateway.spaces.opening import opened_spaces
from gateway.streams.lines import SocketLines
from gateway.streams.subscribe import Subscribe
from gateway.streams.subscriptions import Subscriptions
from schemas.manifest import NodeIdentity
from schemas.ulids import Mint

GC_THRESHOLDS = (20_000, 20, 20)  # Python's 700 look for cycles several times in each call, which makes none
SWITCH_INTERVAL_S = 0.0005  # so that the log's writer thread is not starved by a busy event loop (docs/adr/0008)


class Listen(Protocol):
    async def __call__(self, host: str, port: int, *, shares: bool) -> int: ...


CONSOLE_ACTIONS = "/admin/console/"

MakeBinding: TypeAlias = Callable[[Methods, Watches, Sessions, Supervisor], Binding]


class CannotListenError(Exception):
    """An address is taken, or not this machine's; the text says which and what to do."""


@dataclass(frozen=True, slots=True)
class Running:
    folder: DataFolder
    lives: NodeLives
    devices: DeviceSide
    supervisor: Supervisor
    mcp: McpEndpoint  # of the first view
    other_views: tuple[McpEndpoint, ...]
    http: str  # HOST:PORT
    device_address: str
    http_scheme: str
    device_scheme: str
    admin: str | None  # HOST:PORT or unix:/path, if operators have a listener of their own
    spaces: EchoSpaces | None  # where they are on
    base: Callable[[], str] | None  # of links to spaces
    rooms: Rooms | None  # of spaces
    members: Members | None  # of tenants; None where tokens come from elsewhere
    reload: Reload
    projects: Projects | None = None  # where spaces are on
    console: Console | None = None

    @property
    def http_url(self) -> str:
        return f"{self.http_scheme}://{self.http}"

    @property
    def admin_url(self) -> str:
        """Where operators come."""
        if self.admin is None:
            return self.http_url
        return self.admin if self.admin.startswith(UNIX) else f"{self.http_scheme}://{self.admin}"

    @property
    def device_url(self) -> str:
        return f"{self.device_scheme}://{self.device_address}{PATH}"


@asynccontextmanager
async def running(
    settings: Settings, make_binding: MakeBinding = Binding, push_network: Network | None = None
) -> AsyncIterator[Running]:
    """A gateway, listening, for as long as the block lasts; leaving it stops everything in order.

    `make_binding` lets a test add to what the MCP endpoint offers, `push_network` be a push service.
    Raises SettingsError before anything has started, ProcessMustStopError when the gateway cannot go on.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Streams and nodes are file descriptors; the soft limit of most systems, 1024, is meant for programs with `select`.
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    gc.set_threshold(*GC_THRESHOLDS)
    http, nodes = Address.parse(settings.http.listen), Address.parse(settings.devices.listen)
    admin = None if settings.admin.listen is None else UnixAddress.parse(settings.admin.listen)
    door_settings, device_settings = settings.door_settings, settings.device_settings
    http_tls = server_context("http", settings.http.tls_certificate, settings.http.tls_key, ALPN)
    device_tls = server_context("devices", settings.devices.tls_certificate, settings.devices.tls_key)
    policy_file = PolicySource.open(settings.governance)
    token_keys = TokenKeys.open(settings.access)
    check_engine(settings)
    scheme = "http" if http_tls is None else "https"
    has_base = settings.echo.enabled or is_known(settings.http.public_url, http.host)
    base = PublicBase(settings.http.public_url, http.host, http.port, scheme) if has_base else None
    console_at = console_origin(settings, http, admin, scheme)
    mint, now_here = Mint(os.urandom), now_of_this_run()
    space_counts, push_counts = SpaceCounts(), PushCounts()
    push = push_tools(settings.push, now_here, push_counts, push_network)
    has_push = push is not None and settings.echo.enabled

    def new_id() -> str:
        return mint.mint(now_here().wall_ms)

    shares = settings.engine.url is not None
    with (
        DataFolder.hold(settings.data_path, now().wall_ms, shares=shares) as folder,
        folder.place() if shares else nullcontext(Place(0, folder.path / PLACES)) as place,
    ):
        folder.trust(token_keys)
        echo_key = b"" if base is None else folder.echo_key()
        async with (
            opened_side(settings, folder, place, now_here) as side,
            opened_spaces(folder.path, side.store, settings.echo, now_here, new_id, space_counts, echo_key) as kept,
            opened_bucket(settings.echo.s3 if settings.echo.enabled else None, now_here) as bucket,
            opened_project_store(folder.path, settings.echo.store_limits, is_wanted=has_push) as push_store,
            spans_to(settings.otel) as spans,
            opened_audit(place.audit, settings.audit, lambda: now_here().wall_ms) as kept_audit,
            trio.open_nursery() as nursery,
        ):
            if shares:
                folder.is_on_engine()
            store, supervisor = side.store, Supervisor()
            await nursery.start(supervisor.run)
            agreed = side.agree(folder, policy_file)
            side.begin(supervisor)
            await agreed.load()
            policy = agreed.policy
            policy.start(supervisor)
            if token_keys is not None:
                token_keys.start(supervisor)

            async def renew(node: NodeIdentity, token_id: str, kid: str, public_key: bytes) -> Renewed | NotRenewed:
                return await lives.renew(node, token_id, kid, public_key)

            verifier, certificates = folder.verifier, folder.certificates
            devices = DeviceSide(
                supervisor,
                store,
                verifier,
                certificates,
                device_settings,
                device_tls,
                renew,
                side.directory,
                side.takes_nodes,
                agreed.register,
                agreed.find_leaf,
                pays_at_hand=side.pays_at_hand,
            )
            devices.register.makes_tokens = token_keys is None
            await devices.start()
            directory, bus = side.directory, side.join(supervisor, devices.fleet, spans)
            lives = NodeLives(folder, agreed.register, directory, devices.fleet, new_id, now_here, agreed.leafs)
            agreed.register.on_others = lives.others_did
            await lives.load()
            devices.on_login = lives.logged_in
            governor = Governor(lambda: policy.current, devices.ledgers if side.pays_at_hand else None, directory)
            devices.book = side.pay(supervisor, governor, devices.ledgers)
            upstreams = Upstreams(supervisor, lambda: policy.current, settings.upstreams, directory.notify)
            upstreams.start()
            upstream_calls = UpstreamCalls(upstreams, settings.upstreams)
            audit = Audit(now_here, spans, directory.labels_of)
            if kept_audit is not None:
                audit.keep = kept_audit.add
            directory.follow(lambda record: audit.node(record) if side.is_witness(record) else None)

            def still_good(principal: Principal) -> bool:
                return folder.verifier.still_good(principal, now_here().wall_ms) is None

            calls = ToolCalls(directory, bus, new_id, now_here, governor, audit, upstream_calls, still_good)
            streams = Streams(supervisor, bus, settings.stream, SocketLines())
            side.share_streams(streams)
            subscribe = Subscribe(Subscriptions(calls, streams, new_id, now_here), devices.pump)
            members = None
            if token_keys is None:
                members = agreed.members(
                    store, settings.members, now_here, os.urandom, new_id, lambda: f"agent_{uuid.uuid4()}"
                )
                await members.load()
            limits = CeremonyLimits(settings.echo.ceremonies_max, settings.echo.ceremonies_per_address_max)
            ceremonies = Ceremonies(limits)

            operator_passkeys = agreed.passkeys(store, settings.console.passkeys_max, lambda: now_here().wall_ms)
            await operator_passkeys.load()

            # A passkey is of one realm: a member's of a tenant, a member's of a space, or an operator's.
            def is_of_fleet(credential_id: bytes) -> bool:
                return members is not None and members.of_passkey(credential_id) is not None

            def is_of_console(credential_id: bytes) -> bool:
                return operator_passkeys.find(credential_id) is not None

            def is_of_no_space(credential_id: bytes) -> bool:
                return is_of_fleet(credential_id) or is_of_console(credential_id)

            def is_of_a_member(credential_id: bytes) -> bool:
                is_of_space = echo.world is not None and echo.world.find(credential_id) is not None
                return is_of_space or is_of_fleet(credential_id)

            echo = await echo_side(
                kept,
                settings,
                base,
                store,
                supervisor,
                devices.pump,
                ceremonies,
                audit,
                is_of_no_space,
                new_id,
                folder.path,
                echo_key,
                bucket,
                push,
                push_store,
            )
            spaces, rooms = echo.spaces, echo.rooms
            signing_in = sign_in(
                folder,
                members,
                echo.world,
                ceremonies,
                settings.oauth,
                base,
                echo_key,
                new_id,
                now_here,
                is_of_console,
                has_mcp=settings.mcp.enabled,
                logs=settings.log.mcp,
            )
            # In this order they are asked whose a credential is; one that none of them claims is a token of an agent.
            kinds = [kind for feature in echo.features for kind in feature.session_kinds]
            sessions = Sessions(settings.mcp.session_limits)
            watches = Watches(directory, bus, settings.mcp, now, new_id, calls)

            def endpoint(view: View) -> McpEndpoint:
                methods = Methods(directory, calls, now, settings.mcp, upstream_calls, view)
                binding = make_binding(methods, watches, sessions, supervisor)
                return McpEndpoint(
                    binding,
                    folder.verifier,
                    sessions,
                    watches,
                    settings.mcp,
                    settings.http.public_url,
                    kinds if view is NAMED else (),
                    # Of your own issuer's tokens, which the views take and nothing else, we can give none.
                    sign_in_base=base if signing_in.issues_for(view.path) else None,
                    logs=settings.log.mcp,
                    forwards=forwards,
                )

            forwards = side.forwards(sessions, supervisor, settings.mcp.session_idle_s_max)
            mcp, *other_views = map(endpoint, VIEWS)
            mcp_features = [view.feature for view in (mcp, *other_views)]
            page = MetricsPage(
                calls=audit.counts,
                streams=streams,
                directory=directory,
                sessions=devices.fleet.nodes,
                drops=devices.counts,
                store=store,
                ledgers=devices.book,
                mcp_sessions=mcp.session_tables,
                listeners=watches,
                spaces=SpaceFamilies(space_counts, None if kept is None else kept.spaces, rooms, echo.projects),
                audit=kept_audit,
                push=push_counts,
                engine=side.counts,
                started_s=now_here().wall_ms / 1000,
            )

            def end_opened(credential_id: str) -> None:
                for feature in features:
                    feature.revoke(credential_id)

            def revoke(token_id: str) -> None:
                if members is not None:
                    members.end_soon(token_id)  # if it is a grant
                end_opened(token_id)

            if members is not None:
                members.on_grant_end.append(end_opened)

            since_ms = folder.operators_since_ms
            operators = Operators(folder.verifier, now_here, since_ms)
            scrapers = Operators(folder.verifier, now_here, since_ms, FOR_SCRAPERS).having(OperatorScope.FLEET_READ)
            ledgers = devices.book
            node_list = NodeList(devices.register, directory, lambda: now_here().wall_ms)
            actions = Actions(operators, audit, now_here)

            async def act(exchange: Exchange) -> None:
                await admin_api.handle(exchange)

            admin_spaces = None
            if spaces is not None and rooms is not None:
                admin_spaces = AdminSpaces(actions, spaces, rooms)
            console = console_side(
                console_at,
                settings,
                folder,
                store,
                devices,
                streams,
                calls,
                policy,
                governor,
                upstreams,
                kept_audit,
                audit,
                spaces,
                admin_spaces,
                side.shown,
                operator_passkeys,
                ceremonies,
                is_of_a_member,
                act,
                new_id,
                now_here,
            )
            blobs = None if echo.static is None else echo.static.blobs
            backups = LiveBackups(folder.path, settings.backup, version("heliograph"), kept_audit, blobs, place.number)
            more = [
                *(() if shares else (AdminBackup(actions, backups, lambda: now_here().wall_ms).routes,)),
                AdminNodes(actions, lives, node_list).routes,
                AdminMembers(actions, members, signing_in.fleet_off, base).routes,
                AdminConsole(actions, operators, console.console).routes,
                AdminPolicy(actions, agreed.pushed).routes,
            ]
            if kept_audit is not None:
                more.append(AdminAudit(actions, kept_audit, lambda: now_here().wall_ms).routes)
            if admin_spaces is not None:
                more.append(admin_spaces.routes)
            agreed.revocations.end_opened = revoke
            admin_api = Admin(operators, folder, store, ledgers, audit, agreed.revocations, new_id, now_here, *more)
            desk = side.desk(forwards)
            signing_features = signing_in.features
            if desk is not None:
                signing_features = tuple(map(desk.before, signing_features))
            siblings = Siblings(place, page.render)
            metrics = MetricsRoute(
                page.render,
                None if settings.http.metrics_open else scrapers,
                siblings.all_pages if side.shares_ports else None,
            )
            admin_routes, console_routes = admin_api.routes, console.console.routes
            if desk is not None and admin is None:  # else the others do not reach it there
                admin_routes = desk.at(admin_routes, lambda path: path.startswith(CONSOLE_ACTIONS))
                console_routes = desk.at(console_routes)
            for_operators = (
                Feature(admin_routes, admin_api.operations),
                Feature(console_routes, console.console.operations),
                metrics.feature,
            )
            openapi = OpenApiRoute(PUBLIC if admin is not None else BOTH)
            features = (
                Feature(start=lives.start, revoke=devices.fleet.revoke),
                *console.features,
                *(() if kept_audit is None else (Feature(start=kept_audit.start),)),
                subscribe.feature,
                *(mcp_features if settings.mcp.enabled else [disabled_feature()]),
                api_feature(
                    folder.verifier,
                    now_here,
                    directory,
                    calls,
                    subscribe,
                    folder.jwks,
                    lambda: is_ready(store, spaces, now_here().wall_ms, side.is_ready),
                    upstreams=upstream_calls,
                    service=settings.echo.service_name,
                ),
                *echo.features,
                *signing_features,
                *(for_operators if admin is None else ()),
                openapi.feature,
            )
            openapi.describe(features)
            for feature in features:
                feature.start(supervisor)

            def end_all() -> None:
                for feature in features:
                    feature.end_all()

            side.on_blind = end_all

            def takes_upgrade(path: str) -> bool:
                return any(feature.takes_upgrade(path) for feature in features)

            def form_of(path: str) -> RefusalForm | None:
                return next(filter(None, (feature.refusal_form(path) for feature in features)), None)

            def body_bytes_max(path: str) -> int:
                """Where rooms have sessions, bodies are counted as they come."""
                is_of_rooms = spaces is not None and path == NAMED.path
                counts_itself = is_of_rooms or any(feature.counts_bodies(path) for feature in features)
                return sys.maxsize if counts_itself else _body_bytes_max(path)

            door = Door(
                supervisor,
                Router(
                    new_id,
                    *(feature.routes for feature in features),
                    takes_upgrade=takes_upgrade,
                    form_of=form_of,
                    serves=side.serves,
                ),
                body_bytes_max=body_bytes_max,
                settings=door_settings,
                tls=http_tls,
                takes_upgrade=takes_upgrade,
                form_of=form_of,
                sites=echo.sites,
            )
            device_port = await _listening(devices.listen, nodes, "--devices", shares=side.shares_ports)
            http_port = await _listening(door.listen, http, "--http", shares=side.shares_ports)
            if side.shares_ports:
                # Whoever comes from another process is many clients.
                as_many = replace(door_settings, connections_per_address_max=door_settings.connections_max)

                def for_others(*more: Routes) -> Door:
                    within = Router(new_id, *(feature.routes for feature in features), *more, serves=side.serves)
                    return Door(supervisor, from_others(within), body_bytes_max=body_bytes_max, settings=as_many)

                # What takes no token is for the owner of the folder alone.
                await _listen_unix(
                    for_others(siblings.routes), place.socket, "choose a data folder with a shorter path"
                )
                if settings.engine.internal_listen is not None:
                    others = Address.parse(settings.engine.internal_listen)
                    await _listening(
                        for_others().listen,
                        Address(others.host, others.port + place.number),
                        "engine.internal_listen",
                        shares=False,
                    )
            if base is not None:
                base.port = http_port
            if isinstance(console_at, ConsoleOrigin) and admin is None:
                console_at.base.port = http_port
            operators_at, http_doors = None, [door]
            if admin is not None:
                openapi = OpenApiRoute(OPERATORS)
                here = (*for_operators, openapi.feature)
                openapi.describe(here)
                admin_door = Door(
                    supervisor,
                    Router(new_id, *(feature.routes for feature in here), serves=side.serves),
                    body_bytes_max=_body_bytes_max,
                    settings=door_settings,
                    tls=http_tls if isinstance(admin, Address) else None,  # who may reach a socket, its file says
                )
                operators_at = await _listen_for_operators(admin_door, admin, place, shares=side.shares_ports)
                if isinstance(console_at, ConsoleOrigin):
                    console_at.base.port = int(operators_at.rpartition(":")[2])
                http_doors += [admin_door] if isinstance(admin, Address) else []
            note = RunningNote(folder.path / RUNNING_FILE)
            reload = Reload(
                settings,
                {
                    "stream": lambda new: setattr(streams, "settings", new),
                    "node": devices.use_node_settings,
                    "listener": devices.listener.use_settings,
                    "backup": lambda new: setattr(backups, "settings", new),
                    **({} if members is None else {"members": lambda new: setattr(members, "settings", new)}),
                    **({} if kept_audit is None else {"audit": kept_audit.use_settings}),
                },
                {
                    "http": TlsListeners([door.use_tls for door in http_doors], ALPN, note.use_certificate),
                    "devices": TlsListeners([devices.listener.use_tls]),
                },
            )
            where = Running(
                folder,
                lives,
                devices,
                supervisor,
                mcp,
                tuple(other_views),
                f"{http.host}:{http_port}",
                f"{nodes.host}:{device_port}",
                scheme,
                "ws" if device_tls is None else "wss",
                operators_at,
                spaces,
                base if spaces is not None else None,
                rooms,
                members,
                reload,
                echo.projects,
                console.console,
            )
            note.write(where.http, where.device_address, where.admin, policy.path, settings.http.tls_certificate)
            try:
                yield where
            finally:
                if not folder.has_others():
                    note.remove()
                supervisor.request_stop()


def _body_bytes_max(path: str) -> int:
    return {ENROLMENT_PATH: ENROLMENT_BYTES_MAX, PUSH_PATH: PUSH_BYTES_MAX}.get(path, BODY_BYTES_MAX)


async def _listening(listen: Listen, address: Address, flag: str, *, shares: bool) -> int:
    try:
        return await listen(address.host, address.port, shares=shares)
    except OSError as error:
        # Not strerror: for a name that does not resolve it is not set.
        raise CannotListenError(
            f"cannot listen on {address.host}:{address.port} ({error}); choose another address with {flag}"
        ) from error


async def _listen_for_operators(door: Door, address: Address | UnixAddress, place: Place, *, shares: bool) -> str:
    """Where that is, as people write it. Of several processes the first one has the socket."""
    if isinstance(address, Address):
        return f"{address.host}:{await _listening(door.listen, address, 'admin.listen', shares=shares)}"
    if place.number == 0:
        await _listen_unix(door, address.path, "choose another path with admin.listen")
    return f"{UNIX}{address.path}"


async def _listen_unix(door: Door, path: Path, remedy: str) -> None:
    try:
        await door.listen_unix(path)
    except OSError as error:
        raise CannotListenError(f"cannot listen on {UNIX}{path} ({error.strerror or error}); {remedy}") from error
