"""What a watcher makes of what it is sent, and of what it is not."""

from actors.engine.kv import Current, Entry, Gone
from gateway.engine.link import Message
from gateway.engine.watch_rules import Answer, Broken, Watched

PREFIX = "$KV.HG_LIVE."


def put(key: str, number: int, seq: int, pending: int = 0, data: bytes = b"v", **headers: str) -> Message:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Message(PREFIX + key, data, named, f"$JS.ACK.KV_HG_LIVE.w.1.{seq}.{number}.0.{pending}")


def control(**headers: str) -> Message:
    return Message("inbox", b"", {"Status": "100", **{name.replace("_", "-"): each for name, each in headers.items()}})


def watched(*keys: str) -> Watched:
    """One that knows these keys, at revisions from 1 on."""
    made = Watched(PREFIX)
    made.begin(len(keys))
    for number, key in enumerate(keys, 1):
        made.hear(put(key, number, number, len(keys) - number))
    return made


def test_an_empty_bucket_is_current_at_once() -> None:
    assert Watched(PREFIX).begin(0) == [Current()]


def test_everything_is_told_and_then_it_is_current() -> None:
    one = Watched(PREFIX)
    assert one.begin(2) == []
    assert one.hear(put("a", 1, 5, 1)) == [Entry("a", b"v", 5)]
    assert one.hear(put("b", 2, 7, 0)) == [Entry("b", b"v", 7), Current()]
    assert one.hear(put("a", 3, 9, 0)) == [Entry("a", b"v", 9)]


def test_deleted_and_ended_keys_are_gone_once_and_only_if_they_were_there() -> None:
    one = watched("a", "b")
    assert one.hear(put("a", 3, 8, KV_Operation="DEL")) == [Gone("a", 8)]
    assert one.hear(put("b", 4, 9, Nats_Marker_Reason="MaxAge")) == [Gone("b", 9)]
    assert one.hear(put("b", 5, 10, Nats_Marker_Reason="MaxAge")) == []
    assert one.hear(put("never", 6, 11, KV_Operation="PURGE")) == []


def test_a_number_that_is_missing_or_comes_twice_means_that_something_was_lost() -> None:
    assert watched("a").hear(put("b", 3, 9)) == [Broken.LOST]
    assert watched("a").hear(put("b", 1, 9)) == [Broken.LOST]


def test_a_heartbeat_that_knows_of_more_means_so_too() -> None:
    assert watched("a").hear(control(Nats_Last_Consumer="1")) == []
    assert watched("a").hear(control(Nats_Last_Consumer="2")) == [Broken.LOST]
    assert watched("a").hear(control()) == []


def test_a_server_that_waits_for_us_is_answered() -> None:
    waiting = Message("inbox", b"", {"Status": "100"}, "$JS.FC.1")
    assert watched("a").hear(waiting) == [Answer("$JS.FC.1")]


def test_beginning_anew_tells_only_what_is_other_than_before() -> None:
    one = watched("a", "b", "c")
    assert one.begin(2) == []
    assert one.hear(put("a", 1, 1, 1)) == []
    assert one.hear(put("b", 2, 9, 0)) == [Entry("b", b"v", 9), Gone("c", 3), Current()]


def test_beginning_anew_with_nothing_there_means_that_all_is_gone() -> None:
    assert watched("a", "b").begin(0) == [Gone("a", 1), Gone("b", 2), Current()]


def test_a_bucket_that_counts_anew_is_seen_by_its_values() -> None:
    one = watched("a")
    one.begin(1)
    assert one.hear(put("a", 1, 1, 0, b"other")) == [Entry("a", b"other", 1), Current()]


def test_what_no_consumer_sent_is_ignored() -> None:
    assert watched("a").hear(Message("inbox", b"x", {}, "")) == []
    assert watched("a").hear(Message("inbox", b"x", {}, "$JS.ACK.a.b.c.d.e.f.g")) == []
