"""Who may do what in a space: IAM switched on and off, members, passkeys, invites, and what they are granted. Pure.

    off ── the creator's claim and the first passkey, who becomes an owner ──► on ── an owner switches it off ──► off

The claim does this once: IAM that an owner has switched off stays off. On, a new member needs an invite, which is good
once and until its end. An owner is a member with `echo.full`; there is always one, so the last cannot be removed.
Switched off, all members, invites and grants are over, and the room's token is everything again.

Verifying passkeys, making tokens and telling sockets is left to others. `by` is what an access token was good for when
it was shown; whether it still is, is asked here once more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from actors.grants import grant_rules
from actors.grants.grant_events import GrantEvent, GrantIssued, GrantRevoked
from actors.grants.grant_rules import GrantFault, NewGrant, NewTokens
from actors.grants.grants import Access, Grants, TokenIndex
from actors.space.events import Event, Space
from actors.space.iam_events import (
    IamDisabled,
    IamEnabled,
    IamEvent,
    InviteIssued,
    MemberAdded,
    MemberRemoved,
    Passkey,
    PasskeyAdded,
    PasskeyUsed,
    UidTaken,
)
from actors.space.settings import SpaceSettings
from actors.space.space_rules import holds_claim
from actors.space.uid_rules import UidOwners
from schemas.echo.errors import EchoError
from schemas.echo.scopes import FULL, SCOPES, covers

LABEL_CHARS_MAX = 64
INVITE_S_MIN = 60
IamDecision: TypeAlias = Sequence[IamEvent] | EchoError


class IamMember(msgspec.Struct, frozen=True):
    member_id: str
    user_handle: bytes
    label: str
    scopes: frozenset[str]
    passkeys: tuple[Passkey, ...]
    added_at_ms: int

    @property
    def is_owner(self) -> bool:
        return FULL in self.scopes


@dataclass(frozen=True, slots=True)
class NewMember:
    """Who wants to come in, with a passkey that was verified, and what it is granted then."""

    member_id: str
    user_handle: bytes
    label: str
    passkey: Passkey
    grant_id: str
    tokens: NewTokens
    client: str = ""


class Iam:
    """What follows from the events of one space."""

    def __init__(self, space_id: str, index: TokenIndex | None = None) -> None:
        self.is_enabled = False
        self.is_claim_used = False
        self.members: dict[str, IamMember] = {}
        self.invites: dict[bytes, InviteIssued] = {}
        self.member_of: dict[bytes, str] = {}
        """By credential."""
        self.uids = UidOwners()
        self.grants = Grants(giver=space_id, index=index)

    def apply(self, event: Event) -> list[str]:
        """The grants that end by it."""
        over = self.grants.saw(event.at_ms)  # also events that are none of IAM's tell what time it is
        match event:
            case GrantIssued() | GrantRevoked():
                over += self.grants.apply(event)
            case IamEnabled():
                self.is_enabled = self.is_claim_used = True
            case IamDisabled():
                self.is_enabled = False
                for kept in (self.members, self.invites, self.member_of):
                    kept.clear()
                over += self.grants.clear()
            case MemberAdded():
                self.invites.pop(event.invite_hash or b"", None)
                scopes = frozenset(event.scopes)
                self.members[event.member_id] = IamMember(
                    event.member_id, event.user_handle, event.label, scopes, (), event.at_ms
                )
                self._put_passkey(event.member_id, event.passkey)
            case PasskeyAdded():
                self._put_passkey(event.member_id, event.passkey)
            case PasskeyUsed():
                passkey = self.passkey(event.credential_id)
                if passkey is not None:
                    used = msgspec.structs.replace(passkey, sign_count=event.sign_count)
                    self._put_passkey(self.member_of[event.credential_id], used)
            case MemberRemoved():
                member = self.members.pop(event.member_id, None)
                for passkey in () if member is None else member.passkeys:
                    del self.member_of[passkey.credential_id]
                self.invites = {key: invite for key, invite in self.invites.items() if invite.by != event.member_id}
            case InviteIssued():
                self.invites = {key: invite for key, invite in self.invites.items() if event.at_ms < invite.ends_ms}
                self.invites[event.invite_hash] = event
            case UidTaken():
                self.uids.name(event.uid, event.member_id)
            case _:
                pass
        return over

    def passkey(self, credential_id: bytes) -> Passkey | None:
        member = self.members.get(self.member_of.get(credential_id, ""))
        passkeys = () if member is None else member.passkeys
        return next((passkey for passkey in passkeys if passkey.credential_id == credential_id), None)

    def invite(self, invite_hash: bytes, now_ms: int) -> InviteIssued | None:
        """One that is good."""
        invite = self.invites.get(invite_hash)
        return invite if invite is not None and now_ms < invite.ends_ms else None

    def _put_passkey(self, member_id: str, passkey: Passkey) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        others = tuple(known for known in member.passkeys if known.credential_id != passkey.credential_id)
        self.members[member_id] = msgspec.structs.replace(member, passkeys=(*others, passkey))
        self.member_of[passkey.credential_id] = member_id


# ---- members ---------------------------------------------------------------------------------------------------------


def entry_fault(iam: Iam, space: Space, invite: str, invite_hash: bytes, now_ms: int) -> EchoError | None:
    """What there is against a new member with this invite, or claim while IAM is off. Asked before a ceremony too."""
    if iam.is_enabled:
        return None if iam.invite(invite_hash, now_ms) is not None else EchoError.UNAUTHORIZED
    return None if holds_claim(space, invite) and not iam.is_claim_used else EchoError.UNAUTHORIZED


def add_member(
    iam: Iam,
    space: Space,
    invite: str,
    invite_hash: bytes,
    new: NewMember,
    settings: SpaceSettings,
    now_ms: int,
    sealed_token: bytes = b"",
) -> IamDecision:
    """By an invite; while IAM is off, by the claim, which switches it on: then the room's token is kept, sealed."""
    fault = entry_fault(iam, space, invite, invite_hash, now_ms)
    if fault is not None:
        return fault
    if not is_label(new.label) or new.passkey.credential_id in iam.member_of:
        return EchoError.INVALID_PAYLOAD
    if len(iam.members) >= settings.iam_members_max:
        return EchoError.SPACE_FULL
    known = iam.invites.get(invite_hash) if iam.is_enabled else None
    scopes = (FULL,) if known is None else known.scopes
    used = None if known is None else invite_hash
    added = MemberAdded(now_ms, new.member_id, new.user_handle, new.label, scopes, new.passkey, used)
    begun = () if iam.is_enabled else (IamEnabled(now_ms, sealed_token),)
    wish = NewGrant(
        new.grant_id, new.member_id, frozenset(scopes), new.tokens, ends_ms=space.ends_at_ms, client=new.client
    )
    granted = _issued(iam, wish, settings, now_ms)
    return granted if isinstance(granted, EchoError) else (*begun, added, *granted)


