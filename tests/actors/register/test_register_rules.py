"""What may be done to a node: at every border, with what it leaves untouched."""

from collections.abc import Sequence

import pytest

from actors.register import register_rules as rules
from actors.register.events import (
    Event,
    IdentityRetired,
    Member,
    NodeEnrolled,
    NodeErased,
    NodeForgotten,
    NodeLabelled,
    NodeRenewed,
    NodeRevoked,
)
from actors.register.register_rules import (
    RENEWAL_OVERLAP_MS,
    WORDS,
    Act,
    Decision,
    Enrolment,
    NewIdentity,
    Refusal,
    Roll,
    Trouble,
)
from schemas.closes import NodeClose
from schemas.labels import TAGS_MAX
from schemas.manifest import NodeIdentity

PUMP, VALVE = NodeIdentity("01hzx3k8q2v7n4t9r6w5y1c0ba", "acme"), NodeIdentity("01hzx3k8q2v7n4t9r6w5y1c0bb", "acme")
ALIEN = NodeIdentity("01hzx3k8q2v7n4t9r6w5y1c0bc", "umbra")
AT_MS = 1_790_000_000_500
ACT = Act("ada", AT_MS)


def nobody(_: str) -> Sequence[str]:
    return ()


def take(roll: Roll, decision: Decision) -> tuple[Event, ...]:
    """Let it be true."""
    assert not isinstance(decision, Refusal)
    for member in roll.after(decision).values():
        roll.put(member)
    return tuple(decision)


def trouble(decision: object) -> Trouble:
    assert isinstance(decision, Refusal)
    return decision.trouble


def enrolled(*nodes: tuple[NodeIdentity, str | None]) -> Roll:
    roll = Roll()
    take(roll, rules.enroll(roll, [Enrolment(node, "k0", "J0", name) for node, name in nodes], nobody, ACT))
    return roll


def member(roll: Roll, node: NodeIdentity = PUMP) -> Member:
    found = roll.find(node.node_id)
    assert found is not None
    return found


def test_every_trouble_has_words() -> None:
    assert set(WORDS) == set(Trouble)
    assert Refusal(Trouble.NAME_TAKEN).message
    assert Refusal(Trouble.NAME_TAKEN).suggested_fix


# ---- enrolment ------------------------------------------------------------------------------------------------------


def test_enrolled_node_has_its_labels_and_its_date() -> None:
    roll = Roll()
    events = take(roll, rules.enroll(roll, [Enrolment(PUMP, "k1", "J1", "pump-7", {"site": "lab"})], nobody, ACT))
    assert events == (NodeEnrolled(AT_MS, "ada", PUMP.node_id, "acme", "k1", "J1", "pump-7", {"site": "lab"}),)
    assert member(roll) == Member(PUMP.node_id, "acme", AT_MS, "pump-7", {"site": "lab"})
    assert roll.named("pump-7") == {"acme": PUMP.node_id}


