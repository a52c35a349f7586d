"""What goes together in one unit, what waits for the next, and what its messages are."""

import pytest

from actors.log.store import Appended, Conflict, OpenItem, Part, Recorded, Snapshot
from gateway.engine.jetstream_rules import BATCH_COMMIT, BATCH_ID, BATCH_SEQ, EXPECTED_SEQ, EXPECTED_STREAM, ROLLUP
from gateway.engine.nats_runs import Names, Opened, Stored, kept_of, run_of
from gateway.engine.unit_rules import Head, Outgoing, Unit, in_stream, tombstones
from tests.actors.log.shelves import closing, opening, part

NAMES = Names("hg")


def unit(messages_max: int = 100, bytes_max: int = 10**6, payload_bytes_max: int = 10**5) -> Unit:
    return Unit(messages_max, bytes_max, payload_bytes_max)


def head(seq: int, version: int, *open_items: Opened) -> Head:
    made = Head(seq, version)
    made.run_seq = seq
    made.open = {item.key: item for item in open_items}
    return made


def as_stored(message: Outgoing, seq: int = 0) -> Stored:
    return Stored(message.subject, seq, message.headers, message.data)


def test_appends_to_one_stream_become_one_run() -> None:
    one, heads = unit(), {"a": head(7, 3)}
    assert one.add([part("a", 3, "x", at_ms=1)], (), heads) == Appended((4,))
    assert one.add([part("a", 4, "y", "z", at_ms=2)], (), heads) == Appended((6,))
    [message] = one.outgoing(NAMES, "id")
    run = run_of(as_stored(message))
    assert list(run.events) == [Recorded(4, 1, b"x"), Recorded(5, 2, b"y"), Recorded(6, 2, b"z")]
    assert run.after == 7
    assert message.subject == "hg.log.e.a"
    assert message.headers == {"Hg-Id": "id", "Hg-Version": "4-6", "Hg-Open": "0", EXPECTED_SEQ: "7"}


def test_an_append_is_judged_by_what_the_unit_has_so_far() -> None:
    one, heads = unit(), {"a": head(7, 3), "b": head(0, 0)}
    one.add([part("a", 3, "x")], (), heads)
    assert one.add([part("a", 3, "y")], (), heads) == Conflict("a", 4)
    assert one.add([part("b", 0, "y"), part("a", 5, "z")], (), heads) == Conflict("a", 4)
    assert one.add([Part("a", None, 0, (b"blind",))], (), heads) == Appended((5,))
    assert list(one.drafts) == ["a"]
    assert heads["a"].version == 3  # until it lands


def test_blind_events_go_behind_whatever_is_there() -> None:
    one, heads = unit(), {"a": head(0, 0), "ledger": head(4, 10)}
    assert one.add([part("a", 0, "x", at_ms=5)], (("ledger", b"1"), ("ledger", b"2")), heads) == Appended((1,))
    messages = {message.subject: message for message in one.outgoing(NAMES, "id")}
    run = run_of(as_stored(messages["hg.log.e.ledger"]))
    assert list(run.events) == [Recorded(11, 5, b"1"), Recorded(12, 5, b"2")]


def test_open_items_are_netted_and_know_since_when() -> None:
    one, heads = unit(), {"a": head(7, 3, Opened("old", 2, b"o"), Opened("gone", 1, b"g"))}
    for step in (opening("a", 3, "new"), opening("a", 4, "old", "again"), closing("a", 5, "gone", "never")):
        one.add([step], (), heads)
    one.add([opening("a", 6, "brief")], (), heads)
    one.add([closing("a", 7, "brief")], (), heads)
    one.add([opening("a", 8, "brief", "back")], (), heads)
    [message] = one.outgoing(NAMES, "id")
    run = run_of(as_stored(message))
    assert list(run.opened) == [Opened("new", 4, b"d"), Opened("old", 2, b"again"), Opened("brief", 9, b"back")]
    assert sorted(run.closed) == ["gone", "never"]
    assert message.headers["Hg-Open"] == "3"
    one.land(20)
    assert {key: item.since for key, item in heads["a"].open.items()} == {"old": 2, "new": 4, "brief": 9}


