"""What a soak calls flat, and what it names."""

import pytest

from bench.soak.verdict import BOUNDS, SAMPLES_MIN, Bound, judge

RSS = Bound("rss_mib", 0.05, 8)


def run(*values: float) -> list[dict[str, float]]:
    return [{"rss_mib": value} for value in values]


def test_growth_while_it_warms_up_is_none() -> None:
    (rss,) = judge(run(10, 60, *[100] * 6), [RSS])
    assert (rss.early, rss.late, rss.is_flat) == (100, 100, True)


def test_growth_past_the_bound_is_named() -> None:
    assert [each.is_flat for each in judge(run(*[100] * 6, 113, 113), [RSS])] == [True]
    assert [each.is_flat for each in judge(run(*[100] * 6, 113.1, 113.1), [RSS])] == [False]


def test_one_odd_sample_is_no_growth() -> None:
    assert judge(run(*[100] * 14, 900, 100), [RSS])[0].is_flat


def test_run_too_short_to_judge_says_so() -> None:
    with pytest.raises(ValueError, match="too few"):
        judge(run(*[100] * (SAMPLES_MIN - 1)), [RSS])


def test_each_figure_has_one_bound() -> None:
    assert len({bound.figure for bound in BOUNDS}) == len(BOUNDS)
