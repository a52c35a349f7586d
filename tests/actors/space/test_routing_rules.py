"""One rule says whom a message is for; the room's index finds the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.space.connection_rules import Connection
from actors.space.roster_rules import Roster
from actors.space.routing_rules import is_for
from actors.space.settings import SpaceSettings

NAMES = st.sampled_from(["a", "b", "c"])
ADDRESSES = st.tuples(st.none() | NAMES, st.none() | NAMES)
GUESTS = st.lists(st.tuples(NAMES, st.frozensets(NAMES)), max_size=8)


@pytest.mark.parametrize(
    ("sub", "tuid", "uid", "subs", "expected"),
    [
        (None, None, "ada", (), True),
        (None, None, None, (), True),
        (None, "ada", "ada", (), True),
        (None, "ada", "bob", ("ada",), False),
        (None, "ada", None, (), False),
        ("lobby", None, "ada", ("lobby",), True),
        ("lobby", None, "lobby", (), False),
        ("lobby", "ada", "ada", ("lobby",), True),
        ("lobby", "ada", "ada", ("garden",), False),
        ("lobby", "ada", "bob", ("lobby",), False),
    ],
)
def test_address_names_a_subspace_a_person_or_both(
    sub: str | None, tuid: str | None, uid: str | None, subs: tuple[str, ...], expected: bool
) -> None:
    assert is_for(sub, tuid, uid, subs) is expected


@given(GUESTS, ADDRESSES)
def test_room_finds_by_its_index_whom_the_rule_names(
    guests: list[tuple[str, frozenset[str]]], address: tuple[str | None, str | None]
) -> None:
    roster = Roster()
    for number, (uid, subs) in enumerate(guests):
        roster.add(Connection(SpaceSettings(), str(number), uid, 0.0, 0), sorted(subs))
    named = [str(number) for number, (uid, subs) in enumerate(guests) if is_for(*address, uid, subs)]
    assert sorted(roster.recipients(*address)) == named
