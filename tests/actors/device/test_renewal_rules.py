"""When a device asks for its next identity: before half of the shorter life, and again after each failure."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.device.renewal_rules import (
    FIRST_WAIT_S_MAX,
    RETRY_S,
    RETRY_S_MAX,
    Life,
    Plan,
    first_wait_s,
    life_of_token,
    plan,
    retry_wait_s,
)
from schemas.certificates import LEAF_DAYS, Leaf
from tests.schemas.attested import LEAF, NOW_MS, leaf

CHANCES = st.floats(0, 1, exclude_max=True)
DAY_S = 86_400
NOW_S = NOW_MS // 1000


def jwt(claims: Any) -> str:
    documents: list[Any] = [{}, claims]
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in documents]
    return ".".join([*parts, "c2ln"])


def token(begins_s: float, life_s: float) -> str:
    return jwt({"iat": begins_s, "exp": begins_s + life_s, "sub": "x"})


def due_at_ms(text: str, certificate: Leaf = LEAF, *, makes_tokens: bool = True, chance: float = 0.5) -> int | None:
    planned = plan(text, certificate, makes_tokens=makes_tokens, chance=chance)
    return None if planned is None else planned.due_at_ms


# ---- lives -----------------------------------------------------------------------------------------------------------


def test_the_life_of_a_token_is_from_iat_to_exp() -> None:
    assert life_of_token(token(1000, 60)) == Life(1_000_000, 1_060_000)
    assert life_of_token(token(1000.5, 60)) == Life(1_000_500, 1_060_500)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "opaque",
        "a.b",
        "a.b.c",
        "a.!.c",
        "a.é.c",
        jwt([]),
        jwt({}),
        jwt({"iat": 1}),
        jwt({"iat": "1", "exp": "2"}),
        jwt({"iat": 5, "exp": 5}),
        jwt({"iat": 5, "exp": 4}),
        jwt({"iat": -1, "exp": 4}),
        jwt({"iat": 1, "exp": 1e300}),
        "a." + base64.urlsafe_b64encode(b"[" * 4000).decode().rstrip("=") + ".c",
    ],
)
def test_without_a_readable_life_nothing_is_planned(text: str) -> None:
    assert life_of_token(text) is None
    assert plan(text, LEAF, makes_tokens=True, chance=0) is None


@given(st.text())
def test_no_text_upsets_the_reader(text: str) -> None:
    assert life_of_token(text) is None or text.count(".") == 2


# ---- when ------------------------------------------------------------------------------------------------------------


@given(CHANCES, st.integers(60, 2 * LEAF_DAYS * DAY_S))
def test_it_is_due_before_half_of_the_shorter_life_has_passed(chance: float, life_s: int) -> None:
    planned = plan(token(NOW_S, life_s), LEAF, makes_tokens=True, chance=chance)
    assert planned is not None
    shorter_ms = min(life_s, LEAF_DAYS * DAY_S) * 1000
    assert planned.life_ms == shorter_ms
    assert 0.4 * shorter_ms - 1 <= planned.due_at_ms - NOW_MS < 0.5 * shorter_ms


def test_chance_spreads_nodes_that_were_enrolled_together() -> None:
    early, late = (due_at_ms(token(NOW_S, DAY_S), chance=chance) for chance in (0.0, 0.999))
    assert early is not None
    assert late is not None
    assert late - early > 3600 * 1000


def test_a_token_younger_than_its_certificate_counts_from_its_own_beginning() -> None:
    issued_s = NOW_S + 10 * DAY_S
    assert due_at_ms(token(issued_s, DAY_S), chance=0) == (issued_s * 1000) + int(0.4 * DAY_S * 1000)


def test_where_tokens_are_made_elsewhere_the_certificate_alone_counts() -> None:
    of_leaf = due_at_ms("opaque", makes_tokens=False)
    assert of_leaf is not None
    assert due_at_ms(token(NOW_S, 60), makes_tokens=False) == of_leaf


def test_a_certificate_that_came_without_a_token_shows_that_tokens_are_made_elsewhere() -> None:
    old = token(NOW_S - 3600, 3600)
    assert due_at_ms(old) == due_at_ms("opaque", makes_tokens=False), "due long before this certificate was issued"
    renewed_together = token(NOW_S - 1, 3600)
    assert due_at_ms(renewed_together) != due_at_ms("opaque", makes_tokens=False)


def test_a_certificate_near_its_end_is_due_whatever_the_token_says() -> None:
    ending = leaf(now_ms=NOW_MS, days=1)
    due = due_at_ms(token(NOW_S, 365 * DAY_S), ending, chance=0)
    assert due == NOW_MS + int(0.4 * DAY_S * 1000)


# ---- again -----------------------------------------------------------------------------------------------------------

YEAR_MS = 365 * DAY_S * 1000


@given(st.integers(1, 10_000), CHANCES, st.integers(1, 10 * YEAR_MS), st.none() | st.floats(0, 1e12))
def test_waits_after_failures_are_bounded(failures: int, chance: float, life_ms: int, told_s: float | None) -> None:
    wait_s = retry_wait_s(failures, life_ms, chance, told_s)
    assert 0.5 <= wait_s <= RETRY_S_MAX
    assert wait_s <= max(1.0, life_ms / 1000 / 20)


def test_waits_double_up_to_their_bound() -> None:
    waits = [retry_wait_s(failures, YEAR_MS, 1.0) for failures in range(1, 15)]
    assert waits[:4] == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S, 8 * RETRY_S]
    assert waits[-1] == RETRY_S_MAX


def test_a_wait_that_the_gateway_asks_for_is_kept() -> None:
    assert retry_wait_s(1, YEAR_MS, 0.0, 500.0) == 500.0
    assert retry_wait_s(1, YEAR_MS, 1.0, 0.1) == RETRY_S


def test_a_renewal_that_is_due_at_the_start_waits_a_moment() -> None:
    due = Plan(due_at_ms=400, life_ms=1000, overdue_at_ms=500)
    assert first_wait_s(due, 450, 0.0, 0) == 0
    assert 59 < first_wait_s(due, 450, 0.0, 0.999) < FIRST_WAIT_S_MAX
    assert first_wait_s(due, 450, 20.0, 0.5) == FIRST_WAIT_S_MAX / 2 - 20
    assert first_wait_s(due, 450, FIRST_WAIT_S_MAX, 0.999) == 0


def test_past_half_of_the_life_it_does_not_wait_at_the_start() -> None:
    due = Plan(due_at_ms=400, life_ms=1000, overdue_at_ms=500)
    assert first_wait_s(due, 499, 0.0, 0.999) > 0
    assert first_wait_s(due, 500, 0.0, 0.999) == 0
