"""How a family of tokens is issued, refreshed and ended. Pure.

    issue ──► standing ── refresh: a new pair, the old refresh token is spent ──► standing
                 ├── the token spent last, within 30 s, its successor unused: a new pair for the lost one ──► standing
                 ├── any other spent token: somebody has a copy ──► revoked
                 ├── revoked, by its client, its member or an owner ──► revoked
                 └── its end, by the clock ──► over

Making tokens is the caller's, who gives their hashes; what follows from the events is `grants.py`'s.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from actors.grants.grant_events import GrantEvent, GrantIssued, GrantRevoked
from actors.grants.grants import LAPSE_S, OVERLAP_MS, Grants


@dataclass(frozen=True, slots=True)
class GrantLimits:
    access_s: int = 3_600  # life of an access token; then it is refused, and the client refreshes
    refresh_s: int = 30 * 86_400  # without a refresh; then the grant is over
    absolute_s: int | None = None  # life of a grant however often it is refreshed; None: only its own `ends_ms`
    rotations_max: int = 1_000  # of a grant; then it is refreshed no more, and its member signs in again
    member_grants_max: int = 16  # standing, of a member; one more ends the one that was refreshed least recently
    lapse_s: int = LAPSE_S  # without a live access token; then what the grant opened is closed, though the grant stands


class GrantFault(StrEnum):
    """Why there are no new tokens."""

    UNKNOWN = "unknown"
    ENDED = "ended"
    REUSED = "reused"  # the whole grant is revoked
    EXHAUSTED = "exhausted"  # it was refreshed as often as a grant may
    SCOPE = "scope"  # more was asked for than was granted; the token is not spent


@dataclass(frozen=True, slots=True)
class NewTokens:
    """Hashes of random tokens that the caller has made; None where there is no such token (`GrantIssued`)."""

    access_hash: bytes | None
    refresh_hash: bytes | None


@dataclass(frozen=True, slots=True)
class NewGrant:
    grant_id: str  # a ULID
    member_id: str
    scopes: frozenset[str]
    tokens: NewTokens
    ends_ms: int | None = None  # e.g. of the room; None: `absolute_s` alone
    client: str = ""
    access_s: int | None = None  # None: as the limits have it
    resource: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write, with a fault too: a token that was used again ends its grant. Nothing is true before."""

    events: tuple[GrantEvent, ...] = ()
    fault: GrantFault | None = None


def issue(grants: Grants, wish: NewGrant, limits: GrantLimits, now_ms: int) -> Decision:
    """A new grant. That its member may have these scopes is for the caller to see to."""
    now_ms = max(now_ms, grants.seen_ms)
    ends_ms = wish.ends_ms
    if limits.absolute_s is not None:
        absolute_ms = now_ms + 1000 * limits.absolute_s
        ends_ms = absolute_ms if ends_ms is None else min(ends_ms, absolute_ms)
    if ends_ms is None:
        raise ValueError("a grant has an end")
    if ends_ms <= now_ms:
        return Decision(fault=GrantFault.ENDED)
    standing = sorted(grants.of_member(wish.member_id, now_ms), key=lambda grant: grant.refreshed_at_ms)
    surplus = standing[: max(0, len(standing) + 1 - limits.member_grants_max)]
    access_s = limits.access_s if wish.access_s is None else wish.access_s
    has_refresh = wish.tokens.refresh_hash is not None
    issued = GrantIssued(
        now_ms,
        wish.grant_id,
        wish.member_id,
        tuple(sorted(wish.scopes)),
        wish.tokens.access_hash,
        min(now_ms + 1000 * access_s, ends_ms),
        wish.tokens.refresh_hash,
        min(now_ms + 1000 * limits.refresh_s, ends_ms) if has_refresh else 0,
        ends_ms,
        client=wish.client,
        resource=wish.resource,
    )
    return Decision((*(GrantRevoked(now_ms, grant.grant_id) for grant in surplus), issued))


def refresh(
    grants: Grants,
    refresh_hash: bytes,
    tokens: NewTokens,
    limits: GrantLimits,
    now_ms: int,
    *,
    scopes: frozenset[str] | None = None,
    ends_ms: int | None = None,
    covers: Callable[[frozenset[str], frozenset[str]], bool] = frozenset.issuperset,
) -> Decision:
    """A new pair for a refresh token. `scopes`: fewer than granted, for this access token alone; None: all.

    `ends_ms` is the end that the grant has from now on, as a room's may have moved; None: as before. `covers(granted,
    asked)` is for scopes that include others.
    """
    now_ms = max(now_ms, grants.seen_ms)
    known = grants.of_refresh_token(refresh_hash)
    if known is None:
        return Decision(fault=GrantFault.UNKNOWN)
    ends_ms = known.ends_ms if ends_ms is None else ends_ms
    if now_ms >= min(known.stands_until_ms, ends_ms):
        return Decision(fault=GrantFault.ENDED)
    is_again = refresh_hash == known.spent_hash and now_ms < known.spent_at_ms + OVERLAP_MS
    if refresh_hash != known.refresh_hash and not is_again:
        return Decision((GrantRevoked(now_ms, known.grant_id),), GrantFault.REUSED)
    if now_ms >= known.refresh_ends_ms:
        return Decision(fault=GrantFault.ENDED)
    if known.generation >= limits.rotations_max:
        return Decision(fault=GrantFault.EXHAUSTED)
    if scopes is not None and not (scopes and covers(known.scopes, scopes)):
        return Decision(fault=GrantFault.SCOPE)
    rotated = GrantIssued(
        now_ms,
        known.grant_id,
        known.member_id,
        tuple(sorted(known.scopes if scopes is None else scopes)),
        tokens.access_hash,
        min(now_ms + 1000 * limits.access_s, ends_ms),
        tokens.refresh_hash,
        min(now_ms + 1000 * limits.refresh_s, ends_ms),
        ends_ms,
        known.generation + 1,
        voids_last=is_again,
        client=known.client,
        resource=known.resource,
    )
    return Decision((rotated,))


def revoke(grants: Grants, grant_id: str, now_ms: int) -> Decision:
    """One that does not stand is left as it is, which is no fault."""
    grant = grants.get(grant_id, now_ms)
    return Decision() if grant is None else Decision((GrantRevoked(max(now_ms, grants.seen_ms), grant_id),))


def revoke_member(grants: Grants, member_id: str, now_ms: int) -> Decision:
    """All that stand of a member."""
    at_ms = max(now_ms, grants.seen_ms)
    return Decision(tuple(GrantRevoked(at_ms, grant.grant_id) for grant in grants.of_member(member_id, now_ms)))
