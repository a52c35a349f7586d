"""A wrong clock removes nothing, unless it stays as it is."""

import pytest

from gateway.observe.audit.retention_rules import BELIEVED_AFTER_S, DAY_MS, RetentionClock

NOW_MS = 1_790_000_000_000
YEAR_MS = 365 * DAY_MS


def test_time_that_passes_by_both_clocks_is_believed_at_once() -> None:
    clock = RetentionClock()
    for day in range(400):
        assert clock.at(day * 86_400.0, NOW_MS + day * DAY_MS) == NOW_MS + day * DAY_MS


@pytest.mark.parametrize("step_ms", [DAY_MS, -YEAR_MS, 0])
def test_small_step_ahead_and_any_step_back_are_believed_at_once(step_ms: int) -> None:
    clock = RetentionClock()
    clock.at(0.0, NOW_MS)
    assert clock.at(0.0, NOW_MS + step_ms) == NOW_MS + step_ms


def test_jump_ahead_is_believed_after_an_hour_of_it() -> None:
    clock = RetentionClock()
    clock.at(0.0, NOW_MS)
    assert clock.at(10.0, NOW_MS + YEAR_MS) == NOW_MS + 10_000
    assert clock.at(9.0 + BELIEVED_AFTER_S, NOW_MS + YEAR_MS) == NOW_MS + 3_609_000
    assert clock.at(10.0 + BELIEVED_AFTER_S, NOW_MS + YEAR_MS) == NOW_MS + YEAR_MS
    assert clock.at(11.0 + BELIEVED_AFTER_S, NOW_MS + YEAR_MS) == NOW_MS + YEAR_MS


def test_jump_that_is_taken_back_begins_no_hour() -> None:
    clock = RetentionClock()
    clock.at(0.0, NOW_MS)
    clock.at(1.0, NOW_MS + YEAR_MS)
    assert clock.at(2.0, NOW_MS + 2_000) == NOW_MS + 2_000
    assert clock.at(2.0 + BELIEVED_AFTER_S, NOW_MS + YEAR_MS) == NOW_MS + 2_000 + 3_600_000


def test_what_was_written_before_this_run_says_what_a_jump_is() -> None:
    clock = RetentionClock()
    clock.learn(0.0, NOW_MS)
    assert clock.at(0.0, NOW_MS + DAY_MS) == NOW_MS + DAY_MS
    clock = RetentionClock()
    clock.learn(0.0, NOW_MS)
    assert clock.at(0.0, NOW_MS + YEAR_MS) == NOW_MS
