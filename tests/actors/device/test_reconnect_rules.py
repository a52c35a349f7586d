"""Coming back: by the row of the close code, with full jitter."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.device.reconnect_rules import BASE_S, CAP_S, RESTART_S, SUPERSEDED_S, StayAway, Wait, after_close
from actors.device.wire import ABNORMAL
from schemas.closes import NodeClose, Return

BACKOFF = [close for close in NodeClose if close.value.come_back in (Return.WITH_BACKOFF, Return.AS_IT_LIKES)]


class Fixed(Random):
    """Chance that always lands at the same place of its range."""

    def __init__(self, at: float) -> None:
        super().__init__(0)
        self._at = at

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self._at


@pytest.mark.parametrize("code", [*(close.value.code for close in BACKOFF), ABNORMAL, 1009, 4999])
@pytest.mark.parametrize(("failures", "bound_s"), [(0, 0.5), (1, 1.0), (3, 4.0), (6, CAP_S), (5000, CAP_S)])
def test_the_wait_is_drawn_from_nothing_up_to_a_bound_that_doubles(code: int, failures: int, bound_s: float) -> None:
    assert after_close(code, failures, Fixed(0.0)) == Wait(0.0)
    assert after_close(code, failures, Fixed(1.0)) == Wait(bound_s)


@pytest.mark.parametrize("close", [NodeClose.FORBIDDEN, NodeClose.MANIFEST_REJECTED])
def test_a_final_refusal_is_final(close: NodeClose) -> None:
    decision = after_close(close.value.code, 0, Random(0))
    assert isinstance(decision, StayAway)
    assert str(close.value.code) in decision.reason


def test_a_superseded_node_waits_30_s_at_least() -> None:
    assert after_close(4409, 0, Fixed(0.0)) == Wait(SUPERSEDED_S)
    assert after_close(4409, 0, Fixed(1.0)) == Wait(SUPERSEDED_S + BASE_S)


def test_after_a_restart_nodes_spread_out() -> None:
    assert after_close(1012, 0, Fixed(0.0)) == Wait(0.0)
    assert after_close(1012, 0, Fixed(1.0)) == Wait(RESTART_S)
    assert after_close(1012, 6, Fixed(1.0)) == Wait(CAP_S)


def test_a_refused_token_has_to_be_replaced() -> None:
    assert after_close(4401, 1, Fixed(1.0)) == Wait(1.0, needs_new_token=True)


@given(st.sampled_from(list(NodeClose)), st.integers(0, 100), st.integers())
@settings(deadline=None)
def test_no_wait_is_longer_than_the_cap_beyond_what_the_code_asks_for(
    close: NodeClose, failures: int, seed: int
) -> None:
    decision = after_close(close.value.code, failures, Random(seed))
    assert isinstance(decision, StayAway) or 0 <= decision.seconds <= SUPERSEDED_S + CAP_S
