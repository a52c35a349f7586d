"""Live pages: deltas once a second, one computation for all who ask the same, frames of a node that comes and goes."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.bus.bus import Attachment, Failed, LastFrame, Listener, Outcome
from actors.node.moment import Moment
from gateway.console import fleet_table
from gateway.console.api import NoAnswer, Streamed
from gateway.console.audit_feed import AuditFeeds, AuditFilter
from gateway.console.fleet_rules import LIMIT_MAX, FleetQuery
from gateway.console.live import AWAKE_S, Live, LiveAsk
from gateway.console.mailbox import EVENTS_MAX, PING_S
from gateway.console.node_feed import AGAIN_S, CAPABILITIES_MAX
from schemas.errors import Code
from schemas.labels import TAGS_MAX
from tests.gateway.console.fleet import Fleet
from tests.gateway.console.rows import IDS, NOW_MS
from tests.schemas.examples import ECHO_CAPABILITY, METRICS_CAPABILITY

REST_S = 60.0
FRAME = {
    "ts_ms": NOW_MS,
    "node_id": IDS[0],
    "cpu_pct": 12.5,
    "mem_bytes": 1.0,
    "mem_total_bytes": 2,
    "disk_pct": 50.0,
    "load_1m": 0.5,
    "load_5m": 0.4,
    "load_15m": 0.3,
}


class FakeBus:
    """Nodes whose frames a test sends."""

    def __init__(self) -> None:
        self.listeners: dict[Listener, tuple[str, str, int]] = {}
        self.attached: list[tuple[str, str, int]] = []
        self.refusal: Failed | None = None
        self.last: LastFrame | None = None
        self.intervals: list[int] = []

    async def call(self, *_: Any, **__: Any) -> Outcome:
        raise NotImplementedError

    def last_frame(self, _node_id: str) -> LastFrame | None:
        return self.last

    def intervals_of(self, node_id: str, cap_id: str) -> list[int]:
        del node_id, cap_id
        return self.intervals

    async def attach(self, node_id: str, tool: str, interval_ms: int, listener: Listener) -> Attachment | Failed:
        self.attached.append((node_id, tool, interval_ms))
        await trio.lowlevel.checkpoint()
        if self.refusal is not None:
            return self.refusal
        self.listeners[listener] = (node_id, tool, interval_ms)
        return _Attached(self, listener)

    def send(self, frame: Mapping[str, Any]) -> None:
        for listener in list(self.listeners):
            listener.on_frame(frame)

    def end(self) -> None:
        """The node is gone."""
        listeners, self.listeners = self.listeners, {}
        for listener in listeners:
            listener.on_cadence_end()


class _Attached:
    def __init__(self, bus: FakeBus, listener: Listener) -> None:
        self._bus, self._listener = bus, listener

    def detach(self) -> None:
        self._bus.listeners.pop(self._listener, None)


def now() -> Moment:
    return Moment(trio.current_time(), NOW_MS + int(trio.current_time() * 1000))


class Page:
    """One live feed, read as a page does."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.reads = trio.Event()
        self.reads.set()
        self.ended = False
        self.scope = trio.CancelScope()

    async def write(self, data: bytes) -> None:
        await self.reads.wait()
        for one in data.decode().split("\n\n")[:-1]:
            name, _, said = one.partition("\n")
            self.events.append((name.removeprefix("event: "), json.loads(said.removeprefix("data: "))))

    def of(self, name: str) -> list[Any]:
        return [said for kind, said in self.events if kind == name]


class Site:
    def __init__(self, nursery: trio.Nursery, audit: AuditFeeds | None = None) -> None:
        self.fleet = Fleet(now)
        self.bus = FakeBus()
        self.live = Live(self.fleet.table, self.fleet.directory, self.bus, self.bus.intervals_of, audit, now, REST_S)
        self._nursery = nursery

    async def open(self, **ask: Any) -> Page:
        page = Page()
        answer = await self.live.open(LiveAsk(**ask))
        assert isinstance(answer, Streamed), answer
        assert answer.content_type.startswith(b"text/event-stream")

        async def run() -> None:
            with page.scope:
                await answer.run(page.write)
            page.ended = True

        self._nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        return page

    async def close(self, page: Page) -> None:
        page.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    async with trio.open_nursery() as nursery:
        made = Site(nursery)
        nursery.start_soon(made.live.run)
        yield made
        nursery.cancel_scope.cancel()


