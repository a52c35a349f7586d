"""The fleet as a table: what a page may ask for, which rows that is, and in which order. Pure.

A row is what register and directory say of a node at a moment; it is never changed, another one takes its place. What
changes all the time (frames, drops, calls) is not in it: a row has its node's counts, which whoever shows it reads.

Rows are ordered by one column, those of equal value by `node_id`, and all of that is turned round for `descending`.
Nodes that have no value in the column (no name, never called) are behind the others either way.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import msgspec

from actors.node.counts import NodeCounts
from actors.register.listed_node import ListedNode, ListedState
from schemas.certificates import TENANT_CHARS_MAX
from schemas.closes import NodeClose
from schemas.labels import TAGS_MAX, is_tag

LIMIT_DEFAULT = 100
LIMIT_MAX = 500  # rows of a window; more is refused
OFFSET_MAX = 10_000_000  # more is refused; there are never that many nodes
TEXT_CHARS_MAX = 128  # to look for; more is refused
TAG_CHARS_MAX = 127  # a key, a value and the sign between them

NO_COUNTS = NodeCounts()
"""Of a node that had no session yet. Nobody counts in it."""


class Sort(StrEnum):
    NAME = "name"
    STATE = "state"
    SINCE = "since"
    LEFT = "left"
    LAST_CALL = "last_call"
    FRAMES_PER_S = "frames_per_s"
    DROPS = "drops"
    NODE_ID = "node_id"


VOLATILE = frozenset({Sort.LAST_CALL, Sort.FRAMES_PER_S, Sort.DROPS})
"""Columns whose values change without a row being another."""


_STATES = (ListedState.LIVE, ListedState.AWAY, ListedState.EXPIRED, ListedState.ENROLLED, ListedState.REVOKED)
_RANK = {state: rank for rank, state in enumerate(_STATES)}  # in which order states are


class Row(msgspec.Struct, frozen=True):
    node_id: str
    tenant: str
    name: str | None
    tags: Mapping[str, str]
    state: ListedState
    rank: int  # of its state: an enum's hash takes as long as all else that an order needs
    since_ms: int | None
    left: NodeClose | None
    tools: int
    expires_at_ms: int | None  # of the manifest, of a node that has not expired by it yet
    counts: NodeCounts
    slot: int | None  # where its frames are in the samples; None: it never had a session
    tag_texts: frozenset[str]
    haystack: str
    """Where a text is looked for: id, name and tags in lower case, a line each."""


def row_of(node: ListedNode, counts: NodeCounts | None, slot: int | None, wall_ms: int) -> Row:
    known, member, record = node.known, node.member, node.record
    labels = known.labels
    state, tag_texts = node.state(wall_ms), labels.tag_texts
    since_ms = None if record is None else record.since_ms
    if state is ListedState.REVOKED and member is not None:
        since_ms = member.revoked_at_ms
    ends = state is ListedState.LIVE or state is ListedState.AWAY
    return Row(
        known.node_id,
        known.tenant,
        labels.name,
        labels.tags,
        state,
        _RANK[state],
        since_ms,
        node.left,
        0 if record is None else len(record.tools),
        int(record.manifest["expires_at_ms"]) if record is not None and ends else None,
        counts or NO_COUNTS,
        slot,
        frozenset(tag_texts),
        "\n".join((known.node_id, labels.name or "", *tag_texts)).lower(),
    )


# ---- which rows ------------------------------------------------------------------------------------------------------


class RowFilter(msgspec.Struct, frozen=True):
    text: str = ""  # in lower case
    tags: frozenset[str] = frozenset()  # all of these
    state: ListedState | None = None
    tenant: str | None = None

    @property
    def takes_all(self) -> bool:
        return self == ALL

    def of(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Those of these rows that are asked for, in their order. One thing after the other: a call for each of 20,000
        rows would take longer than all of these together."""
        if self.state is not None:
            state = self.state
            rows = [row for row in rows if row.state is state]
        if self.tenant is not None:
            tenant = self.tenant
            rows = [row for row in rows if row.tenant == tenant]
        if self.tags:
            tags = self.tags
            rows = [row for row in rows if tags <= row.tag_texts]
        if self.text:
            text = self.text
            rows = [row for row in rows if text in row.haystack]
        return rows

    def takes(self, row: Row) -> bool:
        return bool(self.of((row,)))


