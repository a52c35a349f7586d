"""IAM of the rooms of projects by the word of the operator, who is no member: a room of a project has no claim. Pure.

    off ── the operator ──► on ── the operator, or an owner ──► off ── the operator ──► on …

Switched on, nobody is a member yet: the operator invites people, or gives tokens to programs. A token is a grant that
is not refreshed, of nobody but itself: it goes by its own id where members go by theirs. Members move along when a room
is booked; what they were granted, invites, tokens and names in the room do not.
"""

from collections.abc import Sequence

from actors.grants import grant_rules
from actors.grants.grant_rules import NewGrant, NewTokens
from actors.grants.grants import Grant
from actors.space.events import Space
from actors.space.iam_events import IamDisabled, IamEnabled, IamEvent, InviteIssued, MemberAdded, PasskeyAdded
from actors.space.iam_rules import INVITE_S_MIN, Iam, IamDecision, invite_fault, is_label
from actors.space.settings import SpaceSettings
from schemas.echo.errors import EchoError
from schemas.echo.scopes import SCOPES

OPERATOR = ""  # who gave an invite, in the place of a member


def switch(iam: Iam, now_ms: int, *, is_enabled: bool) -> Sequence[IamEvent]:
    if iam.is_enabled is is_enabled:
        return ()
    return (IamEnabled(now_ms),) if is_enabled else (IamDisabled(now_ms),)


def carried(iam: Iam, now_ms: int) -> Sequence[IamEvent]:
    """What the next room begins with, in its own stream."""
    if not iam.is_enabled:
        return ()
    events: list[IamEvent] = [IamEnabled(now_ms)]
    for member in iam.members.values():
        first, *others = member.passkeys
        scopes = tuple(sorted(member.scopes))
        events.append(MemberAdded(now_ms, member.member_id, member.user_handle, member.label, scopes, first))
        events += [PasskeyAdded(now_ms, member.member_id, passkey) for passkey in others]
    return events


def invite(
    iam: Iam,
    space: Space,
    invite_hash: bytes,
    scopes: frozenset[str],
    ttl_s: int | None,
    settings: SpaceSettings,
    now_ms: int,
) -> IamDecision:
    """For one new member. Without IAM there is nothing to be invited to."""
    if not iam.is_enabled:
        return EchoError.NOT_FOUND
    ttl_s = settings.iam_invite_s if ttl_s is None else ttl_s
    fault = invite_fault(iam, scopes, ttl_s, settings, now_ms)
    if fault is not None:
        return fault
    ends_ms = min(now_ms + 1000 * ttl_s, space.ends_at_ms)
    return (InviteIssued(now_ms, invite_hash, OPERATOR, tuple(sorted(scopes)), ends_ms),)


def issue_token(
    iam: Iam,
    space: Space,
    token_id: str,
    access_hash: bytes,
    scopes: frozenset[str],
    ttl_s: int | None,
    label: str,
    settings: SpaceSettings,
    now_ms: int,
) -> IamDecision:
    """Never beyond the end of the room."""
    if not iam.is_enabled:
        return EchoError.NOT_FOUND
    ttl_s = settings.iam_access_s if ttl_s is None else ttl_s
    is_life = INVITE_S_MIN <= ttl_s <= settings.ttl_s_max
    if not scopes or not scopes <= SCOPES or not is_life or not is_label(label):
        return EchoError.INVALID_PAYLOAD
    if len(tokens(iam, now_ms)) >= settings.iam_tokens_max:
        return EchoError.SPACE_FULL
    hashes = NewTokens(access_hash, None)
    wish = NewGrant(token_id, token_id, scopes, hashes, ends_ms=space.ends_at_ms, client=label, access_s=ttl_s)
    decision = grant_rules.issue(iam.grants, wish, settings.grant_limits, now_ms)
    return EchoError.SPACE_NOT_FOUND if decision.fault is not None else decision.events  # its end has come


def tokens(iam: Iam, now_ms: int) -> Sequence[Grant]:
    """Those of the operator that stand, in the order in which they were given."""
    standing = (iam.grants.get(grant.grant_id, now_ms) for grant in iam.grants if is_token(grant))
    return [grant for grant in standing if grant is not None]


def end_token(iam: Iam, token_id: str, now_ms: int) -> IamDecision:
    """What it opened is closed. A member's grant is not the operator's to end here."""
    grant = iam.grants.get(token_id, now_ms)
    if grant is None or not is_token(grant):
        return EchoError.NOT_FOUND
    return grant_rules.revoke(iam.grants, token_id, now_ms).events


def is_token(grant: Grant) -> bool:
    return grant.member_id == grant.grant_id
