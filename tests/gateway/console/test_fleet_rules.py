"""Which rows a page of the fleet has, and in which order."""

from typing import Any

import msgspec
import pytest
from hypothesis import given

from actors.register.events import Member
from actors.register.listed_node import ListedNode, ListedState
from gateway.console.fleet_index import FleetIndex
from gateway.console.fleet_rules import LIMIT_MAX, NO_COUNTS, TEXT_CHARS_MAX, FleetQuery, Row, Sort, row_of
from schemas.closes import NodeClose
from tests.gateway.console.rows import IDS, NOW_MS, counted, expected, frames, node, queries, row, rows


def found(all_rows: dict[str, Row], query: FleetQuery) -> tuple[int, list[str]]:
    index = FleetIndex(frames)
    for node_id, one in all_rows.items():
        index.put(node_id, one)
    total, window = index.find(query)
    return total, [one.node_id for one in window]


@given(rows, queries)
def test_a_window_is_what_filtering_sorting_and_cutting_give(all_rows: dict[str, Row], query: FleetQuery) -> None:
    assert found(all_rows, query) == expected(all_rows.values(), query)


def test_nodes_without_a_value_are_behind_the_others_in_both_directions() -> None:
    all_rows = {one.node_id: one for one in (row(IDS[0]), row(IDS[1], name="valve"), row(IDS[2], name="pump"))}
    assert found(all_rows, FleetQuery(sort=Sort.NAME))[1] == [IDS[2], IDS[1], IDS[0]]
    assert found(all_rows, FleetQuery(sort=Sort.NAME, descending=True))[1] == [IDS[1], IDS[2], IDS[0]]


@pytest.mark.parametrize("offset", range(6))
@pytest.mark.parametrize("descending", [False, True])
def test_pages_of_two_make_up_the_whole(offset: int, descending: bool) -> None:
    names = (None, "a", None, "b", "c")
    all_rows = {node_id: row(node_id, name=name) for node_id, name in zip(IDS, names, strict=False)}
    whole = found(all_rows, FleetQuery(descending=descending, limit=5))[1]
    total, window = found(all_rows, FleetQuery(descending=descending, offset=offset, limit=2))
    assert (total, window) == (5, whole[offset : offset + 2])


def test_states_are_in_the_order_of_how_much_there_is_to_see() -> None:
    all_rows = {node_id: row(node_id, state=state) for node_id, state in zip(IDS, ListedState, strict=False)}
    states = [all_rows[node_id].state for node_id in found(all_rows, FleetQuery(sort=Sort.STATE))[1]]
    assert [str(state) for state in states] == ["live", "away", "expired", "enrolled", "revoked"]


@pytest.mark.parametrize(
    ("body", "is_fine"),
    [
        ({}, True),
        ({"text": "x" * TEXT_CHARS_MAX, "limit": LIMIT_MAX, "sort": "frames_per_s", "state": None}, True),
        ({"text": "x" * (TEXT_CHARS_MAX + 1)}, False),
        ({"text": "a\nb"}, False),
        ({"limit": 0}, False),
        ({"limit": LIMIT_MAX + 1}, False),
        ({"offset": -1}, False),
        ({"offset": 10**30}, False),
        ({"sort": "price"}, False),
        ({"state": "asleep"}, False),
        ({"tags": ["k=v"] * 1000}, False),
        ({"tags": "k=v"}, False),
        ({"descending": 1}, False),
        ({"more": 1}, False),
        ([], False),
    ],
)
def test_a_query_is_a_closed_object_with_bounds(body: Any, is_fine: bool) -> None:
    data = msgspec.json.encode(body)
    if is_fine:
        msgspec.json.decode(data, type=FleetQuery)
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(data, type=FleetQuery)


@pytest.mark.parametrize("tag", ["", "site", "=lab", "site=", "Site=lab", "site=l b", "site=lab=x"])
def test_what_is_no_tag_is_no_query(tag: str) -> None:
    assert not FleetQuery(tags=(tag,)).is_sound
    assert FleetQuery(tags=("site=lab",)).is_sound


def test_a_row_has_what_register_and_directory_say() -> None:
    listed = node(IDS[0], name="pump", tags={"site": "Lab"}, left=NodeClose.TIMEOUT, state=ListedState.AWAY)
    one = row_of(listed, counted(drops=3), 7, NOW_MS)
    assert (one.name, one.tags, one.state, one.since_ms) == ("pump", {"site": "Lab"}, ListedState.AWAY, NOW_MS)
    assert (one.left, one.slot, one.counts.drops) == (NodeClose.TIMEOUT, 7, 3)
    assert one.expires_at_ms == NOW_MS + 1000
    assert row_of(listed, None, None, NOW_MS + 1000).state is ListedState.EXPIRED


def test_a_node_that_never_came_has_no_session_to_show() -> None:
    one = row_of(ListedNode(Member(IDS[0], "acme"), None), None, None, NOW_MS)
    assert (one.state, one.since_ms, one.left, one.tools) == (ListedState.ENROLLED, None, None, 0)
    assert one.counts is NO_COUNTS


def test_a_revoked_node_is_revoked_since_it_was_and_may_not_come_back() -> None:
    one = row(IDS[0], state=ListedState.REVOKED, since_ms=5, left=NodeClose.NORMAL)
    assert (one.since_ms, one.left, one.expires_at_ms) == (NOW_MS, NodeClose.FORBIDDEN, None)
