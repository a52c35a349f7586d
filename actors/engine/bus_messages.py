"""What gateways ask each other about nodes, as it is sent: JSON, one closed set of forms for each direction.

Processes trust each other's decisions: an asker has checked name, access and arguments, an owner the node's result and
its frames, and neither does it again. What they do not trust is the form: a message that is damaged, or of a newer
version, is one of `UNREADABLE`, and costs nobody but its asker an answer.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from actors.bus.bus import Failed, Outcome, Succeeded
from schemas.errors import Code

UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""What the decoders raise."""
_DIGITS_MAX = 20
EPOCH, END = "Hg-Epoch", "Hg-End"
"""Headers of telemetry: the session that it is of; that the cadence with this number is over."""


class Subjects:
    """Of one process."""

    def __init__(self, prefix: str, process: str) -> None:
        base = f"{prefix}.p.{process}."
        self.call, self.cancel = f"{base}call", f"{base}cancel"
        self.attach, self.detach, self.ping = f"{base}attach", f"{base}detach", f"{base}ping"


def telemetry_subject(node_id: str, cap_id: str, interval_ms: int) -> str:
    """RFC-0001 §1; the same for all fleets of a NATS account."""
    return f"$devices.{node_id}.telemetry.{cap_id}.{interval_ms}"


# ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class CallAsked(msgspec.Struct, frozen=True):
    call_id: str  # for `CancelAsked`
    node: str
    epoch: int
    tool: str
    arguments: dict[str, Any]
    sub: str
    tenant: str
    deadline_at_ms: int
    traceparent: str | None = None  # of the asker's span


class CancelAsked(msgspec.Struct, frozen=True):
    call_id: str


class Accepted(msgspec.Struct, frozen=True):
    """Before the answer: the command has this id."""

    msg_id: str


class NotHere(msgspec.Struct, frozen=True, tag="not_here"):
    """The session is not with the one that was asked: nothing has been done."""


class CallSucceeded(msgspec.Struct, frozen=True, tag="ok"):
    msg_id: str
    result: dict[str, Any]


class CallFailed(msgspec.Struct, frozen=True, tag="failed", omit_defaults=True):
    """A `Failed`, but for budgets: those are the asker's."""

    code: Code
    msg_id: str | None = None
    retry_after_ms: int | None = None
    is_command: bool = True
    cap: float | None = None
    per_s: int | None = None
    by_node: bool = False
    is_known: bool = True

    @property
    def failed(self) -> Failed:
        return Failed(
            self.code,
            self.msg_id,
            self.retry_after_ms,
            is_command=self.is_command,
            cap=self.cap,
            per_s=self.per_s,
            by_node=self.by_node,
            is_known=self.is_known,
        )


CallAnswered: TypeAlias = CallSucceeded | CallFailed | NotHere


def said_of(failed: Failed) -> CallFailed:
    return CallFailed(
        failed.code,
        failed.msg_id,
        failed.retry_after_ms,
        failed.is_command,
        failed.cap,
        failed.per_s,
        failed.by_node,
        failed.is_known,
    )


def answer_of(outcome: Outcome) -> CallAnswered:
    if isinstance(outcome, Succeeded):
        return CallSucceeded(outcome.msg_id, dict(outcome.result))
    return said_of(outcome)


def outcome_of(answered: CallSucceeded | CallFailed) -> Outcome:
    if isinstance(answered, CallFailed):
        return answered.failed
    return Succeeded(answered.msg_id, answered.result)


# ── telemetry ────────────────────────────────────────────────────────────────────────────────────────────────────────


class AttachAsked(msgspec.Struct, frozen=True):
    attach_id: str  # the asker's, for `DetachAsked` and `Ping`
    process: str  # who asks
    node: str
    epoch: int
    tool: str
    interval_ms: int


class Attached(msgspec.Struct, frozen=True, tag="ok"):
    cadence: int  # what `END` will name


AttachAnswered: TypeAlias = Attached | CallFailed | NotHere


class DetachAsked(msgspec.Struct, frozen=True):
    process: str
    attach_id: str


class Ping(msgspec.Struct, frozen=True):
    """Who listens, and with which attachments: what is not among them is not wanted any more."""

    process: str
    attach_ids: tuple[str, ...]


class Pong(msgspec.Struct, frozen=True):
    """Which of the asker's attachments are there: what is not among them has ended."""

    attach_ids: tuple[str, ...]


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────────

encode = msgspec.json.Encoder().encode
decode_call = msgspec.json.Decoder(CallAsked).decode
decode_cancel = msgspec.json.Decoder(CancelAsked).decode
decode_accepted = msgspec.json.Decoder(Accepted).decode
decode_call_answer = msgspec.json.Decoder(CallAnswered).decode
decode_attach = msgspec.json.Decoder(AttachAsked).decode
decode_attach_answer = msgspec.json.Decoder(AttachAnswered).decode
decode_detach = msgspec.json.Decoder(DetachAsked).decode
decode_ping = msgspec.json.Decoder(Ping).decode
decode_pong = msgspec.json.Decoder(Pong).decode
decode_frame = msgspec.json.Decoder(dict[str, Any]).decode


def epoch_of(headers: Mapping[str, str]) -> int | None:
    """Of a frame; None: nobody knows, and it is of no use."""
    return _number(headers.get(EPOCH, ""))


def ended_of(headers: Mapping[str, str]) -> int | None:
    """The cadence that is over; None: this is a frame."""
    return _number(headers.get(END, ""))


def _number(said: str) -> int | None:
    return int(said) if len(said) < _DIGITS_MAX and said.isascii() and said.isdigit() else None
