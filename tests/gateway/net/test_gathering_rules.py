"""A pump that has little to do looks at once; a busy one lets events gather for a moment, never for longer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.net.gathering_rules import FROM_PER_S, GATHER_S, WINDOW_S, Gathering

BATCH = 64


def paused(per_s: float, batch: int, seconds: float = 1.0) -> list[float]:
    """What a pump is told whose batches are of this size and rate."""
    gathering, pauses = Gathering(BATCH), []
    for number in range(int(seconds * per_s / batch)):
        pauses.append(gathering.pause_s(batch, 100 + number * batch / per_s))
    return pauses


@pytest.mark.parametrize("batch", [1, 5, BATCH])
def test_pump_with_little_to_do_never_waits(batch: int) -> None:
    assert set(paused(FROM_PER_S * 0.9, batch)) == {0.0}


def test_busy_pump_lets_events_gather_from_the_second_window_on() -> None:
    pauses = paused(FROM_PER_S * 2, 1)
    first = int(FROM_PER_S * 2 * WINDOW_S)
    assert set(pauses[2 * first :]) == {GATHER_S}


def test_full_batch_is_followed_at_once() -> None:
    assert set(paused(FROM_PER_S * 10, BATCH)) == {0.0}


def test_pump_that_was_busy_waits_no_more_once_it_is_not() -> None:
    gathering = Gathering(BATCH)
    for number in range(1000):
        gathering.pause_s(1, 100 + number / (4 * FROM_PER_S))
    assert gathering.pause_s(1, 101) == 0.0
    assert gathering.pause_s(1, 102) == 0.0


@given(st.lists(st.tuples(st.integers(0, BATCH), st.floats(0, 1)), max_size=50))
def test_no_event_waits_for_longer_than_the_bound(steps: list[tuple[int, float]]) -> None:
    gathering, now_s = Gathering(BATCH), 100.0
    for events, after_s in steps:
        now_s += after_s
        assert gathering.pause_s(events, now_s) in (0.0, GATHER_S)
