"""A stream put together from what was read of it: its snapshot, its last run, and the runs in between. Pure.

These are read one after the other, the last run from JetStream's leader and those in between from any server, while
others write, compact and forget. So a reading may not fit together; then `assemble` says so, and it is read again.
What fits together was true at one moment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from actors.log.store import Loaded, Recorded
from gateway.engine.nats_runs import Kept, Opened, Run, Stored, items_of, kept_of, run_of, versions_of
from gateway.engine.unit_rules import Head


class Found(NamedTuple):
    """A stream as of one moment."""

    head: Head
    kept: Kept | None
    runs: Sequence[Run]  # behind the snapshot

    def loaded(self, stream: str) -> Loaded:
        events: tuple[Recorded, ...] = tuple([event for run in self.runs for event in run.events])
        snapshot = None if self.kept is None else self.kept.snapshot
        return Loaded(stream, self.head.version, snapshot, events, items_of(self.head.open.values()))


@dataclass(frozen=True, slots=True)
class Missing:
    """Runs that have to be read as well: from this sequence on, and before that one."""

    first_seq: int
    before_seq: int


class Torn(NamedTuple):
    """This does not fit together: it was read while it changed, or from a server that is behind."""


def assemble(
    snapshot: Stored | None, last: Stored | None, between: Sequence[Stored] | None = None
) -> Found | Missing | Torn:
    """Of what is at the subject of the snapshot, the last message of the runs, and the runs in between, if known.

    Raises `UnreadableError` for what cannot be read at all.
    """
    snapshot_seq = 0 if snapshot is None else snapshot.seq
    if last is None or last.is_tombstone:
        head = Head(0 if last is None else last.seq)
        head.snapshot_seq = snapshot_seq
        return Found(head, None, ())
    kept = None if snapshot is None or snapshot.is_tombstone else kept_of(snapshot)
    through = 0 if kept is None else kept.through
    if last.seq <= through:
        if kept is None or versions_of(last)[1] != kept.snapshot.version:
            return Torn()
        return Found(_head(last.seq, snapshot_seq, kept, ()), kept, ())
    run = run_of(last)
    if run.after > through and between is None:
        return Missing(through + 1, last.seq)
    runs = chained([*(between or ()), last], kept)
    return Torn() if runs is None else Found(_head(last.seq, snapshot_seq, kept, runs), kept, runs)


def chained(messages: Iterable[Stored], kept: Kept | None) -> list[Run] | None:
    """The runs behind the snapshot, if none of them is missing."""
    runs: list[Run] = []
    for stored in messages:
        if stored.is_tombstone:
            if kept is not None:  # of a stream that is no more
                return None
            runs.clear()
            continue
        run = run_of(stored)
        if not (follows(runs[-1], run) if runs else begins(run, kept)):
            return None
        runs.append(run)
    return runs


def begins(run: Run, kept: Kept | None) -> bool:
    """Whether nothing is missing before this run: it is the stream's first, or the first behind its snapshot.

    A snapshot is written behind a run, always; so what is behind it cannot be the first of all.
    """
    if kept is None:
        return run.after == 0 and run.first == 1
    return 0 < run.after <= kept.through and run.first == kept.snapshot.version + 1


def may_begin(run: Run, kept: Kept | None) -> bool:
    """Whether a stream's history may begin with this run: with its first, or with any that a snapshot covers."""
    return run.after == 0 and run.first == 1 if kept is None else run.first <= kept.snapshot.version + 1


def follows(before: Run, run: Run) -> bool:
    """Whether nothing is missing between these."""
    return run.after == before.seq and run.first == before.last + 1


def _head(seq: int, snapshot_seq: int, kept: Kept | None, runs: Sequence[Run]) -> Head:
    head = Head(seq, runs[-1].last if runs else 0)
    head.run_seq, head.snapshot_seq = seq, snapshot_seq
    if kept is not None:
        head.covered, head.cut = kept.snapshot.version, kept.cut
        head.version = max(head.version, head.covered)
    head.open = folded(() if kept is None else kept.open_items, runs)
    return head


def folded(open_items: Iterable[Opened], runs: Iterable[Run]) -> dict[str, Opened]:
    """What is open after the runs."""
    still_open = {item.key: item for item in open_items}
    for run in runs:
        for item in run.opened:
            still_open[item.key] = item
        for key in run.closed:
            still_open.pop(key, None)
    return still_open
