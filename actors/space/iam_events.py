"""Who may do what in a space, as it lies in the space's own sealed stream: members with their passkeys, and invites.

What a passkey signs is verified before anything is written here; invites and tokens are hashes. An `IamDisabled` ends
every member, invite and grant; a `MemberRemoved` ends what that member was granted, and the invites that it gave.
"""

from typing import TypeAlias

import msgspec

from actors.grants.grant_events import GrantEvent


class _Event(msgspec.Struct, frozen=True, tag=lambda name: f"{name}@1", tag_field="event", forbid_unknown_fields=True):
    at_ms: int


class Passkey(msgspec.Struct, frozen=True):
    credential_id: bytes
    public_key: bytes  # COSE, as the authenticator gave it
    sign_count: int  # 0: it does not count


class IamEnabled(_Event, frozen=True):
    """By the creator's claim, which is used up by it; of a project's room, by the operator."""

    sealed_token: bytes = b""  # the room's (`token_seal`); empty: `SpaceOpened` has it


class IamDisabled(_Event, frozen=True):
    pass


class MemberAdded(_Event, frozen=True):
    member_id: str
    user_handle: bytes  # what its authenticators know it by: random
    label: str
    scopes: tuple[str, ...]
    passkey: Passkey
    invite_hash: bytes | None = None  # which is used up; None: the creator


class PasskeyAdded(_Event, frozen=True):
    member_id: str
    passkey: Passkey


class PasskeyUsed(_Event, frozen=True):
    """Written only when its count has changed."""

    credential_id: bytes
    sign_count: int


class MemberRemoved(_Event, frozen=True):
    member_id: str


class InviteIssued(_Event, frozen=True):
    invite_hash: bytes
    by: str  # the member who gave it
    scopes: tuple[str, ...]
    ends_ms: int


class UidTaken(_Event, frozen=True):
    """A `uid` in the room is this member's for as long as the room lives."""

    uid: str
    member_id: str


IamEvent: TypeAlias = (
    IamEnabled
    | IamDisabled
    | MemberAdded
    | PasskeyAdded
    | PasskeyUsed
    | MemberRemoved
    | InviteIssued
    | UidTaken
    | GrantEvent
)