def add_passkey(iam: Iam, by: Access, passkey: Passkey, settings: SpaceSettings, now_ms: int) -> IamDecision:
    """A further one of the owner who asks."""
    fault = owner_fault(iam, by, now_ms)
    if fault is not None:
        return fault
    if passkey.credential_id in iam.member_of:
        return EchoError.INVALID_PAYLOAD
    member = iam.members.get(by.member_id)
    if member is None:  # a token of the operator
        return EchoError.INSUFFICIENT_SCOPE
    if len(member.passkeys) >= settings.iam_passkeys_max:
        return EchoError.SPACE_FULL
    return (PasskeyAdded(now_ms, by.member_id, passkey),)


def remove_member(iam: Iam, by: Access, member_id: str, now_ms: int) -> IamDecision:
    fault = owner_fault(iam, by, now_ms)
    if fault is not None:
        return fault
    member = iam.members.get(member_id)
    if member is None:
        return EchoError.NOT_FOUND
    if member.is_owner and sum(other.is_owner for other in iam.members.values()) == 1:
        return EchoError.LAST_OWNER
    return (*grant_rules.revoke_member(iam.grants, member_id, now_ms).events, MemberRemoved(now_ms, member_id))


def disable(iam: Iam, by: Access, now_ms: int) -> IamDecision:
    fault = owner_fault(iam, by, now_ms)
    return (IamDisabled(now_ms),) if fault is None else fault


