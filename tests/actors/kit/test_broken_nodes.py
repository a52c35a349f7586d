"""A node that breaks one rule fails the check of that rule, and no other: each check can fail, and says what broke."""

import pytest

from actors.kit.table import CHECKS
from tests.actors.kit.broken_nodes import BROKEN
from tests.actors.kit.playing import IDENTITY, failed, play_all
from tests.actors.kit.pure_node import PureNode


def test_there_is_a_broken_node_for_each_check() -> None:
    assert {name for name, _ in BROKEN} == {check.name for check in CHECKS}


@pytest.mark.parametrize(("name", "broken"), BROKEN, ids=[f"{name}-{broken.__name__}" for name, broken in BROKEN])
def test_a_broken_node_fails_its_check_and_no_other(name: str, broken: type[PureNode]) -> None:
    verdicts = play_all(broken(IDENTITY))
    assert {one: (verdicts[one].expected, verdicts[one].seen) for one in failed(verdicts)}.keys() == {name}
