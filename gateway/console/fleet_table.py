"""The fleet page's data: rows kept up with directory and register, counts sampled, for as long as somebody looks.

Whoever looks calls `page`, or has a `FleetWindow` and calls `refresh` before it reads that. The directory says which
nodes are others; only those are looked at again, some at a time, with a checkpoint in between. While nobody looks, they
are only noted, each once. When nobody has looked for long, `rest` lets go of it all.

Which rows a page is shown, and in which order, is `fleet_rules.py`'s and `fleet_index.py`'s.
"""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

import msgspec
import trio

from actors.bus.directory import Directory
from actors.node.counts import NodeCounts
from actors.node.moment import Moment
from actors.register.events import Member
from actors.register.listed_node import ListedNode, ListedState
from gateway.console.fleet_index import FleetIndex
from gateway.console.fleet_rules import FleetQuery, Row, Sort, row_of
from gateway.console.frame_samples import FrameSamples

ROWS_A_TURN = 250  # looked at between two checkpoints
ORDERS_S = 1.0  # for which an order by calls or drops is good: they change with every call


class Roll(Protocol):
    """The register of nodes."""

    @property
    def ids(self) -> list[str]: ...

    def find(self, node_id: str) -> Member | None: ...


class FleetTable:
    def __init__(
        self,
        directory: Directory,
        register: Roll,
        counts_of: Callable[[str], NodeCounts | None],
        now: Callable[[], Moment],
    ) -> None:
        self._directory = directory
        self._register = register
        self._counts_of = counts_of
        self._now = now
        self._turn = trio.Lock()
        self._stop_watching: Callable[[], None] | None = None
        self._begin()

    def _begin(self) -> None:
        self.samples = FrameSamples()
        self.index = FleetIndex(lambda row: self.samples.per_s(row.slot))
        self._touched: dict[str, None] = {}  # to be looked at; a dict for its order
        self._expiries: list[tuple[int, str]] = []  # a heap; some of manifests that were replaced meanwhile
        self._as_of_ms = 0
        self._orders_as_of_s = 0.0

    @property
    def is_open(self) -> bool:
        return self._stop_watching is not None

    @property
    def pending(self) -> int:
        """Nodes that are to be looked at again."""
        return len(self._touched)

    # ---- what there is -----------------------------------------------------------------------------------------------

    async def page(self, query: FleetQuery) -> dict[str, Any]:
        await self.refresh()
        total, rows = self.index.find(query)
        return {**self.heading(total, query), "rows": [self.shown(row) for row in rows]}

    def heading(self, total: int, query: FleetQuery) -> dict[str, Any]:
        return {
            "counts": {state.value: self.index.states[state] for state in ListedState},
            "total": total,
            "offset": query.offset,
            "now_ms": self._as_of_ms,
        }

    def shown(self, row: Row) -> dict[str, Any]:
        counts, slot, left = row.counts, row.slot, row.left
        return {
            "node_id": row.node_id,
            "tenant": row.tenant,
            "name": row.name,
            "tags": row.tags,
            "state": row.state,
            "since_ms": row.since_ms,
            "left": None if left is None else {"code": left.value.code, "reason": left.value.reason},
            "last_call_ms": counts.last_call_ms,
            "calls": counts.calls,
            "frames_per_s": round(self.samples.per_s(slot), 2),
            "spark": self.samples.spark(slot),
            "drops": counts.drops,
            "tools": row.tools,
        }

    def stamp(self, row: Row) -> tuple[Any, ...]:
        """Another one whenever the row is shown differently."""
        counts = row.counts
        sampled = 0 if self.samples.is_quiet(row.slot) else self.samples.taken
        return row, counts.drops, counts.calls, sampled

    def find(self, node_id: str) -> Row | None:
        """As of the last `refresh`."""
        return self.index.rows.get(node_id)

    # ---- keeping up --------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Look again at all that is other than before. Cancelled, it leaves the rest for the next one."""
        async with self._turn:
            now = self._now()
            self._open_if_need_be()
            self._expire(now.wall_ms)
            while self._touched:
                for node_id in list(self._touched)[:ROWS_A_TURN]:
                    del self._touched[node_id]
                    self._look(node_id, now.wall_ms)
                if self._touched:
                    await trio.lowlevel.checkpoint()
            self._as_of_ms = now.wall_ms
            if now.mono_s - self._orders_as_of_s >= ORDERS_S:
                self._orders_as_of_s = now.mono_s
                self.index.moments[Sort.LAST_CALL] += 1
                self.index.moments[Sort.DROPS] += 1

    def sample(self) -> None:
        """Note how many frames there were: to be called every `SAMPLE_S`."""
        self.samples.take(self._now().mono_s)
        self.index.moments[Sort.FRAMES_PER_S] += 1

    def doze(self) -> None:
        """Nobody looks at present, and nothing is sampled: lines begin anew with the next look."""
        self.samples.clear()
        self.index.moments[Sort.FRAMES_PER_S] += 1

    def rest(self) -> None:
        """Nobody has looked for long."""
        if self._stop_watching is not None:
            self._stop_watching()
            self._stop_watching = None
            self._begin()

    def _open_if_need_be(self) -> None:
        if self._stop_watching is None:
            self._stop_watching = self._directory.watch(self._touch)
            self._touched.update(dict.fromkeys(self._register.ids))
            self._touched.update(dict.fromkeys(self._directory.ids()))

    def _touch(self, node_id: str) -> None:
        self._touched[node_id] = None

    def _expire(self, wall_ms: int) -> None:
        if wall_ms < self._as_of_ms:  # the clock was set back: who had expired may not have yet
            self._touched.update(dict.fromkeys(self.index.rows))
        while self._expiries and self._expiries[0][0] <= wall_ms:
            self._touched[heappop(self._expiries)[1]] = None

    def _look(self, node_id: str, wall_ms: int) -> None:
        member, record = self._register.find(node_id), self._directory.find(node_id)
        if (member is None and record is None) or (member is not None and member.is_forgotten):
            self.index.put(node_id, None)
            return
        counts = self._counts_of(node_id)
        slot = self.samples.slot_of(node_id, counts)
        row = row_of(ListedNode(member, record), counts, slot, wall_ms)
        if self.index.put(node_id, row) and row.expires_at_ms is not None:
            heappush(self._expiries, (row.expires_at_ms, node_id))
            if len(self._expiries) > 2 * len(self.index.rows) + ROWS_A_TURN:
                rows = self.index.rows.values()
                self._expiries = [(one.expires_at_ms, one.node_id) for one in rows if one.expires_at_ms is not None]
                heapify(self._expiries)