ALL = RowFilter()

_Tag: TypeAlias = Annotated[str, msgspec.Meta(max_length=TAG_CHARS_MAX)]


class FleetQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a page asks for. Two that are equal are shown the same."""

    text: Annotated[str, msgspec.Meta(max_length=TEXT_CHARS_MAX, pattern=r"^[^\x00-\x1f]*$")] = ""
    tags: Annotated[tuple[_Tag, ...], msgspec.Meta(max_length=TAGS_MAX)] = ()
    state: ListedState | None = None
    tenant: Annotated[str, msgspec.Meta(max_length=TENANT_CHARS_MAX)] | None = None
    sort: Sort = Sort.NAME
    descending: bool = False
    offset: Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT

    @property
    def is_sound(self) -> bool:
        return all(map(is_tag, self.tags))

    @property
    def wanted(self) -> RowFilter:
        return RowFilter(self.text.lower(), frozenset(self.tags), self.state, self.tenant)


# ---- in which order --------------------------------------------------------------------------------------------------

Value: TypeAlias = Callable[[Row], Any]
"""What a row has in a column; None: nothing. Else they can be compared."""


VALUES: Mapping[Sort, Value] = {
    Sort.NAME: lambda row: row.name,
    Sort.STATE: lambda row: row.rank,
    Sort.SINCE: lambda row: row.since_ms,
    Sort.LEFT: lambda row: None if row.left is None else row.left.value.code,
    Sort.NODE_ID: lambda row: row.node_id,
    Sort.LAST_CALL: lambda row: row.counts.last_call_ms,
    Sort.DROPS: lambda row: row.counts.drops,
}
"""Of the columns that a row has by itself. Frames a second are for whoever has samples."""


@dataclass(slots=True, eq=False)
class Ordered:
    """Rows in the order of a column. `value` has to say the same of a row for as long as it is in here."""

    value: Value
    present: list[Row]
    absent: list[Row]

    @classmethod
    def by(cls, value: Value, rows: Sequence[Row]) -> "Ordered":
        """These rows, which are in the order of their ids."""
        values, absent = [value(row) for row in rows], list[Row]()
        if None in values:
            absent = [row for row, said in zip(rows, values, strict=True) if said is None]
            rows = [row for row, said in zip(rows, values, strict=True) if said is not None]
            values = [said for said in values if said is not None]
        # Stable: those of equal value stay in the order of their ids. By places and not by pairs: 20,000 new tuples
        # would each time make Python look for cycles among all objects.
        places = sorted(range(len(rows)), key=values.__getitem__)
        return cls(value, [rows[place] for place in places], absent)

    def __len__(self) -> int:
        return len(self.present) + len(self.absent)

    def only(self, wanted: RowFilter) -> "Ordered":
        return Ordered(self.value, list(wanted.of(self.present)), list(wanted.of(self.absent)))

    def add(self, row: Row) -> None:
        rows, key = self._place(row)
        rows.insert(bisect_left(rows, key(row), key=key), row)

    def remove(self, row: Row) -> None:
        """It is in here."""
        rows, key = self._place(row)
        index = bisect_left(rows, key(row), key=key)
        assert rows[index] is row
        del rows[index]

    def _place(self, row: Row) -> tuple[list[Row], Callable[[Row], Any]]:
        value = self.value
        if value(row) is None:
            return self.absent, _id
        return self.present, lambda one: (value(one), one.node_id)

    def window(self, offset: int, limit: int, *, descending: bool) -> list[Row]:
        present, absent = self.present, self.absent
        size, end = len(present), offset + limit
        if descending:
            shown = present[max(0, size - end) : max(0, size - offset)]
            shown.reverse()
        else:
            shown = present[offset:end]
        if end > size:
            shown += absent[max(0, offset - size) : end - size]
        return shown


def _id(row: Row) -> str:
    return row.node_id


def in_order_of_ids(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=_id)
