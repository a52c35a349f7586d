"""A node that keeps the rules passes every check."""

from actors.kit.table import CHECKS
from actors.kit.verdicts import Outcome
from tests.actors.kit.playing import IDENTITY, play_all
from tests.actors.kit.pure_node import PureNode


def test_a_sound_node_passes_every_check() -> None:
    verdicts = play_all(PureNode(IDENTITY))
    assert {name: verdict for name, verdict in verdicts.items() if verdict.outcome is not Outcome.PASSED} == {}
    assert len(verdicts) == len(CHECKS)
