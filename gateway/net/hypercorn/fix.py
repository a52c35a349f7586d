"""Where hypercorn itself is mended: two faults of its HTTP/2. What it does for WebSockets is in `raw_websocket.py`.

hypercorn 0.18.0 lets an application send on after each look at a response's buffer, even when flow control allowed
nothing to leave it: a client that grants no window makes every endless response grow in memory for as long as it lasts.
And data for a WebSocket that has ended here, which its client may not know yet, is a KeyError that ends every other
stream of the connection. The version is pinned, and wire tests show each fault's absence.
"""

from typing import Any

import hypercorn.protocol
import hypercorn.protocol.h2
from hypercorn.protocol.events import Event
from hypercorn.protocol.h2 import BUFFER_LOW_WATER, H2Protocol, StreamBuffer


class BoundedBuffer(StreamBuffer):
    async def pop(self, max_length: int) -> bytes:
        data = bytes(self.buffer[:max_length])
        del self.buffer[:max_length]
        if len(self.buffer) < BUFFER_LOW_WATER:  # hypercorn asks how much has left, not how much is left
            await self._paused.set()
        if not self.buffer:
            await self._is_empty.set()
        return data


class _Ended:
    """Stands for a stream that is over: whatever still comes for it is ignored."""

    async def handle(self, event: Event) -> None: ...


class _Streams(dict[int, Any]):
    def __missing__(self, stream_id: int) -> _Ended:
        return _Ended()


class LenientH2Protocol(H2Protocol):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.streams = _Streams()


def mend_http2() -> None:
    """Idempotent; for all of hypercorn in this process."""
    hypercorn.protocol.h2.StreamBuffer = BoundedBuffer  # type: ignore[misc]
    hypercorn.protocol.H2Protocol = LenientH2Protocol  # type: ignore[attr-defined, assignment]