class FleetWindow:
    """What some pages that ask the same look at: computed once for all of them."""

    def __init__(self, table: FleetTable, query: FleetQuery) -> None:
        self._table = table
        self._query = query
        self._heading: dict[str, Any] = {}
        self._ids: list[str] = []
        self._rows: dict[str, tuple[tuple[Any, ...], msgspec.Raw]] = {}  # by id: its stamp, and how it was shown

    @property
    def whole(self) -> Mapping[str, Any]:
        """As of the last `changes`, for a page that has just come."""
        return {**self._heading, "ids": self._ids, "rows": [self._rows[node_id][1] for node_id in self._ids]}

    def changes(self) -> Mapping[str, Any] | None:
        """What is other than at the last call; None: nothing is. The table has been refreshed."""
        table, known = self._table, self._rows
        total, rows = table.index.find(self._query)
        self._rows, changed = {}, []
        for row in rows:
            stamp = table.stamp(row)
            seen = known.get(row.node_id)
            if seen is None or seen[0] != stamp:
                seen = stamp, msgspec.Raw(msgspec.json.encode(table.shown(row)))
                changed.append(seen[1])
            self._rows[row.node_id] = seen
        heading, older = table.heading(total, self._query), self._heading
        ids, older_ids = list(self._rows), self._ids
        self._heading, self._ids = heading, ids
        moved = ids != older_ids
        if not changed and not moved and heading | {"now_ms": 0} == older | {"now_ms": 0}:
            return None
        return {**heading, **({"ids": ids} if moved else {}), "rows": changed}
