"""A period without drift: tick k is due at start + k × interval, however late the ones before it were noticed. Pure."""


class Ticks:
    def __init__(self, start: float, interval_s: float, *, first: int = 1) -> None:
        self._start = start
        self._interval_s = interval_s
        self._next = first

    @property
    def next_at(self) -> float:
        return self._at(self._next)

    def lateness(self, now: float) -> float | None:
        """How late the newest due tick is noticed, None if none is due. Older ones that were missed are skipped."""
        if now < self.next_at:
            return None
        newest = max(self._next, int((now - self._start) / self._interval_s) - 1)
        while self._at(newest + 1) <= now:  # the division above may be off by one
            newest += 1
        self._next = newest + 1
        return now - self._at(newest)

    def _at(self, tick: int) -> float:
        return self._start + tick * self._interval_s
