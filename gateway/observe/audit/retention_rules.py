"""By which time lines count as too old. Pure.

It is the wall clock's, but for a jump ahead: a clock that is wrong for some minutes, by a year, would have everything
removed at once. Such a time is believed when it has lasted for an hour. A gateway that was off for long waits as long.
"""

DAY_MS = 86_400_000
JUMP_MS_MAX = DAY_MS  # ahead of what passed by the other clock; more is a jump
BELIEVED_AFTER_S = 3_600.0


class RetentionClock:
    def __init__(self) -> None:
        self._known: tuple[float, int] | None = None  # the last time that was believed, by both clocks
        self._jumped_s: float | None = None

    def learn(self, mono_s: float, wall_ms: int) -> None:
        """It was this time, at least: somebody wrote so."""
        self._known = mono_s, wall_ms

    def at(self, mono_s: float, wall_ms: int) -> int:
        """The time to go by, now."""
        if self._known is not None:
            known_s, known_ms = self._known
            expected_ms = known_ms + int((mono_s - known_s) * 1000)
            if wall_ms > expected_ms + JUMP_MS_MAX:
                self._jumped_s = mono_s if self._jumped_s is None else self._jumped_s
                if mono_s - self._jumped_s < BELIEVED_AFTER_S:
                    return expected_ms
        self._known, self._jumped_s = (mono_s, wall_ms), None
        return wall_ms
