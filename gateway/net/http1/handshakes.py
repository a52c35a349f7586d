"""TLS handshakes under way: so many at most. One more takes the place of another, which is broken off.

That is the oldest one of the address that has most. So an address that lets hundreds of them lie keeps nobody else out,
and a handshake that goes on, which takes milliseconds, is never the oldest for long. A /64 of IPv6 is one address.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from gateway.net.addresses import network_of


class Handshakes:
    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._count = 0
        self._of: dict[str, dict[trio.CancelScope, None]] = {}  # by network; the oldest first

    def __len__(self) -> int:
        return self._count

    @contextmanager
    def one(self, address: str, s_max: float) -> Iterator[None]:
        """Around a handshake: it ends when its time is over, or another takes its place."""
        network = network_of(address)
        if self._count >= self._count_max:
            self._break_one_off()
        scope = trio.CancelScope(deadline=trio.current_time() + s_max)
        self._of.setdefault(network, {})[scope] = None
        self._count += 1
        try:
            with scope:
                yield
        finally:
            self._forget(network, scope)

    def _break_one_off(self) -> None:
        network = max(self._of, key=lambda each: len(self._of[each]))
        oldest = next(iter(self._of[network]))
        self._forget(network, oldest)
        oldest.cancel()

    def _forget(self, network: str, scope: trio.CancelScope) -> None:
        scopes = self._of.get(network, {})
        if scope in scopes:
            del scopes[scope]
            self._count -= 1
            if not scopes:
                del self._of[network]
