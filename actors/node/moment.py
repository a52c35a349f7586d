"""Now, on both clocks."""

from typing import NamedTuple


class Moment(NamedTuple):
    """`mono_s` is for spans, `wall_ms` for dates that others know too."""

    mono_s: float
    wall_ms: int

    def mono_at(self, wall_ms: int) -> float:
        """A date as a point of the monotonic clock."""
        return self.mono_s + (wall_ms - self.wall_ms) / 1000
