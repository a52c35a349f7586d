"""The form of the log in JetStream: what is written is read back, and anything else is unreadable, not wrong."""

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors.log.store import OpenItem, Recorded, Snapshot, UnreadableError
from gateway.engine.nats_runs import (
    NAME_BYTES_MAX,
    Names,
    Opened,
    Stored,
    as_token,
    from_token,
    items_of,
    kept_of,
    open_count_of,
    run_body,
    run_headers,
    run_of,
    snapshot_body,
    tombstone_headers,
    versions_of,
)

EVENTS = (b"x", b"", b"yz")
MARKS = [7, 1, 8, 0, 9, 2]
OPENED = [Opened("k", 3, b"d")]


def stored(body: bytes, **headers: str) -> Stored:
    return Stored("hg.log.e.a", 12, headers or run_headers("id", 4, 6, 1), body)


@given(st.text(min_size=1, max_size=80))
def test_any_name_is_one_token_and_back(name: str) -> None:
    token = as_token(name)
    assert from_token(token) == name
    assert re.fullmatch(r"[A-Za-z0-9_-]+", token)


def test_names_become_tokens_byte_by_byte() -> None:
    assert as_token("node/01JD-a_b ☃.>*") == "node_2f01JD-a_5fb_20_e2_98_83_2e_3e_2a"


@pytest.mark.parametrize("name", ["", "x" * (NAME_BYTES_MAX + 1), "/" * (NAME_BYTES_MAX // 3 + 1)])
def test_a_name_that_fits_no_subject_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="name of a stream"):
        as_token(name)


def test_all_objects_have_the_prefix() -> None:
    names = Names("hg")
    assert (names.log, names.log_subjects, names.bucket("LIVE")) == ("HG_LOG", "hg.log.>", "HG_LIVE")
    assert (names.runs_of("a/b"), names.snapshot_of("a/b")) == ("hg.log.e.a_2fb", "hg.log.s.a_2fb")
    assert names.stream_of("hg.log.e.a_2fb") == "a/b"


@pytest.mark.parametrize("prefix", ["", "HG", "1a", "a.b", "a>", "a b", "a" * 17, "a-b"])
def test_a_prefix_is_a_short_word(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        Names(prefix)


def test_a_run_comes_back_as_it_was() -> None:
    run = run_of(stored(run_body(9, MARKS, OPENED, ["gone"], EVENTS)))
    assert (run.seq, run.first, run.last, run.after) == (12, 4, 6, 9)
    assert list(run.events) == [Recorded(4, 7, b"x"), Recorded(5, 8, b""), Recorded(6, 9, b"yz")]
    assert (list(run.opened), list(run.closed)) == (OPENED, ["gone"])


def test_a_run_of_no_events_ends_before_it_begins() -> None:
    run = run_of(stored(run_body(0, [], OPENED, [], ()), **run_headers("id", 1, 0, 1)))
    assert (run.first, run.last, list(run.events)) == (1, 0, [])


@given(st.binary(max_size=60))
def test_what_is_not_a_run_is_unreadable(body: bytes) -> None:
    """Sixty bytes are too few for three events, and a length that is right by chance is followed by no meta."""
    for kind in (run_of, kept_of):
        with pytest.raises(UnreadableError, match=r"^[A-Za-z_]+$"):
            kind(stored(body))


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_run_with_a_changed_byte_is_unreadable_or_a_run(at: int, byte: int) -> None:
    body = bytearray(run_body(9, MARKS, OPENED, ["gone"], EVENTS))
    body[at % len(body)] = byte
    try:
        events = list(run_of(stored(bytes(body))).events)
    except UnreadableError:
        return
    assert [event.version for event in events] == [4, 5, 6]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_run_that_is_cut_short_is_unreadable(cut: int) -> None:
    body = run_body(9, MARKS, OPENED, ["gone"], EVENTS)
    with pytest.raises(UnreadableError):
        run_of(stored(body[: max(0, len(body) - cut)]))


@pytest.mark.parametrize("versions", ["", "4", "4-", "-4", "0-4", "4-2", "a-b", "4-6-8", "+4-6", "04-6", "4 - 6"])
def test_a_header_that_names_no_versions_is_unreadable(versions: str) -> None:
    with pytest.raises(UnreadableError, match="version"):
        versions_of(stored(b"", **{"Hg-Version": versions}))


def test_marks_have_to_be_those_of_the_versions() -> None:
    body = run_body(9, MARKS, [], [], EVENTS)
    for versions in ("4-5", "4-7", "4-3"):
        with pytest.raises(UnreadableError, match="marks"):
            run_of(stored(body, **{"Hg-Version": versions}))


@pytest.mark.parametrize(("said", "count"), [("0", 0), ("3", 3), ("", 1), ("x", 1), ("-1", 1), ("9" * 30, 1)])
def test_a_count_of_open_items_that_is_none_counts_as_one(said: str, count: int) -> None:
    assert open_count_of(stored(b"", **{"Hg-Open": said})) == count


def test_a_snapshot_comes_back_with_what_is_open() -> None:
    body = snapshot_body(Snapshot(6, b"state"), 0, 2, OPENED)
    kept = kept_of(Stored("hg.log.s.a", 13, {}, body))
    assert kept == (13, Snapshot(6, b"state"), 13, 2, OPENED)
    assert kept_of(Stored("hg.log.s.a", 20, {}, snapshot_body(Snapshot(6, b""), 13, 2, []))).through == 13


def test_a_tombstone_is_known_by_its_headers() -> None:
    tombstone = stored(b"", **tombstone_headers("id"))
    assert tombstone.is_tombstone
    assert (versions_of(tombstone), open_count_of(tombstone), tombstone.id) == ((1, 0), 0, "id")


def test_items_are_in_the_order_of_their_keys() -> None:
    assert items_of([Opened("b", 1, b"2"), Opened("a", 9, b"1")]) == (OpenItem("a", b"1"), OpenItem("b", b"2"))
