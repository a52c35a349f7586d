"""Grants: every way to get, renew and lose tokens."""

import msgspec
import pytest

from actors.grants.grant_events import GrantEvent, GrantIssued, GrantRevoked
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
from actors.grants.grants import Access, Grant, Grants, TokenIndex

LIMITS = GrantLimits()
NOW_MS = 1_700_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
END_MS = NOW_MS + 7 * DAY_MS
SCOPES = frozenset({"kv_read", "kv_write"})


def pair(number: int) -> NewTokens:
    return NewTokens(b"a%d" % number, b"r%d" % number)


def new(
    number: int = 0,
    *,
    grant_id: str = "g",
    member_id: str = "m",
    ends_ms: int | None = END_MS,
    access_s: int | None = None,
    tokens: NewTokens | None = None,
) -> NewGrant:
    return NewGrant(grant_id, member_id, SCOPES, tokens or pair(number), ends_ms, "a client", access_s)


def applied(grants: Grants, decision: Decision) -> Decision:
    for event in decision.events:
        grants.apply(event)
    return decision


def one_grant(limits: GrantLimits = LIMITS) -> Grants:
    grants = Grants()
    assert applied(grants, issue(grants, new(), limits, NOW_MS)).fault is None
    return grants


def renew(grants: Grants, old: int, number: int, now_ms: int, limits: GrantLimits = LIMITS) -> GrantFault | None:
    return applied(grants, refresh(grants, b"r%d" % old, pair(number), limits, now_ms)).fault


def is_good(grants: Grants, number: int, now_ms: int) -> bool:
    return grants.find(b"a%d" % number, now_ms) is not None


# ---- issue -----------------------------------------------------------------------------------------------------------


def test_grant_is_issued_as_it_was_wished() -> None:
    assert issue(Grants(), new(), LIMITS, NOW_MS) == Decision(
        (
            GrantIssued(
                NOW_MS,
                "g",
                "m",
                ("kv_read", "kv_write"),
                b"a0",
                NOW_MS + HOUR_MS,
                b"r0",
                END_MS,
                END_MS,
                client="a client",
            ),
        )
    )


def test_access_token_tells_grant_member_and_scopes_until_its_end() -> None:
    grants = one_grant()
    assert grants.find(b"a0", NOW_MS + HOUR_MS - 1) == Access("g", "m", SCOPES, NOW_MS + HOUR_MS)
    assert grants.find(b"a0", NOW_MS + HOUR_MS) is None
    assert grants.find(b"r0", NOW_MS) is None
    assert grants.find(b"a1", NOW_MS) is None


def test_no_token_lasts_longer_than_its_room() -> None:
    grants = Grants()
    applied(grants, issue(grants, new(ends_ms=NOW_MS + 5_000), LIMITS, NOW_MS))
    assert is_good(grants, 0, NOW_MS + 4_999)
    assert not is_good(grants, 0, NOW_MS + 5_000)
    assert renew(grants, 0, 1, NOW_MS + 5_000) is GrantFault.ENDED


def test_nothing_is_granted_in_a_room_that_is_over() -> None:
    assert issue(Grants(), new(ends_ms=NOW_MS), LIMITS, NOW_MS) == Decision(fault=GrantFault.ENDED)


def test_absolute_end_holds_however_often_it_is_refreshed() -> None:
    limits = GrantLimits(access_s=600, absolute_s=90 * 86_400)
    grants = Grants()
    applied(grants, issue(grants, new(ends_ms=None), limits, NOW_MS))
    for number in range(3):
        assert renew(grants, number, number + 1, NOW_MS + (number + 1) * 29 * DAY_MS, limits) is None
    assert is_good(grants, 3, NOW_MS + 87 * DAY_MS)
    assert renew(grants, 3, 4, NOW_MS + 90 * DAY_MS - 1_000, limits) is None
    assert grants.find(b"a4", NOW_MS + 90 * DAY_MS) is None
    assert renew(grants, 4, 5, NOW_MS + 90 * DAY_MS, limits) is GrantFault.ENDED