def test_an_item_opened_and_closed_by_the_same_part_is_closed() -> None:
    one, heads = unit(), {"a": head(0, 0)}
    one.add([Part("a", 0, 0, (b"x",), (OpenItem("k", b""),), ("k",))], (), heads)
    assert one.outgoing(NAMES, "id")[0].headers["Hg-Open"] == "0"


def test_a_snapshot_is_a_message_of_its_own_with_all_that_is_open() -> None:
    one, heads = unit(), {"a": head(7, 3, Opened("old", 2, b"o"))}
    heads["a"].snapshot_seq, heads["a"].cut = 5, 1
    one.add([Part("a", 3, 0, (b"x",), (OpenItem("new", b"n"),), snapshot=b"state")], (), heads)
    _, message = one.outgoing(NAMES, "id")
    assert message.subject == "hg.log.s.a"
    assert message.headers == {"Hg-Id": "id", EXPECTED_SEQ: "5", ROLLUP: "sub"}
    kept = kept_of(as_stored(message, 9))
    assert (kept.snapshot, kept.through, kept.cut) == (Snapshot(4, b"state"), 9, 1)
    assert list(kept.open_items) == [Opened("old", 2, b"o"), Opened("new", 4, b"n")]


def test_what_follows_a_snapshot_waits_for_the_next_unit() -> None:
    one, heads = unit(), {"a": head(0, 0), "b": head(0, 0)}
    one.add([part("a", 0, "x", snapshot="s")], (), heads)
    assert one.add([part("a", 1, "y")], (), heads) is None
    assert one.add([part("b", 0, "y")], (("a", b"blind"),), heads) is None
    assert one.add([part("a", 0, "y")], (), heads) == Conflict("a", 1)
    assert one.add([part("b", 0, "y")], (), heads) == Appended((1,))


def test_messages_are_counted_snapshots_included() -> None:
    one, heads = unit(messages_max=3), {name: head(0, 0) for name in "abcd"}
    assert one.add([part("a", 0, "x", snapshot="s")], (), heads) == Appended((1,))
    assert one.add([part("b", 0, "x", snapshot="s")], (), heads) is None
    assert one.add([part("b", 0, "x")], (("c", b"y"),), heads) is None
    assert one.add([part("b", 0, "x")], (), heads) == Appended((1,))
    assert one.add([part("c", 0, "x")], (), heads) is None
    assert one.add([part("b", 1, "x")], (("b", b""),)[:0], heads) == Appended((2,))
    assert one.messages == 3 == len(one.outgoing(NAMES, "id"))


@pytest.mark.parametrize("kind", ["event", "item", "key", "snapshot", "open items"])
def test_no_message_is_larger_than_the_server_takes(kind: str) -> None:
    payload_bytes_max = 5_000
    heads = {"a": head(0, 0)}
    match kind:
        case "event":
            parts = [Part("a", 0, 0, (bytes(size),)) for size in range(4_000, 6_000, 50)]
        case "item":
            parts = [Part("a", 0, 0, (), (OpenItem("k", bytes(size)),)) for size in range(4_000, 6_000, 50)]
        case "key":
            parts = [Part("a", 0, 0, (), (OpenItem("\U0001f600" * size, b""),)) for size in range(900, 1_500, 10)]
        case "snapshot":
            parts = [Part("a", 0, 0, (), snapshot=bytes(size)) for size in range(4_000, 6_000, 50)]
        case _:
            parts = [
                Part("a", 0, 0, (b"x",), (OpenItem("k", bytes(size)),), snapshot=b"") for size in range(0, 6_000, 50)
            ]
            heads = {"a": head(3, 0, Opened("old", 0, bytes(2_000)))}
    taken = []
    for each in parts:
        one = unit(payload_bytes_max=payload_bytes_max)
        if one.add([each], (), heads) is not None:
            taken.append(each)
            for message in in_stream(one.outgoing(NAMES, "x" * 26), NAMES.log, "y" * 26):
                headers_bytes = sum(len(name) + len(value) + 4 for name, value in message.headers.items())
                assert len(message.data) + headers_bytes <= payload_bytes_max
    assert 0 < len(taken) < len(parts)


