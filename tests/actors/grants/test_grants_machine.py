"""Grants against a naive model, over any sequence of sign-ins, refreshes, reuses, ends and restarts.

The model keeps every token that was ever given, and asks for each what the description of refresh tokens says of it.
"""

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.grants.grant_events import GrantEvent
from actors.grants.grant_rules import (
    Decision,
    GrantFault,
    GrantLimits,
    NewGrant,
    NewTokens,
    issue,
    refresh,
    revoke,
    revoke_member,
)
from actors.grants.grants import Grants

LIMITS = GrantLimits(access_s=60, refresh_s=200, absolute_s=500, rotations_max=6, member_grants_max=2, lapse_s=90)
SCOPES = frozenset({"a", "b"})
MEMBERS = ("m", "n")
STEPS_MS = (0, 1, 1_000, 29_999, 30_000, 60_000, 90_000, 200_000)


@dataclass
class Pair:
    """Two tokens that were given together."""

    number: int
    at_ms: int
    scopes: frozenset[str]
    access_ends_ms: int
    refresh_ends_ms: int
    given_for: "Pair | None"  # the pair whose refresh token was shown
    spent_at_ms: int | None = None
    is_void: bool = False


@dataclass
class Family:
    grant_id: str
    member_id: str
    ends_ms: int
    pairs: list[Pair] = field(default_factory=list)
    is_revoked: bool = False
    is_told: bool = False  # since the last pair: that what it opened is to be closed

    @property
    def last(self) -> Pair:
        return self.pairs[-1]

    def stands(self, now_ms: int) -> bool:
        last_ms = max(self.last.access_ends_ms, self.last.refresh_ends_ms)
        return not self.is_revoked and now_ms < min(last_ms, self.ends_ms)


class GrantsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.grants = Grants(lapse_s=LIMITS.lapse_s)
        self.written: list[GrantEvent] = []
        self.families: list[Family] = []
        self.number = 0

    def perform(self, decision: Decision) -> GrantFault | None:
        for event in decision.events:
            self.written.append(event)
            self.grants.apply(event)
        return decision.fault

    def new_pair(self, family: Family, scopes: frozenset[str], given_for: Pair | None) -> None:
        ends_ms = family.ends_ms
        access_ends_ms, refresh_ends_ms = (min(self.now_ms + ms, ends_ms) for ms in (60_000, 200_000))
        family.pairs.append(Pair(self.number, self.now_ms, scopes, access_ends_ms, refresh_ends_ms, given_for))
        family.is_told = False

    def tokens(self) -> NewTokens:
        self.number += 1
        return NewTokens(b"a%d" % self.number, b"r%d" % self.number)

    @rule(member_id=st.sampled_from(MEMBERS))
    def sign_in(self, member_id: str) -> None:
        tokens = self.tokens()
        grant_id = f"g{self.number:03d}"
        wish = NewGrant(grant_id, member_id, SCOPES, tokens)
        assert self.perform(issue(self.grants, wish, LIMITS, self.now_ms)) is None
        standing = [family for family in self.families if family.member_id == member_id and family.stands(self.now_ms)]
        standing.sort(key=lambda family: family.last.at_ms)
        for family in standing[: max(0, len(standing) - 1)]:
            family.is_revoked = True
        family = Family(grant_id, member_id, self.now_ms + 500_000)
        self.families.append(family)
        self.new_pair(family, SCOPES, None)

    @precondition(lambda self: self.families)
    @rule(data=st.data(), scopes=st.sampled_from([None, None, frozenset("a"), frozenset("abc")]))
    def show_refresh_token(self, data: st.DataObject, scopes: frozenset[str] | None) -> None:
        family = data.draw(st.sampled_from(self.families))
        # the latest and the one before it are what happens most
        at = data.draw(st.sampled_from([-1, -1, -2, -2, -3, -4]))
        pair = family.pairs[max(at, -len(family.pairs))]
        expected = self.expected(family, pair, scopes)
        fault = self.perform(
            refresh(self.grants, b"r%d" % pair.number, self.tokens(), LIMITS, self.now_ms, scopes=scopes)
        )
        if not family.stands(self.now_ms):  # it may be forgotten by now, or not yet
            assert fault in (GrantFault.UNKNOWN, GrantFault.ENDED)
            return
        assert fault is expected
        if expected is GrantFault.REUSED:
            family.is_revoked = True
        elif expected is None:
            if pair.spent_at_ms is None:
                pair.spent_at_ms = self.now_ms
            else:
                family.last.is_void = True
            self.new_pair(family, SCOPES if scopes is None else scopes, pair)

    def expected(self, family: Family, pair: Pair, scopes: frozenset[str] | None) -> GrantFault | None:
        is_current = pair is family.last
        is_lost_answer = (
            pair.spent_at_ms is not None
            and self.now_ms < pair.spent_at_ms + 30_000
            and family.last.given_for is pair
            and not pair.is_void
        )
        if not is_current and not is_lost_answer:
            return GrantFault.REUSED
        if self.now_ms >= family.last.refresh_ends_ms:
            return GrantFault.ENDED
        if len(family.pairs) > LIMITS.rotations_max:
            return GrantFault.EXHAUSTED
        return None if scopes is None or scopes <= SCOPES else GrantFault.SCOPE

    @precondition(lambda self: self.families)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        family = data.draw(st.sampled_from(self.families))
        decision = revoke(self.grants, family.grant_id, self.now_ms)
        assert bool(decision.events) == family.stands(self.now_ms)
        self.perform(decision)
        family.is_revoked |= family.stands(self.now_ms)  # one that is over is left to the clock

    @rule(member_id=st.sampled_from(MEMBERS))
    def revoke_member(self, member_id: str) -> None:
        assert self.perform(revoke_member(self.grants, member_id, self.now_ms)) is None
        for family in self.families:
            family.is_revoked |= family.member_id == member_id and family.stands(self.now_ms)

    @rule(by_ms=st.sampled_from(STEPS_MS))
    def time_passes(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule()
    def ask_what_is_due(self) -> None:
        told = set(self.grants.due(self.now_ms))
        for family in self.families:
            if family.is_revoked:
                assert family.grant_id not in told
                continue
            is_over = not family.stands(self.now_ms)
            opened_until_ms = min(family.last.access_ends_ms + 90_000, family.ends_ms)
            if not family.is_told and (is_over or self.now_ms >= opened_until_ms):
                assert family.grant_id in told
                family.is_told = True
            elif not is_over:  # an end that was told as a lapse may be told again as an end
                assert family.grant_id not in told

    @rule(back_ms=st.sampled_from([0, 0, 0, 1_000, 60_000, 60_001]))
    def restart(self, back_ms: int) -> None:
        """Perhaps with a clock that was set back meanwhile."""
        seen_ms = self.now_ms
        self.now_ms -= back_ms
        self.grants = Grants(self.written, LIMITS.lapse_s)
        self.grants.resume(seen_ms, self.now_ms)
        if back_ms > 60_000:
            for family in self.families:
                family.is_revoked = True
            self.written.clear()  # what a later event says by its time (test_grant_rules has that)
        for family in self.families:
            family.is_told = False
        self.now_ms = max(self.now_ms, self.grants.seen_ms)

    @invariant()
    def finds_what_the_model_has(self) -> None:
        for family in self.families:
            stands = family.stands(self.now_ms)
            grant = self.grants.get(family.grant_id, self.now_ms)
            assert (grant is not None) == stands
            last_two = [pair for pair in family.pairs if not pair.is_void][-2:]
            for pair, successor in zip(family.pairs, [*family.pairs[1:], None], strict=True):
                ends_ms = pair.access_ends_ms
                if successor is not None:
                    ends_ms = min(ends_ms, successor.at_ms + 30_000)
                access = self.grants.find(b"a%d" % pair.number, self.now_ms)
                is_good = not family.is_revoked and pair in last_two and self.now_ms < ends_ms
                assert (access is not None) == is_good
                if access is not None:
                    assert (access.grant_id, access.member_id) == (family.grant_id, family.member_id)
                    assert access.scopes == pair.scopes

    @invariant()
    def no_member_has_too_many(self) -> None:
        for member_id in MEMBERS:
            assert len(self.grants.of_member(member_id, self.now_ms)) <= LIMITS.member_grants_max


TestGrants = GrantsMachine.TestCase
TestGrants.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
