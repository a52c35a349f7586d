"""The frames of node-wire.v2 as typed values, and the codec between them and the bytes of a text frame.

`decode` takes any bytes at all and answers with one typed frame or one `BadFrame`; it never raises, and its work is
bounded by the frame limit: the parser refuses nesting past 200 levels, duplicate keys, NaN, lone surrogates and
integers past 4,300 digits. A `BadFrame` speaks in fixed words and a pointer of our own names: nothing that the sender
wrote is in it.

Two payloads are judged elsewhere, because refusing them does not end a session: a manifest (`schemas.manifest`) and
a command's result (by its tool's output schema): both may be any JSON at all here, infinity (1e999) included. What may
be sent when is for the session's rules.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cache
from typing import Any, ClassVar

import jiter
import msgspec

from schemas.contract import Contract, Flaw, contract
from schemas.registry import URI_PREFIX

FRAME_BYTES_MAX = 128 * 1024  # larger: WebSocket close 4413 (device wire §2.2)
WIRE_VERSION = "2.2.0"
SUBPROTOCOL = "node-wire.v2"  # of the WebSocket that carries the frames


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What every frame has. A field with a default is optional on the wire, left out while it holds it."""

    type: ClassVar[str]

    msg_id: str
    in_reply_to: str | None = None


class Auth(Frame, frozen=True, kw_only=True):
    type = "auth"
    token: str
    node_id: str


class AuthOk(Frame, frozen=True, kw_only=True):
    type = "auth_ok"
    session_id: str
    epoch: int
    log_id: str
    now_ms: int
    heartbeat_ms: int


class ErrorFrame(Frame, frozen=True, kw_only=True):
    type = "error"
    error: Mapping[str, Any]  # is the payload


class Announce(Frame, frozen=True, kw_only=True):
    type = "announce"
    manifest: Mapping[str, Any]  # is the payload; not yet judged


class AnnounceAck(Frame, frozen=True, kw_only=True):
    type = "announce_ack"
    manifest_etag: str
    tools: list[str]


class Heartbeat(Frame, frozen=True, kw_only=True):
    type = "heartbeat"
    manifest_etag: str | None


class HeartbeatAck(Frame, frozen=True, kw_only=True):
    type = "heartbeat_ack"
    manifest_etag: str | None
    now_ms: int
    confirmed_through: str | None


class Cmd(Frame, frozen=True, kw_only=True):
    type = "cmd"
    tool: str
    arguments: Mapping[str, Any]
    deadline_at_ms: int


class CmdAck(Frame, frozen=True, kw_only=True):
    type = "cmd_ack"
    ok: bool
    result: Any = msgspec.UNSET  # not yet judged: any JSON, null too
    error: Mapping[str, Any] | None = None
    begun: bool | None = None


class CmdCancel(Frame, frozen=True, kw_only=True):
    type = "cmd_cancel"


