"""The grants of a giver (a space, a tenant) as its events have them, found by token, id and member. Pure.

Tokens are hashes. An access token is found by one look in a dictionary, which several givers may share. A rotation
leaves the access token before it good for the 30 s of requests that are on their way. What a grant opened (sockets,
sessions) outlives access tokens, but not for longer than `lapse_s` without a live one: `Grants.due`.

`now_ms` never goes back while a process runs (`actors/space/space_clock.py`). Across a restart it may: then every grant
from before is over, because nobody can tell how long it has been standing. The first event that is written afterwards
makes this last, as it is older than the one before it. What may be granted is for `grant_rules.py`.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

import msgspec

from actors.grants.grant_events import GrantEvent, GrantIssued, GrantRevoked

OVERLAP_MS = 30_000  # in which a lost answer may be asked for again, and the access token before it is still taken
FOLLOWED_MS = 60_000  # a smaller step back of the clock ends nothing: machines start with clocks that are a bit off
LAPSE_S = 900
REFRESH_TOKENS_MAX = 1_000_000  # known to an index, spent ones too; then a grant that is refreshed forgets its oldest


class Access(msgspec.Struct, frozen=True):
    """What an access token is good for."""

    grant_id: str
    member_id: str
    scopes: frozenset[str]
    ends_ms: int
    giver: str = ""  # whose grant it is, where several share an index


class TokenIndex:
    """The tokens of several givers, so that one look in a dictionary finds whose a token is. Kept by their `Grants`."""

    def __init__(self, refresh_max: int = REFRESH_TOKENS_MAX) -> None:
        self.refresh_max = refresh_max
        self.access: dict[bytes, Access] = {}
        self.refresh: dict[bytes, tuple[str, str]] = {}
        """Of a standing grant, every refresh token that it ever had: its giver and its id. A client that refreshes all
        the time leaves thousands; one that is forgotten is as good as unknown, and ends nothing when it is used."""


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
    resource: str = ""

    @property
    def stands_until_ms(self) -> int:
        last_ms = self.access_ends_ms if self.refresh_hash is None else max(self.access_ends_ms, self.refresh_ends_ms)
        return min(last_ms, self.ends_ms)


class KeptGrant(msgspec.Struct, frozen=True):
    """A grant with every refresh token that it ever had, for the snapshot of a giver whose access tokens say themselves
    what they are."""

    grant: Grant
    refresh_hashes: tuple[bytes, ...]


class Grants:
    """All grants of one giver (a space, a tenant): what follows from its events, found by hash and by id."""

    def __init__(
        self,
        events: Iterable[GrantEvent] = (),
        lapse_s: int = LAPSE_S,
        giver: str = "",
        index: TokenIndex | None = None,
    ) -> None:
        self.seen_ms = 0
        """The time of the latest event: it is not earlier than that."""
        self._giver = giver
        self._index = index or TokenIndex()
        self._lapse_ms = 1000 * lapse_s
        self._grants: dict[str, Grant] = {}
        self._access_hashes: dict[str, list[bytes]] = {}  # of each grant: at most two, the latest last
        self._refresh_hashes: dict[str, list[bytes]] = {}  # of each grant: every one that is known, the latest last
        self._of_member: dict[str, dict[str, None]] = {}  # in the order of their beginning
        self._lapsed: set[str] = set()  # of which what they opened has been closed, and which stand
        # When to look at which grant, the soonest first: once for each, unless it has to be sooner than planned.
        self._due: list[tuple[int, str]] = []
        self._planned: dict[str, int] = {}
        for event in events:
            self.apply(event)

    def clear(self) -> list[str]:
        """Nothing stands any more: what did until now."""
        over = list(self._grants)
        for grant_id in over:
            self._drop(grant_id)
        return over

    def __len__(self) -> int:
        return len(self._grants)

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._grants.values())

    # ---- snapshots ---------------------------------------------------------------------------------------------------

    def kept(self) -> tuple[KeptGrant, ...]:
        hashes = self._refresh_hashes
        return tuple(KeptGrant(grant, tuple(hashes.get(grant_id, ()))) for grant_id, grant in self._grants.items())

    def restore(self, kept: Iterable[KeptGrant], seen_ms: int) -> None:
        """Once, before any event."""
        self.seen_ms = seen_ms
        for one in kept:
            grant = one.grant
            self._grants[grant.grant_id] = grant
            self._of_member.setdefault(grant.member_id, {})[grant.grant_id] = None
            self._refresh_hashes[grant.grant_id] = list(one.refresh_hashes)
            self._index.refresh.update(dict.fromkeys(one.refresh_hashes, (self._giver, grant.grant_id)))
            self._plan(grant)

    # ---- what is there -----------------------------------------------------------------------------------------------

    def find(self, access_hash: bytes, now_ms: int) -> Access | None:
        """What this access token is good for, now."""
        access = self._index.access.get(access_hash)
        if access is None or access.giver != self._giver:
            return None
        return access if max(now_ms, self.seen_ms) < access.ends_ms else None

    def get(self, grant_id: str, now_ms: int) -> Grant | None:
        """A grant that stands."""
        grant = self._grants.get(grant_id)
        return grant if grant is not None and max(now_ms, self.seen_ms) < grant.stands_until_ms else None

    def of_token(self, token_hash: bytes, now_ms: int) -> Grant | None:
        """The standing grant of an access or refresh token, also of one that is spent or over: to revoke it."""
        giver, grant_id = self._index.refresh.get(token_hash, ("", ""))
        access = self._index.access.get(token_hash)
        if access is not None:
            giver, grant_id = access.giver, access.grant_id
        return self.get(grant_id, now_ms) if giver == self._giver else None

    def of_refresh_token(self, refresh_hash: bytes) -> Grant | None:
        """The grant that this token belongs to, or has belonged to. It may be over."""
        giver, grant_id = self._index.refresh.get(refresh_hash, ("", ""))
        return self._grants.get(grant_id) if giver == self._giver else None

    def of_member(self, member_id: str, now_ms: int) -> list[Grant]:
        """Those that stand, the eldest first."""
        grants = (self.get(grant_id, now_ms) for grant_id in self._of_member.get(member_id, ()))
        return [grant for grant in grants if grant is not None]

    def opened_until_ms(self, grant: Grant) -> int:
        """How long what it opened may stay open, unless it is refreshed before."""
        return min(grant.stands_until_ms, grant.access_ends_ms + self._lapse_ms)

    # ---- what the clock ends -----------------------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """When to ask `due` again, at the latest; None: not before something is applied."""
        return self._due[0][0] if self._due else None

    def due(self, now_ms: int) -> list[str]:
        """Grants of which everything that they opened is to be closed. Those that are over are forgotten."""
        now_ms, closing = max(now_ms, self.seen_ms), list[str]()
        while self._due and self._due[0][0] <= now_ms:
            at_ms, grant_id = heappop(self._due)
            if self._planned.get(grant_id) != at_ms:
                continue
            del self._planned[grant_id]
            grant = self._grants[grant_id]
            if grant.stands_until_ms <= now_ms:
                self._drop(grant_id)
                closing.append(grant_id)
                continue
            if self.opened_until_ms(grant) <= now_ms and grant_id not in self._lapsed:
                self._lapsed.add(grant_id)
                closing.append(grant_id)
            self._plan(grant)
        return closing

    def _plan(self, grant: Grant) -> None:
        at_ms = grant.stands_until_ms if grant.grant_id in self._lapsed else self.opened_until_ms(grant)
        planned_ms = self._planned.get(grant.grant_id)
        if planned_ms is None or at_ms < planned_ms:
            self._planned[grant.grant_id] = at_ms
            heappush(self._due, (at_ms, grant.grant_id))

    def resume(self, seen_ms: int, now_ms: int) -> list[str]:
        """After a restart: the grants that are over because the clock was set back meanwhile."""
        if now_ms >= max(seen_ms, self.seen_ms) - FOLLOWED_MS:
            return []
        self.seen_ms = now_ms
        return self.clear()

    # ---- what happened -----------------------------------------------------------------------------------------------

    def apply(self, event: GrantEvent) -> list[str]:
        """The grants that end by it."""
        over = self.saw(event.at_ms)
        if isinstance(event, GrantRevoked):
            return [*over, event.grant_id] if self._drop(event.grant_id) else over
        before = self._grants.get(event.grant_id)
        grant = _evolve(before, event)
        self._grants[event.grant_id] = grant
        self._of_member.setdefault(event.member_id, {})[event.grant_id] = None
        if event.refresh_hash is not None:
            self._index.refresh[event.refresh_hash] = (self._giver, event.grant_id)
            self._refresh_hashes.setdefault(event.grant_id, []).append(event.refresh_hash)
            self._forget_oldest(grant)
        self._replace_access(event)
        self._lapsed.discard(event.grant_id)
        self._plan(grant)
        return over

    def saw(self, at_ms: int) -> list[str]:
        """Something was written at this time, in the same stream. Earlier than before: the clock was set back.

        The grants that are over because of that.
        """
        if at_ms >= self.seen_ms - FOLLOWED_MS:
            self.seen_ms = max(self.seen_ms, at_ms)
            return []
        self.seen_ms = at_ms
        return self.clear()

    def _forget_oldest(self, grant: Grant) -> None:
        """Of its refresh tokens, if all givers together have too many; never one that is good for something."""
        hashes, known = self._refresh_hashes[grant.grant_id], self._index.refresh
        while len(known) > self._index.refresh_max and hashes[0] not in (grant.refresh_hash, grant.spent_hash):
            del known[hashes.pop(0)]

    def _replace_access(self, event: GrantIssued) -> None:
        if event.access_hash is None:
            return
        hashes, tokens = self._access_hashes.setdefault(event.grant_id, []), self._index.access
        if hashes and event.voids_last:
            del tokens[hashes.pop()]
        while len(hashes) > 1:
            del tokens[hashes.pop(0)]
        for known in hashes:
            ends_ms = min(tokens[known].ends_ms, event.at_ms + OVERLAP_MS)
            tokens[known] = msgspec.structs.replace(tokens[known], ends_ms=ends_ms)
        hashes.append(event.access_hash)
        ends_ms, scopes = min(event.access_ends_ms, event.ends_ms), frozenset(event.scopes)
        tokens[event.access_hash] = Access(event.grant_id, event.member_id, scopes, ends_ms, self._giver)

    def _drop(self, grant_id: str) -> bool:
        grant = self._grants.pop(grant_id, None)
        if grant is None:
            return False
        self._planned.pop(grant_id, None)
        self._lapsed.discard(grant_id)
        for access_hash in self._access_hashes.pop(grant_id, ()):
            del self._index.access[access_hash]
        for refresh_hash in self._refresh_hashes.pop(grant_id, ()):
            del self._index.refresh[refresh_hash]
        of_member = self._of_member[grant.member_id]
        del of_member[grant_id]
        if not of_member:
            del self._of_member[grant.member_id]
        return True


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
            resource=event.resource,
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
