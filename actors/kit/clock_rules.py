"""The gateway's clock as the kit shows it: the wall clock of the machine, and some hours more. Pure.

A node that stamps a manifest or judges a deadline by a clock of its own is hours off. `now` is the player's monotonic
time, moved on by what happens.
"""

AHEAD_MS = 3 * 60 * 60 * 1000


class KitClock:
    def __init__(self, now: float, wall_ms: int) -> None:
        self.now = now  # seconds
        self.ahead_ms = AHEAD_MS
        self._started = now
        self._wall_ms = wall_ms  # then

    @property
    def ms(self) -> int:
        return self.ms_at(self.now)

    def ms_at(self, at: float) -> int:
        """What it showed then, if it was not set forward since."""
        return self._wall_ms + self.ahead_ms + int((at - self._started) * 1000)
