"""What the rules of a node's commands are asked (`Intent`) and what they answer (`Answer`).

An intent is what somebody wants to happen to a node's stream: a caller, a frame, the passing of time. The node's actor
offers intents, `command_rules.decide` answers; answers are what is to be done or said once the decided events are
durable, in the order given. Both are values: nothing here acts, and "command" is a device's only.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from actors.node.history import CommandState, ExpiryReason, Illegal


class ResultCheck(StrEnum):
    """What the gateway found when it held a result against its schema and the node's id."""

    VALID = "valid"
    INVALID = "invalid"
    ABSENT = "absent"  # the node executed it and lost the result (a restart between the two)


class Report(msgspec.Struct, frozen=True):
    """What a node says became of one command, in a `cmd_ack` or as an outcome of a `resume`.

    The code is one of the closed enum, checked on the wire; of a device's error nothing else is kept (§4.1). A valid
    result travels along to whoever waits for it; it goes into no event.
    """

    msg_id: str
    ok: bool = False
    begun: bool = True
    code: str = "E_INTERNAL"
    check: ResultCheck = ResultCheck.VALID
    interrupted: bool = False
    result: Mapping[str, Any] | None = None


# ── intents ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class OpenSession(msgspec.Struct, frozen=True):
    """An authenticated node wants its epoch."""

    session_id: str


class TakeResume(msgspec.Struct, frozen=True):
    """The node's whole `resume`, however many frames it took; `frame_id` is that of the last."""

    frame_id: str
    journal_id: str
    last_cmd: str | None
    outcomes: tuple[Report, ...] = ()
    running: frozenset[str] = frozenset()


class Issue(msgspec.Struct, frozen=True):
    """A caller wants a command run. Its arguments are with the caller, never in the rules."""

    msg_id: str
    tool: str
    sub: str
    tenant: str
    deadline_at_ms: int


class ReportUnwritten(msgspec.Struct, frozen=True):
    """Not one byte of this `cmd` could be written, so it certainly did not run."""

    msg_id: str


class TakeAck(msgspec.Struct, frozen=True):
    """A `cmd_ack` came in."""

    report: Report


class Cancel(msgspec.Struct, frozen=True):
    """The caller is gone."""

    msg_id: str


class Sweep(msgspec.Struct, frozen=True):
    """Time has passed: at start, and each minute. A node that is `gone_for_good` will never report: then nothing is
    waited for."""

    gone_for_good: bool = False


class TakeSnapshot(msgspec.Struct, frozen=True):
    """History is to be cut: the state as it is, so that what led to it can go."""


Intent = OpenSession | TakeResume | Issue | ReportUnwritten | TakeAck | Cancel | Sweep | TakeSnapshot


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class SessionGranted(msgspec.Struct, frozen=True):
    """Say `auth_ok` with this epoch."""

    epoch: int
    session_id: str


class SendCommand(msgspec.Struct, frozen=True):
    """Write the `cmd`; its arguments are with whoever waits for it."""

    msg_id: str
    tool: str
    deadline_at_ms: int


class SendCancel(msgspec.Struct, frozen=True):
    """Write a `cmd_cancel`."""

    msg_id: str


class Resumed(msgspec.Struct, frozen=True):
    """Say `resume_ok`; the session is live."""

    epoch: int
    changed: bool
    confirmed_through: str | None
    replayed: tuple[str, ...]
    expired: tuple[str, ...]


class Settled(msgspec.Struct, frozen=True):
    """The command is final: tell its caller, if it still waits."""

    msg_id: str
    state: CommandState
    code: str | None = None
    expiry: ExpiryReason | None = None
    result: Mapping[str, Any] | None = None


class LateAck(msgspec.Struct, frozen=True):
    """A report that comes too late: its command was final already, and stays so, or its caller has given up."""

    msg_id: str
    state: CommandState


class UnknownCommand(msgspec.Struct, frozen=True):
    """A report for an id that is no command of this node, or one final for so long that it is forgotten: counted."""

    msg_id: str


class StaleEpoch(msgspec.Struct, frozen=True):
    """It comes from a session that a newer one has superseded: dropped; that session is to be closed with 4409."""

    epoch: int
    current: int


Answer = SessionGranted | SendCommand | SendCancel | Resumed | Settled | LateAck | UnknownCommand | StaleEpoch | Illegal
