"""Rows of a fleet for tests, and what a table of them shows by the plainest of code."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from actors.bus.directory import NodeRecord
from actors.node.counts import NodeCounts
from actors.register.events import Member
from actors.register.listed_node import ListedNode, ListedState
from gateway.console.fleet_rules import NO_COUNTS, VALUES, FleetQuery, Row, Sort, row_of
from schemas.closes import NodeClose
from schemas.labels import Labels
from schemas.manifest import Accepted

NOW_MS = 1_790_000_000_000
IDS = [f"01hzx3k8q2v7n4t9r6w5y1c0{first}{second}" for first in "ab" for second in "0123456789"]
TAGS = ("site=lab", "site=Roof", "rack=1")


def node(
    node_id: str,
    *,
    tenant: str = "acme",
    name: str | None = None,
    tags: Mapping[str, str] | None = None,
    state: ListedState = ListedState.LIVE,
    since_ms: int | None = NOW_MS,
    left: NodeClose | None = None,
) -> ListedNode:
    labels = Labels(name, tags or {})
    expires_ms = NOW_MS - 1 if state is ListedState.EXPIRED else NOW_MS + 1000
    accepted = Accepted({"issued_at_ms": NOW_MS - 2000, "expires_at_ms": expires_ms}, "", ())
    record = NodeRecord(
        node_id, tenant, accepted, live=state is ListedState.LIVE, since_ms=since_ms, left=left, labels=labels
    )
    revoked_ms = NOW_MS if state is ListedState.REVOKED else None
    member = Member(node_id, tenant, NOW_MS, name, dict(labels.tags), revoked_at_ms=revoked_ms)
    return ListedNode(member, None if state is ListedState.ENROLLED else record)


def row(node_id: str, counts: NodeCounts = NO_COUNTS, slot: int | None = None, **about: Any) -> Row:
    return row_of(node(node_id, **about), counts, slot, NOW_MS)


def counted(**counts: int | None) -> NodeCounts:
    made = NodeCounts()
    for name, value in counts.items():
        setattr(made, name, value)
    return made


# ---- what hypothesis makes -------------------------------------------------------------------------------------------

_tags = st.sets(st.sampled_from(TAGS)).map(lambda texts: dict(text.split("=") for text in texts))
_counts = st.builds(
    counted,
    drops=st.integers(0, 2),
    calls=st.integers(0, 2),
    frames=st.integers(0, 2),
    last_call_ms=st.none() | st.integers(NOW_MS, NOW_MS + 2),
)
about_rows = st.fixed_dictionaries(
    {
        "counts": _counts,
        "tenant": st.sampled_from(("acme", "other")),
        "name": st.none() | st.sampled_from(("pump", "pump-7", "valve")),
        "tags": _tags,
        "state": st.sampled_from(ListedState),
        "since_ms": st.none() | st.integers(NOW_MS, NOW_MS + 2),
        "left": st.sampled_from((None, NodeClose.NORMAL, NodeClose.TIMEOUT)),
    }
)
rows = st.dictionaries(st.sampled_from(IDS), about_rows).map(
    lambda made: {node_id: row(node_id, **about) for node_id, about in made.items()}
)
_windows: dict[str, Any] = {
    "sort": st.sampled_from(Sort),
    "descending": st.booleans(),
    "offset": st.just(0) | st.integers(0, 25),
    "limit": st.just(25) | st.integers(1, 25),
}
_filters: dict[str, Any] = {
    "text": st.sampled_from(("pump", "PUMP-7", "site=", "c0a", "nowhere")),
    "tags": st.lists(st.sampled_from((*TAGS, "site=moon")), max_size=2, unique=True).map(tuple),
    "state": st.sampled_from(ListedState),
    "tenant": st.sampled_from(("acme", "other", "nobody")),
}
queries = st.one_of(  # mostly of one filter: of several at once, few rows are left to be in any order
    st.builds(FleetQuery, **_windows),
    *(st.builds(FleetQuery, **_windows, **{name: values}) for name, values in _filters.items()),
    st.builds(FleetQuery, **_windows, **_filters),
)


# ---- the plainest of code --------------------------------------------------------------------------------------------

Value = Callable[[Row], Any]


def frames(one: Row) -> float:
    """Stands for frames a second."""
    return float(one.counts.frames)


def expected(all_rows: Iterable[Row], query: FleetQuery) -> tuple[int, list[str]]:
    """How many match, and the ids of the window."""
    found = [one for one in all_rows if _matches(one, query)]
    value: Value = frames if query.sort is Sort.FRAMES_PER_S else VALUES[query.sort]
    having = sorted((one for one in found if value(one) is not None), key=lambda one: (value(one), one.node_id))
    if query.descending:
        having.reverse()
    without = sorted((one for one in found if value(one) is None), key=lambda one: one.node_id)
    ids = [one.node_id for one in having + without]
    return len(ids), ids[query.offset : query.offset + query.limit]


def _matches(one: Row, query: FleetQuery) -> bool:
    texts = [one.node_id, one.name or "", *(f"{key}={value}" for key, value in one.tags.items())]
    return (
        any(query.text.lower() in text.lower() for text in texts)
        and all(tag in texts for tag in query.tags)
        and query.state in (None, one.state)
        and query.tenant in (None, one.tenant)
    )
