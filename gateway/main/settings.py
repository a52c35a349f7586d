"""The settings of a gateway: one typed object, from a TOML file, then the environment, then flags; the last one wins.

    [http]      listen = "127.0.0.1:8420", tls_certificate = "…", tls_key = "…"
    [admin]     listen = "unix:/run/heliograph/admin.sock"   for operators alone; public_url = "https://ops.example"
    [devices]   listen = "127.0.0.1:8421", tls_certificate = "…", tls_key = "…"
    [node]      limits of a node's session          (actors/node/settings.py)
    [listener]  limits of the device listener       (gateway/devices/listener.py)
    [mcp]       limits of the MCP endpoint          (gateway/mcp/settings.py)
    [stream]    limits of telemetry streams         (actors/stream/settings.py)
    [door]      limits of the HTTP door             (gateway/net/http1/settings.py)
    [access]    jwks = "keys.json"                  (gateway/identity/settings.py)
    [oauth]     sign-in of MCP clients              (gateway/identity/oauth/settings.py)
    [members]   people who sign agents in           (actors/member/settings.py)
    [governance] policy = "policy.toml"             (gateway/governance/settings.py)
    [upstreams] limits of other MCP servers         (gateway/calls/upstreams/settings.py)
    [echo]      limits of echo spaces               (gateway/spaces/settings.py)
    [echo.s3]   a bucket for presigned uploads      (gateway/projects/s3_settings.py)
    [projects]  projects, their sites and their API (gateway/projects/settings.py)
    [push]      Web Push: keys and limits           (gateway/push/settings.py)
    [audit]     how long the audit is kept          (gateway/observe/audit/settings.py)
    [console]   sign-in and limits of the console   (gateway/console/settings.py)
    [backup]    what a backup may take              (gateway/backup/settings.py)
    [log]       target = "stderr", format = "auto"  (gateway/observe/log_output.py)
    [engine]    one of several gateways, on NATS    (gateway/main/engine_settings.py)
    [otel]      endpoint = "http://127.0.0.1:4318/v1/traces"   (gateway/observe/tracing.py)
    data = "heliograph-data"

In the environment the same are HELIOGRAPH_DATA, HELIOGRAPH_HTTP_LISTEN, HELIOGRAPH_NODE_SILENCE_S_MAX and so on, and a
few go by bare names too (`BARE`). A name that is not known is refused, with what it could have been.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any

import msgspec

from actors.member.settings import MemberSettings
from actors.node.settings import NodeSettings
from actors.stream.settings import StreamSettings
from gateway.backup.settings import BackupSettings
from gateway.calls.upstreams.settings import UpstreamSettings
from gateway.console.settings import ConsoleSettings
from gateway.devices.device_side import DeviceSettings
from gateway.devices.listener import ListenerSettings
from gateway.governance.settings import GovernanceSettings
from gateway.identity.oauth.settings import OAuthSettings
from gateway.identity.settings import AccessSettings
from gateway.main.command_variables import BEARERS
from gateway.main.engine_settings import EngineSettings
from gateway.main.settings_reading import PREFIX as PREFIX
from gateway.main.settings_reading import SettingsError as SettingsError
from gateway.main.settings_reading import read
from gateway.mcp.settings import McpSettings
from gateway.net.addresses import Network
from gateway.net.http1.settings import DoorLimits, DoorSettings
from gateway.observe.audit.settings import AuditSettings
from gateway.observe.log_output import LogSettings
from gateway.observe.tracing import OtelSettings
from gateway.projects.s3_settings import S3Settings
from gateway.projects.settings import ProjectsSettings
from gateway.push.settings import PushSettings
from gateway.spaces.settings import EchoSettings

BARE = {
    "MCP_ENABLED": "mcp.enabled",
    "MCP_RELAX_ORIGIN": "mcp.relax_origin",
    "LOG_MCP": "log.mcp",
    "VAPID_PUBLIC_KEY": "push.vapid_public_key",
    "VAPID_PRIVATE_KEY": "push.vapid_private_key",
    "VAPID_SUBJECT": "push.vapid_subject",
    **dict.fromkeys(reversed(BEARERS), "projects.api_bearer_token"),  # so commands can share the environment
}
"""Variables that also go by names without a section, as the echo service has them; those with one win."""
DATA = "heliograph-data"
UNIX_PATH_BYTES_MAX = 107  # of a socket; the kernel takes no more
UNIX = "unix:"


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int  # 0: any that is free

    @classmethod
    def parse(cls, text: str) -> "Address":
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise SettingsError("an address is HOST:PORT, such as 127.0.0.1:8420; port 0 picks a free one")
        try:
            host.encode("idna")  # as whoever looks it up does
        except UnicodeError:
            raise SettingsError("the host of an address has an empty part, or one of more than 63 characters") from None
        return cls(host.strip("[]"), int(port))


class UnixAddress(msgspec.Struct, frozen=True):
    path: Path

    @classmethod
    def parse(cls, text: str) -> "Address | UnixAddress":
        """Of a setting that takes either kind."""
        if not text.startswith(UNIX):
            try:
                return Address.parse(text)
            except SettingsError as error:
                raise SettingsError(f"{error}; or it is unix:/path/to/socket") from None
        path = text.removeprefix(UNIX)
        if not path or "\0" in path:
            raise SettingsError("a unix socket is unix:/path/to/socket")
        absolute = Path(path).absolute()  # for commands too, wherever they are run
        if len(os.fsencode(absolute)) > UNIX_PATH_BYTES_MAX:
            raise SettingsError(f"the path of a unix socket has at most {UNIX_PATH_BYTES_MAX} bytes")
        return cls(absolute)


class _Http(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    listen: str = "127.0.0.1:8420"
    public_url: Annotated[str, msgspec.Meta(pattern=r"^https?://[^/\s]+$")] | None = (
        None  # how agents reach this gateway, such as https://gw.example; default: as they did
    )
    tls_certificate: str | None = None  # PEM, with its chain; with it agents come over https://
    tls_key: str | None = None
    metrics_open: bool = False  # GET /metrics for whoever asks; else it takes an operator token
    trusted_proxies: list[str] = []  # networks whose X-Forwarded-For is believed, such as 10.0.0.0/8; nobody else's is


class _Admin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    listen: str | None = None  # HOST:PORT or unix:/path: /admin and /metrics are there, and no longer where agents come
    public_url: Annotated[str, msgspec.Meta(pattern=r"^https?://[^/\s]+$")] | None = (
        None  # how browsers of operators reach the console, such as https://ops.example; default: as /admin is reached
    )


class _Devices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    listen: str = "127.0.0.1:8421"
    tls_certificate: str | None = None  # PEM, with its chain; with it nodes dial in over wss://
    tls_key: str | None = None
    trusted_proxies: list[str] = []  # as for agents: networks whose X-Forwarded-For is believed


@dataclass(frozen=True, slots=True)
class _Echo(EchoSettings):
    s3: S3Settings | None = None  # a bucket for presigned uploads; None: they come to us


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data: str = DATA
    http: _Http = msgspec.field(default_factory=_Http)
    admin: _Admin = msgspec.field(default_factory=_Admin)
    devices: _Devices = msgspec.field(default_factory=_Devices)
    node: NodeSettings = msgspec.field(default_factory=NodeSettings)
    listener: ListenerSettings = msgspec.field(default_factory=ListenerSettings)
    mcp: McpSettings = msgspec.field(default_factory=McpSettings)
    stream: StreamSettings = msgspec.field(default_factory=StreamSettings)
    door: DoorLimits = msgspec.field(default_factory=DoorLimits)
    access: AccessSettings = msgspec.field(default_factory=AccessSettings)
    oauth: OAuthSettings = msgspec.field(default_factory=OAuthSettings)
    members: MemberSettings = msgspec.field(default_factory=MemberSettings)
    governance: GovernanceSettings = msgspec.field(default_factory=GovernanceSettings)
    upstreams: UpstreamSettings = msgspec.field(default_factory=UpstreamSettings)
    echo: _Echo = msgspec.field(default_factory=_Echo)
    projects: ProjectsSettings = msgspec.field(default_factory=ProjectsSettings)
    push: PushSettings = msgspec.field(default_factory=PushSettings)
    audit: AuditSettings = msgspec.field(default_factory=AuditSettings)
    console: ConsoleSettings = msgspec.field(default_factory=ConsoleSettings)
    backup: BackupSettings = msgspec.field(default_factory=BackupSettings)
    log: LogSettings = msgspec.field(default_factory=LogSettings)
    otel: OtelSettings = msgspec.field(default_factory=OtelSettings)
    engine: EngineSettings = msgspec.field(default_factory=EngineSettings)

    @property
    def data_path(self) -> Path:
        return Path(self.data or DATA)

    @property
    def device_settings(self) -> DeviceSettings:
        return DeviceSettings(self.node, self.listener, _networks("devices", self.devices.trusted_proxies))

    @property
    def door_settings(self) -> DoorSettings:
        proxies = _networks("http", self.http.trusted_proxies)
        return DoorSettings(trusted_proxies=proxies, **asdict(self.door))


def _networks(section: str, texts: list[str]) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(text) for text in texts)
    except ValueError:
        raise SettingsError(f"{section}.trusted_proxies is a list of networks, such as 10.0.0.0/8") from None


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Settings:
    """`flags` by dotted name, such as `http.listen`; those that are None were not given. Raises SettingsError."""
    return read(Settings, file, environment, flags, BARE)


def from_environment(file: Path | None, flags: Mapping[str, Any]) -> Settings:
    return load(file, os.environ, flags)


def data_from_environment(flag: str | None) -> Path:
    """For commands: the data folder by the rules of a gateway that has no file of settings, and nothing but that."""
    mine = {name: value for name, value in os.environ.items() if name == f"{PREFIX}DATA"}
    return load(None, mine, {"data": flag}).data_path
