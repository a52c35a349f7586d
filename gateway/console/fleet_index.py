"""All rows of the fleet, and the orders that pages have asked for: each made once, then kept up with what changes.

Nothing here waits, reads a clock or knows where rows come from. An order is brought up to date when it is asked for: by
the changes since, if there are few, else anew. So what is answered follows from the rows that there are, whatever was
asked before.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from actors.register.listed_node import ListedState
from gateway.console.fleet_rules import (
    ALL,
    VALUES,
    VOLATILE,
    FleetQuery,
    Ordered,
    Row,
    RowFilter,
    Sort,
    Value,
    in_order_of_ids,
)

CHANGES_MAX = 512  # remembered; an order that lags behind by more is made anew
ORDERS_MAX = 32  # kept of what pages asked for; then the one asked for least recently is made anew


@dataclass(slots=True, eq=False)
class _Kept:
    rows: Ordered
    changes: int  # that it has seen
    moment: int  # at which it was made; only for a volatile column


class FleetIndex:
    def __init__(self, frames_per_s: Value) -> None:
        """`frames_per_s` says of a row what it is by the last sample."""
        self.rows: dict[str, Row] = {}
        self.states: Counter[ListedState] = Counter()
        self.moments = dict.fromkeys(VOLATILE, 0)
        """Another number whenever a volatile column is to be looked at again."""
        self._values: Mapping[Sort, Value] = {**VALUES, Sort.FRAMES_PER_S: frames_per_s}
        self._changes: deque[tuple[Row | None, Row | None]] = deque(maxlen=CHANGES_MAX)
        self._changed = 0  # changes so far
        self._kept: OrderedDict[tuple[Sort, RowFilter], _Kept] = OrderedDict()

    @property
    def orders(self) -> int:
        """That are kept."""
        return len(self._kept)

    def put(self, node_id: str, row: Row | None) -> bool:
        """From now on the node has this row, or none; whether that is another than before."""
        older = self.rows.get(node_id)
        if row == older:
            return False
        if older is not None:
            self.states[older.state] -= 1
        if row is None:
            del self.rows[node_id]
        else:
            self.rows[node_id] = row
            self.states[row.state] += 1
        self._changes.append((older, row))
        self._changed += 1
        return True

    def find(self, query: FleetQuery) -> tuple[int, list[Row]]:
        """How many rows there are, and those of the window."""
        ordered = self._ordered(query.sort, query.wanted)
        return len(ordered), ordered.window(query.offset, query.limit, descending=query.descending)

    # ---- orders ------------------------------------------------------------------------------------------------------

    def _ordered(self, sort: Sort, wanted: RowFilter) -> Ordered:
        key = sort, wanted
        kept = self._kept.get(key)
        if kept is None or not self._brought_up(sort, wanted, kept):
            rows = self._made(sort) if wanted.takes_all else self._ordered(sort, ALL).only(wanted)
            kept = self._kept[key] = _Kept(rows, self._changed, self.moments.get(sort, 0))
            if len(self._kept) > ORDERS_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return kept.rows

    def _brought_up(self, sort: Sort, wanted: RowFilter, kept: _Kept) -> bool:
        """Whether it is up to date now; False: it has to be made anew."""
        behind = self._changed - kept.changes
        if sort in VOLATILE:  # values are others without a change: nobody could find a row by its old one
            return not behind and kept.moment == self.moments[sort]
        if behind > len(self._changes):
            return False
        for older, newer in islice(self._changes, len(self._changes) - behind, None):
            if older is not None and wanted.takes(older):
                kept.rows.remove(older)
            if newer is not None and wanted.takes(newer):
                kept.rows.add(newer)
        kept.changes = self._changed
        return True

    def _made(self, sort: Sort) -> Ordered:
        if sort is Sort.NODE_ID:
            return Ordered(self._values[sort], in_order_of_ids(self.rows.values()), [])
        return Ordered.by(self._values[sort], self._ordered(Sort.NODE_ID, ALL).present)
