"""Looking at the machine and at a data folder, whoever runs on it: what `facts` has. Nothing is changed.

Everything here blocks, and is bounded: databases are looked through for so many seconds at most. A read of a database
beside a running gateway keeps its write-ahead file from being folded in for that long, and nothing else.
"""

import ctypes
import http.client
import os
import platform
import resource
import sqlite3
import ssl
import time
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from cryptography import x509

from actors.log.sqlite_runs import FIRST_AT_MS
from gateway.backup.database_copy import connect, form_of, has_wal
from gateway.doctor.facts import Certificate, Clock, Database, Disk, Folder, Leafs, Machine, Mode
from gateway.doctor.folder_rules import LEAF_DAYS_SOON
from gateway.main.data_folder import (
    CA_FILE,
    CA_KEY,
    ECHO_KEY,
    RESTORING,
    TOKEN_KEY,
    is_data_folder,
    is_held,
)
from gateway.main.folder_forms import databases
from gateway.main.running_note import noted
from gateway.main.settings import Settings
from gateway.net.tls import client_context
from schemas.certificates import CertificateError, Leaf

DAY_MS = 86_400_000
ANSWER_S_MAX = 5.0  # for the gateway to answer; one that takes longer counts as one that does not
STEPS = 10_000  # of SQLite's machine between two looks at the time
_KEYS = (TOKEN_KEY, CA_KEY, ECHO_KEY)
_STA_UNSYNC = 0x40


def look_at_machine(folder: Path) -> Machine:
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_synchronized, error_ms_max = _ntp()
    clock = Clock(time.time_ns() // 1_000_000, is_synchronized, error_ms_max, _newest_event_ms(folder))
    return Machine(clock, files_max, sqlite3.sqlite_version_info, versions())


def versions() -> dict[str, str]:
    return {
        "heliograph": version("heliograph"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "openssl": ssl.OPENSSL_VERSION,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


class _Timex(ctypes.Structure):
    """As Linux has it, with room behind for what we do not read."""

    _fields_ = (
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("rest", ctypes.c_byte * 512),
    )  # fmt: skip


def _ntp() -> tuple[bool | None, int | None]:
    """Whether the kernel takes its clock for synchronized, and by how much it may be wrong, in ms."""
    said = _Timex()
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.byref(said))  # without modes it changes nothing
    except (OSError, AttributeError):
        return None, None
    return (None, None) if state < 0 else (not said.status & _STA_UNSYNC, said.maxerror // 1000)


def _newest_event_ms(folder: Path) -> int | None:
    """Of a log of today's form, by what was written last."""
    try:
        with closing(connect(folder / "log.sqlite", is_live=is_held(folder))) as connection:
            newest = f"SELECT max({FIRST_AT_MS}) FROM (SELECT marks FROM run ORDER BY rowid DESC LIMIT 100)"
            (found,) = connection.execute(newest).fetchone()
    except (sqlite3.Error, OSError):
        return None
    return None if found is None else int(found)


# ---- the folder ------------------------------------------------------------------------------------------------------


def look_at_folder(path: Path, seconds_max: float) -> Folder:
    try:
        if not path.is_dir():
            return Folder(str(path))
    except OSError:  # which whoever looks whether a gateway could start tells of
        return Folder(str(path))
    now_ms = time.time_ns() // 1_000_000
    until_s = time.monotonic() + seconds_max
    is_whole, held = is_data_folder(path), is_held(path)
    return Folder(
        str(path),
        is_there=True,
        is_whole=is_whole,
        is_half_restored=(path / RESTORING).exists() and not is_whole,
        is_held=held,
        answers=_answers(path) if held else None,
        listens={name: said for name, said in noted(path).items() if name in ("http", "devices") and said}
        if held
        else {},
        disk=_disk(path),
        modes=tuple(_modes(path)) if is_whole else (),
        ca=_ca(path / CA_FILE),
        leafs=_leafs(path / "leafs", now_ms),
        databases=tuple(_database(file, path, known, held, until_s) for file, known in databases(path)),
    )


def _disk(path: Path) -> Disk:
    seen = os.statvfs(path)
    return Disk(seen.f_bavail * seen.f_frsize, seen.f_blocks * seen.f_frsize, seen.f_favail, seen.f_files)


def _modes(path: Path) -> list[Mode]:
    """Of the folder and its keys, those of spaces too: by their folder."""
    files = [(path, False), *((path / name, True) for name in _KEYS), (path / "spaces" / "keys", True)]
    found = []
    for file, is_key in files:
        if file.exists():
            seen = file.stat()
            found.append(Mode(str(file), seen.st_mode & 0o7777, seen.st_uid == os.geteuid(), is_key))
    return found


def _ca(file: Path) -> Certificate | None:
    try:
        certificate = x509.load_der_x509_certificate(file.read_bytes())
    except (OSError, ValueError):
        return None
    return _dated("the gateway's own CA (ca.crt)", certificate)


def _dated(name: str, certificate: x509.Certificate) -> Certificate:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return Certificate(name, round(begin.timestamp() * 1000), round(end.timestamp() * 1000))


def _leafs(folder: Path, now_ms: int) -> Leafs | None:
    if not folder.is_dir():
        return None
    ends: dict[str, int] = {}
    for file in folder.glob("*.crt"):
        try:
            found = Leaf.from_der(file.read_bytes())
        except (OSError, CertificateError):
            continue
        ends[found.node_id] = max(ends.get(found.node_id, 0), found.not_after_ms)
    ended = sum(end < now_ms for end in ends.values())
    soon = sum(now_ms <= end < now_ms + LEAF_DAYS_SOON * DAY_MS for end in ends.values())
    return Leafs(len(ends), ended, soon)


def _database(file: Path, folder: Path, known: int, is_live: bool, until_s: float) -> Database:
    name = file.relative_to(folder).as_posix()
    wal = file.with_name(f"{file.name}-wal")
    wal_bytes = wal.stat().st_size if has_wal(file) else 0
    try:
        with closing(connect(file, is_live=is_live)) as connection:
            form = form_of(connection)
            connection.set_progress_handler(lambda: time.monotonic() > until_s, STEPS)
            return Database(name, form, known, _is_whole(connection), wal_bytes)
    except sqlite3.Error:
        return Database(name, None, known, False, wal_bytes)


def _is_whole(connection: sqlite3.Connection) -> bool | None:
    try:
        return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return None
        raise


def _answers(path: Path) -> bool | None:
    """Whether the gateway that runs here says that it lives. None: it has not said where."""
    try:
        note = noted(path)
        address, certificate = note["http"], note["http_certificate"]
        host, _, port = address.rpartition(":")
        connection: http.client.HTTPConnection
        if certificate is None:
            connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=ANSWER_S_MAX)
        else:
            context = client_context(certificate)
            connection = http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=ANSWER_S_MAX, context=context)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException):
        return None
    with closing(connection):
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == http.client.OK
        except (OSError, UnicodeError, http.client.HTTPException):  # the second: no host has such a name
            return False


# ---- what the settings name ------------------------------------------------------------------------------------------


def look_at_tls(settings: Settings) -> tuple[Certificate, ...]:
    """Those that can be read; the others are told of by whoever loads them."""
    found = []
    for section in ("http", "devices"):
        path = getattr(settings, section).tls_certificate
        try:
            if path is not None:
                first, *_ = x509.load_pem_x509_certificates(Path(path).read_bytes())
                found.append(_dated(f"{section}.tls_certificate", first))
        except (OSError, ValueError):
            continue
    return tuple(found)
