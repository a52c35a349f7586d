"""Which of a stream's first events may go, and which stay only because nobody has written a snapshot yet.

Nothing above the snapshot goes, nothing from the oldest open item on, and nothing from the first event on that is young
enough (the clock may have stepped back: history is cut, never thinned). Taking the events out is left to the stores.
"""

from collections.abc import Iterable
from typing import NamedTuple

from actors.log.store import Recorded


class Bounds(NamedTuple):
    """What holds a stream's history back."""

    before_ms: int
    covered: int  # the snapshot's version; 0 without one
    open_since: int | None  # the version that its oldest open item is open since

    def may_go(self, oldest: Recorded) -> bool:
        return self._is_settled(oldest) and oldest.version <= self.covered

    def lacks_snapshot(self, oldest: Recorded) -> bool:
        """Whether it could go, if a snapshot covered it."""
        return self._is_settled(oldest) and oldest.version > self.covered

    def _is_settled(self, event: Recorded) -> bool:
        return event.at_ms < self.before_ms and (self.open_since is None or event.version < self.open_since)


class Uncovered:
    """The streams that one round names: as many as the limit says, first those that the last one had no room for."""

    def __init__(self, after: str, limit: int) -> None:
        """`after` is the last one that the round before named."""
        self._after = after
        self._limit = limit
        self._behind: list[str] = []
        self._before: list[str] = []

    def add(self, names: Iterable[str]) -> None:
        """In the order of the names."""
        for name in names:
            kept = self._behind if name > self._after else self._before
            if len(kept) < self._limit:
                kept.append(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple([*self._behind, *self._before][: self._limit])
