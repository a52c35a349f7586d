"""A node that keeps the rules passes every check."""

from collections.abc import Mapping
from typing import Any

from actors.device.handlers import ECHO_CAPABILITY, METRICS_CAPABILITY
from actors.kit.table import CHECKS
from actors.kit.verdicts import Outcome
from tests.actors.kit.playing import IDENTITY, play_all
from tests.actors.kit.pure_node import PureNode


def test_a_sound_node_passes_every_check() -> None:
    verdicts = play_all(PureNode(IDENTITY))
    assert {name: verdict for name, verdict in verdicts.items() if verdict.outcome is not Outcome.PASSED} == {}
    assert len(verdicts) == len(CHECKS)


class Stubborn(PureNode):
    """It looks into its folder only when it is started."""

    def comes_back_in(self, code: int) -> float | None:
        return None if code == 4401 else super().comes_back_in(code)


def test_a_node_that_leaves_for_want_of_a_token_is_not_blamed_for_what_cannot_be_tried_after_that() -> None:
    verdicts = play_all(Stubborn(IDENTITY), can_start=False)
    rest = {name: verdict for name, verdict in verdicts.items() if verdict.outcome is not Outcome.PASSED}
    assert "stays-away-after-4403" in rest
    assert "needs-a-new-token-after-4401" in rest
    assert [name for name, verdict in rest.items() if verdict.outcome is Outcome.FAILED or verdict.is_open] == []


def test_a_node_that_goes_for_good_is_waited_for_once() -> None:
    class Leaves(PureNode):
        def comes_back_in(self, code: int) -> float | None:
            return None if code == 1012 else super().comes_back_in(code)

    node = Leaves(IDENTITY)
    verdicts = play_all(node, can_start=False)
    names = list(verdicts)
    after = names[names.index("comes-back-after-1012") + 1 :]
    assert verdicts["comes-back-after-1012"].outcome is Outcome.FAILED
    assert {verdicts[name].outcome for name in after} == {Outcome.NOT_TRIED}
    assert verdicts[after[0]].is_open


def test_a_node_without_echo_is_tried_by_its_other_tools() -> None:
    class OnlyMetrics(PureNode):
        def capabilities(self) -> tuple[Mapping[str, Any], ...]:
            return (METRICS_CAPABILITY,)

    verdicts = play_all(OnlyMetrics(IDENTITY))
    rest = {name: verdict for name, verdict in verdicts.items() if verdict.outcome is not Outcome.PASSED}
    assert rest.keys() == {"echo", "echo-refuses-bad-arguments", "begins-in-order"}
    assert not any(verdict.is_open for verdict in rest.values())


def test_a_node_without_metrics_is_tried_by_its_echo() -> None:
    class OnlyEcho(PureNode):
        def capabilities(self) -> tuple[Mapping[str, Any], ...]:
            return (ECHO_CAPABILITY,)

    verdicts = play_all(OnlyEcho(IDENTITY))
    rest = {name: verdict for name, verdict in verdicts.items() if verdict.outcome is not Outcome.PASSED}
    assert all("system.metrics" in verdict.why and not verdict.is_open for verdict in rest.values())
    assert "subscribes" in rest
