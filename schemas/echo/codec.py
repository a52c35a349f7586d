"""The codec of a room: JSON text and protobuf side by side.

`decode` takes any bytes at all and answers with one typed frame or one `BadFrame`; it never raises. Its work is bounded
by the frame limit: the JSON parser refuses nesting past 200 levels, duplicate keys, NaN, lone surrogates and integers
past 4,300 digits; a protobuf frame has no nesting but that of a member, which no client may send. JSON objects are
closed. In protobuf unknown fields are ignored, as its evolution demands, but a known field that is not of its type of
frame is not; a field at its default is absent.

`encode` is to be called once for each encoding, however many connections get the frame. `data` goes from one encoding
into the other as the text it is.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jiter
import msgspec
from google.protobuf.message import DecodeError

from schemas.echo import echo_pb2 as pb
from schemas.echo.frames import (
    ACCESS_TOKEN_CHARS_MAX,
    FRAME_BYTES_MAX,
    ID_CHARS_MAX,
    SUBS_MAX,
    Ack,
    AskWho,
    Auth,
    BadFrame,
    ClientFrame,
    Encoding,
    Fault,
    JoinSubs,
    LeaveSubs,
    Member,
    Members,
    Message,
    Ping,
    Pong,
    Presence,
    Problem,
    Send,
    ServerFrame,
    SetState,
    Welcome,
)
from schemas.echo.names import is_name
from schemas.echo.times import rfc3339

_Raw: TypeAlias = Mapping[str, Any]


class _Data(msgspec.Struct):
    """Finds where `data` stands in a frame that has been parsed already."""

    data: msgspec.Raw


class _Message(msgspec.Struct, tag_field="type", tag="msg", omit_defaults=True, gc=False):
    """`Message` as JSON has it, by fields: by far the most frequent frame."""

    seq: int
    uid: str
    conn: str
    at: str
    data: msgspec.Raw | None = None
    bin: bytes | None = None  # in base64, as msgspec writes bytes
    sub: str | None = None
    tuid: str | None = None
    member_id: str | None = None
    replay: bool = False


_DATA_ALONE = {"data"}
_find_data = msgspec.json.Decoder(_Data).decode
_to_json = msgspec.json.Encoder().encode


# ---- what clients send ----------------------------------------------------------------------------------------------


def decode(
    data: bytes, encoding: Encoding, *, is_text: bool, bytes_max: int = FRAME_BYTES_MAX
) -> ClientFrame | BadFrame:
    """One WebSocket message of a client. A binary one on a JSON connection is a message to the whole room."""
    if len(data) > bytes_max:
        return BadFrame(Fault.TOO_LARGE)
    if encoding is Encoding.PROTOBUF:
        return BadFrame(Fault.NOT_BINARY) if is_text else _from_protobuf(data)
    return _from_json(data) if is_text else Send(bin=data)


def _from_json(text: bytes) -> ClientFrame | BadFrame:
    raw = _parse(text)
    if isinstance(raw, Fault):
        return BadFrame(raw)
    if not isinstance(raw, dict):
        return BadFrame(Fault.NOT_AN_OBJECT)
    if "data" in raw:
        raw["data"] = bytes(_find_data(text).data)
    if "bin" in raw:
        raw["bin"] = _from_base64(raw["bin"])
    return _typed(raw)


def _from_protobuf(data: bytes) -> ClientFrame | BadFrame:
    try:
        fields = pb.Frame.FromString(data).ListFields()
    except DecodeError:
        return BadFrame(Fault.NOT_PROTOBUF)
    raw = {field.name: value for field, value in fields}
    if "json" in raw:
        raw["data"] = raw.pop("json").encode()
        fault = _parse(raw["data"])
        if isinstance(fault, Fault):
            return BadFrame(fault, _sound_id(raw))
    if "subs" in raw:
        raw["subs"] = list(raw["subs"])
    elif raw.get("type") in ("join", "leave"):
        raw["subs"] = []  # which is how protobuf says it
    return _typed(raw)


def _parse(text: bytes) -> Any:
    try:
        return jiter.from_json(text, allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=True)
    except ValueError as error:
        message = str(error)
        if message.startswith("Detected duplicate key"):
            return Fault.DUPLICATE_KEY
        return Fault.TOO_DEEP if message.startswith("recursion limit") else Fault.NOT_JSON


def _from_base64(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None


def _sound_id(raw: _Raw) -> str | None:
    chosen = raw.get("id")
    return chosen if isinstance(chosen, str) and 0 < len(chosen) <= ID_CHARS_MAX else None


def _typed(raw: dict[str, Any]) -> ClientFrame | BadFrame:
    """Of a frame's members, by their names in JSON: `data` is JSON text already, `bin` bytes or (not base64) None."""
    kind = raw.pop("type", None)
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    chosen = _sound_id(raw)
    if reader is None:
        return BadFrame(Fault.UNKNOWN_TYPE, chosen)
    names, read = reader
    frame = read(raw) if raw.keys() <= names and ("id" in raw) == (chosen is not None) else None
    return BadFrame(Fault.WRONG_SHAPE, chosen) if frame is None else frame


