"""How long a connection that hypercorn serves may last once there is a reason to end it.

hypercorn has ways of its own, which do not do. When the peer is gone, a response that waits for flow control of HTTP/2
waits for ever, and an idle connection for its keep-alive. When told to stop, it ends an HTTP/2 connection between the
last response's body and its end. So the scope around hypercorn is ours; what is said on the connection is not.
"""

import contextlib
from collections.abc import Iterator

import trio

from actors.supervision.in_flight import InFlight

FLUSH_S = 0.1
"""hypercorn's `send` returns before the end of a response is written over HTTP/2; this long it may still take."""


class ConnectionLife:
    """`with life.connection():` around the connection, `with life.request():` around each of its requests."""

    def __init__(self, linger_s_max: float, calls: InFlight) -> None:
        self._scope = trio.CancelScope()
        self._linger_s_max = linger_s_max
        self._calls = calls
        self._requests = 0
        self._counted_to_the_end = 0
        self._ending = False

    @contextlib.contextmanager
    def connection(self) -> Iterator[None]:
        try:
            with self._scope:
                yield
        finally:
            for _ in range(self._counted_to_the_end):
                self._calls.leave()

    @contextlib.contextmanager
    def request(self, *, is_call: bool) -> Iterator[None]:
        """A call is one that a stop waits for, to the last byte of its response."""
        self._requests += 1
        if is_call:
            self._calls.enter()
        try:
            yield
        finally:
            self._requests -= 1
            if self._ending and not self._requests:
                self._end_within(FLUSH_S)
            if is_call and self._ending:
                self._counted_to_the_end += 1
            elif is_call:
                self._calls.leave()

    def ask_stop(self) -> None:
        """End when the requests under way have ended; how long they may take is the supervisor's."""
        self._ending = True
        if not self._requests:
            self._scope.cancel()

    def peer_is_gone(self) -> None:
        """Nothing more comes: requests under way, which are told so, have a moment."""
        self.ask_stop()
        self._end_within(self._linger_s_max)

    def _end_within(self, seconds: float) -> None:
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + seconds)
