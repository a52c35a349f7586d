"""Orders that are kept up with changes are those that would be made anew."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from actors.register.listed_node import ListedState
from gateway.console import fleet_index
from gateway.console.fleet_index import CHANGES_MAX, ORDERS_MAX, FleetIndex
from gateway.console.fleet_rules import FleetQuery, Ordered, Row, Sort
from tests.gateway.console.rows import IDS, about_rows, expected, frames, queries, row


class Kept(RuleBasedStateMachine):
    """Whatever is asked before, in between and after changes."""

    def __init__(self) -> None:
        super().__init__()
        self.index = FleetIndex(frames)
        self.rows: dict[str, Row] = {}

    @rule(node_id=st.sampled_from(IDS), about=about_rows)
    def put(self, node_id: str, about: dict[str, Any]) -> None:
        one = row(node_id, **about)
        is_other = self.rows.get(node_id) != one
        assert self.index.put(node_id, one) is is_other
        if is_other:  # else the row that it had is as good, and its counts are the same object
            self.rows[node_id] = one

    @rule(node_id=st.sampled_from(IDS))
    def remove(self, node_id: str) -> None:
        assert self.index.put(node_id, None) is (self.rows.pop(node_id, None) is not None)

    @rule(node_id=st.sampled_from(IDS), drops=st.integers(0, 3), last_call_ms=st.integers(0, 3))
    def count(self, node_id: str, drops: int, last_call_ms: int) -> None:
        """Nobody is told of these; they are in the order from the next moment on."""
        if node_id in self.rows:
            counts = self.rows[node_id].counts
            counts.drops, counts.last_call_ms, counts.frames = drops, last_call_ms, drops
        for sort in self.index.moments:
            self.index.moments[sort] += 1

    @rule(query=queries)
    def ask(self, query: FleetQuery) -> None:
        total, window = self.index.find(query)
        assert (total, [one.node_id for one in window]) == expected(self.rows.values(), query)
        assert all(one is self.rows[one.node_id] for one in window)

    @invariant()
    def states_are_counted(self) -> None:
        for state in ListedState:
            assert self.index.states[state] == [one.state for one in self.rows.values()].count(state)


TestKept = Kept.TestCase
TestKept.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_few_changes_are_brought_in_and_nothing_is_made_anew(monkeypatch: Any) -> None:
    index = FleetIndex(frames)
    for node_id in IDS:
        index.put(node_id, row(node_id, name="pump"))
    index.find(FleetQuery())
    monkeypatch.setattr(fleet_index, "in_order_of_ids", None)
    monkeypatch.setattr(Ordered, "by", None)
    index.put(IDS[3], row(IDS[3], name="a-pump"))
    index.put(IDS[4], None)
    total, window = index.find(FleetQuery())
    assert (total, window[0].node_id) == (len(IDS) - 1, IDS[3])


def test_more_changes_than_are_remembered_are_seen_all_the_same() -> None:
    index = FleetIndex(frames)
    index.put(IDS[0], row(IDS[0], name="pump"))
    index.find(FleetQuery())
    for change in range(CHANGES_MAX + 1):
        index.put(IDS[1], row(IDS[1], name=f"n{change}"))
    assert [one.name for one in index.find(FleetQuery())[1]] == [f"n{CHANGES_MAX}", "pump"]


def test_orders_are_kept_for_so_many_questions_only() -> None:
    index = FleetIndex(frames)
    for number in range(3 * ORDERS_MAX):
        index.find(FleetQuery(text=f"{number}", sort=Sort.NODE_ID))
    assert index.orders == ORDERS_MAX
