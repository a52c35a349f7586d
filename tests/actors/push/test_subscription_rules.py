"""Whom a notification is for, who gives way in a full table, what an outcome changes."""

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.push.subscription_rules import Outcome, Place, Subscriber, after, in_turn, is_same, place_for
from actors.space.routing_rules import is_for
from schemas.echo.errors import EchoError

NOW_MS = 1_800_000_000_000


@dataclass(frozen=True)
class Over:
    endpoints: tuple[str, ...] = ()

    def __call__(self, one: Subscriber) -> bool:
        return one.endpoint in self.endpoints


def one(
    endpoint: str,
    uid: str | None = None,
    subs: tuple[str, ...] = (),
    failing_since_ms: int | None = None,
    *,
    left: bool = False,
) -> Subscriber:
    return Subscriber(endpoint, b"p", b"a", 1, uid, subs, failing_since_ms=failing_since_ms, is_left_over=left)


def test_those_who_were_left_over_come_first_and_all_else_stays_in_order() -> None:
    there = [one("a"), one("b", left=True), one("c"), one("d", left=True)]
    assert [found.endpoint for found in in_turn(there, None, None)] == ["b", "d", "a", "c"]


@given(
    st.lists(
        st.builds(
            one,
            st.uuids().map(str),
            st.none() | st.sampled_from("abc"),
            st.lists(st.sampled_from("abc"), max_size=2).map(tuple),
            left=st.booleans(),
        )
    ),
    st.none() | st.sampled_from("abc"),
    st.none() | st.sampled_from("abc"),
)
def test_routing_is_that_of_the_room(there: list[Subscriber], sub: str | None, tuid: str | None) -> None:
    found = in_turn(there, sub, tuid)
    assert set(found) == {each for each in there if is_for(sub, tuid, each.uid, each.subs)}


def test_table_takes_as_many_as_it_may_and_one_that_is_there_always() -> None:
    there = [one("a"), one("b")]
    assert place_for("c", there, 3, Over()) == Place()
    assert place_for("c", there, 2, Over()) is EchoError.SPACE_FULL
    assert place_for("b", there, 2, Over()) == Place()


def test_in_a_full_table_the_one_that_has_failed_for_longest_gives_way() -> None:
    there = [one("a"), one("b", failing_since_ms=20), one("c", failing_since_ms=10), one("d", left=True)]
    assert place_for("e", there, 4, Over()) == Place("c")


def test_before_that_one_that_is_sent_to_no_more() -> None:
    there = [one("a"), one("b", failing_since_ms=20), one("c")]
    assert place_for("e", there, 3, Over(("c",))) == Place("c")


@pytest.mark.parametrize(
    ("before", "outcome", "expected"),
    [
        (one("a"), Outcome.SENT, one("a")),
        (one("a", failing_since_ms=5, left=True), Outcome.SENT, one("a")),
        (one("a"), Outcome.FAILED, one("a", failing_since_ms=NOW_MS)),
        (one("a", left=True), Outcome.FAILED, one("a", failing_since_ms=NOW_MS)),
        (one("a", failing_since_ms=5), Outcome.FAILED, one("a", failing_since_ms=5)),
        (one("a"), Outcome.LEFT_OVER, one("a", left=True)),
        (one("a", failing_since_ms=5), Outcome.LEFT_OVER, one("a", failing_since_ms=5, left=True)),
        (one("a", failing_since_ms=5), Outcome.REMOVED, None),
    ],
)
def test_outcome_is_kept(before: Subscriber, outcome: Outcome, expected: Subscriber | None) -> None:
    assert after(before, outcome, NOW_MS) == expected


def test_what_was_found_out_does_not_make_another_subscription_and_new_keys_do() -> None:
    first = one("a")
    assert is_same(first, one("a", failing_since_ms=3, left=True))
    for change in ({"p256dh": b"x"}, {"auth": b"x"}, {"since_ms": 2}, {"endpoint": "b"}):
        assert not is_same(first, msgspec.structs.replace(first, **change))


def test_form_in_which_subscriptions_lie_on_disks() -> None:
    """Written by an earlier release, it is read by this one: fields are added with a default, never taken away."""
    lying = {"endpoint": "", "p256dh": b"\4p", "auth": b"a", "since_ms": 7}
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(lying), type=Subscriber)
    assert read == Subscriber("", b"\4p", b"a", 7)
    assert set(msgspec.to_builtins(read)) == {
        *lying,
        "uid",
        "subs",
        "member_id",
        "failing_since_ms",
        "is_left_over",
    }
