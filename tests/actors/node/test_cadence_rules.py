"""Which telemetry is relayed, and when a cadence is over."""

import pytest

from actors.node.cadence_rules import CadenceRules, Stage
from actors.node.settings import NodeSettings
from tests.schemas.examples import FRAME, NODE_ID


def running(interval_ms: int = 1000) -> CadenceRules:
    rules = CadenceRules(NODE_ID, interval_ms, NodeSettings(), ack_by_s=5.0)
    rules.acked(ok=True)
    return rules


def test_frames_at_their_interval_are_relayed() -> None:
    rules = running()
    assert [rules.admit(FRAME, float(second)) for second in range(10)] == [None] * 10


@pytest.mark.parametrize(("gap_s", "dropped"), [(0.0, True), (0.499, True), (0.5, False), (0.6, False)])
def test_frame_sooner_than_half_an_interval_is_dropped(gap_s: float, dropped: bool) -> None:
    rules = running()
    rules.admit(FRAME, 10.0)
    assert (rules.admit(FRAME, 10.0 + gap_s) == "telemetry_too_soon") is dropped


def test_gap_is_counted_from_the_last_frame_relayed_not_from_one_dropped() -> None:
    rules = running()
    assert rules.admit(FRAME, 0.0) is None
    assert rules.admit(FRAME, 0.4) is not None
    assert rules.admit(FRAME, 0.6) is None


def test_frame_of_another_node_is_dropped() -> None:
    assert running().admit(FRAME | {"node_id": NODE_ID[:-1] + "z"}, 0.0) == "telemetry_of_another_node"


def test_frame_before_the_ack_or_after_the_end_is_unasked() -> None:
    early = CadenceRules(NODE_ID, 1000, NodeSettings(), ack_by_s=5.0)
    assert early.admit(FRAME, 0.0) == "telemetry_unasked"
    late = running()
    late.end()
    assert late.admit(FRAME, 0.0) == "telemetry_unasked"


def test_cadence_refused_or_not_acked_in_5_s_is_over() -> None:
    refused, silent = (CadenceRules(NODE_ID, 1000, NodeSettings(), ack_by_s=5.0) for _ in range(2))
    refused.acked(ok=False)
    assert refused.stage is Stage.OVER
    silent.tick(4.999)
    assert silent.waits_for_ack
    silent.tick(5.0)
    assert silent.stage is Stage.OVER


def test_late_ack_or_tick_does_not_revive_or_end() -> None:
    over, alive = CadenceRules(NODE_ID, 1000, NodeSettings(), ack_by_s=5.0), running()
    over.tick(5.0)
    over.acked(ok=True)
    assert over.stage is Stage.OVER
    alive.tick(100.0)
    alive.acked(ok=False)
    assert alive.stage is Stage.RUNNING
