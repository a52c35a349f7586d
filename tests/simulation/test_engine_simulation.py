"""Several gateways under faults, seed by seed: the invariants hold, and without any one rule they do not."""

from collections import Counter

import pytest

from actors.supervision.crash_report import leaves
from tests.simulation.engine_fleet import EngineRules
from tests.simulation.engine_omissions import OMISSIONS
from tests.simulation.engine_run import EngineReport, simulate
from tests.simulation.oracle import Violation

SEEDS = 20
BATCHES = 4
SEEDS_TO_FIND_AN_OMISSION = 40
FIRST_SEED = {"only a higher epoch": 12}  # that is known to notice, where it is not one of the first


def verdict(seed: int, rules: EngineRules | None = None) -> EngineReport | Violation:
    try:
        return simulate(seed, rules)
    except BaseExceptionGroup as group:
        violation, others = group.split(Violation)
        if violation is None or others is not None:
            raise
        return next(leaf for leaf in leaves(violation) if isinstance(leaf, Violation))


@pytest.mark.parametrize("batch", range(BATCHES))
def test_invariants_hold_whatever_happens_between_gateways(batch: int) -> None:
    ends: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for seed in range(batch, SEEDS, BATCHES):
        told = verdict(seed)
        again = f"again with: python -m tests.simulation.engine_run --seed {seed}"
        assert not isinstance(told, Violation), f"{told}; {again}"
        ends.update(told.ends)
        calls.update(told.calls)
    # A storm in which everything succeeds, or nothing, would prove little.
    for state in ("acked", "failed", "expired", "cancelled", "unknown"):
        assert ends[state] > 0, f"no command was {state} in {SEEDS // BATCHES} seeds: {ends}"
    for answer in ("here: succeeded", "elsewhere: succeeded", "elsewhere: unknown", "elsewhere: E_NODE_OFFLINE"):
        assert calls[answer] > 0, f"no call was answered {answer} in {SEEDS // BATCHES} seeds: {calls}"


def test_seed_of_several_gateways_replays_exactly() -> None:
    assert simulate(3) == simulate(3)


@pytest.mark.parametrize("rule", OMISSIONS)
def test_without_this_rule_between_gateways_an_invariant_breaks(rule: str) -> None:
    first = FIRST_SEED.get(rule, 0)
    for seed in range(first, first + SEEDS_TO_FIND_AN_OMISSION):
        if isinstance(verdict(seed, OMISSIONS[rule]), Violation):
            return
    raise AssertionError(f"{SEEDS_TO_FIND_AN_OMISSION} seeds did not notice that the rule is gone")
