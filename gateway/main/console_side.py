"""The console, joined to a gateway: where it is, and what the features beside it hand in for its pages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from actors.console.operator_passkeys import OperatorPasskeys
from actors.log.store import LogStore
from actors.node.moment import Moment
from actors.space.spaces import EchoSpaces
from actors.stream.streams import Streams
from gateway.api.admin_spaces import AdminSpaces
from gateway.calls.audit import Audit
from gateway.calls.tool_calls import ToolCalls
from gateway.calls.upstreams.upstreams import Upstreams
from gateway.console.data import ConsoleData, Shown
from gateway.console.opening import Console
from gateway.console.origin_rules import ConsoleOff, browser_origin, is_secure
from gateway.console.try_tool import TryTool
from gateway.console.world_pages import SpacesShown
from gateway.devices.device_side import DeviceSide
from gateway.governance.governor import Governor
from gateway.governance.policy.shared_source import SharedPolicy
from gateway.governance.policy.source import PolicySource
from gateway.identity.passkeys.ceremony_rules import Ceremonies
from gateway.main.data_folder import DataFolder
from gateway.main.feature import Feature
from gateway.main.public_base import PublicBase, is_known
from gateway.main.settings import Address, Settings, UnixAddress
from gateway.net.router import Handler
from gateway.observe.audit.audit_store import AuditStore


class ConsoleOrigin:
    """The console's one origin. Its port is known once the gateway listens."""

    def __init__(self, base: PublicBase) -> None:
        self.base = base

    def __call__(self) -> str:
        return browser_origin(self.base()) or ""


def console_origin(
    settings: Settings, http: Address, admin: Address | UnixAddress | None, scheme: str
) -> ConsoleOrigin | ConsoleOff:
    """Where `/admin` is: `admin` None is at the public address."""
    if isinstance(admin, UnixAddress):
        return ConsoleOff.UNIX_SOCKET
    public_url = settings.admin.public_url or (settings.http.public_url if admin is None else None)
    listens = http if admin is None else admin
    if not is_known(public_url, listens.host):
        return ConsoleOff.NO_ORIGIN
    base = PublicBase(public_url, listens.host, listens.port, scheme)
    origin = browser_origin(base())
    if origin is None:
        return ConsoleOff.NO_ORIGIN
    return ConsoleOrigin(base) if is_secure(origin) else ConsoleOff.NOT_SECURE


@dataclass(frozen=True, slots=True)
class ConsoleSide:
    console: Console
    features: tuple[Feature, ...]  # without its routes: they are where `/admin` is


def console_side(
    origin: ConsoleOrigin | ConsoleOff,
    settings: Settings,
    folder: DataFolder,
    store: LogStore,
    devices: DeviceSide,
    streams: Streams,
    calls: ToolCalls,
    policy: PolicySource | SharedPolicy,
    governor: Governor,
    upstreams: Upstreams,
    kept_audit: AuditStore | None,
    audit: Audit,
    spaces: EchoSpaces | None,
    admin_spaces: AdminSpaces | None,
    engine: Callable[[], Mapping[str, Any] | None],
    passkeys: OperatorPasskeys,
    ceremonies: Ceremonies,
    is_known_elsewhere: Callable[[bytes], bool],
    act: Handler,
    new_id: Callable[[], str],
    now: Callable[[], Moment],
) -> ConsoleSide:
    """`is_known_elsewhere`: whether a passkey is of another realm. `act` answers requests under `/admin`. `kept_audit`
    is None where none is kept, `spaces` and `admin_spaces` where spaces are off."""
    shown_spaces = None
    if spaces is not None and admin_spaces is not None:
        shown_spaces = SpacesShown(settings.echo, spaces.__len__, admin_spaces.page)
    data = ConsoleData(
        Shown(
            directory=devices.directory,
            register=devices.register,
            nodes=devices.fleet,
            streams=streams,
            store=store,
            leafs_of=folder.certificates.leafs_of,
            audit=kept_audit,
            governor=governor,
            ledgers=devices.book,
            policy=policy,
            upstreams=upstreams,
            spaces=shown_spaces,
            engine=engine,
            settings=settings.console,
            now=now,
        )
    )
    console = Console(
        origin,
        settings.console,
        passkeys,
        ceremonies,
        is_known_elsewhere,
        folder.verifier,
        audit,
        [*data.calls, TryTool(devices.directory, calls).call],
        act,
        now,
        new_id,
    )
    return ConsoleSide(console, (Feature(start=console.start, revoke=console.revoke), Feature(start=data.start)))
