"""Periods that neither drift nor bunch."""

from hypothesis import given, settings
from hypothesis import strategies as st

from actors.device.ticks import Ticks


def test_nothing_is_due_before_the_first_tick() -> None:
    ticks = Ticks(10.0, 5.0)
    assert ticks.next_at == 15.0
    assert ticks.lateness(14.999) is None
    assert ticks.next_at == 15.0


def test_a_tick_noticed_late_does_not_move_the_next_one() -> None:
    ticks = Ticks(10.0, 5.0)
    assert ticks.lateness(16.5) == 1.5
    assert ticks.next_at == 20.0


def test_missed_ticks_are_skipped() -> None:
    ticks = Ticks(10.0, 5.0)
    assert ticks.lateness(31.0) == 1.0
    assert ticks.next_at == 35.0


def test_counting_may_begin_with_the_start_itself() -> None:
    assert Ticks(10.0, 5.0, first=0).lateness(10.0) == 0.0


@given(
    st.floats(0, 1e6),
    st.floats(0.05, 100),
    st.lists(st.floats(0, 500), max_size=30),
)
@settings(deadline=None)
def test_the_next_tick_is_always_ahead_and_at_most_one_interval(
    start: float, interval: float, waits: list[float]
) -> None:
    ticks, now = Ticks(start, interval), start
    for wait in waits:
        now += wait
        lateness = ticks.lateness(now)
        assert now < ticks.next_at <= now + interval * 1.000001
        assert lateness is None or 0 <= lateness < interval * 1.000001
