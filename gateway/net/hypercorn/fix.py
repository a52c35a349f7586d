"""The one place where hypercorn itself is changed: what a peer does not take over HTTP/2 must not pile up.

hypercorn 0.18.0 lets an application send on after each look at a response's buffer, even when flow control allowed
nothing to leave it: a client that grants no window makes every endless response grow in memory for as long as it lasts.
The version is pinned, and a wire test shows the fault without this and its absence with it.
"""

import hypercorn.protocol.h2
from hypercorn.protocol.h2 import BUFFER_LOW_WATER, StreamBuffer


class BoundedBuffer(StreamBuffer):
    async def pop(self, max_length: int) -> bytes:
        data = bytes(self.buffer[:max_length])
        del self.buffer[:max_length]
        if len(self.buffer) < BUFFER_LOW_WATER:  # hypercorn asks how much has left, not how much is left
            await self._paused.set()
        if not self.buffer:
            await self._is_empty.set()
        return data


def bound_http2_buffers() -> None:
    """Idempotent; for all of hypercorn in this process."""
    hypercorn.protocol.h2.StreamBuffer = BoundedBuffer  # type: ignore[misc]
