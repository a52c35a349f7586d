"""Who is a member of a tenant, by which passkeys, and what it gives to clients. Pure.

    invited ── the link, once and in time: its first passkey ──► joined ── revoked by an operator, for good ──► gone
                    an operator invites a joined member again:
                      for a lost passkey: those it had, and its grants, are over ──► invited, the same member and agent
                      for a further passkey: all stays as it is

A grant is a member's own scopes, or fewer, for one client. Verifying passkeys, making tokens and telling what is open
is left to others; that a credential is nobody else's, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from actors.grants import grant_rules
from actors.grants.grant_events import GrantIssued, GrantRevoked
from actors.grants.grant_rules import GrantFault, NewGrant, NewTokens
from actors.grants.grants import Grants, TokenIndex
from actors.member.member_events import (
    Event,
    Invite,
    Member,
    MemberInvited,
    MemberJoined,
    MemberRevoked,
    MemberSnapshot,
    Passkey,
    PasskeyAdded,
    PasskeyUsed,
    evolve,
)
from actors.member.settings import MemberSettings

LABEL_CHARS_MAX = 64
SCOPES = frozenset({"tools:call:read_only", "tools:call:reversible"})  # what a person may give an agent


class Trouble(StrEnum):
    """Why not. Closed."""

    UNKNOWN_MEMBER = "unknown_member"
    FULL = "full"  # there are as many members as there may be
    BAD_SCOPE = "bad_scope"
    BAD_LABEL = "bad_label"
    BAD_INVITE = "bad_invite"  # unknown, used or ended, which are not told apart
    PASSKEYS_FULL = "passkeys_full"
    PASSKEY_TAKEN = "passkey_taken"
    NOT_WRITTEN = "not_written"


Decision: TypeAlias = Sequence[Event] | Trouble | GrantFault


class MemberState:
    """What follows from the events of one member, its grants included."""

    def __init__(self, member_id: str, index: TokenIndex | None = None) -> None:
        self.member: Member | None = None
        self.grants = Grants(giver=member_id, index=index)

    def apply(self, event: Event) -> list[str]:
        """The grants that end by it."""
        if isinstance(event, GrantIssued | GrantRevoked):
            return self.grants.apply(event)
        over = self.grants.saw(event.at_ms)
        self.member = evolve(self.member, event)
        is_loss = isinstance(event, MemberInvited) and not event.keeps_passkeys
        return [*over, *self.grants.clear()] if is_loss or self.member is None else over

    def restore(self, snapshot: MemberSnapshot) -> None:
        self.member = snapshot.member
        self.grants.restore(snapshot.grants, snapshot.seen_ms)

    def snapshot(self) -> MemberSnapshot:
        return MemberSnapshot(self.member, self.grants.kept(), self.grants.seen_ms)


@dataclass(frozen=True, slots=True)
class Invitation:
    """Of somebody new. Ids and random bytes are the caller's to make."""

    member_id: str
    tenant: str
    agent_id: str
    label: str
    scopes: frozenset[str]
    user_handle: bytes
    invite_hash: bytes
    by: str


def is_label(text: str) -> bool:
    return len(text) <= LABEL_CHARS_MAX and text.isprintable() and text == text.strip()


def invite(wish: Invitation, members: int, settings: MemberSettings, now_ms: int) -> Decision:
    """`members`: how many there are."""
    if not wish.scopes or not wish.scopes <= SCOPES:
        return Trouble.BAD_SCOPE
    if not is_label(wish.label):
        return Trouble.BAD_LABEL
    if members >= settings.members_max:
        return Trouble.FULL
    return (
        MemberInvited(
            now_ms,
            wish.by,
            wish.member_id,
            wish.tenant,
            wish.agent_id,
            wish.label,
            tuple(sorted(wish.scopes)),
            wish.user_handle,
            Invite(wish.invite_hash, now_ms + 1000 * settings.invite_s),
        ),
    )


def invite_again(
    state: MemberState, invite_hash: bytes, by: str, settings: MemberSettings, now_ms: int, *, keeps_passkeys: bool
) -> Decision:
    """For another passkey of a member. The invitation before it is void."""
    member = state.member
    if member is None:
        return Trouble.UNKNOWN_MEMBER
    if keeps_passkeys and len(member.passkeys) >= settings.passkeys_max:
        return Trouble.PASSKEYS_FULL
    return (
        MemberInvited(
            now_ms,
            by,
            member.member_id,
            member.tenant,
            member.agent_id,
            member.label,
            tuple(sorted(member.scopes)),
            member.user_handle,
            Invite(invite_hash, now_ms + 1000 * settings.invite_s),
            keeps_passkeys,
        ),
    )


def is_invited(member: Member | None, invite_hash: bytes, now_ms: int) -> bool:
    return (
        member is not None
        and member.invite is not None
        and member.invite.invite_hash == invite_hash
        and now_ms < member.invite.ends_ms
    )


def join(state: MemberState, invite_hash: bytes, passkey: Passkey, settings: MemberSettings, now_ms: int) -> Decision:
    member = state.member
    if member is None or not is_invited(member, invite_hash, now_ms):
        return Trouble.BAD_INVITE
    if len(member.passkeys) >= settings.passkeys_max:
        return Trouble.PASSKEYS_FULL
    return ((PasskeyAdded if member.passkeys else MemberJoined)(now_ms, passkey),)


def use_passkey(state: MemberState, credential_id: bytes, sign_count: int, now_ms: int) -> Decision:
    """One that counts must have counted on, or there is a copy of it; the two may have signed at the same time."""
    passkey = None if state.member is None else state.member.passkey(credential_id)
    if passkey is None or 0 < passkey.sign_count >= sign_count:
        return Trouble.UNKNOWN_MEMBER
    return () if passkey.sign_count == sign_count else (PasskeyUsed(now_ms, credential_id, sign_count),)


def revoke(state: MemberState, by: str, now_ms: int) -> Decision:
    return Trouble.UNKNOWN_MEMBER if state.member is None else (MemberRevoked(now_ms, by),)


# ---- grants ----------------------------------------------------------------------------------------------------------


def grant(
    state: MemberState,
    credential_id: bytes,
    scopes: frozenset[str],
    grant_id: str,
    refresh_hash: bytes,
    client: str,
    resource: str,
    settings: MemberSettings,
    now_ms: int,
) -> Decision:
    """To a member who has signed in with this passkey, which must be there still."""
    member = state.member
    if member is None or member.passkey(credential_id) is None or not scopes or not scopes <= member.scopes:
        return GrantFault.UNKNOWN
    tokens = NewTokens(None, refresh_hash)
    wish = NewGrant(grant_id, member.member_id, scopes, tokens, client=client, resource=resource)
    decided = grant_rules.issue(state.grants, wish, settings.grant_limits, now_ms)
    return decided.events if decided.fault is None else decided.fault


def refresh(
    state: MemberState,
    refresh_hash: bytes,
    new_hash: bytes,
    scopes: frozenset[str] | None,
    settings: MemberSettings,
    now_ms: int,
) -> tuple[Sequence[Event], GrantFault | None]:
    """What to write, with a fault too: a token that was used again ends its grant."""
    if state.member is None:
        return (), GrantFault.UNKNOWN
    decided = grant_rules.refresh(
        state.grants, refresh_hash, NewTokens(None, new_hash), settings.grant_limits, now_ms, scopes=scopes
    )
    return decided.events, decided.fault
