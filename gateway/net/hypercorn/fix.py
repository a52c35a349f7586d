"""Where hypercorn itself is mended: its HTTP/2. What it does for WebSockets is in `raw_websocket.py`.

hypercorn 0.18.0 lets an application send on after each look at a response's buffer, even when flow control allowed
nothing to leave it: a client that grants no window makes every endless response grow in memory for as long as it lasts.
Data for a WebSocket that has ended here, which its client may not know yet, is a KeyError that ends every other stream
of the connection; so is, as a UnicodeDecodeError, a path or method with a byte that is not ASCII. A request that its
client resets at once does not count toward the streams at the same time, but its handler runs: a connection can ask for
tens of thousands a second. And a response whose application ends before it does is left as it is: its client waits for
the rest. The version is pinned, and wire tests show each fault's absence.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import hypercorn.protocol
import hypercorn.protocol.h2
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamReset
from h2.exceptions import ProtocolError
from hypercorn.config import Config
from hypercorn.events import Closed
from hypercorn.protocol.events import Event, StreamClosed
from hypercorn.protocol.h2 import BUFFER_LOW_WATER, H2Protocol, StreamBuffer
from hypercorn.protocol.http_stream import HTTPStream
from priority.priority import MissingStreamError

from actors.bucket_rules import TokenBucket


class MendedConfig(Config):
    h2_resets_per_s_max: int | None = None  # of a connection; None: any number


class BoundedBuffer(StreamBuffer):
    @property
    def is_ended(self) -> bool:
        """Whether nothing more is added to it."""
        return self._complete

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


class MendedH2Protocol(H2Protocol):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.streams = _Streams()
        resets = self.config.h2_resets_per_s_max if isinstance(self.config, MendedConfig) else None
        self._resets = None if resets is None else TokenBucket.full(resets, resets, time.monotonic())

    async def stream_send(self, event: Event) -> None:
        if isinstance(event, StreamClosed):
            await self._reset_if_broken_off(event.stream_id)
        await super().stream_send(event)

    async def _reset_if_broken_off(self, stream_id: int) -> None:
        """The application is done with it, and had not said that its response is."""
        buffer = self.stream_buffers.get(stream_id)
        is_response = isinstance(self.streams.get(stream_id), HTTPStream)  # a WebSocket has its own way to end
        if not is_response or not isinstance(buffer, BoundedBuffer) or buffer.is_ended:
            return
        with contextlib.suppress(ProtocolError, MissingStreamError):  # its client was faster
            self.connection.reset_stream(stream_id, ErrorCodes.INTERNAL_ERROR)
            self.priority.unblock(stream_id)
        await buffer.close()
        await self.has_data.set()  # whoever sends finds the stream closed, and forgets it
        await self._flush()

    async def _handle_events(self, events: list[Any]) -> None:
        reset = [event.stream_id for event in events if isinstance(event, StreamReset)]
        if reset and self._is_over_rate(len(reset)):
            self.connection.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            await self._flush()
            await self.send(Closed())
            return
        await super()._handle_events(list(self._to_handle(events, frozenset(reset))))

    def _is_over_rate(self, resets: int) -> bool:
        now_s, bucket = time.monotonic(), self._resets
        return bucket is not None and any(bucket.take(now_s) is not None for _ in range(resets))

    def _to_handle(self, events: list[Any], reset: frozenset[int]) -> Iterator[Any]:
        """Without requests that are over before they have begun, or that hypercorn cannot read, and what is theirs."""
        refused: set[int] = set()
        for event in events:
            stream_id = getattr(event, "stream_id", None)
            if isinstance(event, RequestReceived):
                is_readable = _is_readable(event)
                if not is_readable and stream_id not in reset:
                    self.connection.reset_stream(event.stream_id, ErrorCodes.PROTOCOL_ERROR)
                if not is_readable or stream_id in reset:
                    refused.add(event.stream_id)
            if stream_id not in refused:
                yield event
            elif isinstance(event, DataReceived):  # it has used up the connection's window too
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)


def _is_readable(request: RequestReceived) -> bool:
    needed = [value for name, value in request.headers if name in (b":method", b":path")]
    return len(needed) == 2 and all(value.isascii() for value in needed)


def mend_http2() -> None:
    """Idempotent; for all of hypercorn in this process."""
    hypercorn.protocol.h2.StreamBuffer = BoundedBuffer  # type: ignore[misc]
    hypercorn.protocol.H2Protocol = MendedH2Protocol  # type: ignore[attr-defined, assignment]
