"""Spending, in arithmetic: never past the budget, never lost, periods exact."""

from hypothesis import example, given
from hypothesis import strategies as st

from actors.ledger.events import Charged, Event, Released, Reserved, decode, encode
from actors.ledger.rules import Budget, Exceeded, LedgerState, evolve, exceeded_by

DAY_S = 86_400
NOON_MS = 1_794_744_000_000 + 12 * 3_600_000 - 1_794_744_000_000 % (DAY_S * 1000)


def fold(*events: Event) -> LedgerState:
    state = LedgerState()
    for event in events:
        evolve(state, event)
    return state


def test_reservation_counts_from_the_moment_it_is_made() -> None:
    state = fold(Reserved(0, "a", "t", 40))
    assert exceeded_by(state, {}, 60, Budget(100), 0) is None
    assert exceeded_by(state, {}, 61, Budget(100), 0) == Exceeded(100, 40, None)
    assert exceeded_by(state, {None: 30}, 60, Budget(100), 0) == Exceeded(100, 70, None)


def test_charged_stays_spent_and_released_comes_back() -> None:
    state = fold(Reserved(0, "a", "t", 40), Reserved(0, "b", "t", 40), Charged(1, "a"), Released(1, "b"))
    assert (state.used_micros, state.open, state.version) == (40, {}, 4)


def test_settling_twice_or_what_was_never_reserved_changes_no_sum() -> None:
    state = fold(Reserved(0, "a", "t", 40), Charged(1, "a"), Released(2, "a"), Charged(3, "x"))
    assert state.used_micros == 40


def test_budget_with_a_period_counts_from_its_beginning() -> None:
    budget = Budget(100, DAY_S)
    window_ms = budget.window_ms(NOON_MS)
    state = fold(Reserved(NOON_MS, "a", "t", 90, window_ms))
    midnight_ms = NOON_MS + 12 * 3_600_000
    assert exceeded_by(state, {}, 20, budget, midnight_ms - 1) == Exceeded(100, 90, midnight_ms)
    assert exceeded_by(state, {}, 100, budget, midnight_ms) is None


def test_release_after_the_period_gives_nothing_to_the_next_one() -> None:
    budget = Budget(100, DAY_S)
    later_ms = NOON_MS + DAY_S * 1000
    state = fold(
        Reserved(NOON_MS, "a", "t", 90, budget.window_ms(NOON_MS)),
        Reserved(later_ms, "b", "t", 50, budget.window_ms(later_ms)),
        Released(later_ms, "a"),
    )
    assert state.used(budget.window_ms(later_ms)) == 50
    assert state.used(None) == 50


def test_clock_that_steps_back_over_midnight_gives_no_money_back() -> None:
    budget, later_ms = Budget(100, DAY_S), NOON_MS + DAY_S * 1000
    today_ms, tomorrow_ms = budget.window_ms(NOON_MS), budget.window_ms(later_ms)
    state = fold(Reserved(NOON_MS, "a", "t", 90, today_ms), Reserved(later_ms, "b", "t", 60, tomorrow_ms))
    assert exceeded_by(state, {}, 41, budget, NOON_MS) == Exceeded(100, 60, budget.resets_at_ms(NOON_MS))
    assert exceeded_by(state, {tomorrow_ms: 20}, 21, budget, NOON_MS) == Exceeded(100, 80, budget.resets_at_ms(NOON_MS))
    evolve(state, Reserved(NOON_MS, "c", "t", 40, today_ms))
    assert state.used(tomorrow_ms) == 100
    evolve(state, Released(NOON_MS, "a"))  # it counted for a period that is over
    assert state.used(tomorrow_ms) == 100


def test_policy_that_makes_periods_longer_keeps_what_the_shorter_one_counted() -> None:
    hourly, daily = Budget(100, 3600), Budget(100, DAY_S)
    state = fold(Reserved(NOON_MS, "a", "t", 90, hourly.window_ms(NOON_MS)))
    assert exceeded_by(state, {}, 20, daily, NOON_MS) == Exceeded(100, 90, daily.resets_at_ms(NOON_MS))


def test_lifetime_budget_counts_what_was_spent_in_periods_too() -> None:
    state = fold(Reserved(NOON_MS, "a", "t", 90, NOON_MS))
    assert exceeded_by(state, {}, 20, Budget(100), NOON_MS) == Exceeded(100, 90, None)


EVENTS = st.lists(
    st.one_of(
        st.builds(
            Reserved,
            st.integers(0, 9),
            st.sampled_from("abcdef"),
            st.just("t"),
            st.integers(0, 50),
            st.sampled_from([None, 0, 10]),
        ),
        st.builds(Charged, st.integers(0, 9), st.sampled_from("abcdef")),
        st.builds(Released, st.integers(0, 9), st.sampled_from("abcdef")),
    ),
    max_size=40,
)


@given(EVENTS)
@example([Reserved(0, "c", "t", 1, 0), Reserved(0, "a", "t", 0, 10), Reserved(0, "b", "t", 0, 0), Released(0, "c")])
def test_used_is_what_was_reserved_and_not_released(events: list[Event]) -> None:
    state, reserved, expected = LedgerState(), dict[str, Reserved](), 0
    for event in events:
        if isinstance(event, Reserved):
            if event.id in reserved:
                continue  # ids are never used twice
            reserved[event.id] = event
            expected += event.micros
        elif event.id in state.open and isinstance(event, Released):
            expected -= state.open[event.id].micros
        evolve(state, decode(encode(event)))
    assert state.used_micros == expected >= 0
    assert state.window_used_micros >= 0