def test_bytes_of_all_are_bounded_and_a_run_is_not_netted_beyond_a_message() -> None:
    one, heads = unit(payload_bytes_max=5_000), {"a": head(0, 0), "b": head(0, 0)}
    big = "x" * 3_000
    assert one.add([part("a", 0, big)], (), heads) == Appended((1,))
    assert one.add([part("a", 1, big)], (), heads) is None
    assert one.add([part("b", 0, big)], (), heads) == Appended((1,))
    two = unit(bytes_max=5_000)
    assert two.add([part("a", 0, big)], (), heads) == Appended((1,))
    assert two.add([part("b", 0, big)], (), heads) is None


def test_landing_gives_each_message_its_sequence() -> None:
    one, heads = unit(), {"a": head(7, 3), "b": head(0, 0), "c": head(2, 1)}
    one.add([part("a", 3, "x", snapshot="s"), part("b", 0, "y")], (("c", b"z"),), heads)
    order = [message.subject for message in one.outgoing(NAMES, "id")]
    one.land(104)
    at = {subject: 101 + number for number, subject in enumerate(order)}
    assert (heads["a"].seq, heads["a"].run_seq, heads["a"].version) == (at["hg.log.e.a"], at["hg.log.e.a"], 4)
    assert (heads["a"].snapshot_seq, heads["a"].covered) == (at["hg.log.s.a"], 4)
    assert (heads["b"].seq, heads["b"].version, heads["b"].snapshot_seq) == (at["hg.log.e.b"], 1, 0)
    assert (heads["c"].seq, heads["c"].version) == (at["hg.log.e.c"], 2)


def test_one_message_goes_by_itself_and_several_as_a_batch() -> None:
    [alone] = in_stream([Outgoing("s", b"", {})], "HG_LOG", "b")
    assert alone.headers == {EXPECTED_STREAM: "HG_LOG"}
    first, second, last = in_stream([Outgoing("s", b"", {}) for _ in range(3)], "HG_LOG", "b")
    assert first.headers == {EXPECTED_STREAM: "HG_LOG", BATCH_ID: "b", BATCH_SEQ: "1"}
    assert second.headers == {BATCH_ID: "b", BATCH_SEQ: "2"}
    assert last.headers == {BATCH_ID: "b", BATCH_SEQ: "3", BATCH_COMMIT: "1"}
    again = in_stream([first, second, last], "HG_LOG", "c")
    assert {message.headers[BATCH_ID] for message in again} == {"c"}


def test_tombstones_replace_what_is_there_and_only_that() -> None:
    buried = head(9, 4)
    assert tombstones(NAMES, "a", Head(), "id") == []
    [run] = tombstones(NAMES, "a", buried, "id")
    assert (run.subject, run.data) == ("hg.log.e.a", b"")
    assert (run.headers[EXPECTED_SEQ], run.headers[ROLLUP], run.headers["Hg-Version"]) == ("9", "sub", "1-0")
    buried.snapshot_seq = 10
    _, snapshot = tombstones(NAMES, "a", buried, "id")
    assert (snapshot.subject, snapshot.headers[EXPECTED_SEQ], snapshot.headers[ROLLUP]) == ("hg.log.s.a", "10", "sub")
    assert as_stored(snapshot).is_tombstone


def test_the_first_run_behind_a_tombstone_is_the_first_of_its_stream() -> None:
    one, heads = unit(), {"a": Head(9)}
    one.add([part("a", 0, "x")], (), heads)
    [message] = one.outgoing(NAMES, "id")
    assert message.headers[EXPECTED_SEQ] == "9"
    assert run_of(as_stored(message)).after == 0
