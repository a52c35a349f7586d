"""The limits of a capability: a bucket for the rate, slots for concurrency."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.node.limit_rules import CapabilityLimits, CapabilityUse, OverLimit


def limits(rps: float = 10, concurrency: int = 2, handler_ms: int = 2000) -> CapabilityLimits:
    constraints = {"rate_limit_rps": rps, "max_concurrency": concurrency, "deadline_ms_default": handler_ms}
    return CapabilityLimits.of(constraints, 0.0)


def test_bucket_is_full_at_start_and_holds_a_second_of_calls() -> None:
    bucket = limits(rps=10)
    assert [bucket.over_rate(0.0) for _ in range(10)] == [None] * 10
    assert bucket.over_rate(0.0) == OverLimit(100, 10, 1)


def test_bucket_of_less_than_one_call_a_second_holds_one() -> None:
    bucket = limits(rps=0.5)
    assert bucket.over_rate(0.0) is None
    assert bucket.over_rate(0.0) == OverLimit(2000, 0.5, 1)
    assert bucket.over_rate(1.999) == OverLimit(1, 0.5, 1)
    assert bucket.over_rate(2.0) is None


@given(rps=st.floats(0.01, 1000), start=st.floats(0, 1e6))
def test_waiting_as_told_is_enough(rps: float, start: float) -> None:
    bucket = limits(rps=rps)
    now = start
    while (over := bucket.over_rate(now)) is None:
        pass
    assert bucket.over_rate(now + over.retry_after_ms / 1000 + 1e-6 * max(1.0, start / 1e3)) is None


def test_time_that_steps_back_gives_nothing_away() -> None:
    bucket = limits(rps=1)
    assert bucket.over_rate(100.0) is None
    assert bucket.over_rate(50.0) is not None
    assert bucket.over_rate(100.5) is not None
    assert bucket.over_rate(101.0) is None


def test_slots_are_held_until_released() -> None:
    slots = limits(concurrency=2)
    for msg_id in ("a", "b"):
        assert slots.over_concurrency(0.0) is None
        slots.occupy(msg_id, 5.0)
    assert isinstance(slots.over_concurrency(0.0), OverLimit)
    slots.release("a")
    assert slots.over_concurrency(0.0) is None


def test_slot_without_an_ack_is_free_when_the_node_must_have_stopped() -> None:
    slots = limits(concurrency=1, handler_ms=2000)
    slots.occupy("a", 5.0)
    assert slots.over_concurrency(6.5) == OverLimit(500, 1)
    assert slots.over_concurrency(1.0) == OverLimit(1000, 1)
    assert slots.over_concurrency(7.0) is None


def test_releasing_twice_or_a_stranger_does_nothing() -> None:
    slots = limits(concurrency=1)
    slots.occupy("a", 5.0)
    slots.release("b")
    assert slots.over_concurrency(0.0) is not None
    slots.release("a")
    slots.release("a")
    assert slots.over_concurrency(0.0) is None


def test_new_limits_keep_what_is_running_and_what_was_spent() -> None:
    one = limits(rps=10, concurrency=2)
    for _ in range(10):
        one.over_rate(0.0)
    one.occupy("a", 5.0)
    one.adopt({"rate_limit_rps": 1, "max_concurrency": 1, "deadline_ms_default": 50})
    assert one.over_rate(0.0) == OverLimit(1000, 1, 1)
    assert one.over_concurrency(0.0) is not None


@pytest.mark.parametrize("rps", [1, 50])
def test_raised_rate_does_not_fill_the_bucket_at_once(rps: float) -> None:
    one = limits(rps=1)
    one.over_rate(0.0)
    one.adopt({"rate_limit_rps": rps, "max_concurrency": 1, "deadline_ms_default": 50})
    assert one.over_rate(0.0) is not None


@pytest.mark.parametrize("rate_per_s", [5e-324, 1e-30, 1e-6])
def test_tiny_rate_asks_for_a_wait_that_can_be_told(rate_per_s: float) -> None:
    limits = CapabilityLimits.of({"rate_limit_rps": rate_per_s, "max_concurrency": 1, "deadline_ms_default": 1000}, 0.0)
    assert limits.over_rate(0.0) is None
    over = limits.over_rate(0.1)
    assert over is not None
    assert over.retry_after_ms <= 24 * 3600 * 1000


def test_use_is_what_runs_and_what_may_still_be_called_now() -> None:
    one = limits(rps=3, concurrency=2, handler_ms=1000)
    assert one.use(0.0) == CapabilityUse(0, 3)
    assert one.over_rate(0.0) is None
    one.occupy("a", 5.0)
    assert one.use(0.0) == CapabilityUse(1, 2)
    assert one.use(6.0) == CapabilityUse(0, 3)  # the node must have stopped, and the bucket is full again
