"""When to speak of what may happen often: at once, then once in a while, with how many there were since. Pure."""

import math


class LogThrottle:
    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._quiet_until_s = -math.inf
        self._untold = 0

    def hit(self, now_s: float) -> int:
        """How many to tell of, this one with those before it that were not told; 0 when it is too soon to speak."""
        self._untold += 1
        if now_s < self._quiet_until_s:
            return 0
        self._quiet_until_s = now_s + self._every_s
        told, self._untold = self._untold, 0
        return told
