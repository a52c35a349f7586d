"""Which telemetry is relayed, and when a cadence is over."""

import pytest

from actors.node.cadences import Cadence, Stage
from tests.schemas.examples import FRAME, NODE_ID


def running(interval_ms: int = 1000) -> Cadence:
    rules = Cadence("01", NODE_ID, "metrics", interval_ms, ack_by_s=5.0, gap_min=0.5)
    rules.acked(ok=True)
    return rules


def test_frames_at_their_interval_are_relayed() -> None:
    rules = running()
    assert [rules.relay(FRAME, float(second)) for second in range(10)] == [None] * 10


@pytest.mark.parametrize(("gap_s", "dropped"), [(0.0, True), (0.499, True), (0.5, False), (0.6, False)])
def test_frame_sooner_than_half_an_interval_is_dropped(gap_s: float, dropped: bool) -> None:
    rules = running()
    rules.relay(FRAME, 10.0)
    assert (rules.relay(FRAME, 10.0 + gap_s) == "telemetry_too_soon") is dropped


def test_gap_is_counted_from_the_last_frame_relayed_not_from_one_dropped() -> None:
    rules = running()
    assert rules.relay(FRAME, 0.0) is None
    assert rules.relay(FRAME, 0.4) is not None
    assert rules.relay(FRAME, 0.6) is None


def test_frame_of_another_node_is_dropped() -> None:
    assert running().relay(FRAME | {"node_id": NODE_ID[:-1] + "z"}, 0.0) == "telemetry_of_another_node"


def test_frame_before_the_ack_or_after_the_end_is_unasked() -> None:
    early = Cadence("01", NODE_ID, "metrics", 1000, ack_by_s=5.0, gap_min=0.5)
    assert early.relay(FRAME, 0.0) == "telemetry_unasked"
    late = running()
    late.end()
    assert late.relay(FRAME, 0.0) == "telemetry_unasked"


def test_cadence_refused_or_not_acked_in_5_s_is_over() -> None:
    refused, silent = (Cadence("01", NODE_ID, "metrics", 1000, ack_by_s=5.0, gap_min=0.5) for _ in range(2))
    refused.acked(ok=False)
    assert refused.stage is Stage.OVER
    silent.tick(4.999)
    stages = [silent.stage]
    silent.tick(5.0)
    assert [*stages, silent.stage] == [Stage.ASKED, Stage.OVER]


def test_late_ack_or_tick_does_not_revive_or_end() -> None:
    over, alive = Cadence("01", NODE_ID, "metrics", 1000, ack_by_s=5.0, gap_min=0.5), running()
    over.tick(5.0)
    over.acked(ok=True)
    assert over.stage is Stage.OVER
    alive.tick(100.0)
    alive.acked(ok=False)
    assert alive.stage is Stage.RUNNING