def owner_fault(iam: Iam, by: Access, now_ms: int) -> EchoError | None:
    """What there is against this one's doing what owners do."""
    if iam.grants.get(by.grant_id, now_ms) is None:  # with IAM off there is none
        return EchoError.UNAUTHORIZED
    return None if FULL in by.scopes else EchoError.INSUFFICIENT_SCOPE


def is_label(text: str) -> bool:
    return len(text) <= LABEL_CHARS_MAX and text.isprintable()


# ---- invites ---------------------------------------------------------------------------------------------------------


def invite(
    iam: Iam,
    space: Space,
    by: Access,
    invite_hash: bytes,
    scopes: frozenset[str],
    ttl_s: int | None,
    settings: SpaceSettings,
    now_ms: int,
) -> IamDecision:
    """For one new member, with these scopes; never beyond the end of the room."""
    fault = owner_fault(iam, by, now_ms)
    if fault is not None:
        return fault
    ttl_s = settings.iam_invite_s if ttl_s is None else ttl_s
    fault = invite_fault(iam, scopes, ttl_s, settings, now_ms)
    if fault is not None:
        return fault
    ends_ms = min(now_ms + 1000 * ttl_s, space.ends_at_ms)
    return (InviteIssued(now_ms, invite_hash, by.member_id, tuple(sorted(scopes)), ends_ms),)


def invite_fault(
    iam: Iam, scopes: frozenset[str], ttl_s: int, settings: SpaceSettings, now_ms: int
) -> EchoError | None:
    """What there is against one more with these, whoever gives it."""
    if not scopes or not scopes <= SCOPES or not INVITE_S_MIN <= ttl_s <= settings.ttl_s_max:
        return EchoError.INVALID_PAYLOAD
    is_full = sum(now_ms < known.ends_ms for known in iam.invites.values()) >= settings.iam_invites_max
    return EchoError.SPACE_FULL if is_full else None


# ---- grants ----------------------------------------------------------------------------------------------------------


def offered(asked: frozenset[str], own: frozenset[str]) -> frozenset[str]:
    """What a member with these scopes of its own is to be granted: what was asked for, as far as that goes.

    Scopes of other worlds are dropped. If nothing is left, or nothing was asked for, all that the member has.
    """
    return ((asked & SCOPES) if FULL in own else (asked & own)) or own


def use_passkey(iam: Iam, credential_id: bytes, sign_count: int, now_ms: int) -> IamDecision:
    """It has signed with this count. One that counts must have counted on, or there is a copy of it."""
    passkey = iam.passkey(credential_id)
    if passkey is None or 0 < passkey.sign_count >= sign_count:
        return EchoError.UNAUTHORIZED
    return () if sign_count == passkey.sign_count else (PasskeyUsed(now_ms, credential_id, sign_count),)


def grant(
    iam: Iam,
    space: Space,
    member_id: str,
    scopes: frozenset[str],
    grant_id: str,
    tokens: NewTokens,
    client: str,
    settings: SpaceSettings,
    now_ms: int,
) -> IamDecision:
    member = iam.members.get(member_id)
    if member is None:
        return EchoError.UNAUTHORIZED
    if not scopes or not covers(member.scopes, scopes):
        return EchoError.INSUFFICIENT_SCOPE
    wish = NewGrant(grant_id, member_id, scopes, tokens, ends_ms=space.ends_at_ms, client=client)
    return _issued(iam, wish, settings, now_ms)


def _issued(iam: Iam, wish: NewGrant, settings: SpaceSettings, now_ms: int) -> Sequence[GrantEvent] | EchoError:
    decision = grant_rules.issue(iam.grants, wish, settings.grant_limits, now_ms)
    return EchoError.SPACE_NOT_FOUND if decision.fault is not None else decision.events  # its end has come


def refresh(
    iam: Iam,
    space: Space,
    refresh_hash: bytes,
    tokens: NewTokens,
    scopes: frozenset[str] | None,
    settings: SpaceSettings,
    now_ms: int,
) -> tuple[Sequence[GrantEvent], GrantFault | None]:
    """What to write, with a fault too; the room's end may have moved since."""
    decision = grant_rules.refresh(
        iam.grants,
        refresh_hash,
        tokens,
        settings.grant_limits,
        now_ms,
        scopes=scopes,
        ends_ms=space.ends_at_ms,
        covers=covers,
    )
    return decision.events, decision.fault