# ---- the fleet -------------------------------------------------------------------------------------------------------


async def test_a_page_has_the_whole_window_first_and_then_what_changes(autojump_clock: MockClock) -> None:
    async with site() as here:
        for node_id, name in zip(IDS[:3], ("a", "b", "c"), strict=True):
            await here.fleet.enroll(node_id, name)
            await here.fleet.come(node_id)
        page = await here.open(fleet=FleetQuery(limit=2))
        (whole,) = page.of("fleet")
        assert (whole["ids"], [row["name"] for row in whole["rows"]]) == (IDS[:2], ["a", "b"])
        assert (whole["total"], whole["offset"], whole["counts"]["live"]) == (3, 0, 3)
        await trio.sleep(3.5)
        assert page.of("fleet") == [whole]  # nothing happened

        here.fleet.counts[IDS[1]].calls += 1
        await trio.sleep(1)
        (_, change) = page.of("fleet")
        assert "ids" not in change
        assert [(row["name"], row["calls"]) for row in change["rows"]] == [("b", 1)]


async def test_there_is_one_event_a_second_however_much_changes(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0])
        page = await here.open(fleet=FleetQuery())
        await trio.sleep(0.01)
        before = len(page.of("fleet"))
        for _ in range(400):
            here.fleet.counts[IDS[0]].calls += 1
            await trio.sleep(0.01)
        assert 3 <= len(page.of("fleet")) - before <= 5


async def test_pages_that_ask_the_same_are_computed_once_and_told_the_same(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    plain = fleet_table.FleetTable.shown

    def counted(table: Any, row: Any) -> Any:
        shown.append(row.node_id)
        return plain(table, row)

    async with site() as here:
        await here.fleet.come(IDS[0])
        pages = [await here.open(fleet=FleetQuery(text="c0a")) for _ in range(10)]
        await trio.sleep(1.5)
        monkeypatch.setattr(fleet_table.FleetTable, "shown", counted)
        here.fleet.counts[IDS[0]].drops += 1
        await trio.sleep(1)
        assert shown == [IDS[0]]
        assert all(page.events == pages[0].events for page in pages)


async def test_who_joins_others_has_what_they_have_and_then_the_same_changes(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0])
        first = await here.open(fleet=FleetQuery())
        await trio.sleep(1.2)
        counts = here.fleet.counts[IDS[0]]
        counts.calls += 1  # since the last tick: a page that comes now must not miss it if it is undone
        second = await here.open(fleet=FleetQuery())
        counts.calls -= 1
        await trio.sleep(2)

        def last(page: Page) -> int:
            return int([row["calls"] for said in page.of("fleet") for row in said["rows"]][-1])

        assert (last(first), last(second)) == (0, 0)


async def test_a_page_that_does_not_read_is_ended_and_the_others_go_on(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0])
        stalled, reading = [await here.open(fleet=FleetQuery()) for _ in range(2)]
        stalled.reads = trio.Event()
        for _ in range(EVENTS_MAX + 3):
            here.fleet.counts[IDS[0]].calls += 1
            await trio.sleep(1)
        seen = len(stalled.events)
        stalled.reads.set()
        await trio.testing.wait_all_tasks_blocked()
        assert stalled.ended
        assert len(stalled.events) <= seen + 2
        assert len(reading.of("fleet")) > EVENTS_MAX


async def test_nothing_is_sampled_once_nobody_looks_and_changes_are_only_noted(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0], life_ms=10**9)
        page = await here.open(fleet=FleetQuery())
        for _ in range(5):
            here.fleet.counts[IDS[0]].frames += 1
            await trio.sleep(2)
        samples = here.fleet.table.samples
        assert samples.spark(0)
        await here.close(page)
        await trio.sleep(AWAKE_S + 2)
        taken = samples.taken
        here.fleet.go(IDS[0])
        here.fleet.go(IDS[0])
        await trio.sleep(REST_S / 2)
        assert (samples.taken, samples.spark(0), here.fleet.table.pending) == (taken, [], 1)
        again = await here.open(fleet=FleetQuery())
        assert again.of("fleet")[0]["counts"]["away"] == 1


