"""What follows from each answer, for an append whose attempts are all certain, and for one that may have landed."""

import pytest

from actors.log.store import RefusalReason
from gateway.engine.attempt_rules import BUSY_S, NOT_TAKEN_S, REFUSED_S, UNKNOWN_S, Again, Attempts, End
from gateway.engine.jetstream_rules import Verdict

PATIENCE_S = 10.0
CERTAIN = {
    Verdict.LANDED: End.LANDED,
    Verdict.MOVED: End.CONFLICT,
    Verdict.BUSY: Again(BUSY_S),
    Verdict.FULL: RefusalReason.DISK_FULL,
    Verdict.NOT_TAKEN: Again(NOT_TAKEN_S),
    Verdict.REFUSED: RefusalReason.STORE_ERROR,
    Verdict.UNKNOWN: Again(UNKNOWN_S),
    Verdict.FOREIGN: End.FOREIGN,
}
CERTAIN_AND_LATE = {**CERTAIN, Verdict.BUSY: RefusalReason.STORE_ERROR, Verdict.NOT_TAKEN: RefusalReason.UNREACHABLE}
PERHAPS_LANDED = {**CERTAIN, Verdict.MOVED: End.LOOK, Verdict.FULL: Again(REFUSED_S), Verdict.REFUSED: Again(REFUSED_S)}


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("waited_s", [0.0, PATIENCE_S - 0.001])
def test_within_the_patience(verdict: Verdict, waited_s: float) -> None:
    assert Attempts(100.0, PATIENCE_S).after(verdict, 100.0 + waited_s) == CERTAIN[verdict]


@pytest.mark.parametrize("verdict", Verdict)
def test_when_patience_is_over_whoever_is_certain_that_nothing_was_written_says_so(verdict: Verdict) -> None:
    assert Attempts(100.0, PATIENCE_S).after(verdict, 100.0 + PATIENCE_S) == CERTAIN_AND_LATE[verdict]


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("waited_s", [0.0, PATIENCE_S, 1_000.0])
def test_what_may_have_landed_is_never_refused(verdict: Verdict, waited_s: float) -> None:
    attempts = Attempts(100.0, PATIENCE_S)
    attempts.after(Verdict.UNKNOWN, 100.0)
    assert attempts.after(verdict, 100.0 + waited_s) == PERHAPS_LANDED[verdict]
    assert not isinstance(attempts.after(verdict, 100.0 + waited_s), RefusalReason)
