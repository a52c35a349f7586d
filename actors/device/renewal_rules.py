"""When a device asks for its next identity, and when it asks again. Pure; time, chance and what was read are handed in.

It asks before half of the shorter life has passed, its token's or its certificate's, at a moment of its own so that
nodes enrolled together do not come together. A life that cannot be read is none to plan by: then it does not ask.

Where the gateway makes no tokens a renewal leaves the token as it is, and the token's life says nothing about when to
renew. A device learns that from an answer without a token; after a restart it sees it from a token whose time to be
renewed came before its certificate was issued, which therefore came without one.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated

import msgspec

from schemas.certificates import Leaf

RENEW_FROM, RENEW_TO = 0.40, 0.48
"""Of a life: chance picks a moment in between. The contract says before half; the rest is room to fail and retry."""
FIRST_WAIT_S_MAX = 60.0  # of a renewal that is due when the device starts: they spread over so long,
NO_WAIT_FROM = 0.5  # but from this part of a life on it asks at once: so long may be all that is left
RETRY_S, RETRY_S_MAX = 30.0, 6 * 3600.0  # after the first failure, and the longest wait however many there were
RETRIES_IN_A_LIFE = 20  # no wait is longer than this part of the shorter life,
RETRY_S_MIN = 1.0  # but for lives that are hardly any


@dataclass(frozen=True, slots=True)
class Life:
    """From when until when something is good, by the gateway's clock."""

    begins_ms: int
    ends_ms: int

    @property
    def ms(self) -> int:
        return self.ends_ms - self.begins_ms

    def after(self, part: float) -> int:
        return self.begins_ms + int(self.ms * part)


_Seconds = Annotated[float, msgspec.Meta(ge=0, le=2**53 / 1000)]


class _Claims(msgspec.Struct, frozen=True):
    iat: _Seconds
    exp: _Seconds


def life_of_token(token: str) -> Life | None:
    """Of a JWT, which is not verified: that is for the gateway. None if it does not say."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        payload = base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), altchars=b"-_", validate=True)
        claims = msgspec.json.decode(payload, type=_Claims)
    except (binascii.Error, ValueError, RecursionError):
        return None
    life = Life(int(claims.iat * 1000), int(claims.exp * 1000))
    return life if life.ms > 0 else None


def life_of_leaf(leaf: Leaf) -> Life | None:
    life = Life(leaf.not_before_ms, leaf.not_after_ms)
    return life if life.ms > 0 else None


@dataclass(frozen=True, slots=True)
class Plan:
    due_at_ms: int  # by the gateway's clock
    life_ms: int  # of what is renewed, the shorter one
    overdue_at_ms: int  # from then on nothing is worth waiting for


def plan(token: str, leaf: Leaf, *, makes_tokens: bool, chance: float) -> Plan | None:
    """`makes_tokens`: as far as is known. `chance` is from 0 up to 1. None: there is nothing to plan by."""
    of_leaf, of_token = life_of_leaf(leaf), life_of_token(token)
    if of_leaf is None:
        return None
    lives = [of_leaf]
    if makes_tokens:
        if of_token is None:
            return None
        if of_token.after(RENEW_FROM) > of_leaf.begins_ms:  # else this certificate came without a token
            lives.append(of_token)
    part = RENEW_FROM + (RENEW_TO - RENEW_FROM) * chance
    # Each by its own end: a token that is younger than its certificate may end later though it lives shorter.
    return Plan(
        min(life.after(part) for life in lives),
        min(life.ms for life in lives),
        min(life.after(NO_WAIT_FROM) for life in lives),
    )


def first_wait_s(due: Plan, now_ms: int, up_s: float, chance: float) -> float:
    """How much longer a renewal that is due waits on a device that has been up for so long."""
    return 0.0 if now_ms >= due.overdue_at_ms else max(0.0, FIRST_WAIT_S_MAX * chance - up_s)


def retry_wait_s(failures: int, life_ms: int, chance: float, told_s: float | None = None) -> float:
    """After so many failures in a row, at least 1. `told_s`: the gateway said so, and is believed within reason."""
    longest_s = max(RETRY_S_MIN, min(RETRY_S_MAX, life_ms / 1000 / RETRIES_IN_A_LIFE))
    bound_s = min(longest_s, RETRY_S * 2.0 ** min(failures - 1, 32))
    return max(bound_s * (0.5 + chance / 2), min(told_s or 0.0, longest_s))