def test_enrolled_once_more_a_node_keeps_what_nothing_was_said_of() -> None:
    roll = Roll()
    take(roll, rules.enroll(roll, [Enrolment(PUMP, "k1", "J1", "pump-7", {"site": "lab"})], nobody, ACT))
    take(roll, rules.enroll(roll, [Enrolment(PUMP, "k2", "J2", None, {"row": "2"})], nobody, ACT))
    assert (member(roll).name, member(roll).tags) == ("pump-7", {"row": "2"})
    take(roll, rules.enroll(roll, [Enrolment(PUMP, "k3", "J3", "pump-8")], nobody, ACT))
    assert (member(roll).name, member(roll).tags) == ("pump-8", {"row": "2"})
    assert roll.named("pump-7") == {}


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (Enrolment(VALVE, "k", "J", "Bad"), Trouble.BAD_NAME),
        (Enrolment(VALVE, "k", "J", PUMP.node_id), Trouble.BAD_NAME),
        (Enrolment(VALVE, "k", "J", None, {"Site": "lab"}), Trouble.BAD_TAG),
        (Enrolment(VALVE, "k", "J", None, {f"k{n}": "v" for n in range(TAGS_MAX + 1)}), Trouble.BAD_TAG),
        (Enrolment(VALVE, "k", "J", "taken"), Trouble.NAME_TAKEN),
        (Enrolment(VALVE, "k", "J", "first"), Trouble.TWICE),
        (Enrolment(PUMP, "k", "J", "other"), Trouble.TWICE),
        (Enrolment(NodeIdentity(ALIEN.node_id, "acme"), "k", "J"), Trouble.OTHER_TENANT),
        (Enrolment(NodeIdentity("01hzx3k8q2v7n4t9r6w5y1c0bd", "acme"), "k", "J"), Trouble.OTHER_TENANT),
    ],
)
def test_one_bad_row_refuses_all_and_is_named(second: Enrolment, expected: Trouble) -> None:
    roll = enrolled((NodeIdentity("01hzx3k8q2v7n4t9r6w5y1c0bz", "acme"), "taken"), (ALIEN, None))
    certified = {"01hzx3k8q2v7n4t9r6w5y1c0bd": ("umbra",)}
    decision = rules.enroll(
        roll, [Enrolment(PUMP, "k", "J", "first"), second], lambda node_id: certified.get(node_id, ()), ACT
    )
    assert decision == Refusal(expected, 1)
    assert roll.find(PUMP.node_id) is None


def test_two_tenants_may_use_one_name() -> None:
    roll = enrolled((PUMP, "pump-7"), (ALIEN, "pump-7"))
    assert roll.named("pump-7") == {"acme": PUMP.node_id, "umbra": ALIEN.node_id}


def test_revoked_id_is_not_enrolled_again() -> None:
    roll = enrolled((PUMP, None))
    take(roll, rules.revoke(roll, PUMP, ACT))
    assert trouble(rules.enroll(roll, [Enrolment(PUMP, "k", "J")], nobody, ACT)) is Trouble.REVOKED


# ---- names ----------------------------------------------------------------------------------------------------------


def test_a_node_is_found_by_id_and_by_name() -> None:
    roll = enrolled((PUMP, "pump-7"), (ALIEN, "pump-7"), (VALVE, "valve"))
    assert rules.resolve(roll, PUMP.node_id, None, lambda _: None) == PUMP
    assert rules.resolve(roll, "valve", None, lambda _: None) == VALVE
    assert rules.resolve(roll, "pump-7", "umbra", lambda _: None) == ALIEN
    assert trouble(rules.resolve(roll, "pump-7", None, lambda _: None)) is Trouble.AMBIGUOUS_NAME
    assert trouble(rules.resolve(roll, "valve", "umbra", lambda _: None)) is Trouble.UNKNOWN_NODE
    assert trouble(rules.resolve(roll, "nobody", None, lambda _: None)) is Trouble.UNKNOWN_NODE
    assert trouble(rules.resolve(roll, PUMP.node_id, "umbra", lambda _: None)) is Trouble.UNKNOWN_NODE


def test_a_node_that_no_register_knows_is_found_by_id_if_somebody_else_knows_it() -> None:
    roll, tenants = Roll(), {PUMP.node_id: "acme"}
    assert rules.resolve(roll, PUMP.node_id, None, tenants.get) == PUMP
    assert trouble(rules.resolve(roll, VALVE.node_id, None, tenants.get)) is Trouble.UNKNOWN_NODE


def test_renaming_and_tagging_leave_the_rest_alone() -> None:
    roll = enrolled((PUMP, "pump-7"))
    take(roll, rules.tag(roll, PUMP, {"site": "lab", "row": "2"}, (), ACT))
    take(roll, rules.rename(roll, PUMP, "pump-8", ACT))
    take(roll, rules.tag(roll, PUMP, {"row": "3"}, ("site", "never"), ACT))
    assert (member(roll).name, member(roll).tags) == ("pump-8", {"row": "3"})
    take(roll, rules.rename(roll, PUMP, None, ACT))
    assert (member(roll).name, roll.named("pump-8")) == (None, {})