class Telemetry(Frame, frozen=True, kw_only=True):
    type = "telemetry"
    frame: Mapping[str, Any]  # is the payload


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one command ended, as a node reports it on `resume`."""

    in_reply_to: str
    ok: bool | None = None
    result: Any = msgspec.UNSET  # not yet judged: any JSON, null too
    error: Mapping[str, Any] | None = None
    begun: bool | None = None
    interrupted: bool | None = None


class Resume(Frame, frozen=True, kw_only=True):
    type = "resume"
    journal_id: str
    last_cmd: str | None
    outcomes: list[Outcome]
    running: list[str]
    more: bool | None = None


class ResumeOk(Frame, frozen=True, kw_only=True):
    type = "resume_ok"
    epoch: int
    confirmed_through: str | None
    replayed: int
    expired: int


class Side(Enum):
    NODE = (Auth, Announce, Heartbeat, CmdAck, Telemetry, Resume)
    GATEWAY = (AuthOk, ErrorFrame, AnnounceAck, HeartbeatAck, Cmd, CmdCancel, ResumeOk)

    readers: dict[str, "_Reader"]  # by type of frame; here, because an enum's member takes its time as a key


class Fault(StrEnum):
    """What can be wrong with a frame. The value is what a log line or a message says."""

    TOO_LARGE = "the frame is too large"
    NOT_JSON = "the frame is not JSON text"
    TOO_DEEP = "the frame is nested too deeply"
    DUPLICATE_KEY = "an object has the same key twice"
    NUMBER_OUT_OF_RANGE = "a number is out of range"
    NOT_AN_OBJECT = "the frame is not an object"
    UNKNOWN_TYPE = "the type of frame is not known here"
    WRONG_SHAPE = "the frame does not fit its schema"


@dataclass(frozen=True, slots=True)
class BadFrame:
    fault: Fault
    flaw: Flaw | None = None  # where, when one place is to blame
    type: str | None = None  # when it is a known one
    msg_id: str | None = None  # when the envelope is sound: what an `error` frame may answer

    @property
    def pointer(self) -> str:
        return self.flaw.pointer if self.flaw else ""

    @property
    def words(self) -> str:
        if self.flaw is not None and self.fault is Fault.WRONG_SHAPE:
            return f"{self.fault}: {self.flaw.words}"
        return f"{self.fault} at {self.pointer}" if self.pointer else str(self.fault)


# These carry one object as their payload; the others spread theirs over fields.
_WHOLE_PAYLOAD: dict[type[Frame], str] = {ErrorFrame: "error", Announce: "manifest", Telemetry: "frame"}


@dataclass(frozen=True, slots=True)
class _Reader:
    """How one type of frame is checked and built."""

    contract: Contract
    build: Callable[[dict[str, Any]], Frame]

    @classmethod
    def of(cls, kind: type[Frame]) -> "_Reader":
        document: dict[str, Any] = {"$ref": f"{URI_PREFIX}node.wire.envelope@{WIRE_VERSION}"}
        if kind is not Announce:
            document["properties"] = {"payload": {"$ref": f"{URI_PREFIX}node.wire.{kind.type}@{WIRE_VERSION}"}}
        return cls(Contract(document), _builder(kind))


def _builder(kind: type[Frame]) -> Callable[[dict[str, Any]], Frame]:
    if kind is Telemetry:  # the hot one, spelt out
        return lambda raw: Telemetry(msg_id=raw["msg_id"], in_reply_to=raw["in_reply_to"], frame=raw["payload"])
    if kind is Resume:
        return lambda raw: Resume(
            msg_id=raw["msg_id"],
            in_reply_to=raw.get("in_reply_to"),
            **raw["payload"] | {"outcomes": [Outcome(**outcome) for outcome in raw["payload"]["outcomes"]]},
        )
    whole = _WHOLE_PAYLOAD.get(kind)
    return lambda raw: kind(
        msg_id=raw["msg_id"],
        in_reply_to=raw.get("in_reply_to"),
        **(raw["payload"] if whole is None else {whole: raw["payload"]}),
    )


for _side in Side:
    _side.readers = {kind.type: _Reader.of(kind) for kind in _side.value}
_ENVELOPE = contract(f"node.wire.envelope@{WIRE_VERSION}")


def decode(data: bytes, sender: Side) -> Frame | BadFrame:
    """One text frame from `sender`, judged by envelope and payload schema."""
    if len(data) > FRAME_BYTES_MAX:
        return BadFrame(Fault.TOO_LARGE)
    try:
        raw = jiter.from_json(data, allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=True)
    except ValueError as error:
        return BadFrame(_syntax_fault(str(error)))
    if not isinstance(raw, dict):
        return BadFrame(Fault.NOT_AN_OBJECT)
    kind = raw.get("type")
    reader = sender.readers.get(kind) if isinstance(kind, str) else None
    if reader is None:
        return BadFrame(Fault.UNKNOWN_TYPE, Flaw("/type", "enum"))
    if not reader.contract.is_valid(raw):
        return _wrong_shape(reader, raw)
    return reader.build(raw)


def _syntax_fault(parser_message: str) -> Fault:
    if parser_message.startswith("Detected duplicate key"):
        return Fault.DUPLICATE_KEY
    if parser_message.startswith("recursion limit"):
        return Fault.TOO_DEEP
    if parser_message.startswith("number out of range"):
        return Fault.NUMBER_OUT_OF_RANGE
    return Fault.NOT_JSON


def _wrong_shape(reader: _Reader, raw: dict[str, Any]) -> BadFrame:
    envelope_is_sound = _ENVELOPE.is_valid(raw)
    return BadFrame(
        Fault.WRONG_SHAPE,
        reader.contract.first_flaw(raw),
        type=raw["type"],
        msg_id=raw["msg_id"] if envelope_is_sound else None,
    )


def encode(frame: Frame) -> bytes:
    """The bytes of a text frame. What we build fits its schema by construction; the tests check it."""
    raw: dict[str, Any] = {"type": frame.type, "msg_id": frame.msg_id}
    if frame.in_reply_to is not None:
        raw["in_reply_to"] = frame.in_reply_to
    whole = _WHOLE_PAYLOAD.get(type(frame))
    raw["payload"] = getattr(frame, whole) if whole is not None else _spread(frame)
    return msgspec.json.encode(raw)


def encode_cmd(msg_id: str, tool: str, arguments: bytes, deadline_at_ms: int) -> bytes:
    """`encode` of a `Cmd` whose arguments are JSON already: they are not taken apart only to be put together again."""
    payload = {"tool": tool, "arguments": msgspec.Raw(arguments), "deadline_at_ms": deadline_at_ms}
    return msgspec.json.encode({"type": Cmd.type, "msg_id": msg_id, "payload": payload})


_ENVELOPE_FIELDS = frozenset(Frame.__struct_fields__)


@cache
def _payload_fields(kind: type[Frame | Outcome]) -> tuple[tuple[str, Any], ...]:
    """Name and default of each field that is no part of the envelope. (msgspec finds them anew every time: 15 µs.)"""
    envelope = _ENVELOPE_FIELDS if issubclass(kind, Frame) else ()
    return tuple((field.name, field.default) for field in msgspec.structs.fields(kind) if field.name not in envelope)


def _spread(frame: Frame | Outcome) -> dict[str, Any]:
    payload: dict[str, Any] = {}
    for name, default in _payload_fields(type(frame)):
        value = getattr(frame, name)
        if value is not default:
            payload[name] = [_spread(item) for item in value] if name == "outcomes" else value
    return payload