async def test_the_table_is_let_go_when_nobody_has_looked_for_long(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0], life_ms=10**9)
        page = await here.open(fleet=FleetQuery())
        await trio.sleep(2 * REST_S)
        assert here.fleet.table.is_open
        await here.close(page)
        await trio.sleep(REST_S + AWAKE_S + 2)
        assert not here.fleet.table.is_open
        here.fleet.go(IDS[0])
        assert not here.fleet.table.pending
        again = await here.open(fleet=FleetQuery())
        assert again.of("fleet")[0]["counts"]["away"] == 1


async def test_a_page_without_a_feed_is_sampled_for_too(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0])
        for _ in range(6):
            await here.live.page(FleetQuery())
            await trio.sleep(AWAKE_S - 1)
            here.fleet.counts[IDS[0]].frames += 1
        answer = await here.live.page(FleetQuery())
        assert isinstance(answer, dict)
        assert sum(answer["rows"][0]["spark"]) >= 4


async def test_pings_come_on_a_feed_of_nothing(autojump_clock: MockClock) -> None:
    async with site() as here:
        page = await here.open()
        await trio.sleep(3 * PING_S + 0.5)
        assert page.events == [("ping", {})] * 3


async def test_a_tag_that_is_none_is_no_feed() -> None:
    async with site() as here:
        for answer in (
            await here.live.open(LiveAsk(fleet=FleetQuery(tags=("nonsense",)))),
            await here.live.page(FleetQuery(tags=("nonsense",))),
        ):
            assert isinstance(answer, NoAnswer)
            assert answer.code is Code.MANIFEST_INVALID


async def test_the_longest_window_that_there_can_be_is_shown(autojump_clock: MockClock) -> None:
    async with site() as here:
        tags = {f"{number:02d}{'k' * 61}": "v" * 63 for number in range(TAGS_MAX)}
        for number in range(LIMIT_MAX):
            node_id = f"{IDS[0][:-3]}{number:03d}"
            await here.fleet.enroll(node_id, f"n{number:03d}{'n' * 59}")
            await here.fleet.tag(node_id, tags)
        page = await here.open(fleet=FleetQuery(limit=LIMIT_MAX))
        assert not page.ended
        assert len(page.of("fleet")[0]["rows"]) == LIMIT_MAX


# ---- a node ----------------------------------------------------------------------------------------------------------


async def test_frames_of_a_node_come_as_it_sends_them(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0], METRICS_CAPABILITY, ECHO_CAPABILITY)
        here.bus.last = LastFrame(FRAME, NOW_MS - 5, "metrics")
        page = await here.open(node=IDS[0])
        await trio.sleep(1.5)
        here.bus.send(FRAME)
        await trio.sleep(0.1)
        (before, since) = page.of("frame")
        assert (before["at_ms"], before["cap_id"], before["frame"]["cpu_pct"]) == (NOW_MS - 5, "metrics", 12.5)
        assert since["frame"] == before["frame"]
        assert [said["row"]["node_id"] for said in page.of("node")] == [IDS[0]]


async def test_all_pages_listen_by_one_attachment_and_the_last_one_out_ends_it(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0], METRICS_CAPABILITY)
        pages = [await here.open(node=IDS[0]) for _ in range(5)]
        await trio.sleep(3)
        assert here.bus.attached == [(IDS[0], f"sys.{IDS[0]}.metrics.subscribe", 5_000)]
        here.bus.send(FRAME)
        await trio.sleep(0.1)
        assert [len(page.of("frame")) for page in pages] == [1] * 5
        assert [len(page.of("node")) for page in pages] == [1] * 5
        for page in pages:
            assert here.bus.listeners
            await here.close(page)
        assert not here.bus.listeners


async def test_a_look_takes_the_shortest_interval_that_there_is(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0], METRICS_CAPABILITY)
        here.bus.intervals = [60_000, 1_000, 5_000]
        await here.open(node=IDS[0])
        await trio.sleep(1.5)
        assert [interval for _, _, interval in here.bus.attached] == [1_000]


async def test_a_node_that_goes_while_it_is_looked_at_is_listened_to_again_when_it_is_back(
    autojump_clock: MockClock,
) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0], METRICS_CAPABILITY, life_ms=10**9)
        page = await here.open(node=IDS[0])
        await trio.sleep(1.5)
        here.bus.end()
        here.fleet.go(IDS[0])
        await trio.sleep(2)
        assert page.of("node")[-1]["row"]["state"] == "away"
        assert len(here.bus.attached) == 1
        await here.fleet.come(IDS[0], METRICS_CAPABILITY)
        await trio.sleep(2)
        assert page.of("node")[-1]["row"]["state"] == "live"
        here.bus.send(FRAME)
        await trio.sleep(0.1)
        assert len(page.of("frame")) == 1