def test_a_tag_that_is_removed_and_set_at_once_is_set() -> None:
    roll = enrolled((PUMP, None))
    take(roll, rules.tag(roll, PUMP, {"site": "roof"}, ("site",), ACT))
    assert member(roll).tags == {"site": "roof"}


def test_what_changes_nothing_is_no_event() -> None:
    roll = enrolled((PUMP, "pump-7"))
    assert rules.rename(roll, PUMP, "pump-7", ACT) == ()
    assert rules.tag(roll, PUMP, {}, ("site",), ACT) == ()


def test_bad_labels_are_refused() -> None:
    roll = enrolled((PUMP, "pump-7"), (VALVE, "valve"))
    assert trouble(rules.rename(roll, PUMP, "valve", ACT)) is Trouble.NAME_TAKEN
    assert trouble(rules.rename(roll, PUMP, "-a", ACT)) is Trouble.BAD_NAME
    assert trouble(rules.tag(roll, PUMP, {"a": "b c"}, (), ACT)) is Trouble.BAD_TAG
    full = {f"k{n}": "v" for n in range(TAGS_MAX)}
    take(roll, rules.tag(roll, PUMP, full, (), ACT))
    assert trouble(rules.tag(roll, PUMP, {"one_more": "v"}, (), ACT)) is Trouble.BAD_TAG
    assert take(roll, rules.tag(roll, PUMP, {"one_more": "v"}, ("k0",), ACT))


def test_a_node_without_a_register_becomes_a_member_by_what_is_done_to_it() -> None:
    roll = Roll()
    take(roll, rules.rename(roll, PUMP, "pump-7", ACT))
    assert member(roll) == Member(PUMP.node_id, "acme", None, "pump-7")


# ---- the end --------------------------------------------------------------------------------------------------------


def test_revoking_is_for_good_and_told_once() -> None:
    roll = enrolled((PUMP, "pump-7"))
    assert take(roll, rules.revoke(roll, PUMP, ACT)) == (NodeRevoked(AT_MS, "ada", PUMP.node_id, "acme"),)
    assert rules.revoke(roll, PUMP, Act("eve", AT_MS + 1)) == ()
    assert member(roll).revoked_at_ms == AT_MS
    assert rules.refuses_login(member(roll), "J0", AT_MS, AT_MS) is NodeClose.FORBIDDEN


def test_only_a_revoked_node_is_forgotten_and_its_name_is_free_then() -> None:
    roll = enrolled((PUMP, "pump-7"))
    assert trouble(rules.forget(roll, PUMP, ACT)) is Trouble.NOT_REVOKED
    assert trouble(rules.forget(roll, VALVE, ACT)) is Trouble.NOT_REVOKED
    take(roll, rules.revoke(roll, PUMP, ACT))
    assert trouble(rules.rename(roll, VALVE, "pump-7", ACT)) is Trouble.NAME_TAKEN
    assert take(roll, rules.forget(roll, PUMP, ACT)) == (NodeForgotten(AT_MS, "ada", PUMP.node_id, "acme"),)
    assert member(roll) == Member(PUMP.node_id, "acme", revoked_at_ms=AT_MS, is_forgotten=True)
    take(roll, rules.rename(roll, VALVE, "pump-7", ACT))
    assert trouble(rules.resolve(roll, PUMP.node_id, None, lambda _: "acme")) is Trouble.UNKNOWN_NODE
    assert trouble(rules.rename(roll, PUMP, "again", ACT)) is Trouble.UNKNOWN_NODE
    assert rules.refuses_login(member(roll), "J0", AT_MS, AT_MS) is NodeClose.FORBIDDEN
    assert trouble(rules.enroll(roll, [Enrolment(PUMP, "k", "J")], nobody, ACT)) is Trouble.REVOKED


