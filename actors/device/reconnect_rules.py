"""Whether a node comes back after a session, and how long it waits first (device wire §2.5). Pure; chance is passed in.

Full jitter: the wait is drawn from 0 up to a bound that doubles with each attempt that did not get as far as a live
session. The row of the close code in `schemas.closes` says what else is asked; a code without a row (a broken
connection, a refused upgrade) means backoff.
"""

from dataclasses import dataclass
from random import Random

from schemas.closes import NodeClose, Return

BASE_S = 0.5
CAP_S = 30.0
SUPERSEDED_S = 30.0
RESTART_S = 5.0
"""After 1012 every node of that gateway comes back at once: they spread over at least this long."""

_ROWS = {close.value.code: close.value for close in NodeClose}


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float
    needs_new_token: bool = False


@dataclass(frozen=True, slots=True)
class StayAway:
    """Do not come back: trying again cannot help until a person changes something."""

    reason: str


def after_close(code: int, failures: int, rng: Random) -> Wait | StayAway:
    """`failures`: sessions in a row, before this one, that did not become live."""
    row = _ROWS.get(code)
    bound_s = min(CAP_S, BASE_S * 2.0 ** min(failures, 16))
    match row.come_back if row else Return.WITH_BACKOFF:
        case Return.NO:
            assert row is not None
            return StayAway(f"the gateway closed with {row.code} {row.reason}")
        case Return.WITH_JITTER:
            return Wait(rng.uniform(0, max(bound_s, RESTART_S)))
        case Return.AFTER_30_S:
            return Wait(SUPERSEDED_S + rng.uniform(0, bound_s))
        case Return.WITH_NEW_TOKEN:
            return Wait(rng.uniform(0, bound_s), needs_new_token=True)
        case _:
            return Wait(rng.uniform(0, bound_s))
