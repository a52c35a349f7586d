"""The fleet's table beside a real directory and register: it shows what they say, whatever happened before."""

from collections.abc import Awaitable, Callable
from functools import partial
from heapq import heappush
from typing import Any

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from actors.register.listed_node import ListedNode, ListedState
from gateway.console import fleet_table
from gateway.console.fleet_rules import FleetQuery, Sort, row_of
from gateway.console.fleet_table import ROWS_A_TURN, FleetWindow
from tests.gateway.console.fleet import Fleet
from tests.gateway.console.rows import IDS, TAGS, expected, queries
from tests.schemas.examples import ECHO_CAPABILITY, METRICS_CAPABILITY


class Kept(RuleBasedStateMachine):
    """Whatever happens to nodes and clocks, and whatever was asked before."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()

    def do(self, what: Callable[[], Awaitable[Any]]) -> Any:
        return trio.run(what)

    @rule(node_id=st.sampled_from(IDS[:6]), name=st.none() | st.sampled_from(("pump", "valve")))
    def enroll(self, node_id: str, name: str | None) -> None:
        self.do(partial(self.fleet.enroll, node_id, name))

    @rule(node_id=st.sampled_from(IDS[:6]), tag=st.sampled_from(TAGS))
    def tag(self, node_id: str, tag: str) -> None:
        self.do(partial(self.fleet.tag, node_id, dict([tag.split("=")])))

    @rule(node_id=st.sampled_from(IDS[:6]), name=st.none() | st.sampled_from(("pump", "valve")))
    def rename(self, node_id: str, name: str | None) -> None:
        self.do(partial(self.fleet.rename, node_id, name))

    @rule(node_id=st.sampled_from(IDS[:6]))
    def revoke(self, node_id: str) -> None:
        self.do(partial(self.fleet.revoke, node_id))

    @rule(node_id=st.sampled_from(IDS[:6]))
    def forget(self, node_id: str) -> None:
        self.do(partial(self.fleet.forget, node_id))

    @rule(node_id=st.sampled_from(IDS[:6]), life_ms=st.sampled_from((5, 60_000)))
    def come(self, node_id: str, life_ms: int) -> None:
        self.do(partial(self.fleet.come, node_id, life_ms=life_ms))

    @rule(node_id=st.sampled_from(IDS[:6]))
    def announce(self, node_id: str) -> None:
        self.do(partial(self.fleet.announce, node_id, METRICS_CAPABILITY, ECHO_CAPABILITY))

    @rule(node_id=st.sampled_from(IDS[:6]))
    def go(self, node_id: str) -> None:
        self.fleet.go(node_id)

    @rule(ms=st.sampled_from((1, 5, 100, 70_000)))
    def wait(self, ms: int) -> None:
        self.fleet.pass_ms(ms)

    @rule()
    def set_the_clock_back(self) -> None:
        self.fleet.pass_ms(1, -10)

    @rule(node_id=st.sampled_from(IDS[:6]))
    def call(self, node_id: str) -> None:
        counts = self.fleet.counts.get(node_id)
        if counts is not None:
            counts.calls += 1
            counts.last_call_ms = self.fleet.moment.wall_ms
        self.fleet.pass_ms(1000)

    @rule()
    def rest(self) -> None:
        self.fleet.table.rest()

    @rule(query=queries)
    def ask(self, query: FleetQuery) -> None:
        fleet = self.fleet
        if query.sort == "frames_per_s":
            return
        page = self.do(partial(fleet.table.page, query))
        rows = []
        for node_id in IDS[:6]:
            member, record = fleet.register.find(node_id), fleet.directory.find(node_id)
            if (member or record) and not (member is not None and member.is_forgotten):
                rows.append(row_of(ListedNode(member, record), fleet.counts.get(node_id), None, fleet.moment.wall_ms))
        total, ids = expected(rows, query)
        assert (page["total"], [one["node_id"] for one in page["rows"]]) == (total, ids)
        by_id = {one.node_id: one for one in rows}
        for one in page["rows"]:
            row = by_id[one["node_id"]]
            assert (one["name"], one["tags"], one["state"]) == (row.name, row.tags, row.state)
            assert (one["since_ms"], one["tools"], one["calls"]) == (row.since_ms, row.tools, row.counts.calls)
        assert sum(page["counts"].values()) == len(rows)

    @invariant()
    def a_table_at_rest_is_told_nothing(self) -> None:
        assert self.fleet.table.is_open or not self.fleet.table.pending


TestKept = Kept.TestCase
TestKept.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


async def test_a_node_that_never_came_is_listed_until_it_is_forgotten() -> None:
    fleet = Fleet()
    await fleet.enroll(IDS[0], "pump")
    assert (await fleet.shown())[IDS[0]]["state"] == "enrolled"
    await fleet.revoke(IDS[0])
    assert (await fleet.shown())[IDS[0]]["left"] == {"code": 4403, "reason": "forbidden"}
    await fleet.forget(IDS[0])
    assert await fleet.shown() == {}


async def test_a_manifest_that_expires_is_seen_without_anybody_saying_so() -> None:
    fleet = Fleet()
    await fleet.come(IDS[0], life_ms=1000)
    assert (await fleet.table.page(FleetQuery()))["counts"]["live"] == 1
    fleet.pass_ms(999)
    assert (await fleet.shown())[IDS[0]]["state"] == "live"
    fleet.pass_ms(1)
    page = await fleet.table.page(FleetQuery(state=ListedState.EXPIRED))
    assert (page["counts"]["expired"], page["counts"]["live"], page["total"]) == (1, 0, 1)


async def test_a_clock_that_is_set_back_brings_back_what_had_expired() -> None:
    fleet = Fleet()
    await fleet.come(IDS[0], life_ms=1000)
    fleet.pass_ms(1000)
    assert (await fleet.shown())[IDS[0]]["state"] == "expired"
    fleet.pass_ms(1, -10)
    assert (await fleet.shown())[IDS[0]]["state"] == "live"
    fleet.pass_ms(10)
    assert (await fleet.shown())[IDS[0]]["state"] == "expired"


async def test_an_order_by_calls_is_as_of_the_last_second() -> None:
    fleet = Fleet()
    for node_id in IDS[:2]:
        await fleet.come(node_id)
        fleet.counts[node_id].last_call_ms = 5
    fleet.pass_ms(1000)
    assert list(await fleet.shown(sort="last_call")) == IDS[:2]
    fleet.counts[IDS[0]].last_call_ms = 6
    fleet.pass_ms(999)
    assert list(await fleet.shown(sort="last_call")) == IDS[:2]
    fleet.pass_ms(1)
    assert list(await fleet.shown(sort="last_call")) == [IDS[1], IDS[0]]


async def test_frames_of_the_last_minute_are_in_the_row() -> None:
    fleet = Fleet()
    await fleet.come(IDS[0])
    await fleet.table.refresh()
    fleet.table.sample()
    for frames in (2, 0, 4):
        fleet.counts[IDS[0]].frames += frames
        fleet.pass_ms(2000)
        fleet.table.sample()
    shown = (await fleet.shown(sort="frames_per_s"))[IDS[0]]
    assert (shown["spark"], shown["frames_per_s"]) == ([2, 0, 4], 1.0)


async def test_a_large_fleet_is_looked_at_in_turns_and_a_cancelled_look_is_gone_on_with() -> None:
    fleet = Fleet()
    nodes = [f"01hzx3k8q2v7n4t9r6w5y1{number:04d}" for number in range(3 * ROWS_A_TURN)]
    for node_id in nodes:
        await fleet.enroll(node_id)
    with trio.CancelScope() as scope:
        scope.cancel()
        await fleet.table.refresh()
    assert scope.cancelled_caught
    page = await fleet.table.page(FleetQuery(sort=Sort.NODE_ID, limit=500))
    assert (page["total"], [one["node_id"] for one in page["rows"]]) == (len(nodes), nodes[:500])


async def test_a_table_is_made_anew_when_too_many_of_its_nodes_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_table, "SLOTS_SPARE", 3)
    fleet = Fleet()
    for number in range(12):
        node_id = f"01hzx3k8q2v7n4t9r6w5y1c0{number:02d}"
        await fleet.enroll(node_id)
        await fleet.come(node_id)
        assert list(await fleet.shown()) == [node_id]
        assert fleet.table.samples.slots <= 2 + 3 + 1
        fleet.go(node_id)
        await fleet.revoke(node_id)
        await fleet.forget(node_id)


async def test_a_window_tells_what_changed_and_nothing_else() -> None:
    fleet = Fleet()
    for node_id, name in zip(IDS[:3], ("a", "b", "c"), strict=True):
        await fleet.enroll(node_id, name)
        await fleet.come(node_id)
    await fleet.table.refresh()
    window = FleetWindow(fleet.table, FleetQuery(limit=2))
    first = window.changes()
    assert first is not None
    assert (first["ids"], len(first["rows"]), first["total"]) == (IDS[:2], 2, 3)
    assert window.changes() is None

    fleet.counts[IDS[1]].calls += 1  # in the window
    fleet.counts[IDS[2]].calls += 1  # not in it
    await fleet.table.refresh()
    second = window.changes()
    assert second is not None
    assert "ids" not in second
    assert [row.copy() for row in second["rows"]] == [window.whole["rows"][1].copy()]

    await fleet.rename(IDS[0], "z")  # out of the window; another one comes in
    await fleet.table.refresh()
    third = window.changes()
    assert third is not None
    assert (third["ids"], len(third["rows"])) == ([IDS[1], IDS[2]], 1)

    fleet.go(IDS[0])  # out of sight: only the counts are others
    await fleet.table.refresh()
    fourth = window.changes()
    assert fourth is not None
    assert (fourth["counts"]["away"], fourth["rows"]) == (1, [])


@pytest.mark.parametrize("is_quiet", [False, True])
async def test_a_row_is_told_again_when_its_line_moves_on_and_once_when_it_is_flat(is_quiet: bool) -> None:
    fleet = Fleet()
    await fleet.come(IDS[0])
    await fleet.table.refresh()
    window = FleetWindow(fleet.table, FleetQuery())
    fleet.table.sample()
    window.changes()
    if not is_quiet:
        fleet.counts[IDS[0]].frames += 1
    told = []
    for _ in range(40):
        fleet.pass_ms(2000)
        fleet.table.sample()
        told.append(window.changes() is not None)
    assert told.count(True) == (0 if is_quiet else 31)
    assert not any(told[31:])


async def test_a_member_of_a_log_from_before_the_register_is_shown_by_what_it_announced() -> None:
    fleet = Fleet()
    await fleet.come(IDS[0])
    assert fleet.register.find(IDS[0]) is None
    assert (await fleet.shown())[IDS[0]]["tools"] == 1


async def test_order_by_drops_is_another_a_second_later() -> None:
    fleet = Fleet()
    for node_id in IDS[:2]:
        await fleet.come(node_id)
        fleet.counts[node_id].drops = 1
    assert list(await fleet.shown(sort="drops")) == IDS[:2]
    fleet.counts[IDS[0]].drops = 2
    fleet.pass_ms(1_000)
    assert list(await fleet.shown(sort="drops")) == [IDS[1], IDS[0]]


async def test_what_is_known_of_ends_is_bounded_however_often_a_node_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    def push(heap: list[Any], item: Any) -> None:
        heappush(heap, item)
        sizes.append(len(heap))

    monkeypatch.setattr(fleet_table, "ROWS_A_TURN", 3)
    monkeypatch.setattr(fleet_table, "heappush", push)
    fleet = Fleet()
    for number in range(20):
        await fleet.come(IDS[0], life_ms=60_000 + number)
        fleet.pass_ms(1)
        await fleet.shown()
    assert len(sizes) == 20
    assert max(sizes) == 2 * 1 + 3 + 1
    fleet.go(IDS[0])
    fleet.pass_ms(60_100)
    assert (await fleet.shown())[IDS[0]]["state"] == ListedState.EXPIRED
