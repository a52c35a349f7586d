"""What follows from each answer, for an append whose attempts are all certain, and for one that may have landed."""

import pytest

from actors.log.store import RefusalReason
from gateway.engine.attempt_rules import (
    BUSY_S,
    CONFIRM_S,
    NOT_TAKEN_S,
    REFUSED_S,
    STALE_S,
    UNKNOWN_LIFE,
    UNKNOWN_S,
    Again,
    Attempts,
    End,
)
from gateway.engine.jetstream_rules import Verdict

PATIENCE_S = 10.0
FIRST = {
    Verdict.LANDED: End.LANDED,
    Verdict.MOVED: End.LOOK,
    Verdict.BUSY: Again(BUSY_S),
    Verdict.FULL: Again(CONFIRM_S),
    Verdict.NOT_TAKEN: Again(NOT_TAKEN_S),
    Verdict.REFUSED: Again(CONFIRM_S),
    Verdict.UNKNOWN: Again(UNKNOWN_S),
    Verdict.FOREIGN: End.FOREIGN,
}
PERHAPS_LANDED = {**FIRST, Verdict.FULL: Again(REFUSED_S), Verdict.REFUSED: Again(REFUSED_S)}


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("waited_s", [0.0, PATIENCE_S - 0.001])
def test_what_follows_from_the_first_answer(verdict: Verdict, waited_s: float) -> None:
    assert Attempts(100.0, PATIENCE_S).after(verdict, 100.0 + waited_s, 1) == FIRST[verdict]


@pytest.mark.parametrize("verdict", Verdict)
def test_when_patience_is_over_only_what_nobody_took_is_refused_at_once(verdict: Verdict) -> None:
    expected = {**FIRST, Verdict.NOT_TAKEN: RefusalReason.UNREACHABLE}[verdict]
    assert Attempts(100.0, PATIENCE_S).after(verdict, 100.0 + PATIENCE_S, 1) == expected


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [(Verdict.FULL, RefusalReason.DISK_FULL), (Verdict.REFUSED, RefusalReason.STORE_ERROR)],
)
def test_a_refusal_is_believed_when_it_is_said_twice_in_a_row(verdict: Verdict, reason: RefusalReason) -> None:
    attempts = Attempts(100.0, PATIENCE_S)
    assert attempts.after(verdict, 100.0, 1) == Again(CONFIRM_S)
    assert attempts.after(Verdict.NOT_TAKEN, 100.0, 1) == Again(NOT_TAKEN_S)
    assert attempts.after(verdict, 100.0, 1) == Again(CONFIRM_S)
    assert attempts.after(verdict, 100.0, 1) == reason


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("waited_s", [0.0, PATIENCE_S, 1_000.0])
@pytest.mark.parametrize("first", [Verdict.UNKNOWN, Verdict.BUSY])
@pytest.mark.parametrize(
    ("life", "later"), [(1, 2), (UNKNOWN_LIFE, 2), (1, UNKNOWN_LIFE), (UNKNOWN_LIFE, UNKNOWN_LIFE)]
)
def test_what_may_have_landed_is_not_refused_on_another_connection(
    verdict: Verdict, waited_s: float, first: Verdict, life: int, later: int
) -> None:
    attempts = Attempts(100.0, PATIENCE_S)
    attempts.after(first, 100.0, life)
    for _ in range(3):
        assert attempts.after(verdict, 100.0 + waited_s, later) == PERHAPS_LANDED[verdict]


@pytest.mark.parametrize("waited_s", [0.0, PATIENCE_S, 1_000.0])
def test_nobody_there_says_nothing_of_earlier_attempts(waited_s: float) -> None:
    attempts = Attempts(100.0, PATIENCE_S)
    attempts.after(Verdict.UNKNOWN, 100.0, 1)
    assert attempts.after(Verdict.NOT_TAKEN, 100.0 + waited_s, 1) == Again(NOT_TAKEN_S)


@pytest.mark.parametrize("verdict", [Verdict.FULL, Verdict.REFUSED])
def test_whoever_refuses_a_later_attempt_of_the_same_connection_has_seen_the_earlier_ones(verdict: Verdict) -> None:
    attempts = Attempts(100.0, PATIENCE_S)
    for earlier in (Verdict.UNKNOWN, Verdict.BUSY):
        attempts.after(earlier, 100.0, 1)
    assert attempts.after(verdict, 100.0, 1) == Again(CONFIRM_S)
    assert isinstance(attempts.after(verdict, 100.0, 1), RefusalReason)


def test_a_conflict_with_nobody_is_believed_when_it_is_said_for_a_while() -> None:
    attempts = Attempts(100.0, PATIENCE_S)
    assert attempts.saw_nothing(103.0) == Again(CONFIRM_S)
    assert attempts.saw_nothing(103.0 + STALE_S - 0.001) == Again(CONFIRM_S)
    assert attempts.saw_nothing(103.0 + STALE_S) == End.CONFLICT
