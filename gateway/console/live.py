"""Live pages: one clock for all of them, which says once a second what is other than before.

    event: fleet   counts, total, the window's rows that changed; `ids`, in their order, when the window has others
    event: node    the row of the node that the page looks at, when it is another; null when there is no such node
    event: frame   one frame of that node, as it comes
    event: audit   lines, as they are written
    event: ping

Pages that ask the same are computed together. What a page has not taken waits in its `Mailbox`, within bounds. While
nobody looks, nothing runs: the clock waits, and the table dozes, until it is let go.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

import msgspec
import trio

from actors.bus.bus import Bus
from actors.bus.directory import Directory
from actors.node.moment import Moment
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.console.api import Answer, NoAnswer, Streamed, Write
from gateway.console.audit_feed import AuditFeeds, AuditFilter
from gateway.console.fleet_rules import FleetQuery
from gateway.console.fleet_table import FleetTable, FleetWindow
from gateway.console.frame_samples import SAMPLE_S
from gateway.console.mailbox import Mailbox, event
from gateway.console.node_feed import Intervals, NodeFeed
from gateway.console.node_ids import NO_SUCH_NODE, NodeId
from schemas.errors import Code
from schemas.labels import TAG_RULE

TICK_S = 1.0
TICKS_A_SAMPLE = round(SAMPLE_S / TICK_S)
AWAKE_S = 10.0  # since the last look, in which frames are still counted: for a page that asks now and then

BAD_TAG = NoAnswer(Code.MANIFEST_INVALID, "A tag to look for is not of the right shape.", TAG_RULE)


class LiveAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fleet: FleetQuery | None = None
    node: NodeId | None = None
    audit: AuditFilter | None = None


class _Window(FleetWindow):
    def __init__(self, table: FleetTable, query: FleetQuery) -> None:
        super().__init__(table, query)
        self.pages: dict[Mailbox, None] = {}


class Live:
    def __init__(
        self,
        table: FleetTable,
        directory: Directory,
        bus: Bus,
        intervals_of: Intervals,
        audit: AuditFeeds | None,
        now: Callable[[], Moment],
        rest_s: float,
    ) -> None:
        """Without an audit nothing of it can be followed."""
        self._table = table
        self._directory = directory
        self._bus = bus
        self._intervals_of = intervals_of
        self._audit = audit
        self._now = now
        self._rest_s = rest_s
        self._windows: dict[FleetQuery, _Window] = {}
        self._nodes: dict[str, NodeFeed] = {}
        self._looked_s = -inf
        self._looked = trio.Event()

    # ---- for pages ---------------------------------------------------------------------------------------------------

    async def page(self, query: FleetQuery) -> Answer:
        if not query.is_sound:
            return BAD_TAG
        self._look()
        return await self._table.page(query)

    async def row(self, node_id: str) -> dict[str, object] | None:
        """As the fleet's table has it, now."""
        self._look()
        await self._table.refresh()
        row = self._table.find(node_id)
        return None if row is None else self._table.shown(row)

    async def open(self, ask: LiveAsk) -> Answer:
        if ask.fleet is not None and not ask.fleet.is_sound:
            return BAD_TAG
        if ask.node is not None and await self.row(ask.node) is None:
            return NO_SUCH_NODE

        async def run(write: Write) -> None:
            page = Mailbox()
            with self._watching(page, ask):
                if ask.fleet is not None:
                    await self._show(page, ask.fleet)
                await page.serve(write)

        return Streamed(b"text/event-stream; charset=utf-8", run)

    def _look(self) -> None:
        """Somebody does."""
        self._looked_s = self._now().mono_s
        self._looked.set()

    @contextmanager
    def _watching(self, page: Mailbox, ask: LiveAsk) -> Iterator[None]:
        self._look()
        try:
            if ask.node is not None:
                self._join_node(page, ask.node)
            if ask.audit is not None and self._audit is not None:
                self._audit.join(page, ask.audit)
            yield
        finally:
            self._look()  # until now somebody did
            if ask.node is not None:
                self._leave_node(page, ask.node)
            if ask.audit is not None and self._audit is not None:
                self._audit.leave(page, ask.audit)
            if ask.fleet is not None and ask.fleet in self._windows:
                self._windows[ask.fleet].pages.pop(page, None)
                if not self._windows[ask.fleet].pages:
                    del self._windows[ask.fleet]

    def _join_node(self, page: Mailbox, node_id: str) -> None:
        if node_id not in self._nodes:
            self._nodes[node_id] = NodeFeed(node_id, self._directory, self._bus, self._intervals_of, self._now)
        self._nodes[node_id].join(page)

    def _leave_node(self, page: Mailbox, node_id: str) -> None:
        feed = self._nodes[node_id]
        feed.leave(page)
        if feed.is_empty:
            del self._nodes[node_id]

    async def _show(self, page: Mailbox, query: FleetQuery) -> None:
        """All of it first. A page that joins others has what they have: what follows are changes since."""
        await self._table.refresh()
        window = self._windows.get(query)
        if window is None:
            window = self._windows[query] = _Window(self._table, query)
            window.changes()
        window.pages[page] = None
        page.put(event("fleet", window.whole))

    # ---- the clock ---------------------------------------------------------------------------------------------------

    def start(self, supervisor: Supervisor) -> None:
        supervisor.start(ChildSpec(name="console_live", run=self.run, kind=Kind.PERMANENT, stage=Stage.CORE))
        if self._audit is not None:
            spec = ChildSpec(name="console_audit", run=self._audit.run, kind=Kind.PERMANENT, stage=Stage.CORE)
            supervisor.start(spec)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                await self._looked.wait()
                await self._keep_time(nursery)
                self._looked = trio.Event()
                self._table.doze()
                with trio.move_on_after(self._rest_s):
                    await self._looked.wait()
                if not self._looked.is_set():
                    self._table.rest()

    async def _keep_time(self, nursery: trio.Nursery) -> None:
        """For as long as somebody looks."""
        ticks, due_s = 0, trio.current_time()
        while self._windows or self._nodes or self._now().mono_s - self._looked_s < AWAKE_S:
            if ticks % TICKS_A_SAMPLE == 0 and self._table.is_open:
                self._table.sample()
            await self._tick(nursery)
            ticks, due_s = ticks + 1, max(due_s + TICK_S, trio.current_time())
            await trio.sleep_until(due_s)

    async def _tick(self, nursery: trio.Nursery) -> None:
        """Tell every page what is other than before."""
        if not self._windows and not self._nodes:
            return
        await self._table.refresh()
        for window in list(self._windows.values()):
            changes = window.changes()
            if changes is not None:
                said = event("fleet", changes)
                for page in window.pages:
                    page.put(said)
            await trio.lowlevel.checkpoint()
        for feed in list(self._nodes.values()):
            self._tell_row(feed)
            if not feed.is_attaching:
                nursery.start_soon(feed.attach)

    def _tell_row(self, feed: NodeFeed) -> None:
        row = self._table.find(feed.node_id)
        stamp = () if row is None else self._table.stamp(row)
        if stamp != feed.stamp:
            feed.show(stamp, None if row is None else self._table.shown(row))