def _is_name_or_absent(raw: _Raw, name: str) -> bool:
    return name not in raw or (isinstance(raw[name], str) and is_name(raw[name]))


def _auth(raw: _Raw) -> Auth | None:
    token = raw.get("access_token")
    return Auth(token) if isinstance(token, str) and 0 < len(token) <= ACCESS_TOKEN_CHARS_MAX else None


def _send(raw: _Raw) -> Send | None:
    if raw.keys() == _DATA_ALONE:  # nearly always
        return Send(raw["data"])
    data, binary = raw.get("data"), raw.get("bin")
    wants_copy = raw.get("self", False)
    if (data is None) == (binary is None) or ("data" in raw and "bin" in raw) or not isinstance(wants_copy, bool):
        return None
    if not (_is_name_or_absent(raw, "sub") and _is_name_or_absent(raw, "tuid")):
        return None
    return Send(data, binary, raw.get("sub"), raw.get("tuid"), raw.get("id"), wants_copy)


def _subs(raw: _Raw) -> tuple[str, ...] | None:
    subs = raw.get("subs")
    if not isinstance(subs, list) or len(subs) > SUBS_MAX:
        return None
    if not all(isinstance(sub, str) and is_name(sub) for sub in subs):
        return None
    return tuple(dict.fromkeys(subs))


def _join(raw: _Raw) -> JoinSubs | None:
    subs = _subs(raw)
    return None if subs is None else JoinSubs(subs)


def _leave(raw: _Raw) -> LeaveSubs | None:
    subs = _subs(raw)
    return None if subs is None else LeaveSubs(subs)


def _state(raw: _Raw) -> SetState | None:
    return SetState(raw["data"]) if "data" in raw else None


def _who(raw: _Raw) -> AskWho | None:
    return AskWho(raw.get("sub"), raw.get("id")) if _is_name_or_absent(raw, "sub") else None


def _ping(raw: _Raw) -> Ping | None:
    return Ping(raw.get("id"))


_READERS: dict[str, tuple[frozenset[str], Callable[[_Raw], ClientFrame | None]]] = {
    "auth": (frozenset({"access_token"}), _auth),
    "msg": (frozenset({"data", "bin", "sub", "tuid", "id", "self"}), _send),
    "join": (frozenset({"subs"}), _join),
    "leave": (frozenset({"subs"}), _leave),
    "state": (frozenset({"data"}), _state),
    "who": (frozenset({"sub", "id"}), _who),
    "ping": (frozenset({"id"}), _ping),
}


# ---- what the server sends ------------------------------------------------------------------------------------------


def encode(frame: ServerFrame, encoding: Encoding) -> bytes:
    if encoding is Encoding.JSON:
        return _to_json(_json_of(frame))
    head: bytes = _protobuf_of(frame).SerializeToString()
    if isinstance(frame, Members | Welcome) and frame.members:
        return b"".join([head, *map(_protobuf_of_member, frame.members)])
    return head