def test_sooner_of_two_ends_holds() -> None:
    limits = GrantLimits(absolute_s=60)
    for ends_ms, expected_ms in ((NOW_MS + 30_000, NOW_MS + 30_000), (END_MS, NOW_MS + 60_000)):
        (issued,) = issue(Grants(), new(ends_ms=ends_ms), limits, NOW_MS).events
        assert isinstance(issued, GrantIssued)
        assert (issued.ends_ms, issued.access_ends_ms, issued.refresh_ends_ms) == (expected_ms,) * 3


def test_grant_without_any_end_is_a_broken_caller() -> None:
    with pytest.raises(ValueError, match="a grant has an end"):
        issue(Grants(), new(ends_ms=None), LIMITS, NOW_MS)


def test_grant_without_refresh_token_is_over_with_its_access_token() -> None:
    grants = Grants()
    applied(grants, issue(grants, new(tokens=NewTokens(b"a0", None), access_s=60), LIMITS, NOW_MS))
    grant = grants.get("g", NOW_MS)
    assert grant is not None
    assert (grant.stands_until_ms, grants.opened_until_ms(grant)) == (NOW_MS + 60_000, NOW_MS + 60_000)
    assert grants.get("g", NOW_MS + 60_000) is None
    assert grants.due(NOW_MS + 60_000) == ["g"]


def test_grant_whose_access_tokens_tell_themselves_is_found_by_id_alone() -> None:
    grants = Grants()
    applied(grants, issue(grants, new(tokens=NewTokens(None, b"r0")), LIMITS, NOW_MS))
    assert applied(grants, refresh(grants, b"r0", NewTokens(None, b"r1"), LIMITS, NOW_MS)).fault is None
    assert grants.get("g", NOW_MS) is not None
    applied(grants, revoke(grants, "g", NOW_MS))
    assert grants.get("g", NOW_MS) is None


def test_one_grant_too_many_ends_the_members_own_that_was_refreshed_least_recently() -> None:
    limits = GrantLimits(member_grants_max=2)
    grants = Grants()
    for number, member_id in enumerate(["m", "other", "m"]):
        applied(grants, issue(grants, new(number, grant_id=f"g{number}", member_id=member_id), limits, NOW_MS + number))
    renew(grants, 0, 10, NOW_MS + 100, limits)
    decision = applied(grants, issue(grants, new(3, grant_id="g3"), limits, NOW_MS + 200))
    assert decision.events[0] == GrantRevoked(NOW_MS + 200, "g2")
    assert {grant.grant_id for grant in grants} == {"g0", "g1", "g3"}


# ---- refresh ---------------------------------------------------------------------------------------------------------


def test_refresh_gives_a_new_pair_and_spends_the_old() -> None:
    grants = one_grant()
    decision = applied(grants, refresh(grants, b"r0", pair(1), LIMITS, NOW_MS + 1_000))
    (rotated,) = decision.events
    assert isinstance(rotated, GrantIssued)
    assert (rotated.grant_id, rotated.generation, rotated.voids_last) == ("g", 1, False)
    assert grants.find(b"a1", NOW_MS + 1_000) == Access("g", "m", SCOPES, NOW_MS + 1_000 + HOUR_MS)


def test_access_token_before_a_rotation_is_good_for_requests_on_their_way() -> None:
    grants = one_grant()
    renew(grants, 0, 1, NOW_MS + 1_000)
    assert is_good(grants, 0, NOW_MS + 30_999)
    assert not is_good(grants, 0, NOW_MS + 31_000)
    renew(grants, 1, 2, NOW_MS + 2_000)
    assert [is_good(grants, number, NOW_MS + 2_000) for number in range(3)] == [False, True, True]


def test_rotation_makes_no_access_token_last_longer() -> None:
    grants = one_grant()
    renew(grants, 0, 1, NOW_MS + HOUR_MS - 1_000)
    assert not is_good(grants, 0, NOW_MS + HOUR_MS)


def test_lost_answer_may_be_asked_for_again_and_its_tokens_are_void() -> None:
    grants = one_grant()
    renew(grants, 0, 1, NOW_MS + 1_000)
    decision = applied(grants, refresh(grants, b"r0", pair(2), LIMITS, NOW_MS + 30_999))
    (again,) = decision.events
    assert isinstance(again, GrantIssued)
    assert again.voids_last
    assert not is_good(grants, 1, NOW_MS + 30_999)
    assert is_good(grants, 2, NOW_MS + 30_999)
    assert renew(grants, 2, 3, NOW_MS + 40_000) is None