async def test_a_node_that_is_forgotten_while_it_is_looked_at_has_no_row_any_more(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.enroll(IDS[0])
        page = await here.open(node=IDS[0])
        await trio.sleep(1.5)
        await here.fleet.revoke(IDS[0])
        await here.fleet.forget(IDS[0])
        await trio.sleep(1.5)
        assert page.of("node")[-1] == {"row": None}
        assert not page.ended


async def test_a_refused_look_is_tried_again_after_a_while(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0], METRICS_CAPABILITY)
        here.bus.refusal = Failed(Code.RATE_LIMITED)
        await here.open(node=IDS[0])
        await trio.sleep(AGAIN_S - 1)
        assert len(here.bus.attached) == 1
        here.bus.refusal = None
        await trio.sleep(3)
        assert len(here.bus.attached) == 2
        assert here.bus.listeners


async def test_whoever_leaves_while_the_node_is_being_asked_leaves_no_listener(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0], METRICS_CAPABILITY)
        asked, answered = trio.Event(), trio.Event()
        attach = here.bus.attach

        async def slowly(*source: Any) -> Attachment | Failed:
            asked.set()
            await answered.wait()
            return await attach(*source)

        here.bus.attach = slowly  # type: ignore[method-assign, assignment]
        page = await here.open(node=IDS[0])
        await asked.wait()
        await here.close(page)
        answered.set()
        await trio.sleep(1)
        assert not here.bus.listeners


async def test_a_node_that_is_slow_to_answer_keeps_no_other_page_waiting(autojump_clock: MockClock) -> None:
    async with site() as here:
        for node_id in IDS[:3]:
            await here.fleet.come(node_id, METRICS_CAPABILITY, life_ms=10**9)
        attach = here.bus.attach

        async def only_the_last(node_id: str, *source: Any) -> Attachment | Failed:
            if node_id != IDS[2]:
                await trio.sleep_forever()
            return await attach(node_id, *source)

        here.bus.attach = only_the_last  # type: ignore[method-assign, assignment]
        for node_id in IDS[:3]:
            await here.open(node=node_id)
        page = await here.open(fleet=FleetQuery())
        await trio.sleep(0.5)
        before = len(page.of("fleet"))
        for _ in range(10):
            here.fleet.counts[IDS[0]].calls += 1
            await trio.sleep(1)
        assert len(page.of("fleet")) - before == 10
        assert [node_id for node_id, _, _ in here.bus.attached] == [IDS[2]]


async def test_of_a_node_with_many_capabilities_a_few_are_listened_to(autojump_clock: MockClock) -> None:
    async with site() as here:
        many = [{**METRICS_CAPABILITY, "cap_id": f"metrics_{number}"} for number in range(3 * CAPABILITIES_MAX)]
        await here.fleet.come(IDS[0], *many)
        await here.open(node=IDS[0])
        await trio.sleep(5)
        assert len(here.bus.attached) == CAPABILITIES_MAX


async def test_an_unknown_node_is_no_feed() -> None:
    async with site() as here:
        answer = await here.live.open(LiveAsk(node=IDS[0]))
        assert isinstance(answer, NoAnswer)
        assert answer.code is Code.MANIFEST_NOT_FOUND


async def test_a_feed_of_an_audit_that_is_not_kept_is_a_feed_of_nothing(autojump_clock: MockClock) -> None:
    async with site() as here:
        page = await here.open(audit=AuditFilter())
        await trio.sleep(5)
        assert page.events == []


async def test_a_node_that_nobody_looks_at_any_more_keeps_nothing_going(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0], METRICS_CAPABILITY, life_ms=10**9)
        await here.close(await here.open(node=IDS[0]))
        await trio.sleep(AWAKE_S + REST_S + 2)
        assert not here.fleet.table.is_open


async def test_a_node_whose_manifest_has_expired_is_not_listened_to(autojump_clock: MockClock) -> None:
    async with site() as here:
        await here.fleet.come(IDS[0], METRICS_CAPABILITY, life_ms=500)
        await trio.sleep(1)
        await here.open(node=IDS[0])
        await trio.sleep(2 * AGAIN_S)
        assert here.bus.attached == []
