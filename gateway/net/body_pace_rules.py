"""How slowly a request's body may come. Pure: whoever waits says how long each wait was, and what it brought.

Most bodies have a time in all. One that may be large has a pace instead, which its route asks for (`BODY_PACE`): a slow
line is served for as long as it takes, and a client that only holds its place is not. Time in which nobody waits for
the client, because our own disk is slow say, counts for nobody.
"""

import math
from dataclasses import dataclass

BODY_PACE = "heliograph.body_pace"  # the door's way to let a route say how slowly its body may come


@dataclass(frozen=True, slots=True)
class BodyPace:
    free_s: float  # spent waiting in all, whatever comes
    bytes_per_s_min: float = math.inf  # each that comes buys more time; with the default, none does; 0: no minimum
    idle_s_max: float = math.inf  # of one wait that brings nothing


class BodyWait:
    """The waiting for one body."""

    def __init__(self, pace: BodyPace) -> None:
        self.pace = pace
        self._waited_s = 0.0
        self._bytes = 0

    def left_s(self) -> float:
        """How long the next wait may last."""
        pace = self.pace
        earned_s = self._bytes / pace.bytes_per_s_min if pace.bytes_per_s_min else math.inf
        return max(0.0, min(pace.idle_s_max, pace.free_s + earned_s - self._waited_s))

    def waited(self, seconds: float, size: int) -> None:
        """One wait is over, and brought this many bytes."""
        self._waited_s += seconds
        self._bytes += size
