"""What a caller is told of money and rates: rounding, the details of a refusal, the headers. All pure."""

import re
from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.ledger.rules import Exceeded, Spent
from gateway.governance.denials import Denial, over_budget, personal_data, too_often
from gateway.governance.policy.patterns import Pattern
from gateway.governance.policy.policy import AgentRules, two_decimals
from gateway.governance.spend.rate_headers import rate_headers
from gateway.governance.spend.rates import AgentRates, RateLeft, Rates
from gateway.governance.spend.standing import budget_of, rate_of
from schemas.contract import contract
from schemas.errors import Code, envelope
from tests.gateway.governance.test_rates import rules_of

NOW_MS = 1_790_000_000_000  # 2026-09-21T14:13:20Z


def fits(denial: Denial) -> bool:
    details = {"code": denial.code.value, **denial.data}
    error = envelope(Code.RATE_LIMITED, details=details)
    return error["details"] == details and contract("error@1.2.0").is_valid(error)


# ---- money -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (0, "0.00"), (4_999, "0.00"), (5_000, "0.00"), (5_001, "0.01"), (14_999, "0.01"), (15_000, "0.02"),
        (25_000, "0.02"), (25_001, "0.03"), (35_000, "0.04"), (994_999, "0.99"), (995_000, "1.00"),
        (985_000, "0.98"), (10_000_000, "10.00"), (1_000_000_000_000, "1000000.00"),
    ],
)  # fmt: skip
def test_two_decimals_are_rounded_half_even(micros: int, shown: str) -> None:
    assert two_decimals(micros) == shown


@given(st.integers(0, 10**18))
def test_two_decimals_are_those_of_decimal_arithmetic(micros: int) -> None:
    exact = (Decimal(micros) / 1_000_000).quantize(Decimal("0.01"), ROUND_HALF_EVEN)
    assert two_decimals(micros) == str(exact)


def test_spent_budget_is_told_exactly_and_rounded_and_when_it_comes_back() -> None:
    denial = over_budget(Exceeded(10_000_000, 9_995_000, NOW_MS + 5000), 15_000, NOW_MS)
    assert denial.data == {
        "cap": "10.00",
        "cap_micros": 10_000_000,
        "used": "10.00",
        "used_micros": 9_995_000,
        "price": "0.02",
        "price_micros": 15_000,
        "resets_at": "2026-09-21T14:13:25.000Z",
    }
    assert denial.retry_after_ms == 5000
    assert fits(denial)


def test_spent_budget_without_a_period_never_comes_back() -> None:
    denial = over_budget(Exceeded(0, 0, None), 15_000, NOW_MS)
    assert denial.data["resets_at"] is None
    assert denial.retry_after_ms is None
    assert fits(denial)


def test_personal_data_is_told_by_side_and_kinds() -> None:
    denial = personal_data("arguments", ["email", "national_id"])
    assert denial.data == {"side": "arguments", "kinds": ["email", "national_id"]}
    assert fits(denial)


def test_standing_has_what_is_left_and_never_less_than_nothing() -> None:
    rules = AgentRules((Pattern("secret.**"),), budget_micros=10_000_000, budget_period_s=86_400, price_micros=15_000)
    told = budget_of(rules, Spent(9_000_000, 30_000), NOW_MS)
    assert (told["left"], told["left_micros"], told["used"], told["reserved"]) == ("1.00", 1_000_000, "9.00", "0.03")
    assert (told["period_s"], told["resets_at"]) == (86_400, "2026-09-22T00:00:00.000Z")
    assert (told["price"], told["price_micros"]) == ("0.02", 15_000)
    assert "secret" not in str(told)
    assert budget_of(rules, Spent(11_000_000, 0), NOW_MS)["left_micros"] == 0, "the cap was lowered"


# ---- rates -----------------------------------------------------------------------------------------------------------


def test_rate_that_nobody_has_used_gives_everything_now() -> None:
    assert AgentRates(rules_of(("**", 6, 60))).left(5.0) == (RateLeft("rate-1", 6, 60, 6, 0, 0),)


def test_what_is_left_goes_down_with_each_call_and_up_with_time() -> None:
    rates = AgentRates(rules_of(("**", 6, 60)))
    for _ in range(6):
        rates.take("a", 0.0)
    assert rates.left(0.0) == (RateLeft("rate-1", 6, 60, 0, 10_000, 60),)
    assert rates.left(9.5) == (RateLeft("rate-1", 6, 60, 0, 500, 51),)
    assert rates.left(10.0) == (RateLeft("rate-1", 6, 60, 1, 0, 50),)
    assert rates.left(60.0) == (RateLeft("rate-1", 6, 60, 6, 0, 0),)


