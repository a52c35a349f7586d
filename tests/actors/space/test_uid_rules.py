"""Whose a `uid` is: the first member's, and of names that the gateway made only the latest."""

from actors.space.uid_rules import MINTED_MAX, UidLimits, UidOwners

ONE = UidLimits(1, 1)


def test_first_member_keeps_a_name() -> None:
    uids = UidOwners()
    assert uids.may_claim("ann", "m", ONE, is_minted=False)
    uids.name("ann", "m")
    uids.name("ann", "n")
    assert uids.owner("ann") == "m"
    assert uids.may_claim("ann", "m", ONE, is_minted=False)
    assert not uids.may_claim("ann", "n", ONE, is_minted=False)


def test_there_are_only_so_many_names() -> None:
    uids = UidOwners()
    uids.name("ann", "m")
    assert not uids.may_claim("bob", "m", ONE, is_minted=False)
    assert uids.may_claim("random", "m", ONE, is_minted=True)


def test_member_who_has_chosen_as_many_names_as_one_may_leaves_the_rest_to_others() -> None:
    uids, limits = UidOwners(), UidLimits(10, 2)
    for uid in ("a", "a", "b"):
        assert uids.may_claim(uid, "m", limits, is_minted=False)
        uids.name(uid, "m")
    assert not uids.may_claim("c", "m", limits, is_minted=False)
    assert uids.may_claim("a", "m", limits, is_minted=False), "it is theirs already"
    assert uids.may_claim("random", "m", limits, is_minted=True)
    assert uids.may_claim("c", "n", limits, is_minted=False)


def test_of_made_names_the_least_recent_is_forgotten_and_one_that_was_chosen_stays() -> None:
    uids = UidOwners()
    for number in range(MINTED_MAX + 1):
        uids.mint(f"u{number}", "m")
    assert (uids.owner("u0"), uids.owner("u1")) == (None, "m")
    assert not uids.may_claim("u1", "n", ONE, is_minted=False)
    uids.name("u1", "m")
    for number in range(MINTED_MAX):
        uids.mint(f"v{number}", "n")
    assert uids.owner("u1") == "m"
    assert uids.is_named("u1")
    assert not uids.is_named("v0")
