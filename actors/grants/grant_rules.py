"""Grants: how a family of tokens is issued, refreshed and ended. Pure.

    issue ──► standing ── refresh: a new pair, the old refresh token is spent ──► standing
                 ├── the token spent last, within 30 s, its successor unused: a new pair for the lost one ──► standing
                 ├── any other spent token: somebody has a copy ──► revoked
                 ├── revoked, by its client, its member or an owner ──► revoked
                 └── its end, by the clock ──► over

Tokens are hashes here; making them is the caller's. An access token is found by one look in a dictionary. A rotation
leaves the access token before it good for the 30 s of requests that are on their way. What a grant opened (sockets,
sessions) outlives access tokens, but not for longer than `lapse_s` without a live one: `Grants.due`.

`now_ms` never goes back while a process runs (`actors/space/space_clock.py`). Across a restart it may: then every grant
from before is over, because nobody can tell how long it has been standing. The first event that is written afterwards
makes this last, as it is older than the one before it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush

import msgspec

from actors.grants.grant_events import GrantEvent, GrantIssued, GrantRevoked

OVERLAP_MS = 30_000  # in which a lost answer may be asked for again, and the access token before it is still taken
FOLLOWED_MS = 1_000  # a smaller step back of the clock ends nothing: corrections are small
LAPSE_S = 900


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


class Access(msgspec.Struct, frozen=True):
    """What an access token is good for."""

    grant_id: str
    member_id: str
    scopes: frozenset[str]
    ends_ms: int


class Grant(msgspec.Struct, frozen=True):
    """A grant that was not revoked, as its events have it. It may be over by the clock."""

    grant_id: str
    member_id: str
    scopes: frozenset[str]  # granted; an access token may have fewer
    issued_at_ms: int
    refreshed_at_ms: int
    access_ends_ms: int
    refresh_hash: bytes | None
    refresh_ends_ms: int
    ends_ms: int
    generation: int
    client: str
    spent_hash: bytes | None = None  # what the present pair was given for
    spent_at_ms: int = 0  # when that was shown for the first time

    @property
    def stands_until_ms(self) -> int:
        last_ms = self.access_ends_ms if self.refresh_hash is None else max(self.access_ends_ms, self.refresh_ends_ms)
        return min(last_ms, self.ends_ms)


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


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write, with a fault too: a token that was used again ends its grant. Nothing is true before."""

    events: tuple[GrantEvent, ...] = ()
    fault: GrantFault | None = None