def test_erased_is_recorded_once_and_only_of_what_is_forgotten() -> None:
    roll = enrolled((PUMP, None))
    assert rules.erased(roll, PUMP, ACT) == ()
    take(roll, rules.revoke(roll, PUMP, ACT))
    take(roll, rules.forget(roll, PUMP, ACT))
    assert take(roll, rules.erased(roll, PUMP, ACT)) == (NodeErased(AT_MS, "ada", PUMP.node_id, "acme"),)
    assert rules.erased(roll, PUMP, ACT) == ()
    assert member(roll).is_revoked


# ---- identities -----------------------------------------------------------------------------------------------------

NEW = NewIdentity("k1", "J1", "aa" * 32)


def renewed(roll: Roll) -> Member:
    take(roll, rules.renew(roll, PUMP, NEW, "k0", "J0", ACT))
    return member(roll)


def test_until_the_new_identity_is_used_both_are_good_for_a_day() -> None:
    roll = enrolled((PUMP, None))
    renewed(roll)
    for now_ms, jti, refused in (
        (AT_MS, "J0", None),
        (AT_MS + RENEWAL_OVERLAP_MS - 1, "J0", None),
        (AT_MS + RENEWAL_OVERLAP_MS, "J0", NodeClose.UNAUTHORIZED),
        (AT_MS, "J1", None),
        (AT_MS + RENEWAL_OVERLAP_MS, "J1", None),
    ):
        assert rules.refuses_login(member(roll), jti, AT_MS // 1000 * 1000, now_ms) is refused
    assert not rules.is_overdue(member(roll), AT_MS + RENEWAL_OVERLAP_MS - 1)
    assert rules.is_overdue(member(roll), AT_MS + RENEWAL_OVERLAP_MS)


def test_after_it_is_used_only_the_new_one_is_good_and_what_is_made_later() -> None:
    roll = enrolled((PUMP, None))
    renewed(roll)
    assert take(roll, rules.retire(roll, PUMP, "k1", ACT)) == (IdentityRetired(AT_MS, "ada", PUMP.node_id, "acme"),)
    now = member(roll)
    assert rules.refuses_login(now, "J0", 0, AT_MS) is NodeClose.UNAUTHORIZED
    assert rules.refuses_login(now, "other", AT_MS // 1000 * 1000, AT_MS) is NodeClose.UNAUTHORIZED
    assert rules.refuses_login(now, "J1", AT_MS // 1000 * 1000, AT_MS) is None
    assert rules.refuses_login(now, "later", AT_MS // 1000 * 1000 + 1000, AT_MS) is None
    assert rules.is_over(now, "k0", AT_MS)
    assert not rules.is_over(now, "k1", AT_MS)
    assert not rules.is_over(now, "k2", AT_MS + 1000)
    assert rules.retire(roll, PUMP, "k1", ACT) == ()


def test_asked_once_more_a_renewal_is_the_same_one() -> None:
    roll = enrolled((PUMP, None))
    renewed(roll)
    assert rules.renewed_already(roll, PUMP, "k0", NEW.public_key) is True
    for jti in ("J0", "J9"):  # its token may be another by now, where tokens come from elsewhere
        assert rules.renew(roll, PUMP, NewIdentity("k9", "J9", NEW.public_key), "k0", jti, ACT) == ()


@pytest.mark.parametrize(("kid", "key"), [("k0", "bb" * 32), ("k9", "aa" * 32)])
def test_a_second_and_different_renewal_is_refused(kid: str, key: str) -> None:
    roll = enrolled((PUMP, None))
    before = renewed(roll)
    assert trouble(rules.renewed_already(roll, PUMP, kid, key)) is Trouble.RENEWED_OTHERWISE
    assert trouble(rules.renew(roll, PUMP, NewIdentity("k2", "J2", key), kid, "J0", ACT)) is Trouble.RENEWED_OTHERWISE
    assert member(roll) == before


def test_whoever_has_the_new_identity_may_renew_it_though_it_never_logged_in() -> None:
    roll = enrolled((PUMP, None))
    renewed(roll)
    newer = NewIdentity("k2", "J2", "bb" * 32)
    events = take(roll, rules.renew(roll, PUMP, newer, "k1", "J1", Act("ada", AT_MS + 5000)))
    assert [type(event) for event in events] == [IdentityRetired, NodeRenewed]
    assert rules.refuses_login(member(roll), "J0", 0, AT_MS) is NodeClose.UNAUTHORIZED
    assert rules.refuses_login(member(roll), "J1", AT_MS, AT_MS) is None


def test_an_operators_renewal_undoes_one_that_is_under_way_and_is_not_undone_by_the_node() -> None:
    roll = enrolled((PUMP, None))
    renewed(roll)
    take(roll, rules.renew(roll, PUMP, NewIdentity("k5", "J5", "cc" * 32), None, None, Act("ada", AT_MS + 1)))
    pending = member(roll).renewal
    assert pending is not None
    assert (pending.kid, pending.from_kid) == ("k5", None)
    assert trouble(rules.renewed_already(roll, PUMP, "k0", NEW.public_key)) is Trouble.RENEWED_OTHERWISE


def test_a_revoked_node_renews_nothing() -> None:
    roll = enrolled((PUMP, None))
    renewed(roll)
    take(roll, rules.revoke(roll, PUMP, ACT))
    assert member(roll).renewal is None
    assert trouble(rules.renewed_already(roll, PUMP, "k0", NEW.public_key)) is Trouble.REVOKED
    assert trouble(rules.renew(roll, PUMP, NEW, None, None, ACT)) is Trouble.REVOKED
    assert rules.retire(roll, PUMP, "k1", ACT) == ()


def test_where_tokens_come_from_elsewhere_none_is_refused_for_a_renewal() -> None:
    roll = enrolled((PUMP, None))
    take(roll, rules.renew(roll, PUMP, NewIdentity("k1", None, "aa" * 32), "k0", "J0", ACT))
    assert rules.refuses_login(member(roll), "J0", 0, AT_MS + RENEWAL_OVERLAP_MS) is None
    take(roll, rules.retire(roll, PUMP, "k1", ACT))
    assert rules.refuses_login(member(roll), "J0", 0, AT_MS + RENEWAL_OVERLAP_MS) is None
    assert rules.is_over(member(roll), "k0", AT_MS)


def test_a_clock_that_steps_back_revives_no_identity() -> None:
    roll = enrolled((PUMP, None))
    renewed(roll)
    take(roll, rules.retire(roll, PUMP, "k1", ACT))
    earlier = Act("ada", AT_MS - 50_000)
    take(roll, rules.renew(roll, PUMP, NewIdentity("k2", "J2", "bb" * 32), "k1", "J1", earlier))
    take(roll, rules.retire(roll, PUMP, "k2", earlier))
    assert rules.refuses_login(member(roll), "J1", AT_MS, AT_MS) is NodeClose.UNAUTHORIZED
    assert rules.is_over(member(roll), "k1", AT_MS)
    assert rules.refuses_login(member(roll), "J2", earlier.at_ms, AT_MS) is None


def test_an_identity_enrolled_beside_a_renewed_one_is_good_whatever_its_date() -> None:
    roll = enrolled((PUMP, None))
    renewed(roll)
    take(roll, rules.retire(roll, PUMP, "k1", ACT))
    take(roll, rules.enroll(roll, [Enrolment(PUMP, "k7", "J7")], nobody, ACT))  # in the same second
    for kid, jti, good in (("k7", "J7", True), ("k1", "J1", True), ("k0", "J0", False)):
        assert (rules.refuses_login(member(roll), jti, AT_MS, AT_MS) is None) is good
        assert rules.is_over(member(roll), kid, AT_MS) is not good


def test_nobody_has_anything_against_a_node_that_the_register_does_not_know() -> None:
    assert rules.refuses_login(None, "J0", 0, AT_MS) is None
    assert not rules.is_over(None, "k0", 0)


def test_labels_are_events_with_all_that_holds_then() -> None:
    roll = enrolled((PUMP, "pump-7"))
    assert take(roll, rules.tag(roll, PUMP, {"site": "lab"}, (), ACT)) == (
        NodeLabelled(AT_MS, "ada", PUMP.node_id, "acme", "pump-7", {"site": "lab"}),
    )