def test_asking_twice_does_not_make_the_time_for_it_longer() -> None:
    grants = one_grant()
    renew(grants, 0, 1, NOW_MS)
    assert renew(grants, 0, 2, NOW_MS + 29_999) is None
    assert renew(grants, 0, 3, NOW_MS + 30_000) is GrantFault.REUSED


def test_successor_that_was_voided_is_a_copy_when_it_is_used() -> None:
    grants = one_grant()
    renew(grants, 0, 1, NOW_MS)
    renew(grants, 0, 2, NOW_MS + 1)
    assert renew(grants, 1, 3, NOW_MS + 2) is GrantFault.REUSED
    assert not is_good(grants, 2, NOW_MS + 2)
    assert renew(grants, 2, 4, NOW_MS + 3) is GrantFault.UNKNOWN


def test_spent_token_after_its_time_ends_the_whole_family() -> None:
    grants = one_grant()
    renew(grants, 0, 1, NOW_MS)
    decision = applied(grants, refresh(grants, b"r0", pair(2), LIMITS, NOW_MS + 30_000))
    assert decision == Decision((GrantRevoked(NOW_MS + 30_000, "g"),), GrantFault.REUSED)
    assert len(grants) == 0
    assert not is_good(grants, 1, NOW_MS + 30_000)


def test_spent_token_whose_successor_was_used_ends_the_whole_family_at_once() -> None:
    grants = one_grant()
    renew(grants, 0, 1, NOW_MS)
    renew(grants, 1, 2, NOW_MS + 1)
    assert renew(grants, 0, 3, NOW_MS + 2) is GrantFault.REUSED
    assert len(grants) == 0


def test_unknown_token_changes_nothing() -> None:
    grants = one_grant()
    assert refresh(grants, b"r9", pair(1), LIMITS, NOW_MS) == Decision(fault=GrantFault.UNKNOWN)
    assert refresh(grants, b"a0", pair(1), LIMITS, NOW_MS) == Decision(fault=GrantFault.UNKNOWN)


def test_grant_that_nobody_refreshes_is_over() -> None:
    limits = GrantLimits(refresh_s=7_200)
    grants = one_grant(limits)
    assert renew(grants, 0, 1, NOW_MS + 7_199_999, limits) is None
    assert renew(grants, 1, 2, NOW_MS + 7_199_999 + 7_200_000, limits) is GrantFault.ENDED


def test_refresh_token_that_ends_before_its_access_token_is_over_by_itself() -> None:
    limits = GrantLimits(access_s=100, refresh_s=10)
    grants = one_grant(limits)
    assert renew(grants, 0, 1, NOW_MS + 10_000, limits) is GrantFault.ENDED
    assert is_good(grants, 0, NOW_MS + 10_000)


def test_grant_is_refreshed_only_so_often() -> None:
    limits = GrantLimits(rotations_max=2)
    grants = one_grant(limits)
    assert renew(grants, 0, 1, NOW_MS, limits) is None
    assert renew(grants, 1, 2, NOW_MS, limits) is None
    assert renew(grants, 2, 3, NOW_MS, limits) is GrantFault.EXHAUSTED
    assert is_good(grants, 2, NOW_MS)


def test_fewer_scopes_are_for_one_access_token_alone() -> None:
    grants = one_grant()
    fewer = frozenset({"kv_read"})
    applied(grants, refresh(grants, b"r0", pair(1), LIMITS, NOW_MS, scopes=fewer))
    access = grants.find(b"a1", NOW_MS)
    assert access is not None
    assert access.scopes == fewer
    renew(grants, 1, 2, NOW_MS)
    access = grants.find(b"a2", NOW_MS)
    assert access is not None
    assert access.scopes == SCOPES


@pytest.mark.parametrize("scopes", [{"file_read"}, {"kv_read", "file_read"}, set[str]()])
def test_more_than_was_granted_is_refused_and_spends_nothing(scopes: set[str]) -> None:
    grants = one_grant()
    asked = frozenset(scopes)
    assert refresh(grants, b"r0", pair(1), LIMITS, NOW_MS, scopes=asked) == Decision(fault=GrantFault.SCOPE)
    assert renew(grants, 0, 1, NOW_MS) is None