class Grants:
    """All grants of one giver (a space, a tenant): what follows from its events, found by hash and by id."""

    def __init__(self, events: Iterable[GrantEvent] = (), lapse_s: int = LAPSE_S) -> None:
        self._lapse_ms = 1000 * lapse_s
        self.seen_ms = 0
        """The time of the latest event: it is not earlier than that."""
        self._clear()
        for event in events:
            self.apply(event)

    def _clear(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._access: dict[bytes, Access] = {}
        self._access_hashes: dict[str, list[bytes]] = {}  # of each grant: at most two, the latest last
        self._refresh: dict[bytes, str] = {}  # every refresh token that a standing grant ever had
        self._refresh_hashes: dict[str, list[bytes]] = {}
        self._of_member: dict[str, dict[str, None]] = {}  # in the order of their beginning
        # When something may be due, the soonest first. An entry that no longer tells the truth is dropped when met.
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._grants)

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._grants.values())

    # ---- what is there -----------------------------------------------------------------------------------------------

    def find(self, access_hash: bytes, now_ms: int) -> Access | None:
        """What this access token is good for, now."""
        access = self._access.get(access_hash)
        return access if access is not None and max(now_ms, self.seen_ms) < access.ends_ms else None

    def get(self, grant_id: str, now_ms: int) -> Grant | None:
        """A grant that stands."""
        grant = self._grants.get(grant_id)
        return grant if grant is not None and max(now_ms, self.seen_ms) < grant.stands_until_ms else None

    def of_token(self, token_hash: bytes, now_ms: int) -> Grant | None:
        """The standing grant of an access or refresh token, also of one that is spent or over: to revoke it."""
        access = self._access.get(token_hash)
        return self.get(self._refresh.get(token_hash, "") if access is None else access.grant_id, now_ms)

    def of_refresh_token(self, refresh_hash: bytes) -> Grant | None:
        """The grant that this token belongs to, or has belonged to. It may be over."""
        return self._grants.get(self._refresh.get(refresh_hash, ""))

    def of_member(self, member_id: str, now_ms: int) -> list[Grant]:
        """Those that stand, the eldest first."""
        grants = (self.get(grant_id, now_ms) for grant_id in self._of_member.get(member_id, ()))
        return [grant for grant in grants if grant is not None]

    def opened_until_ms(self, grant: Grant) -> int:
        """How long what it opened may stay open, unless it is refreshed before."""
        return min(grant.stands_until_ms, grant.access_ends_ms + self._lapse_ms)

    # ---- what the clock ends -----------------------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """When to ask `due` again; None: not before something is applied."""
        return self._due[0][0] if self._due else None

    def due(self, now_ms: int) -> list[str]:
        """Grants of which everything that they opened is to be closed. Those that are over are forgotten."""
        now_ms, lapsed = max(now_ms, self.seen_ms), dict[str, None]()
        while self._due and self._due[0][0] <= now_ms:
            at_ms, grant_id = heappop(self._due)
            grant = self._grants.get(grant_id)
            if grant is None:
                continue
            if grant.stands_until_ms <= now_ms:
                self._drop(grant_id)
                lapsed[grant_id] = None
            elif at_ms == self.opened_until_ms(grant):
                lapsed[grant_id] = None
        return list(lapsed)

    def resume(self, seen_ms: int, now_ms: int) -> list[str]:
        """After a restart: the grants that are over because the clock was set back meanwhile."""
        if now_ms >= max(seen_ms, self.seen_ms) - FOLLOWED_MS:
            return []
        over = list(self._grants)
        self._clear()
        self.seen_ms = now_ms
        return over

    # ---- what happened -----------------------------------------------------------------------------------------------

    def apply(self, event: GrantEvent) -> None:
        self.saw(event.at_ms)
        if isinstance(event, GrantRevoked):
            self._drop(event.grant_id)
            return
        before = self._grants.get(event.grant_id)
        grant = _evolve(before, event)
        self._grants[event.grant_id] = grant
        self._of_member.setdefault(event.member_id, {})[event.grant_id] = None
        if event.refresh_hash is not None:
            self._refresh[event.refresh_hash] = event.grant_id
            self._refresh_hashes.setdefault(event.grant_id, []).append(event.refresh_hash)
        self._replace_access(event)
        for at_ms in {self.opened_until_ms(grant), grant.stands_until_ms}:
            heappush(self._due, (at_ms, event.grant_id))

    def saw(self, at_ms: int) -> None:
        """Something was written at this time, in the same stream. Earlier than before: the clock was set back."""
        if at_ms < self.seen_ms - FOLLOWED_MS:
            self._clear()
            self.seen_ms = at_ms
        self.seen_ms = max(self.seen_ms, at_ms)

    def _replace_access(self, event: GrantIssued) -> None:
        if event.access_hash is None:
            return
        hashes = self._access_hashes.setdefault(event.grant_id, [])
        if hashes and event.voids_last:
            del self._access[hashes.pop()]
        while len(hashes) > 1:
            del self._access[hashes.pop(0)]
        for known in hashes:
            access = self._access[known]
            ends_ms = min(access.ends_ms, event.at_ms + OVERLAP_MS)
            self._access[known] = msgspec.structs.replace(access, ends_ms=ends_ms)
        hashes.append(event.access_hash)
        ends_ms = min(event.access_ends_ms, event.ends_ms)
        scopes = frozenset(event.scopes)
        self._access[event.access_hash] = Access(event.grant_id, event.member_id, scopes, ends_ms)

    def _drop(self, grant_id: str) -> None:
        grant = self._grants.pop(grant_id, None)
        if grant is None:
            return
        for access_hash in self._access_hashes.pop(grant_id, ()):
            del self._access[access_hash]
        for refresh_hash in self._refresh_hashes.pop(grant_id, ()):
            del self._refresh[refresh_hash]
        of_member = self._of_member[grant.member_id]
        del of_member[grant_id]
        if not of_member:
            del self._of_member[grant.member_id]


def _evolve(before: Grant | None, event: GrantIssued) -> Grant:
    if before is None:
        return Grant(
            event.grant_id,
            event.member_id,
            frozenset(event.scopes),
            event.at_ms,
            event.at_ms,
            event.access_ends_ms,
            event.refresh_hash,
            event.refresh_ends_ms,
            event.ends_ms,
            event.generation,
            event.client,
        )
    return msgspec.structs.replace(
        before,
        refreshed_at_ms=event.at_ms,
        access_ends_ms=event.access_ends_ms,
        refresh_hash=event.refresh_hash,
        refresh_ends_ms=event.refresh_ends_ms,
        ends_ms=event.ends_ms,
        generation=event.generation,
        spent_hash=before.spent_hash if event.voids_last else before.refresh_hash,
        spent_at_ms=before.spent_at_ms if event.voids_last else event.at_ms,
    )


# ---- decisions -------------------------------------------------------------------------------------------------------


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
