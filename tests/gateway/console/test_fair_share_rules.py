"""Somebody with a look at the fleet cannot sign others out, nor take all live views."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.console.fair_share_rules import first_of_most
from gateway.console.link_rules import Given, Links
from gateway.console.session_rules import Sessions, SignedInBy
from gateway.identity.tokens import NEVER_MS, OperatorScope, Principal, TokenClass
from tests.actors.node.harness import now


def operator(jti: str) -> Principal:
    scopes = frozenset({OperatorScope.FLEET_READ})
    return Principal("ada", "operators", TokenClass.OPERATOR, scopes, jti, 0, NEVER_MS)


@given(st.lists(st.sampled_from("abc"), min_size=1))
def test_room_is_made_by_whoever_has_the_most_and_oldest_first(owners: list[str]) -> None:
    first = first_of_most(dict(enumerate(owners)))
    assert all(owners.count(owners[first]) >= owners.count(other) for other in owners)
    assert owners.index(owners[first]) == first


def test_links_of_a_guest_end_no_link_of_another_operator() -> None:
    links = Links(600.0, 5)
    mine = links.make(Given(operator("01ADA"), True), 0.0)
    guests = [links.make(Given(operator("01GUEST"), False), float(number)) for number in range(20)]
    assert len(links) == 5
    assert links.take(mine, 21.0) is not None
    assert [links.take(secret, 21.0) is not None for secret in guests] == [False] * 16 + [True] * 4


async def test_sessions_of_a_guest_end_no_session_of_another_operator() -> None:
    sessions = Sessions(3_600, 5, lambda _: None)
    _, mine = sessions.open(operator("01ADA"), SignedInBy.LINK, now())
    for _ in range(20):
        sessions.open(operator("01GUEST"), SignedInBy.LINK, now())
    assert len(sessions) == 5
    assert sessions.stands(mine, now())
