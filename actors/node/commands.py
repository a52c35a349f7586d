"""What the rules of a node's commands are asked (`Command`) and what they answer (`Answer`).

Commands are imperatives that the node's actor hands to `command_rules.decide`; answers are what it has to do or say
once the decided events are durable, in the order given. Both are values: nothing here acts.
"""

from enum import StrEnum

import msgspec

from actors.node.events import CommandState


class ResultCheck(StrEnum):
    """What the gateway found when it held a result against its schema and the node's id."""

    VALID = "valid"
    INVALID = "invalid"
    ABSENT = "absent"  # the node executed it and lost the result (a restart between the two)


class Report(msgspec.Struct, frozen=True):
    """What a node says became of one command, in a `cmd_ack` or as an outcome of a `resume`.

    The code is one of the closed enum, checked on the wire; of a device's error nothing else is kept (§4.1).
    """

    msg_id: str
    ok: bool = False
    begun: bool = True
    code: str = "E_INTERNAL"
    result: ResultCheck = ResultCheck.VALID
    interrupted: bool = False


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class OpenSession(msgspec.Struct, frozen=True):
    """An authenticated node wants its epoch."""

    session_id: str


class TakeResume(msgspec.Struct, frozen=True):
    """The node's whole `resume`, however many frames it took."""

    epoch: int
    journal_id: str
    last_cmd: str | None
    outcomes: tuple[Report, ...] = ()
    running: frozenset[str] = frozenset()


class IssueCommand(msgspec.Struct, frozen=True):
    """A caller wants a command run. Its arguments travel beside it, never through the rules."""

    epoch: int
    msg_id: str
    tool: str
    sub: str
    tenant: str
    deadline_at_ms: int


class SendQueued(msgspec.Struct, frozen=True):
    """The session is live: what waited for that goes out."""

    epoch: int


class ReportUnwritten(msgspec.Struct, frozen=True):
    """Not one byte of this `cmd` could be written, so it certainly did not run."""

    epoch: int
    msg_id: str


class TakeAck(msgspec.Struct, frozen=True):
    """A `cmd_ack` came in on the session of this epoch."""

    epoch: int
    report: Report


class CancelCommand(msgspec.Struct, frozen=True):
    """The caller is gone."""

    epoch: int
    msg_id: str


class Sweep(msgspec.Struct, frozen=True):
    """Time has passed: at start, and each minute."""


Command = OpenSession | TakeResume | IssueCommand | SendQueued | ReportUnwritten | TakeAck | CancelCommand | Sweep


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Reason(StrEnum):
    """Why something is illegal."""

    EPOCH_NOT_NEXT = "epoch_not_next"
    EPOCH_NEVER_GRANTED = "epoch_never_granted"
    NOT_RESUMED = "not_resumed"
    ALREADY_RESUMED = "already_resumed"
    LAST_CMD_AHEAD = "last_cmd_ahead"
    ID_NOT_INCREASING = "id_not_increasing"
    PAST_DEADLINE = "past_deadline"
    UNKNOWN_COMMAND = "unknown_command"
    ALREADY_FINAL = "already_final"
    NOT_SENT = "not_sent"
    SENT_BY_ANOTHER_SESSION = "sent_by_another_session"
    SENT_TWICE_IN_ONE_SESSION = "sent_twice_in_one_session"


class SessionGranted(msgspec.Struct, frozen=True):
    """Say `auth_ok` with this epoch."""

    epoch: int


class SendCommand(msgspec.Struct, frozen=True):
    """Write the `cmd`; its arguments are with whoever holds the open commands."""

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


class LateAck(msgspec.Struct, frozen=True):
    """A report for a command that was final already: dropped and audited, the first final state stands."""

    msg_id: str
    state: CommandState


class UnknownCommand(msgspec.Struct, frozen=True):
    """A report for an id that is no command of this node, or one final for so long that it is forgotten: counted."""

    msg_id: str


class StaleEpoch(msgspec.Struct, frozen=True):
    """It comes from a session that a newer one has superseded: dropped; that session is to be closed with 4409."""

    epoch: int
    current: int


class Illegal(msgspec.Struct, frozen=True):
    """It cannot follow on this state, which stays as it was."""

    reason: Reason
    msg_id: str | None = None


Answer = SessionGranted | SendCommand | SendCancel | Resumed | Settled | LateAck | UnknownCommand | StaleEpoch | Illegal
