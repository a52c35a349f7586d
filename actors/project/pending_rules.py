"""What is to be done about an upload that goes to a bucket, and when. Pure.

    awaited ── there, and as large as was signed: fetched, published ──► settled ── its URL ended ──► removed, closed
       └────── of another size, refused, its project deleted, its URL ended ──┘

What is settled is removed from the bucket at once. Its URL stays good until it ends, though, so that its holder may put
something there again: that is why it is removed once more after the end. A bucket that cannot be asked is asked again;
in the end, what it still has is left to the operator.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from heapq import heappop, heappush

REMOVE_AGAIN_MS = 60_000  # after the end, for a PUT that had begun by then; and between two tries to remove
RETRY_MS = 10_000  # after a fetch that failed, or a look that nobody answered
GIVE_UP_MS = 24 * 3600 * 1000  # after the end; then nothing more is fetched, and what the bucket has is left there


class Step(Enum):
    LOOK = auto()
    REMOVE = auto()
    """From the bucket, and then forget it."""
    FORGET = auto()
    """Though the bucket may still have something."""


def next_step(is_settled: bool, ends_at_ms: int, now_ms: int) -> Step:
    """Of an upload whose turn it is."""
    if not is_settled:
        return Step.LOOK
    return Step.FORGET if now_ms >= ends_at_ms + GIVE_UP_MS else Step.REMOVE


def is_awaited(ends_at_ms: int, looked_at_ms: int) -> bool:
    """Whether what was not there then may still come."""
    return looked_at_ms < ends_at_ms


def is_tried(ends_at_ms: int, now_ms: int) -> bool:
    """Whether what could not be looked for, or fetched, is tried again: it may be there, and was put there in time."""
    return now_ms < ends_at_ms + GIVE_UP_MS


def next_look_ms(ends_at_ms: int, now_ms: int, look_ms: int) -> int:
    """After one that found nothing: again soon, and once more at the very end."""
    return min(now_ms + look_ms, max(now_ms, ends_at_ms))


def next_removal_ms(ends_at_ms: int, now_ms: int) -> int:
    """Of one that is settled: after the end, and after each try that failed."""
    return max(ends_at_ms, now_ms) + REMOVE_AGAIN_MS


@dataclass(slots=True)
class Turns:
    """Whose turn it is next, by the wall clock, as the ends of URLs are. Each is in it once, or taken."""

    _due: list[tuple[int, str]] = field(default_factory=list)

    def put(self, upload_id: str, at_ms: int) -> None:
        heappush(self._due, (at_ms, upload_id))

    def take(self, now_ms: int) -> str | None:
        return heappop(self._due)[1] if self._due and self._due[0][0] <= now_ms else None

    @property
    def next_ms(self) -> int | None:
        return self._due[0][0] if self._due else None

    def __len__(self) -> int:
        return len(self._due)
