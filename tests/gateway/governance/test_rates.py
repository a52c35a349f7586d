"""How often an agent may call: every rate that concerns a tool must have a token."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.governance.policy.patterns import Pattern
from gateway.governance.policy.policy import AgentRules, Rate
from gateway.governance.policy.selectors import Selector
from gateway.governance.spend.rates import TOOLS_MAX, AgentRates, Rates
from schemas.labels import UNLABELLED, Labels

ALL = (Pattern("**"),)


def rules_of(*rates: tuple[str, int, int]) -> AgentRules:
    return AgentRules(ALL, rates=tuple(Rate((Pattern(tools),), calls, per_s) for tools, calls, per_s in rates))


def test_without_a_rate_nothing_is_refused() -> None:
    assert [AgentRates(rules_of()).take("a.b", 0.0) for _ in range(1000)] == [None] * 1000


def test_bucket_is_full_at_first_and_fills_evenly() -> None:
    rates = AgentRates(rules_of(("**", 6, 60)))
    assert [rates.take("a", 0.0) for _ in range(7)] == [None] * 6 + [10_000]
    assert rates.take("a", 9.999) == 1
    assert rates.take("a", 10.0) is None
    assert rates.take("a", 10.0) == 10_000


def test_rate_counts_all_its_tools_together_and_no_other() -> None:
    rates = AgentRates(rules_of(("a.*", 2, 1)))
    assert (rates.take("a.x", 0.0), rates.take("a.y", 0.0), rates.take("a.z", 0.0)) == (None, None, 500)
    assert rates.take("b.x", 0.0) is None


def test_when_one_refuses_none_is_taken() -> None:
    rates = AgentRates(rules_of(("**", 2, 100), ("a", 1, 1)))
    assert rates.take("a", 0.0) is None
    assert [rates.take("a", 0.0) for _ in range(5)] == [1000] * 5
    assert rates.take("b", 0.0) is None  # the last token of the wide one
    assert rates.take("a", 1.0) == 49_000  # the longest wait is told
    assert rates.take("b", 1.0) == 49_000


def test_rate_that_is_there_twice_counts_once() -> None:
    rates = AgentRates(rules_of(("**", 2, 1), ("**", 2, 1)))
    assert [rates.take("a", 0.0) for _ in range(3)] == [None, None, 500]


def test_new_policy_keeps_the_history_of_rates_that_stay() -> None:
    rates = AgentRates(rules_of(("a", 1, 100), ("b", 1, 100)))
    assert (rates.take("a", 0.0), rates.take("b", 0.0)) == (None, None)
    rates.adopt(rules_of(("a", 1, 100), ("b", 2, 100)))
    assert (rates.take("a", 0.0), rates.take("b", 0.0)) == (100_000, None)


@given(
    st.lists(st.tuples(st.sampled_from(["**", "a", "b"]), st.integers(1, 20), st.integers(1, 100)), max_size=4),
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.floats(0, 5)), max_size=60),
)
def test_never_more_than_capacity_and_refill(
    limits: list[tuple[str, int, int]], calls: list[tuple[str, float]]
) -> None:
    rates, now_s, passed = AgentRates(rules_of(*limits)), 0.0, []
    for tool, pause_s in calls:
        now_s += pause_s
        if rates.take(tool, now_s) is None:
            passed.append(tool)
    for tools, most, per_s in limits:
        assert sum(Pattern(tools).matches(tool) for tool in passed) <= most + now_s * most / per_s + 1e-6


@given(st.integers(1, 1000), st.integers(1, 100_000), st.floats(0, 1e6))
def test_waiting_as_told_is_enough(calls: int, per_s: int, now_s: float) -> None:
    rates = AgentRates(rules_of(("**", calls, per_s)))
    while (wait_ms := rates.take("a", now_s)) is None:
        pass
    assert rates.take("a", now_s + wait_ms / 1000 + 1e-6) is None


def test_agents_are_counted_apart_and_follow_the_policy() -> None:
    rates, rules = Rates(), rules_of(("**", 1, 10))
    assert (rates.take("x", rules, "a", 0.0), rates.take("y", rules, "a", 0.0)) == (None, None)
    assert rates.take("x", rules, "a", 0.0) == 10_000
    assert rates.take("x", rules_of(), "a", 0.0) is None
    assert rates.take("x", rules_of(("**", 1, 10)), "a", 0.0) == 10_000  # an equal rate of a later policy
    assert rates.take("x", rules_of(("**", 3, 10)), "a", 0.0) is None


def test_agents_are_bounded_and_the_least_recent_is_forgotten() -> None:
    rates, rules = Rates(agents_max=2), rules_of(("**", 1, 1000))
    assert [rates.take(sub, rules, "a", 0.0) for sub in ("x", "y")] == [None, None]
    assert rates.take("x", rules, "a", 1.0) == 999_000  # a refusal counts as being there
    assert rates.take("z", rules, "a", 2.0) is None  # y is forgotten
    assert len(rates) == 2
    assert rates.take("x", rules, "a", 3.0) == 997_000
    assert rates.take("y", rules, "a", 4.0) is None


# ---- rates of some nodes --------------------------------------------------------------------------------------------

PUMP, VALVE = "sys.01jz0000000000000000000000.metrics.snapshot", "sys.01jz0000000000000000000001.metrics.snapshot"
LAB, ROOF = Labels(None, {"site": "lab"}), Labels(None, {"site": "roof"})
OF_THE_LAB = AgentRules(ALL, rates=(Rate(ALL, 2, 1000, (Selector("tag:site=lab"),)),))


def test_rate_of_some_nodes_counts_their_tools_together_and_no_others() -> None:
    rates = AgentRates(OF_THE_LAB)
    assert [rates.take(tool, 0.0, LAB) for tool in (PUMP, VALVE)] == [None, None]
    assert rates.take(PUMP, 0.0, LAB) == 500_000
    assert [rates.take("search.query", 0.0, UNLABELLED) for _ in range(9)] == [None] * 9


def test_relabelled_node_is_counted_by_what_it_is_called_now_and_the_bucket_keeps_its_count() -> None:
    rates, rules = Rates(), OF_THE_LAB

    def take(tool: str, labels: Labels) -> int | None:
        return rates.take("x", rules, tool, 0.0, labels)

    assert [take(PUMP, LAB), take(PUMP, LAB)] == [None, None]
    assert take(PUMP, LAB) == 500_000
    assert [take(PUMP, ROOF) for _ in range(3)] == [None] * 3  # out of the lab: nothing counts it
    assert take(PUMP, Labels(None, {"site": "lab"})) == 500_000  # back again: the bucket is as empty as it was
    assert [take(VALVE, ROOF), take(VALVE, LAB)] == [None, 500_000]


def test_rates_of_more_tools_than_are_remembered_still_count_by_labels() -> None:
    rates = AgentRates(OF_THE_LAB)
    for number in range(TOOLS_MAX + 1):
        assert rates.take(f"sys.{number:026}.metrics.snapshot", 0.0, ROOF) is None
    assert [rates.take(PUMP, 0.0, LAB) for _ in range(3)] == [None, None, 500_000]
    assert rates.take(f"sys.{0:026}.metrics.snapshot", 0.0, LAB) == 500_000


def test_rate_whose_nodes_change_in_the_policy_begins_anew() -> None:
    rates = Rates()
    assert [rates.take("x", OF_THE_LAB, PUMP, 0.0, LAB) for _ in range(3)] == [None, None, 500_000]
    wider = AgentRules(ALL, rates=(Rate(ALL, 2, 1000, (Selector("tag:site=lab"), Selector("name:*"))),))
    assert rates.take("x", wider, PUMP, 0.0, LAB) is None
