"""The life of a space, as it lies in the log under `space/{id}`: when it began, when it ends, and that it is over.

Tokens and claims are hashes here; a token that is to be shown again is here sealed besides. Who may do what in it lies
in the same stream (`iam_events.py`); of that, a space knows only whether IAM is on. What people write into a space is
none of it: that is for the `SpaceStore`.
"""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from actors.space.iam_events import IamDisabled, IamEnabled, IamEvent
from schemas.echo.frames import Encoding


class Ending(StrEnum):
    """Why a space is over."""

    EXPIRED = "expired"
    DELETED = "deleted"  # by its creator or an owner
    CLOSED = "closed"  # by an operator
    BOOKED = "booked"  # its project has a new one


class _Event(msgspec.Struct, frozen=True, tag=lambda name: f"{name}@1", tag_field="event", forbid_unknown_fields=True):
    at_ms: int


class SpaceOpened(_Event, frozen=True):
    space_id: str
    token_hash: bytes
    claim_hash: bytes | None  # None: a project's, which nobody claims
    protocol: Encoding
    is_encrypted: bool
    ends_at_ms: int
    project_id: str | None = None
    sealed_token: bytes = b""  # of a project's (`token_seal`), whose token is shown again


class SpaceEndMoved(_Event, frozen=True):
    """By its creator or an owner, who wants it to end at another time."""

    ends_at_ms: int


class SpaceClosed(_Event, frozen=True):
    ending: Ending


Event: TypeAlias = SpaceOpened | SpaceEndMoved | SpaceClosed | IamEvent


class Space(msgspec.Struct, frozen=True):
    """What follows from the events."""

    space_id: str
    token_hash: bytes
    claim_hash: bytes | None
    protocol: Encoding
    is_encrypted: bool
    opened_at_ms: int
    ends_at_ms: int
    project_id: str | None = None
    ending: Ending | None = None
    has_iam: bool = False  # its token alone is not enough
    sealed_token: bytes = b""  # empty where nobody is shown it again

    def is_live(self, now_ms: int) -> bool:
        """At the very instant of its end it is over, whether or not anybody has noticed."""
        return self.ending is None and now_ms < self.ends_at_ms


def evolve(space: Space | None, event: Event) -> Space | None:
    """The space after this event of its stream. What cannot follow changes nothing."""
    match event:
        case SpaceOpened():
            if space is not None:
                return space
            return Space(
                event.space_id,
                event.token_hash,
                event.claim_hash,
                event.protocol,
                event.is_encrypted,
                event.at_ms,
                event.ends_at_ms,
                event.project_id,
                sealed_token=event.sealed_token,
            )
        case _ if space is None or space.ending is not None:
            return space
        case SpaceEndMoved(ends_at_ms=ends_at_ms):
            return msgspec.structs.replace(space, ends_at_ms=ends_at_ms)
        case SpaceClosed(ending=ending):
            return msgspec.structs.replace(space, ending=ending)
        case IamEnabled():
            return msgspec.structs.replace(space, has_iam=True, sealed_token=event.sealed_token or space.sealed_token)
        case IamDisabled():
            is_shown = space.project_id is not None
            return msgspec.structs.replace(space, has_iam=False, sealed_token=space.sealed_token if is_shown else b"")
        case _:
            return space


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    return _encoder.encode(event)


def decode(data: bytes) -> Event:
    """Raises msgspec.MsgspecError."""
    return _decoder.decode(data)
