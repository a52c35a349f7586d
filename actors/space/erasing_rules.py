"""Which spaces are to be erased now: new ones at once, those that the disk refused later, a few at a time. Pure.

    add ──► new ── take ──► under way ── settle ──► (nothing left)
                              ▲                └──► refused ── its time ──┐
                              └───────────────────────────────────────────┘

Spaces are refused by a disk that is full or broken, so they wait together: each time longer, up to `RETRY_S_MAX`. One
try that succeeds ends the waiting. Nothing is given up: what is left when the process ends is erased by the next.
"""

from collections.abc import Collection

RETRY_S = 1.0  # after the first refusal; then twice as long each time
RETRY_S_MAX = 30.0  # between two tries, at most
RETRIES_MAX = 64  # spaces that are tried again at a time; the others wait for their turn


class ErasingQueue:
    def __init__(self) -> None:
        self._new: dict[str, None] = {}
        self._refused: dict[str, None] = {}  # the one that has waited longest first
        self._under_way: set[str] = set()
        self._wait_s = 0.0
        self._retry_at_s: float | None = None

    def __len__(self) -> int:
        return len(self._new) + len(self._refused) + len(self._under_way)

    def add(self, space_id: str) -> None:
        self._new[space_id] = None

    def take(self, now_s: float) -> list[str]:
        """Those to erase now. They are under way until they are settled."""
        taken = list(self._new)
        self._new.clear()
        if self._retry_at_s is not None and now_s >= self._retry_at_s:
            again = list(self._refused)[:RETRIES_MAX]
            for space_id in again:
                del self._refused[space_id]
            taken += again
            self._retry_at_s = None
        self._under_way.update(taken)
        return taken

    def take_one(self, space_id: str) -> None:
        """This one, whatever the time is: somebody waits for it."""
        self._new.pop(space_id, None)
        self._refused.pop(space_id, None)
        self._under_way.add(space_id)

    def settle(self, taken: Collection[str], refused: Collection[str], now_s: float) -> None:
        """How it went with those that were taken together."""
        self._under_way.difference_update(taken)
        self._refused.update(dict.fromkeys(refused))
        if not refused:
            self._wait_s = 0.0
        if self._refused and self._retry_at_s is None:
            if refused:
                self._wait_s = min(RETRY_S_MAX, 2 * self._wait_s or RETRY_S)
            self._retry_at_s = now_s + self._wait_s

    @property
    def next_s(self) -> float | None:
        """When there is something to try again; None: not before something is added or settled."""
        return self._retry_at_s if self._refused else None