def test_what_a_scope_includes_is_the_callers_to_say() -> None:
    grants = one_grant()
    asked = frozenset({"file_read"})
    decision = refresh(grants, b"r0", pair(1), LIMITS, NOW_MS, scopes=asked, covers=lambda *_: True)
    assert decision.fault is None


def test_end_that_moved_is_taken_over_by_a_refresh() -> None:
    grants = one_grant()
    applied(grants, refresh(grants, b"r0", pair(1), LIMITS, NOW_MS, ends_ms=NOW_MS + 60_000))
    assert not is_good(grants, 1, NOW_MS + 60_000)
    grant = grants.get("g", NOW_MS)
    assert grant is not None
    assert grant.ends_ms == NOW_MS + 60_000
    assert applied(grants, refresh(grants, b"r1", pair(2), LIMITS, NOW_MS, ends_ms=NOW_MS)).fault is GrantFault.ENDED


# ---- revoke ----------------------------------------------------------------------------------------------------------


def test_revoked_grant_leaves_nothing() -> None:
    grants = one_grant()
    renew(grants, 0, 1, NOW_MS)
    assert applied(grants, revoke(grants, "g", NOW_MS)) == Decision((GrantRevoked(NOW_MS, "g"),))
    for token in (b"a0", b"a1", b"r0", b"r1"):
        assert grants.find(token, NOW_MS) is None
        assert grants.of_token(token, NOW_MS) is None
    assert renew(grants, 1, 2, NOW_MS) is GrantFault.UNKNOWN
    assert grants.of_member("m", NOW_MS) == []


def test_grant_that_does_not_stand_is_revoked_without_a_word() -> None:
    grants = one_grant()
    assert revoke(grants, "other", NOW_MS) == Decision()
    assert revoke(grants, "g", END_MS) == Decision()
    grants.apply(GrantRevoked(NOW_MS, "other"))
    assert len(grants) == 1


def test_all_grants_of_a_member_end_together() -> None:
    grants = Grants()
    for number, member_id in enumerate(["m", "other", "m"]):
        applied(grants, issue(grants, new(number, grant_id=f"g{number}", member_id=member_id), LIMITS, NOW_MS))
    assert applied(grants, revoke_member(grants, "m", NOW_MS)) == Decision(
        (GrantRevoked(NOW_MS, "g0"), GrantRevoked(NOW_MS, "g2"))
    )
    assert [grant.grant_id for grant in grants] == ["g1"]
    assert revoke_member(grants, "m", NOW_MS) == Decision()


@pytest.mark.parametrize("token", [b"a0", b"a1", b"r0", b"r1"])
def test_any_token_of_a_grant_tells_whose_it_is(token: bytes) -> None:
    grants = one_grant()
    renew(grants, 0, 1, NOW_MS)
    grant = grants.of_token(token, NOW_MS + HOUR_MS)
    assert isinstance(grant, Grant)
    assert grant.grant_id == "g"
    assert grants.of_token(token, END_MS) is None


# ---- the clock -------------------------------------------------------------------------------------------------------


def test_what_a_grant_opened_ends_900_s_after_its_last_access_token() -> None:
    grants = one_grant()
    assert grants.next_due_ms() == NOW_MS + HOUR_MS + 900_000
    assert grants.due(NOW_MS + HOUR_MS + 899_999) == []
    assert grants.due(NOW_MS + HOUR_MS + 900_000) == ["g"]
    assert grants.due(NOW_MS + HOUR_MS + 900_001) == []
    assert renew(grants, 0, 1, NOW_MS + HOUR_MS + 900_001) is None, "the grant itself stands"
    assert grants.due(NOW_MS + 2 * HOUR_MS + 1_800_001) == ["g"]


def test_refresh_keeps_open_what_a_grant_opened() -> None:
    grants = one_grant()
    renew(grants, 0, 1, NOW_MS + HOUR_MS)
    assert grants.due(NOW_MS + HOUR_MS + 900_000) == []
    assert grants.due(NOW_MS + 2 * HOUR_MS + 900_000) == ["g"]


