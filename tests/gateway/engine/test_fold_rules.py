"""A stream from what was read of it. What was read while it changed does not fit together, and that is seen."""

import pytest

from actors.log.store import Loaded, OpenItem, Recorded, Snapshot, UnreadableError
from gateway.engine.fold_rules import Found, Missing, Torn, assemble, may_begin
from gateway.engine.nats_runs import (
    Kept,
    Opened,
    Stored,
    kept_of,
    run_body,
    run_headers,
    run_of,
    snapshot_body,
    tombstone_headers,
)


def run(seq: int, after: int, first: int, *events: bytes, opened: str = "", closed: str = "") -> Stored:
    last = first + len(events) - 1
    marks = [mark for data in events for mark in (0, len(data))]
    items = [Opened(key, first, b"d") for key in opened]
    return Stored("e", seq, run_headers("id", first, last, 0), run_body(after, marks, items, list(closed), events))


def snapshot(seq: int, version: int, through: int = 0, cut: int = 0, opened: str = "") -> Stored:
    items = [Opened(key, 1, b"d") for key in opened]
    return Stored("s", seq, {}, snapshot_body(Snapshot(version, b"state"), through, cut, items))


def tombstone(seq: int) -> Stored:
    return Stored("e", seq, tombstone_headers("id"), b"")


def kept(seq: int, version: int) -> Kept:
    return kept_of(snapshot(seq, version))


def found(*read: object) -> Found:
    answer = assemble(*read)  # type: ignore[arg-type]
    assert isinstance(answer, Found)
    return answer


def test_nothing_is_an_empty_stream() -> None:
    empty = found(None, None)
    assert (empty.head.seq, empty.head.version, empty.loaded("a")) == (0, 0, Loaded("a", 0, None, (), ()))


def test_a_tombstone_is_an_empty_stream_whose_place_is_taken() -> None:
    forgotten = found(snapshot(4, 2), tombstone(9))
    assert (forgotten.head.seq, forgotten.head.run_seq, forgotten.head.snapshot_seq) == (9, 0, 4)
    assert forgotten.loaded("a") == Loaded("a", 0, None, (), ())


def test_a_single_run_needs_no_other() -> None:
    alone = found(None, run(5, 0, 1, b"x", opened="k"))
    assert alone.loaded("a") == Loaded("a", 1, None, (Recorded(1, 0, b"x"),), (OpenItem("k", b"d"),))
    assert (alone.head.seq, alone.head.run_seq) == (5, 5)


def test_runs_in_between_are_asked_for_and_folded() -> None:
    last = run(9, 7, 3, b"z", closed="k")
    assert assemble(None, last) == Missing(1, 9)
    whole = found(None, last, [run(5, 0, 1, b"x", opened="kl"), run(7, 5, 2, b"y", opened="m")])
    assert [event.data for event in whole.loaded("a").events] == [b"x", b"y", b"z"]
    assert sorted(whole.head.open) == ["l", "m"]


def test_only_what_is_behind_the_snapshot_is_asked_for() -> None:
    last = run(9, 7, 3, b"z")
    assert assemble(snapshot(6, 1), last) == Missing(7, 9)
    whole = found(snapshot(6, 1, cut=1, opened="k"), last, [run(7, 5, 2, b"y")])
    assert whole.loaded("a").snapshot == Snapshot(1, b"state")
    assert [event.version for event in whole.loaded("a").events] == [2, 3]
    assert (whole.head.covered, whole.head.cut, whole.head.snapshot_seq, list(whole.head.open)) == (1, 1, 6, ["k"])


def test_a_snapshot_of_the_last_version_is_all() -> None:
    whole = found(snapshot(6, 2, opened="k"), run(5, 0, 1, b"x", b"y", opened="kl"))
    assert whole.loaded("a") == Loaded("a", 2, Snapshot(2, b"state"), (), (OpenItem("k", b"d"),))
    assert (whole.head.seq, whole.head.version) == (5, 2)


def test_a_snapshot_that_was_written_again_counts_from_where_it_was_first() -> None:
    whole = found(snapshot(8, 1, through=6), run(7, 5, 2, b"y", opened="k"))
    assert [event.version for event in whole.loaded("a").events] == [2]
    assert list(whole.head.open) == ["k"]


def test_a_run_without_events_changes_what_is_open() -> None:
    whole = found(None, run(7, 5, 2, closed="k"), [run(5, 0, 1, b"x", opened="k")])
    assert (whole.head.version, whole.head.open) == (1, {})


def test_a_tombstone_in_between_begins_a_new_stream() -> None:
    whole = found(None, run(9, 7, 2, b"y"), [run(3, 0, 1, b"old"), tombstone(5), run(7, 0, 1, b"x")])
    assert [event.data for event in whole.loaded("a").events] == [b"x", b"y"]


@pytest.mark.parametrize(
    "between",
    [
        [],
        [run(5, 0, 1, b"x")],  # a server that is behind
        [run(7, 5, 2, b"y")],  # the first was purged meanwhile
        [run(5, 0, 1, b"x"), run(7, 5, 1, b"y")],  # versions that do not follow
        [run(5, 0, 1), run(7, 6, 1, b"x", b"y")],  # a run of no events is missing
        [run(4, 3, 1, b"x"), run(7, 4, 2, b"y")],  # and at the beginning
        [run(5, 0, 1, b"x"), tombstone(6), run(7, 5, 2, b"y")],  # of another life
    ],
)
def test_runs_that_miss_one_do_not_fit_together(between: list[Stored]) -> None:
    assert assemble(None, run(9, 7, 3, b"z"), between) == Torn()


@pytest.mark.parametrize(
    ("read", "last"),
    [
        (snapshot(6, 2), run(5, 0, 1, b"x")),  # it is of a later run than this one
        (snapshot(6, 1), run(9, 0, 1, b"z")),  # of a stream that was forgotten meanwhile
        (snapshot(6, 1), run(9, 5, 3, b"z")),  # something is missing in between
        (snapshot(6, 0), run(9, 0, 1, b"z")),  # as above, forgotten, though versions fit
    ],
)
def test_a_snapshot_and_a_run_of_different_moments_do_not_fit_together(read: Stored, last: Stored) -> None:
    assert assemble(read, last) == Torn()


def test_a_snapshot_of_a_stream_that_was_forgotten_since_does_not_fit_its_new_runs() -> None:
    assert assemble(snapshot(4, 0), run(9, 7, 2, b"y"), [tombstone(5), run(7, 0, 1, b"x")]) == Torn()


def test_what_cannot_be_read_is_said() -> None:
    with pytest.raises(UnreadableError):
        assemble(None, Stored("e", 5, run_headers("id", 1, 1, 0), b"\xff\xfe"))
    with pytest.raises(UnreadableError):
        assemble(Stored("s", 6, {}, b"?"), run(5, 0, 1, b"x"))


def test_history_may_begin_where_a_snapshot_covers_what_is_gone() -> None:
    assert may_begin(run_of(run(5, 0, 1, b"x")), None)
    assert not may_begin(run_of(run(7, 5, 2, b"x")), None)
    assert not may_begin(run_of(run(7, 5, 1, b"x")), None)
    assert may_begin(run_of(run(7, 5, 3, b"x")), kept(6, 2))
    assert not may_begin(run_of(run(7, 5, 4, b"x")), kept(6, 2))
