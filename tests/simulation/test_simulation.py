"""Whole fleets under faults, seed by seed: the invariants hold, and without any one rule they do not."""

import pytest

from actors.supervision.crash_report import leaves
from tests.simulation.fleet import Rules
from tests.simulation.omissions import OMISSIONS
from tests.simulation.oracle import Violation
from tests.simulation.run import Report, simulate

SEEDS = 200
BATCHES = 10
SEEDS_TO_FIND_AN_OMISSION = 200


def verdict(seed: int, rules: Rules | None = None) -> Report | Violation:
    try:
        return simulate(seed, rules)
    except BaseExceptionGroup as group:
        violation, others = group.split(Violation)
        if violation is None or others is not None:
            raise
        return next(leaf for leaf in leaves(violation) if isinstance(leaf, Violation))


@pytest.mark.parametrize("batch", range(BATCHES))
def test_invariants_hold_whatever_happens(batch: int) -> None:
    ends: dict[str, int] = {}
    for seed in range(batch, SEEDS, BATCHES):
        told = verdict(seed)
        assert not isinstance(told, Violation), f"{told}; again with: python -m tests.simulation.run --seed {seed}"
        ends = {state: ends.get(state, 0) + told.ends.get(state, 0) for state in {*ends, *told.ends}}
    # A storm in which everything succeeds, or nothing, would prove little.
    for state in ("acked", "failed", "expired", "cancelled", "unknown", "interrupted"):
        assert ends.get(state, 0) > 0, f"no command was {state} in {SEEDS // BATCHES} seeds: {ends}"


def test_seed_replays_exactly() -> None:
    for seed in (3, 4):
        assert simulate(seed) == simulate(seed)


@pytest.mark.parametrize("rule", OMISSIONS)
def test_without_this_rule_an_invariant_breaks(rule: str) -> None:
    for seed in range(SEEDS_TO_FIND_AN_OMISSION):
        if isinstance(verdict(seed, OMISSIONS[rule]), Violation):
            return
    raise AssertionError(f"{SEEDS_TO_FIND_AN_OMISSION} seeds did not notice that the rule is gone")