def test_grant_that_is_over_is_forgotten_when_that_is_due() -> None:
    grants = one_grant()
    assert grants.due(END_MS - 1) == ["g"], "what it opened"
    assert grants.due(END_MS) == ["g"]
    assert len(grants) == 0
    assert grants.next_due_ms() is None


def test_revoked_grant_is_never_due() -> None:
    grants = one_grant()
    applied(grants, revoke(grants, "g", NOW_MS))
    assert grants.due(END_MS) == []


def test_time_does_not_go_back_behind_what_was_written() -> None:
    grants = one_grant()
    renew(grants, 0, 1, NOW_MS + 10_000)
    (revoked,) = revoke(grants, "g", NOW_MS).events
    assert revoked.at_ms == NOW_MS + 10_000
    (rotated,) = refresh(grants, b"r1", pair(2), LIMITS, NOW_MS).events
    assert rotated.at_ms == NOW_MS + 10_000


def test_clock_that_was_set_back_over_a_restart_ends_every_grant() -> None:
    grants = one_grant()
    assert grants.resume(NOW_MS + 100_000, NOW_MS + 40_000) == []
    assert grants.resume(NOW_MS + 100_000, NOW_MS + 39_999) == ["g"]
    assert not is_good(grants, 0, NOW_MS + 39_999)


def test_event_of_a_clock_that_was_set_back_ends_every_grant_before_it() -> None:
    grants = one_grant()
    grants.saw(NOW_MS - 60_000)
    assert len(grants) == 1
    grants.saw(NOW_MS - 60_001)
    assert len(grants) == 0
    assert issue(grants, new(), LIMITS, NOW_MS - 60_001).events[0].at_ms == NOW_MS - 60_001


def test_events_read_again_give_the_same_grants() -> None:
    grants, written = Grants(), list[GrantEvent]()
    for number in range(3):
        written += applied(grants, issue(grants, new(number, grant_id=f"g{number}"), LIMITS, NOW_MS)).events
    written += applied(grants, refresh(grants, b"r1", pair(5), LIMITS, NOW_MS)).events
    written += applied(grants, revoke(grants, "g2", NOW_MS)).events
    decoder = msgspec.json.Decoder(list[GrantEvent])
    again = Grants(decoder.decode(msgspec.json.encode(written)))
    assert list(again) == list(grants)
    assert again.find(b"a5", NOW_MS) == grants.find(b"a5", NOW_MS)


def test_givers_that_share_an_index_know_their_own_tokens_alone() -> None:
    index = TokenIndex()
    here, there = Grants(giver="here", index=index), Grants(giver="there", index=index)
    applied(here, issue(here, new(0), LIMITS, NOW_MS))
    applied(there, issue(there, new(1), LIMITS, NOW_MS))
    assert (here.find(b"a0", NOW_MS), here.find(b"a1", NOW_MS)) == (index.access[b"a0"], None)
    assert renew(here, 1, 2, NOW_MS) is GrantFault.UNKNOWN
    assert index.access[b"a1"].giver == "there"
    assert index.refresh == {b"r0": ("here", "g"), b"r1": ("there", "g")}
    assert here.clear() == ["g"]
    assert (list(index.access), list(index.refresh)) == ([b"a1"], [b"r1"])


def test_where_too_many_tokens_are_known_a_refreshed_grant_forgets_its_own_oldest() -> None:
    index = TokenIndex(refresh_max=4)
    here, there = Grants(giver="here", index=index), Grants(giver="there", index=index)
    applied(there, issue(there, new(100), LIMITS, NOW_MS))
    applied(here, issue(here, new(0), LIMITS, NOW_MS))
    for number in range(5):
        assert renew(here, number, number + 1, NOW_MS + 1) is None
    assert list(index.refresh) == [b"r100", b"r3", b"r4", b"r5"]
    assert renew(here, 0, 6, NOW_MS + 2) is GrantFault.UNKNOWN  # refused, and nothing ends
    assert renew(here, 4, 6, NOW_MS + 2) is None  # its answer was lost
    assert renew(here, 4, 7, NOW_MS + 3) is None
    assert list(index.refresh) == [b"r100", b"r4", b"r5", b"r6", b"r7"]  # what is good for something stays
    assert renew(here, 5, 8, NOW_MS + 4) is GrantFault.REUSED
    assert (len(here), list(index.refresh)) == (0, [b"r100"])
