"""The frames of a room as typed values. How they look on the wire is `schemas.echo.codec`'s business.

What a client says is judged when it is decoded, but for what depends on the room (limits, encryption): that is for its
rules. `data` is the JSON text that a client sent, to the byte: the server relays it and does not take it apart.
"""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from schemas.echo.errors import EchoError

FRAME_BYTES_MAX = 65_536  # of a client's frame; a larger one: WebSocket close 1009
SUBS_MAX = 32  # subspaces of a connection; a frame that would lead past it is `invalid_payload`
ID_CHARS_MAX = 128  # of an `id` that a client chose; a longer one is `invalid_payload`
ACCESS_TOKEN_CHARS_MAX = 512  # a longer one is `invalid_payload`


class Encoding(StrEnum):
    """What a room's `protocol` names, and a connection's subprotocol."""

    JSON = "json"
    PROTOBUF = "protobuf"

    @property
    def subprotocol(self) -> str:
        return f"echo.v1.{self.value}"


class Frame(msgspec.Struct, frozen=True, gc=False):
    pass


# ---- client → server ------------------------------------------------------------------------------------------------


class Auth(Frame, frozen=True, gc=False):
    access_token: str


class Send(Frame, frozen=True, gc=False):
    """`msg`: to be relayed. Either `data` or `bin`."""

    data: bytes | None = None
    bin: bytes | None = None
    sub: str | None = None
    tuid: str | None = None
    id: str | None = None
    wants_copy: bool = False  # `self`

    @property
    def payload_bytes(self) -> int:
        return len(self.data or self.bin or b"")


class JoinSubs(Frame, frozen=True, gc=False):
    subs: tuple[str, ...]


class LeaveSubs(Frame, frozen=True, gc=False):
    subs: tuple[str, ...]


class SetState(Frame, frozen=True, gc=False):
    data: bytes


class AskWho(Frame, frozen=True, gc=False):
    sub: str | None = None
    id: str | None = None


class Ping(Frame, frozen=True, gc=False):
    id: str | None = None


ClientFrame: TypeAlias = Auth | Send | JoinSubs | LeaveSubs | SetState | AskWho | Ping


class Fault(StrEnum):
    """What can be wrong with a client's frame. The value is what a log line says."""

    TOO_LARGE = "the frame is too large"
    NOT_JSON = "the frame is not JSON text"
    TOO_DEEP = "the frame is nested too deeply"
    DUPLICATE_KEY = "an object has the same key twice"
    NOT_PROTOBUF = "the frame is not a protobuf message"
    NOT_BINARY = "the frame is text, and the connection speaks protobuf"
    NOT_AN_OBJECT = "the frame is not an object"
    UNKNOWN_TYPE = "the type of frame is not known"
    WRONG_SHAPE = "the frame does not have the form of its type"


class BadFrame(Frame, frozen=True, gc=False):
    fault: Fault
    id: str | None = None  # when the sender gave a sound one: what an `error` frame may answer


# ---- server → client ------------------------------------------------------------------------------------------------


class Kept:
    """For the codec: what it made of a value that is sent again and again. No part of the value."""

    __slots__ = ("json", "protobuf")

    def __init__(self) -> None:
        self.json: bytes | None = None
        self.protobuf: bytes | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kept)

    def __hash__(self) -> int:
        return 0


class Member(Frame, frozen=True):
    """A connection, as others see it."""

    uid: str
    conn: str
    subs: tuple[str, ...]
    since_ms: int
    state: bytes | None = None
    member_id: str | None = None
    kept: Kept = msgspec.field(default_factory=Kept)


class Welcome(Frame, frozen=True):
    uid: str
    conn: str
    space_id: str
    epoch: str
    seq: int
    expires_at_ms: int
    recovered: bool
    members: tuple[Member, ...] | None = None


class Message(Frame, frozen=True, gc=False):
    """`msg`. Either `data` or `bin`."""

    seq: int
    uid: str
    conn: str
    at_ms: int
    data: bytes | None = None
    bin: bytes | None = None
    sub: str | None = None
    tuid: str | None = None
    member_id: str | None = None
    replay: bool = False


class Change(StrEnum):
    JOIN = "join"
    LEAVE = "leave"
    STATE = "state"


class Presence(Frame, frozen=True):
    """A `join` with `subs` of a connection that is known, or a `leave` with `subs`, is of those subspaces only."""

    change: Change
    uid: str
    conn: str
    at_ms: int
    subs: tuple[str, ...] = ()
    data: bytes | None = None
    member_id: str | None = None


class Ack(Frame, frozen=True, gc=False):
    id: str
    seq: int
    delivered: int


class Problem(Frame, frozen=True, gc=False):
    """`error`: a frame was not taken; the connection stays."""

    error: EchoError
    id: str | None = None
    retry_after_ms: int | None = None


class Members(Frame, frozen=True):
    """`who`: the first of them, and how many there are."""

    members: tuple[Member, ...]
    total: int
    id: str | None = None


class Pong(Frame, frozen=True, gc=False):
    id: str | None = None


ServerFrame: TypeAlias = Welcome | Message | Presence | Ack | Problem | Members | Pong
