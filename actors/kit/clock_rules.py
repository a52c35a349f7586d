"""The gateway's clock as the kit shows it: the wall clock of the machine, and some hours more. Pure.

A node that stamps a manifest or judges a deadline by a clock of its own is hours off. `now` is the player's monotonic
time, moved on by what happens.
"""

from dataclasses import dataclass

AHEAD_MS = 3 * 60 * 60 * 1000


@dataclass(slots=True)
class KitClock:
    now: float  # seconds
    start_ms: int  # on the wall, at `now`
    ahead_ms: int = AHEAD_MS

    def __post_init__(self) -> None:
        self._started = self.now

    _started: float = 0.0

    @property
    def ms(self) -> int:
        return self.start_ms + self.ahead_ms + int((self.now - self._started) * 1000)
