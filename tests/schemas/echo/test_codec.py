"""The codec of a room: both encodings say the same, and any bytes at all do no harm."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.echo import echo_pb2 as pb
from schemas.echo.codec import decode, encode
from schemas.echo.errors import EchoError
from schemas.echo.frames import (
    FRAME_BYTES_MAX,
    ID_CHARS_MAX,
    Ack,
    AskWho,
    Auth,
    BadFrame,
    Change,
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
from schemas.echo.times import YEAR_10000_MS, from_rfc3339

Decoded = ClientFrame | BadFrame


def from_json(raw: Any) -> Decoded:
    return decode(raw if isinstance(raw, bytes) else json.dumps(raw).encode(), Encoding.JSON, is_text=True)


def from_protobuf(frame: pb.Frame | bytes) -> Decoded:
    data = frame if isinstance(frame, bytes) else frame.SerializeToString()
    return decode(data, Encoding.PROTOBUF, is_text=False)


# ---- what clients send ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "frame", "typed"),
    [
        ({"type": "auth", "access_token": "ea_x"}, pb.Frame(type="auth", access_token="ea_x"), Auth("ea_x")),
        ({"type": "msg", "data": None}, pb.Frame(type="msg", json="null"), Send(b"null")),
        ({"type": "msg", "bin": "AAE="}, pb.Frame(type="msg", bin=b"\0\1"), Send(bin=b"\0\1")),
        ({"type": "msg", "bin": ""}, pb.Frame(type="msg", bin=b""), Send(bin=b"")),
        (
            {"type": "msg", "data": [1], "sub": "s", "tuid": "t", "id": "i", "self": True},
            pb.Frame(type="msg", json="[1]", sub="s", tuid="t", id="i", self=True),
            Send(b"[1]", None, "s", "t", "i", True),
        ),
        ({"type": "msg", "data": 0, "self": False}, pb.Frame(type="msg", json="0", self=False), Send(b"0")),
        ({"type": "join", "subs": ["a", "b", "a"]}, pb.Frame(type="join", subs=["a", "b", "a"]), JoinSubs(("a", "b"))),
        ({"type": "leave", "subs": []}, pb.Frame(type="leave"), LeaveSubs(())),
        ({"type": "state", "data": {}}, pb.Frame(type="state", json="{}"), SetState(b"{}")),
        ({"type": "who"}, pb.Frame(type="who"), AskWho()),
        ({"type": "who", "sub": "s", "id": "i"}, pb.Frame(type="who", sub="s", id="i"), AskWho("s", "i")),
        ({"type": "ping"}, pb.Frame(type="ping"), Ping()),
        ({"type": "ping", "id": "i" * ID_CHARS_MAX}, pb.Frame(type="ping", id="i" * ID_CHARS_MAX), Ping("i" * 128)),
    ],
)
def test_client_frame_is_the_same_in_both_encodings(raw: Any, frame: pb.Frame, typed: ClientFrame) -> None:
    assert from_json(raw) == typed
    assert from_protobuf(frame) == typed


@pytest.mark.parametrize(
    ("raw", "frame"),
    [
        ({"type": "msg"}, pb.Frame(type="msg")),
        ({"type": "msg", "data": 1, "bin": "AA=="}, None),
        ({"type": "msg", "bin": "AA"}, None),
        ({"type": "msg", "bin": "A A="}, None),
        ({"type": "msg", "bin": 1}, None),
        ({"type": "msg", "bin": "ä"}, None),
        ({"type": "msg", "data": 1, "self": 1}, None),
        ({"type": "msg", "data": 1, "sub": None}, None),
        ({"type": "msg", "data": 1, "sub": ""}, None),
        ({"type": "msg", "data": 1, "sub": "a/b"}, pb.Frame(type="msg", json="1", sub="a/b")),
        ({"type": "msg", "data": 1, "tuid": "x" * 65}, pb.Frame(type="msg", json="1", tuid="x" * 65)),
        ({"type": "msg", "data": 1, "tuid": ".."}, pb.Frame(type="msg", json="1", tuid="..")),
        ({"type": "msg", "data": 1, "id": "i" * 129}, pb.Frame(type="msg", json="1", id="i" * 129)),
        ({"type": "msg", "data": 1, "id": ""}, None),
        ({"type": "msg", "data": 1, "id": 7}, None),
        ({"type": "msg", "data": 1, "seq": 7}, pb.Frame(type="msg", json="1", seq=7)),
        ({"type": "msg", "data": 1, "uid": "me"}, pb.Frame(type="msg", json="1", uid="me")),
        ({"type": "msg", "data": 1, "members": []}, pb.Frame(type="msg", json="1", members=[pb.Member()])),
        ({"type": "msg", "json": "1"}, None),
        ({"type": "join"}, None),
        ({"type": "join", "subs": "a"}, None),
        ({"type": "join", "subs": [1]}, pb.Frame(type="join", subs=[""])),
        ({"type": "join", "subs": ["a"] * 33}, pb.Frame(type="join", subs=["a"] * 33)),
        ({"type": "state"}, pb.Frame(type="state")),
        ({"type": "state", "bin": "AA=="}, pb.Frame(type="state", bin=b"a")),
        ({"type": "who", "sub": 1}, pb.Frame(type="who", sub="/")),
        ({"type": "ping", "data": 1}, pb.Frame(type="ping", json="1")),
        ({"type": "auth"}, pb.Frame(type="auth")),
        ({"type": "auth", "access_token": "a" * 513}, pb.Frame(type="auth", access_token="a" * 513)),
    ],
)
def test_frame_of_a_wrong_form_is_told_as_such(raw: Any, frame: pb.Frame | None) -> None:
    assert from_json(raw) == BadFrame(Fault.WRONG_SHAPE)
    assert frame is None or from_protobuf(frame) == BadFrame(Fault.WRONG_SHAPE)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"", Fault.NOT_JSON),
        (b"\xff", Fault.NOT_JSON),
        (b"{}{}", Fault.NOT_JSON),
        (b'{"type":"msg","data":NaN}', Fault.NOT_JSON),
        (b'{"type":"msg","data":"\\ud800"}', Fault.NOT_JSON),
        (b'{"type":"msg","data":' + b"1" * 4301 + b"}", Fault.NOT_JSON),
        (b'{"type":"msg","data":' + b"[" * 30_000 + b"]" * 30_000 + b"}", Fault.TOO_DEEP),
        (b'{"type":"msg","data":1,"data":2}', Fault.DUPLICATE_KEY),
        (b'{"type":"msg","data":{"a":{"b":1,"b":2}}}', Fault.DUPLICATE_KEY),
        (b"[]", Fault.NOT_AN_OBJECT),
        (b"null", Fault.NOT_AN_OBJECT),
        (b"{}", Fault.UNKNOWN_TYPE),
        (b'{"type":[]}', Fault.UNKNOWN_TYPE),
        (b'{"type":"welcome"}', Fault.UNKNOWN_TYPE),
        (b" " * (FRAME_BYTES_MAX + 1), Fault.TOO_LARGE),
    ],
)
def test_hostile_json_meets_its_fault(text: bytes, fault: Fault) -> None:
    assert from_json(text) == BadFrame(fault)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\xff\xff", Fault.NOT_PROTOBUF),
        (b"\x0a\xff\xff\xff\xff\x0f", Fault.NOT_PROTOBUF),  # a string of 4 GiB, it says
        (b"\x0a\x01\xff", Fault.NOT_PROTOBUF),  # a type that is not UTF-8
        (b"\x6b" * 30_000, Fault.NOT_PROTOBUF),  # groups in groups
        (b"\x6a\x00" * 32_000, Fault.UNKNOWN_TYPE),  # members without end
        (b"", Fault.UNKNOWN_TYPE),
        (pb.Frame(type="msg", json="").SerializeToString(), Fault.NOT_JSON),
        (pb.Frame(type="msg", json="[" * 300).SerializeToString(), Fault.TOO_DEEP),
        (pb.Frame(type="state", json='{"a":1,"a":2}').SerializeToString(), Fault.DUPLICATE_KEY),
    ],
)
def test_hostile_protobuf_meets_its_fault(data: bytes, fault: Fault) -> None:
    assert from_protobuf(data) == BadFrame(fault)


def test_fault_carries_the_id_that_the_sender_waits_for() -> None:
    assert from_json({"type": "msg", "id": "i"}) == BadFrame(Fault.WRONG_SHAPE, "i")
    assert from_json({"type": "other", "id": "i"}) == BadFrame(Fault.UNKNOWN_TYPE, "i")
    assert from_protobuf(pb.Frame(type="msg", id="i", json="{")) == BadFrame(Fault.NOT_JSON, "i")


def test_frame_of_exactly_the_limit_is_read() -> None:
    frame = b'{"type":"ping"}'.ljust(FRAME_BYTES_MAX)
    assert from_json(frame) == Ping()
    assert decode(frame, Encoding.JSON, is_text=True, bytes_max=100) == BadFrame(Fault.TOO_LARGE)


def test_binary_frame_on_a_json_connection_is_a_message_to_the_room() -> None:
    assert decode(b"\xff", Encoding.JSON, is_text=False) == Send(bin=b"\xff")


def test_text_frame_on_a_protobuf_connection_is_a_fault() -> None:
    assert decode(b"", Encoding.PROTOBUF, is_text=True) == BadFrame(Fault.NOT_BINARY)


def test_protobuf_fields_of_the_future_are_ignored() -> None:
    assert from_protobuf(pb.Frame(type="ping").SerializeToString() + b"\xfa\x07\x01x") == Ping()


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_without_an_exception(data: bytes) -> None:
    for encoding in Encoding:
        for is_text in (True, False):
            decode(data, encoding, is_text=is_text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
JSON_TEXT = st.builds(
    lambda value, indent, ascii_only: json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode(),
    JSON.filter(lambda value: "\ud800" not in json.dumps(value)),
    st.sampled_from([None, 1]),
    st.booleans(),
)


@given(JSON, st.sampled_from(["type", "data", "id"]), JSON)
def test_any_object_is_decoded_without_an_exception(value: Any, name: str, other: Any) -> None:
    from_json({"type": "msg", "data": value, name: other})


@given(JSON_TEXT)
def test_data_is_relayed_to_the_byte(text: bytes) -> None:
    sent = from_json(b'{"type" : "msg" , "data" : ' + text + b' , "id" : "i"}')
    assert sent == Send(text, id="i")
    assert from_protobuf(pb.Frame(type="msg", json=text.decode(), id="i")) == sent


@pytest.mark.parametrize("text", [b"1e999", b"-0", b"1.10", b"12345678901234567890123", b"[1,  2]", b'"\\u0041"'])
def test_numbers_and_escapes_keep_their_spelling(text: bytes) -> None:
    sent = from_json(b'{"type":"msg","data":' + text + b"}")
    assert isinstance(sent, Send)
    message = Message(1, "u", "c", 0, sent.data)
    assert b'"data":' + text in encode(message, Encoding.JSON)
    assert pb.Frame.FromString(encode(message, Encoding.PROTOBUF)).json.encode() == text


# ---- what the server sends ------------------------------------------------------------------------------------------

NAME = st.from_regex(r"[A-Za-z0-9:@~-]{1,12}", fullmatch=True)
MAYBE_NAME = st.none() | NAME
MS = st.integers(1, YEAR_10000_MS - 1)
SUBS = st.lists(NAME, max_size=3, unique=True).map(tuple)
MEMBER = st.builds(Member, NAME, NAME, SUBS, MS, st.none() | JSON_TEXT, MAYBE_NAME)
MEMBERS = st.lists(MEMBER, max_size=3).map(tuple)
COUNT = st.integers(0, 2**32 - 1)
SEQ = st.integers(0, 2**53)
ID = st.text(min_size=1, max_size=128).filter(lambda text: text.isprintable())
MESSAGE = st.builds(
    lambda payload, **rest: Message(**rest, **{"bin" if payload[1] else "data": payload[0]}),
    st.tuples(JSON_TEXT, st.just(False)) | st.tuples(st.binary(max_size=40), st.just(True)),
    seq=SEQ, uid=NAME, conn=NAME, at_ms=MS, sub=MAYBE_NAME, tuid=MAYBE_NAME, member_id=MAYBE_NAME, replay=st.booleans(),
)  # fmt: skip
SERVER_FRAMES: st.SearchStrategy[ServerFrame] = st.one_of(
    MESSAGE,
    st.builds(Ack, ID, SEQ, COUNT),
    st.builds(Presence, st.sampled_from(Change), NAME, NAME, MS, SUBS, st.none() | JSON_TEXT, MAYBE_NAME),
    st.builds(Problem, st.sampled_from(EchoError), st.none() | ID, st.none() | st.integers(1, 2**32 - 1)),
    st.builds(Pong, st.none() | ID),
    st.builds(Members, MEMBERS, COUNT, st.none() | ID),
    st.builds(Welcome, NAME, NAME, NAME, NAME, SEQ, MS, st.booleans(), MEMBERS),
)


def as_json(frame: pb.Frame | pb.Member) -> dict[str, Any]:
    """A protobuf frame as a naive reader of the contract would write it in JSON."""
    raw: dict[str, Any] = {}
    fields: Any = frame
    for field, value in fields.ListFields():
        match field.name:
            case "json" | "state_json":
                raw["data" if field.name == "json" else "state"] = json.loads(value)
            case "bin":
                raw["bin"] = base64.b64encode(value).decode()
            case "members":
                raw["members"] = [as_json(member) for member in value]
            case "subs":
                raw["subs"] = list(value)
            case name:
                raw[name.removesuffix("_ms") if name in ("at_ms", "since_ms", "expires_at_ms") else name] = value
    return raw


def without_defaults(raw: dict[str, Any]) -> dict[str, Any]:
    """What protobuf leaves unsaid, unsaid; times in milliseconds."""
    said: dict[str, Any] = {}
    for name, value in raw.items():
        if name in ("at", "since", "expires_at"):
            value = from_rfc3339(value)
        elif name == "members":
            value = [without_defaults(member) for member in value]
        if name in ("data", "bin", "state") or value not in (0, False, []):
            said[name] = value
    return said


@given(SERVER_FRAMES)
def test_server_frame_says_the_same_in_both_encodings(frame: ServerFrame) -> None:
    text = json.loads(encode(frame, Encoding.JSON))
    assert without_defaults(text) == as_json(pb.Frame.FromString(encode(frame, Encoding.PROTOBUF)))


AT, AT_TEXT = 1_700_000_000_123, "2023-11-14T22:13:20.123Z"


@pytest.mark.parametrize(
    ("frame", "raw"),
    [
        (
            Welcome("u", "c", "s", "e", 0, AT, False),
            {
                "type": "welcome", "uid": "u", "conn": "c", "space_id": "s", "epoch": "e", "seq": 0,
                "expires_at": AT_TEXT, "recovered": False,
            },
        ),
        (
            Message(7, "u", "c", AT, b"[1]"),
            {"type": "msg", "seq": 7, "uid": "u", "conn": "c", "at": AT_TEXT, "data": [1]},
        ),
        (
            Message(7, "u", "c", AT, bin=b"\0", sub="s", tuid="t", member_id="m", replay=True),
            {
                "type": "msg", "seq": 7, "uid": "u", "conn": "c", "at": AT_TEXT, "bin": "AA==", "sub": "s",
                "tuid": "t", "member_id": "m", "replay": True,
            },
        ),
        (Presence(Change.LEAVE, "u", "c", AT), {"type": "leave", "uid": "u", "conn": "c", "at": AT_TEXT}),
        (
            Presence(Change.JOIN, "u", "c", AT, ("a",), b"{}"),
            {"type": "join", "uid": "u", "conn": "c", "subs": ["a"], "data": {}, "at": AT_TEXT},
        ),
        (Ack("i", 7, 0), {"type": "ack", "id": "i", "seq": 7, "delivered": 0}),
        (
            Problem(EchoError.RATE_LIMITED, "i", 20),
            {
                "type": "error", "error": "rate_limited", "message": EchoError.RATE_LIMITED.message, "id": "i",
                "retry_after_ms": 20,
            },
        ),
        (
            Members((Member("u", "c", (), AT, b"1"),), 101, "i"),
            {
                "type": "who", "id": "i", "total": 101,
                "members": [{"uid": "u", "conn": "c", "subs": [], "state": 1, "since": AT_TEXT}],
            },
        ),
        (Pong(), {"type": "pong"}),
        (Pong("i"), {"type": "pong", "id": "i"}),
    ],
)  # fmt: skip
def test_server_frame_has_the_documented_members(frame: ServerFrame, raw: dict[str, Any]) -> None:
    assert json.loads(encode(frame, Encoding.JSON)) == raw


def test_subprotocols_are_the_documented_ones() -> None:
    assert [encoding.subprotocol for encoding in Encoding] == ["echo.v1.json", "echo.v1.protobuf"]
