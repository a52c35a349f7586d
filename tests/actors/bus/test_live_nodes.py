"""Who is live, in order, and who is told."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from actors.bus.live_nodes import LiveNodes


@dataclass(eq=False)
class Node:
    node_id: str
    tenant: str = "acme"


def test_live_ids_are_sorted_and_of_one_tenant() -> None:
    roster = LiveNodes()
    for node in (Node("c"), Node("a"), Node("b", "other")):
        roster.add(node)
    assert list(roster.live_ids("acme")) == ["a", "c"]
    assert list(roster.live_ids("other")) == ["b"]
    assert list(roster.live_ids("nobody")) == []


def test_a_newer_session_is_not_unlisted_by_the_end_of_the_older_one() -> None:
    roster = LiveNodes()
    older, newer = Node("a"), Node("a")
    roster.add(older)
    roster.add(newer)
    roster.remove(older)
    assert list(roster.live_ids("acme")) == ["a"]
    roster.remove(newer)
    roster.remove(newer)
    assert list(roster.live_ids("acme")) == []


def test_listeners_of_the_tenant_are_told_until_they_stop() -> None:
    roster, told = LiveNodes(), []
    stop = roster.listen("acme", lambda: told.append("acme"))
    roster.listen("other", lambda: told.append("other"))
    node = Node("a")
    roster.add(node)
    roster.remove(node)
    roster.remove(node)
    assert told == ["acme", "acme"]
    stop()
    stop()
    roster.add(node)
    assert told == ["acme", "acme"]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans())))
def test_live_ids_are_those_added_and_not_removed(steps: list[tuple[str, bool]]) -> None:
    roster, live = LiveNodes(), dict[str, Node]()
    for name, comes in steps:
        if comes:
            live[name] = Node(name)
            roster.add(live[name])
        elif name in live:
            roster.remove(live.pop(name))
    assert list(roster.live_ids("acme")) == sorted(live)
