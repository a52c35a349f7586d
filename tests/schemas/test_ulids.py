"""Ids as order: strictly rising whatever the clock does."""

import itertools
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from schemas.contract import Contract
from schemas.registry import REGISTRY
from schemas.ulids import MSG_ID_AHEAD_MS_MAX, Mint, is_too_far_ahead, timestamp_ms, to_int, to_text

MSG_ID = Contract(REGISTRY["node.wire.envelope@2.2.0"].document["properties"]["msg_id"])
NOW_MS = 1_790_000_000_000
CLOCK = st.integers(0, 2**47)


@given(st.lists(CLOCK, min_size=2), st.binary(min_size=10, max_size=10))
def test_ids_strictly_increase_across_any_clock(clock: list[int], entropy: bytes) -> None:
    mint = Mint(lambda n: entropy[:n])
    ids = [mint.mint(now_ms) for now_ms in clock]
    assert all(earlier < later for earlier, later in itertools.pairwise(ids))
    assert all(MSG_ID.is_valid(msg_id) for msg_id in ids)


def test_ids_strictly_increase_within_one_millisecond_even_at_the_end_of_its_range() -> None:
    mint = Mint(lambda n: b"\xff" * n)
    ids = [mint.mint(NOW_MS) for _ in range(1000)]
    assert ids == sorted(set(ids))


def test_fresh_millisecond_takes_the_clock_and_new_entropy() -> None:
    mint = Mint(os.urandom)
    first, second = mint.mint(NOW_MS), mint.mint(NOW_MS + 1)
    assert (timestamp_ms(first), timestamp_ms(second)) == (NOW_MS, NOW_MS + 1)
    assert to_int(second) != to_int(first) + (1 << 80)


@given(st.integers(0, 2**127), CLOCK)
def test_mint_goes_above_any_id_it_was_shown(value: int, now_ms: int) -> None:
    mint = Mint(os.urandom)
    mint.observe(str(ULID.from_int(value)))
    assert to_int(mint.mint(now_ms)) > value


def test_a_day_ahead_is_24_hours() -> None:
    assert MSG_ID_AHEAD_MS_MAX == 86_400_000


def test_showing_an_older_id_changes_nothing() -> None:
    mint = Mint(lambda n: bytes(n))
    last = mint.mint(NOW_MS)
    mint.observe("0" * 26)
    assert mint.mint(NOW_MS) > last


@given(st.integers(0, 2**128 - 1), st.integers(0, 2**128 - 1))
def test_order_of_text_is_order_of_value(one: int, other: int) -> None:
    a, b = str(ULID.from_int(one)), str(ULID.from_int(other))
    assert to_int(a) == one
    assert (a < b) == (one < other)


@pytest.mark.parametrize(
    ("ahead_ms", "too_far"), [(0, False), (MSG_ID_AHEAD_MS_MAX, False), (MSG_ID_AHEAD_MS_MAX + 1, True)]
)
def test_id_more_than_a_day_ahead_is_too_far(ahead_ms: int, too_far: bool) -> None:
    msg_id = str(ULID.from_int(NOW_MS + ahead_ms << 80))
    assert is_too_far_ahead(msg_id, NOW_MS) is too_far


def test_id_past_128_bits_fits_the_schema_and_is_too_far_ahead() -> None:
    assert MSG_ID.is_valid("Z" * 26)
    assert is_too_far_ahead("Z" * 26, NOW_MS)


@given(st.integers(0, 2**128 - 1))
def test_text_of_a_value_is_its_ulid_and_leads_back(value: int) -> None:
    assert to_text(value) == str(ULID.from_int(value))
    assert to_int(to_text(value)) == value
