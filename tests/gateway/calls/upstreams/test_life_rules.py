"""How long an upstream is left alone, and when its failures are forgotten."""

import pytest

from gateway.calls.upstreams.life_rules import UpstreamLife, UpstreamState
from gateway.calls.upstreams.settings import UpstreamSettings


def test_wait_doubles_up_to_its_bound_and_chance_spreads_it() -> None:
    life = UpstreamLife(UpstreamSettings())
    waits = []
    for _ in range(9):
        life.connect(0.0)
        waits.append(life.ended(0.0, 1.0))
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    life.connect(0.0)
    assert life.ended(0.0, 0.25) == 15
    assert life.state is UpstreamState.DOWN


def test_failures_never_overflow() -> None:
    life = UpstreamLife(UpstreamSettings(), failures=10**6)
    life.connect(0.0)
    assert life.ended(0.0, 1.0) == 60


def test_one_that_stayed_up_begins_anew_and_one_that_did_not_goes_on() -> None:
    life = UpstreamLife(UpstreamSettings(), failures=5)
    states: list[UpstreamState] = []
    life.connect(0.0)
    states.append(life.state)
    life.came_up(100.0)
    states.append(life.state)
    assert states == [UpstreamState.CONNECTING, UpstreamState.UP]
    assert life.ended(159.9, 1.0) == 32
    life.connect(0.0)
    life.came_up(200.0)
    assert life.ended(260.0, 1.0) == 1
    life.connect(0.0)
    assert life.ended(261.0, 1.0) == 2


def test_what_is_not_connecting_cannot_come_up() -> None:
    life = UpstreamLife(UpstreamSettings())
    with pytest.raises(AssertionError):
        life.came_up(0.0)
    assert life.state is UpstreamState.DOWN


def test_a_state_is_dated_by_when_it_began() -> None:
    life = UpstreamLife(UpstreamSettings())
    since = []
    life.connect(5.0)
    since.append(life.since_s)
    life.came_up(7.0)
    since.append(life.since_s)
    life.ended(9.0, 1.0)
    assert [*since, life.since_s] == [5.0, 7.0, 9.0]
