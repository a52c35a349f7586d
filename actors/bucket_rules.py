"""A token bucket: so many at once, filled evenly. Time is monotonic and passed in."""

from dataclasses import dataclass
from math import ceil

# A bucket refilled for exactly the time it was told to wait may lack a rounding error of a token.
_ENOUGH = 1.0 - 1e-9
WAIT_S_MAX = 1e12  # a wait that is still an exact number of milliseconds; however small the rate, none is longer


@dataclass(slots=True)
class TokenBucket:
    rate_per_s: float
    capacity: float  # at least 1
    tokens: float
    filled_s: float

    @classmethod
    def full(cls, rate_per_s: float, capacity: float, now_s: float) -> "TokenBucket":
        return cls(rate_per_s, capacity, capacity, now_s)

    def adopt(self, rate_per_s: float, capacity: float) -> None:
        """New limits, same history."""
        self.rate_per_s, self.capacity = rate_per_s, capacity
        self.tokens = min(self.tokens, capacity)

    def wait_ms(self, now_s: float) -> int | None:
        """How long until there is a token; None when there is one."""
        if now_s > self.filled_s:
            tokens = self.tokens + (now_s - self.filled_s) * self.rate_per_s
            self.tokens = tokens if tokens < self.capacity else self.capacity
            self.filled_s = now_s
        return None if self.tokens >= _ENOUGH else ceil(self._filled_in_s(1.0) * 1000)

    def left(self, now_s: float) -> int:
        """How many can be taken now, one after another."""
        return 0 if self.wait_ms(now_s) is not None else max(1, int(self.tokens + (1.0 - _ENOUGH)))

    def full_in_s(self, now_s: float) -> int:
        """In how many whole seconds it is full, if nothing is taken."""
        self.wait_ms(now_s)
        return ceil(self._filled_in_s(self.capacity))

    def _filled_in_s(self, tokens: float) -> float:
        # Not divided first: a rate may be so small that the quotient is infinite.
        lacking = tokens - self.tokens
        return WAIT_S_MAX if lacking >= self.rate_per_s * WAIT_S_MAX else lacking / self.rate_per_s

    def take(self, now_s: float) -> int | None:
        """One token, or how long until there is one."""
        wait_ms = self.wait_ms(now_s)
        if wait_ms is None:
            self.tokens -= 1.0
        return wait_ms