def _json_of(frame: ServerFrame) -> dict[str, Any] | _Message:
    match frame:
        case Message():
            return _Message(
                frame.seq,
                frame.uid,
                frame.conn,
                rfc3339(frame.at_ms),
                _raw_or_none(frame.data),
                frame.bin,
                frame.sub,
                frame.tuid,
                frame.member_id,
                frame.replay,
            )
        case Ack():
            raw: dict[str, Any] = {"type": "ack", "id": frame.id, "seq": frame.seq, "delivered": frame.delivered}
        case Presence():
            raw = {"type": frame.change.value, "uid": frame.uid, "conn": frame.conn}
            _add(raw, subs=frame.subs or None, data=_raw_or_none(frame.data), member_id=frame.member_id)
            raw["at"] = rfc3339(frame.at_ms)
        case Problem():
            raw = {"type": "error", "error": frame.error.word, "message": frame.error.message}
            _add(raw, id=frame.id, retry_after_ms=frame.retry_after_ms)
        case Pong():
            raw = {"type": "pong"}
            _add(raw, id=frame.id)
        case Members():
            raw = {"type": "who"}
            _add(raw, id=frame.id)
            raw["members"], raw["total"] = [_json_of_member(member) for member in frame.members], frame.total
        case Welcome():
            raw = {"type": "welcome", "uid": frame.uid, "conn": frame.conn, "space_id": frame.space_id}
            raw |= {"epoch": frame.epoch, "seq": frame.seq, "expires_at": rfc3339(frame.expires_at_ms)}
            raw["recovered"] = frame.recovered
            if frame.members is not None:
                raw["members"] = [_json_of_member(member) for member in frame.members]
    return raw


def _json_of_member(member: Member) -> msgspec.Raw:
    if member.kept.json is None:
        raw: dict[str, Any] = {"uid": member.uid, "conn": member.conn, "subs": member.subs}
        _add(raw, state=_raw_or_none(member.state), member_id=member.member_id)
        raw["since"] = rfc3339(member.since_ms)
        member.kept.json = _to_json(raw)
    return msgspec.Raw(member.kept.json)


def _add(raw: dict[str, Any], **optional: Any) -> None:
    raw |= {name: value for name, value in optional.items() if value is not None}


def _raw_or_none(data: bytes | None) -> msgspec.Raw | None:
    return None if data is None else msgspec.Raw(data)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _protobuf_of(frame: ServerFrame) -> pb.Frame:
    """A field that is given None stays unset. Without members: they follow."""
    match frame:
        case Message():
            return pb.Frame(
                type="msg",
                uid=frame.uid,
                tuid=frame.tuid,
                sub=frame.sub,
                conn=frame.conn,
                seq=frame.seq,
                at_ms=frame.at_ms,
                member_id=frame.member_id,
                json=_text(frame.data),
                bin=frame.bin,
                replay=frame.replay,
            )
        case Ack():
            return pb.Frame(type="ack", id=frame.id, seq=frame.seq, delivered=frame.delivered)
        case Presence():
            return pb.Frame(
                type=frame.change.value,
                uid=frame.uid,
                conn=frame.conn,
                subs=frame.subs,
                json=_text(frame.data),
                at_ms=frame.at_ms,
                member_id=frame.member_id,
            )
        case Problem():
            return pb.Frame(
                type="error",
                error=frame.error.word,
                message=frame.error.message,
                id=frame.id,
                retry_after_ms=frame.retry_after_ms,
            )
        case Pong():
            return pb.Frame(type="pong", id=frame.id)
        case Members():
            return pb.Frame(type="who", id=frame.id, total=frame.total)
        case Welcome():
            return pb.Frame(
                type="welcome",
                uid=frame.uid,
                conn=frame.conn,
                space_id=frame.space_id,
                epoch=frame.epoch,
                seq=frame.seq,
                expires_at_ms=frame.expires_at_ms,
                recovered=frame.recovered,
            )


def _protobuf_of_member(member: Member) -> bytes:
    """With its tag and length, as a frame that has nothing else: two of protobuf one after the other are one."""
    if member.kept.protobuf is None:
        one = pb.Member(
            uid=member.uid,
            conn=member.conn,
            subs=member.subs,
            state_json=_text(member.state),
            since_ms=member.since_ms,
            member_id=member.member_id,
        )
        member.kept.protobuf = pb.Frame(members=[one]).SerializeToString()
    return member.kept.protobuf
