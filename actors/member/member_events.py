"""A member of a tenant, as it lies in the log: one stream for each, with hashes of invitations and refresh tokens only.

What a passkey signs is verified before anything is written here. A member that was revoked does not come back; somebody
who is invited again is another member, with an agent of its own.
"""

from typing import TypeAlias

import msgspec

from actors.grants.grant_events import GrantIssued, GrantRevoked
from actors.grants.grants import KeptGrant


class _Event(msgspec.Struct, frozen=True, tag=lambda name: f"{name}@1", tag_field="event", forbid_unknown_fields=True):
    at_ms: int


class Passkey(msgspec.Struct, frozen=True):
    credential_id: bytes
    public_key: bytes  # COSE, as the authenticator gave it
    sign_count: int  # 0: it does not count


class Invite(msgspec.Struct, frozen=True):
    invite_hash: bytes
    ends_ms: int


class MemberInvited(_Event, frozen=True):
    """The first one of a stream makes the member. A later one is for another passkey, of the same member and agent."""

    by: str  # the operator's `sub`
    member_id: str
    tenant: str
    agent_id: str  # whom its tokens speak for, for good: budget and policy know it by this
    label: str
    scopes: tuple[str, ...]
    user_handle: bytes  # what its authenticators know it by: random
    invite: Invite
    keeps_passkeys: bool = False  # False: those that it had, and its grants, are over from now on


class MemberJoined(_Event, frozen=True):
    """With its first passkey, or with the first after the others were lost. Its invitation is used up."""

    passkey: Passkey


class PasskeyAdded(_Event, frozen=True):
    """A further one, by an invitation too."""

    passkey: Passkey


class PasskeyUsed(_Event, frozen=True):
    """Written only when its count has changed."""

    credential_id: bytes
    sign_count: int


class MemberRevoked(_Event, frozen=True):
    """For good."""

    by: str


MemberEvent: TypeAlias = MemberInvited | MemberJoined | PasskeyAdded | PasskeyUsed | MemberRevoked
Event: TypeAlias = MemberEvent | GrantIssued | GrantRevoked


class Member(msgspec.Struct, frozen=True):
    """What follows from its events, but for its grants."""

    member_id: str
    tenant: str
    agent_id: str
    label: str
    scopes: frozenset[str]
    user_handle: bytes
    invited_at_ms: int
    invite: Invite | None = None  # unused; it may have ended
    joined_at_ms: int | None = None
    passkeys: tuple[Passkey, ...] = ()

    def passkey(self, credential_id: bytes) -> Passkey | None:
        return next((one for one in self.passkeys if one.credential_id == credential_id), None)


class MemberSnapshot(msgspec.Struct, frozen=True):
    member: Member | None  # None: it was revoked
    grants: tuple[KeptGrant, ...]
    seen_ms: int


def evolve(member: Member | None, event: MemberEvent) -> Member | None:
    """The member after this event; None once it is revoked."""
    if isinstance(event, MemberInvited) and member is None:
        return Member(
            event.member_id,
            event.tenant,
            event.agent_id,
            event.label,
            frozenset(event.scopes),
            event.user_handle,
            event.at_ms,
            event.invite,
        )
    if member is None:
        return None
    change = msgspec.structs.replace
    match event:
        case MemberInvited():
            passkeys = member.passkeys if event.keeps_passkeys else ()
            return change(member, invite=event.invite, invited_at_ms=event.at_ms, passkeys=passkeys)
        case MemberJoined() | PasskeyAdded():
            joined_at_ms = event.at_ms if member.joined_at_ms is None else member.joined_at_ms
            passkeys = (*member.passkeys, event.passkey)
            return change(member, invite=None, joined_at_ms=joined_at_ms, passkeys=passkeys)
        case PasskeyUsed():
            used = tuple(
                change(one, sign_count=event.sign_count) if one.credential_id == event.credential_id else one
                for one in member.passkeys
            )
            return change(member, passkeys=used)
        case MemberRevoked():
            return None


_encoder = msgspec.json.Encoder()
_event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_snapshot_decoder = msgspec.json.Decoder(MemberSnapshot)


def encode(written: Event | MemberSnapshot) -> bytes:
    return _encoder.encode(written)


def decode(data: bytes) -> Event:
    """Raises msgspec.MsgspecError."""
    return _event_decoder.decode(data)


def decode_snapshot(data: bytes) -> MemberSnapshot:
    """Raises msgspec.MsgspecError."""
    return _snapshot_decoder.decode(data)
