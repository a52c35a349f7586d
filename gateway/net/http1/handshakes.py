"""TLS handshakes under way: so many at most. One more takes the place of another, which is broken off.

That is the oldest one of the address that has most. So an address that lets hundreds of them lie keeps nobody else out,
and a handshake that goes on, which takes milliseconds, is never the oldest for long.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Handshakes:
    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._count = 0
        self._of: dict[str, dict[trio.CancelScope, None]] = {}  # by address; the oldest first

    def __len__(self) -> int:
        return self._count

    @contextmanager
    def one(self, address: str, s_max: float) -> Iterator[None]:
        """Around a handshake: it ends when its time is over, or another takes its place."""
        if self._count >= self._count_max:
            self._break_one_off()
        scope = trio.CancelScope(deadline=trio.current_time() + s_max)
        self._of.setdefault(address, {})[scope] = None
        self._count += 1
        try:
            with scope:
                yield
        finally:
            self._forget(address, scope)

    def _break_one_off(self) -> None:
        address = max(self._of, key=lambda each: len(self._of[each]))
        oldest = next(iter(self._of[address]))
        self._forget(address, oldest)
        oldest.cancel()

    def _forget(self, address: str, scope: trio.CancelScope) -> None:
        scopes = self._of.get(address, {})
        if scope in scopes:
            del scopes[scope]
            self._count -= 1
            if not scopes:
                del self._of[address]
