"""What the rules of a room are told of a new connection, and what they ask of its driver."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from actors.space.counts import SpaceCounts
from schemas.echo.closes import RoomClose
from schemas.echo.errors import EchoError
from schemas.echo.frames import Problem, ServerFrame


@dataclass(frozen=True, slots=True)
class Opening:
    """A connection that has been upgraded. Its names have been checked, its subspaces are at most 32."""

    key: str  # a new ULID in lower case
    uid: str
    subs: tuple[str, ...] = ()
    wants_copy: bool = False  # `self`
    watches: bool = True  # `presence`
    since: int | None = None
    epoch: str | None = None
    is_minted: bool = False  # the `uid`, by the gateway
    needs_auth: bool = False  # the space has IAM
    access_token: str | None = None  # as shown before the upgrade; None: it comes in an `auth` frame


class SendTo(msgspec.Struct, frozen=True):
    """One frame for these connections: to be encoded once for each encoding among them."""

    keys: Sequence[str]
    frame: ServerFrame


@dataclass(frozen=True, slots=True)
class SendPing:
    """A WebSocket ping. Its pong is to be told with `count`."""

    key: str


@dataclass(frozen=True, slots=True)
class StopReading:
    """It speaks faster than it may: what else it says is to wait in its socket."""

    key: str


@dataclass(frozen=True, slots=True)
class ReadOn:
    key: str


@dataclass(frozen=True, slots=True)
class CloseWith:
    """After what was sent before. The room does not know the connection any more."""

    key: str
    close: RoomClose


Effect: TypeAlias = SendTo | SendPing | StopReading | ReadOn | CloseWith
Effects: TypeAlias = Sequence[Effect]


def problem(
    counts: SpaceCounts, key: str, error: EchoError, chosen: str | None = None, retry_after_ms: int | None = None
) -> Effects:
    """A frame is not taken: its sender is told why, and stays."""
    counts.frames_refused[error.word] += 1
    return (SendTo((key,), Problem(error, chosen, retry_after_ms)),)