def test_of_a_tool_only_the_rates_that_concern_it_are_told_by_their_place_in_the_entry() -> None:
    rates = AgentRates(rules_of(("a.*", 2, 1), ("a.*", 2, 1), ("b.*", 3, 1), ("**", 9, 1)))
    rates.take("b.x", 0.0)
    assert [(left.name, left.remaining) for left in rates.left(0.0, "b.x")] == [("rate-3", 2), ("rate-4", 8)]
    assert [left.name for left in rates.left(0.0)] == ["rate-1", "rate-3", "rate-4"]
    assert [left.name for left in rates.left(0.0, "a.x")] == ["rate-1", "rate-4"]


def test_looking_takes_nothing_and_remembers_nobody() -> None:
    rates, rules = Rates(), rules_of(("**", 1, 10))
    assert [rates.left("x", rules, 0.0)[0].remaining for _ in range(3)] == [1, 1, 1]
    assert len(rates) == 0
    assert rates.take("x", rules, "a", 0.0) is None
    assert rates.left("x", rules, 0.0, "a")[0].remaining == 0
    assert rates.left("x", rules_of(("**", 1, 10)), 0.0, "a")[0].remaining == 0, "an equal rate of a later policy"
    assert rates.left("x", rules_of(), 0.0) == ()


@given(st.integers(1, 50), st.integers(1, 100_000), st.lists(st.floats(0, 1000), max_size=80))
def test_as_many_calls_as_are_left_can_be_made_and_no_more(calls: int, per_s: int, pauses_s: list[float]) -> None:
    rates, now_s = AgentRates(rules_of(("**", calls, per_s))), 0.0
    for pause_s in pauses_s:
        now_s += pause_s
        rates.take("a", now_s)
    (left,) = rates.left(now_s)
    assert (left.wait_ms == 0) is (left.remaining > 0)
    assert 0 <= left.used <= calls
    assert left.reset_s <= per_s
    assert [rates.take("a", now_s) for _ in range(left.remaining)] == [None] * left.remaining
    refused_ms = rates.take("a", now_s)
    assert refused_ms is not None
    assert rates.left(now_s)[0].wait_ms == refused_ms
    assert rates.left(now_s + rates.left(now_s)[0].reset_s + 1e-3)[0].remaining == calls


def test_refusal_by_a_rate_says_how_many_how_often_and_when_the_next_is_allowed() -> None:
    denial = too_often(RateLeft("rate-2", 60, 3600, 0, 45_500, 3000), NOW_MS)
    assert denial.data == {
        "cap": 60,
        "per_s": 3600,
        "used": 60,
        "resets_at": "2026-09-21T14:14:05.500Z",
        "retry_after_ms": 45_500,
    }
    assert denial.retry_after_ms == 45_500
    assert fits(denial)


def test_rate_is_told_by_its_numbers() -> None:
    assert rate_of(RateLeft("rate-1", 6, 60, 2, 0, 40)) == {
        "name": "rate-1", "cap": 6, "per_s": 60, "used": 4, "remaining": 2, "reset_s": 40, "retry_after_ms": 0,
    }  # fmt: skip


# ---- headers ---------------------------------------------------------------------------------------------------------


def test_no_rate_no_headers() -> None:
    assert rate_headers(()) == {}


def test_headers_have_the_syntax_of_the_draft() -> None:
    lefts = (RateLeft("rate-1", 100, 60, 42, 0, 18), RateLeft("rate-3", 5, 1, 0, 200, 1))
    assert rate_headers(lefts) == {
        b"ratelimit-policy": b'"rate-1";q=100;w=60, "rate-3";q=5;w=1',
        b"ratelimit": b'"rate-1";r=42;t=18, "rate-3";r=0;t=1',
    }


@given(
    st.lists(st.tuples(st.sampled_from(["**", "a", "b"]), st.integers(1, 10**6), st.integers(1, 10**10)), max_size=4),
    st.lists(st.floats(0, 1e6), max_size=5),
)
def test_headers_are_lists_of_strings_with_whole_numbers(
    limits: list[tuple[str, int, int]], times_s: list[float]
) -> None:
    rates = AgentRates(rules_of(*limits))
    for now_s in sorted(times_s):
        rates.take("a", now_s)
    headers = rate_headers(rates.left(max(times_s, default=0.0), "a"))
    shapes = {
        b"ratelimit-policy": rb'"rate-\d+";q=\d{1,15};w=\d{1,15}',
        b"ratelimit": rb'"rate-\d+";r=\d{1,15};t=\d{1,15}',
    }
    for name, value in headers.items():
        assert all(re.fullmatch(shapes[name], item) for item in value.split(b", "))
