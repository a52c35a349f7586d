"""Whether a gateway could start with these settings: everything that a start looks at, and nothing is started or made.

Each trouble is told, not only the first. Ports are tried by binding them for a moment, but for those that the gateway
which runs on this folder has.
"""

import errno
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from gateway.doctor.finding import Finding, Severity
from gateway.governance.policy.source import PolicySource
from gateway.identity.token_keys import TokenKeys
from gateway.main.data_folder import (
    DataFolder,
    FolderError,
    is_data_folder,
    is_held,
    refuse_half_restored,
    refuse_newer,
)
from gateway.main.engine_check import check_engine
from gateway.main.public_base import PublicBase
from gateway.main.running_note import noted
from gateway.main.settings import Address, Settings, SettingsError, UnixAddress
from gateway.net.tls import server_context

SETTINGS = "settings"  # what findings are about that keep the others from being read
_NAMES = {"http": "http.listen", "devices": "devices.listen", "admin": "admin.listen"}


def start_findings(settings: Settings) -> list[Finding]:
    return [*_settings(settings), *_folder(settings.data_path), *_ports(settings)]


def _settings(settings: Settings) -> Iterator[Finding]:
    checks: list[tuple[str, Callable[[], object]]] = [
        (SETTINGS, lambda: Address.parse(settings.http.listen)),
        (SETTINGS, lambda: Address.parse(settings.devices.listen)),
        (SETTINGS, lambda: settings.admin.listen and UnixAddress.parse(settings.admin.listen)),
        (SETTINGS, lambda: settings.door_settings),
        (SETTINGS, lambda: settings.device_settings),
        ("engine", lambda: check_engine(settings)),
        (SETTINGS, lambda: settings.echo.enabled and _base(settings)),
        ("tls", lambda: server_context("http", settings.http.tls_certificate, settings.http.tls_key)),
        ("tls", lambda: server_context("devices", settings.devices.tls_certificate, settings.devices.tls_key)),
        ("policy", lambda: PolicySource.open(settings.governance)),
        ("token keys", lambda: TokenKeys.open(settings.access)),
    ]
    for about, check in checks:
        try:
            check()
        except SettingsError as error:
            yield Finding(Severity.ERROR, about, str(error), "correct it, then check again")


def _base(settings: Settings) -> PublicBase:
    http = Address.parse(settings.http.listen)
    return PublicBase(settings.http.public_url, http.host, http.port, "http")


def _folder(path: Path) -> Iterator[Finding]:
    try:
        if is_data_folder(path) and not is_held(path):
            with DataFolder.hold(path, time.time_ns() // 1_000_000, make=False):
                pass
        elif path.exists():
            refuse_half_restored(path)
            refuse_newer(path)
        place = next(place for place in (path, *path.absolute().parents) if place.exists())
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            yield Finding(
                Severity.ERROR,
                "data folder",
                f"{place} is no folder that may be written to",
                "name one with `data`, --data or HELIOGRAPH_DATA, or change its owner",
            )
    except FolderError as error:
        yield Finding(Severity.ERROR, "data folder", str(error), "then check again")
    except OSError as error:
        remedy = "name one with `data`, --data or HELIOGRAPH_DATA, or look as the user who owns it"
        yield Finding(Severity.ERROR, "data folder", f"cannot look at {path}: {error.strerror}", remedy)


def _ports(settings: Settings) -> Iterator[Finding]:
    ours = list(noted(settings.data_path).values()) if is_held(settings.data_path) else []
    for section, name in _NAMES.items():
        text = getattr(settings, section).listen
        with suppress(SettingsError):  # which is told of already
            address = None if text is None else UnixAddress.parse(text)
            if address is None or _said(address) in ours:
                continue
            trouble = _unix_trouble(address.path) if isinstance(address, UnixAddress) else _trouble(address)
            if trouble is not None:
                yield Finding(
                    Severity.ERROR,
                    "ports",
                    f"{name}: cannot listen on {text} ({trouble})",
                    f"end what listens there, or choose another address with {name}",
                )


def _said(address: Address | UnixAddress) -> str:
    """As a running gateway notes it."""
    return f"unix:{address.path}" if isinstance(address, UnixAddress) else f"{address.host}:{address.port}"


def _trouble(address: Address) -> str | None:
    """Why nobody could listen there."""
    try:
        places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, place in places:
            with closing(socket.socket(family, kind, protocol)) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind(place)
    except OSError as error:
        return str(error.strerror or error)
    return None


def _unix_trouble(path: Path) -> str | None:
    if not path.parent.is_dir():
        return "its folder does not exist"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return "its folder may not be written to"
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return "there is a file of that name, and it is not a socket"
    except FileNotFoundError:
        return None
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.setblocking(False)
        return None if probe.connect_ex(str(path)) == errno.ECONNREFUSED else "another process listens there"
