"""Rates: by whoever asks, and in bounded memory."""

import pytest

from gateway.net import rates
from gateway.net.rates import Rate


def test_each_has_a_burst_of_its_own_and_then_the_rate() -> None:
    rate = Rate(2, 10.0)
    assert [rate.take("a", 0.0) for _ in range(3)] == [None, None, 100]
    assert rate.take("b", 0.0) is None
    assert rate.take("a", 0.1) is None
    assert rate.wait_ms("a", 0.1) == 100
    assert rate.wait_ms("a", 0.2) is None


def test_one_too_many_takes_the_place_of_the_least_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "BUCKETS_MAX", 2)
    rate = Rate(1, 0.1)
    for who in ("a", "b", "a", "c"):
        rate.take(who, 0.0)
    assert len(rate) == 2
    assert rate.wait_ms("a", 0.0) is not None
    assert rate.wait_ms("b", 0.0) is None  # forgotten, so it begins anew
