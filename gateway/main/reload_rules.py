"""What of the settings can change while a gateway runs, and what has changed. Pure.

A setting is live if whoever is bounded by it reads it when it is used; what is under way may still be held to the one
before. All others were handed out at the start, and wait for the next one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import msgspec

from gateway.main.settings import Settings

LIVE_SECTIONS = ("stream", "node", "members", "backup", "listener.sockets")
LIVE_NAMES = frozenset(
    {
        "http.tls_certificate",
        "http.tls_key",
        "devices.tls_certificate",
        "devices.tls_key",
        "listener.handshake_s_max",
        "listener.auth_s_max",
        "listener.head_bytes_max",
        "listener.nodes_max",
        "listener.strangers_max",
        "listener.accept_again_s",
        "listener.control_frames_max",
        "audit.keep_days",
        "audit.bytes_max",
        "audit.file_bytes_max",
        "audit.queue_lines_max",
        "audit.write_s",
    }
)


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of settings, sorted."""

    live: tuple[str, ...]
    restart: tuple[str, ...]  # those that wait for one
    effective: Settings  # what holds from now on: of what has changed, the live ones


def changes(old: Settings, new: Settings) -> Changes:
    was, is_now = flat(old), flat(new)
    changed = sorted(name for name in was.keys() | is_now.keys() if was.get(name) != is_now.get(name))
    live = tuple(name for name in changed if is_live(name) and _stays(name, was, is_now))
    effective = _with(old, {name: is_now[name] for name in live})
    return Changes(live, tuple(name for name in changed if name not in live), effective)


def is_live(name: str) -> bool:
    return name in LIVE_NAMES or name.rpartition(".")[0] in LIVE_SECTIONS


def _stays(name: str, was: Mapping[str, Any], is_now: Mapping[str, Any]) -> bool:
    """A listener that speaks TLS goes on to, and one that does not cannot begin to. Which of the two it is, its
    certificate says: the key may lie in the certificate's file, and in one of its own from now on, or the reverse."""
    section, _, last = name.rpartition(".")
    certificate = f"{section}.tls_certificate"
    return not last.startswith("tls_") or (was.get(certificate) is not None and is_now.get(certificate) is not None)


def flat(settings: Any, place: str = "") -> dict[str, Any]:
    """All settings by their dotted names. A section that is absent is one setting, without a value."""
    found: dict[str, Any] = {}
    for name in _names(settings):
        value = getattr(settings, name)
        if _names(value):
            found.update(flat(value, f"{place}{name}."))
        else:
            found[f"{place}{name}"] = value
    return found


def _names(settings: Any) -> tuple[str, ...]:
    if isinstance(settings, msgspec.Struct):
        return settings.__struct_fields__
    return tuple(field.name for field in fields(settings)) if is_dataclass(settings) else ()


def _with(settings: Any, values: Mapping[str, Any]) -> Any:
    """All of them at once: a section may check what it is made of."""
    changed: dict[str, Any] = {}
    for name in {name.partition(".")[0] for name in values}:
        inner = {key.removeprefix(f"{name}."): value for key, value in values.items() if key.startswith(f"{name}.")}
        changed[name] = _with(getattr(settings, name), inner) if inner else values[name]
    if isinstance(settings, msgspec.Struct):
        return msgspec.structs.replace(settings, **changed)
    return replace(settings, **changed)
