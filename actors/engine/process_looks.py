"""How the processes of an engine are, for people to look at. Nothing is decided by it. Pure.

A process says how it is with each heartbeat (`says`), in words and numbers by name: what a newer version says besides,
or says differently, is not shown, and does no harm.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from ulid import ULID

from actors.engine.presence_rules import ProcessEntry

PROCESSES_SHOWN_MAX = 100  # those that started first; `processes_total` counts all


class ProcessState(msgspec.Struct, frozen=True):
    """By its own account."""

    standing: str
    link: str
    lag_ms: int  # for how long its watchers have not told what it put itself
    skew_ms: int  # by how much its clock and the engine's differ at least
    queued_appends: int
    unknown_outcomes: int  # appends of which it did not know at first what became of them
    ledgers: int  # that it owns


NOTHING_SAID: Mapping[str, Any] = dict.fromkeys(ProcessState.__struct_fields__)


@dataclass(frozen=True, slots=True)
class ProcessLook:
    process: str
    entry: ProcessEntry
    heartbeat_age_ms: int  # since its entry was told here
    nodes: int  # whose sessions it has


def processes_shown(looks: Iterable[ProcessLook], here: str, state: ProcessState) -> dict[str, Any]:
    """`here` is the process that is asked, and `state` how that is now."""
    all_of_them = sorted(looks, key=lambda look: look.process)
    rows = [
        {
            "process": look.process,
            "is_here": look.process == here,
            "host": look.entry.host,
            "started_at_ms": _started_ms(look.process),
            "heartbeat_age_ms": look.heartbeat_age_ms,
            "nodes": look.nodes,
            **_said(state if look.process == here else look.entry.says),
        }
        for look in all_of_them[:PROCESSES_SHOWN_MAX]
    ]
    return {"processes_total": len(all_of_them), "processes": rows}


def _started_ms(process: str) -> int | None:
    """A process makes its id, a ULID, when it starts."""
    try:
        return ULID.from_str(process).milliseconds
    except ValueError:
        return None


def _said(state: object) -> Mapping[str, Any]:
    try:
        said: Mapping[str, Any] = msgspec.to_builtins(msgspec.convert(state, ProcessState, from_attributes=True))
    except msgspec.ValidationError:
        return NOTHING_SAID
    return said
