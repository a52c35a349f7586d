"""From one frame to all its streams: a few at once, thousands in slices.

The event's bytes are built once. A small audience is written to right where the frame was read; a large one by the one
task of the fan-out, a bounded number of streams at a time, one audience after the other, with a checkpoint in between.
While an audience is being served at most one frame waits, and a newer one replaces it (device wire §6).
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import trio

from actors.stream.settings import StreamSettings
from schemas.closes import StreamClose
from schemas.sse import metric_event


class Stream(Protocol):
    def offer(self, event: bytes, size: int, now_s: float) -> None:
        """`size` is that of the event, taken once for all streams."""

    def close(self, close: StreamClose) -> None: ...

    def crash(self, exc: Exception) -> None: ...


class Audience:
    """The streams of one cadence, and the cadence's one listener."""

    def __init__(self, fan_out: "FanOut", settings: StreamSettings, on_empty: Callable[["Audience"], None]) -> None:
        self.ended = False
        """The cadence is over: nobody can join any more."""
        self._streams: dict[Stream, None] = {}  # a dict for its order
        self._fan_out = fan_out
        self._settings = settings
        self._on_empty = on_empty
        self._event: bytes | None = None  # what is being written; None: the close
        self._served: list[Stream] = []  # by this event
        self._at = 0  # whose turn it is
        self._waiting: bytes | None = None

    def join(self, stream: Stream) -> None:
        self._streams[stream] = None

    def leave(self, stream: Stream) -> None:
        """Idempotent. The last one out ends it."""
        if self._streams.pop(stream, self) is None:
            self.end_if_empty()

    def end_if_empty(self) -> None:
        """For whoever made it: nobody may have come."""
        if not self._streams:
            self._on_empty(self)

    @property
    def is_being_served(self) -> bool:
        return self._at < len(self._served)

    # ---- the cadence's listener -------------------------------------------------------------------------------------

    def on_frame(self, frame: Mapping[str, Any]) -> None:
        self.publish(metric_event(frame))

    def on_cadence_end(self) -> None:
        """The node is gone: every stream is told at once, before any frame that waits."""
        self.ended = True
        self._waiting = None
        self._begin(None)

    def publish(self, event: bytes) -> None:
        if self.ended:
            return
        if self.is_being_served:
            self._waiting = event
        else:
            self._begin(event)

    # ---- serving ----------------------------------------------------------------------------------------------------

    def _begin(self, event: bytes | None) -> None:
        was_being_served = self.is_being_served
        self._event = event
        self._served, self._at = list(self._streams), 0
        if was_being_served:
            return  # it has its place in the queue
        # Of what is served here nothing may be left over: nobody would come back for it.
        if len(self._served) <= min(self._settings.inline_streams_max, self._settings.slice_streams_max):
            self.serve_slice()
        else:
            self._fan_out.add(self)

    def serve_slice(self) -> None:
        """Write to the next streams, at most `slice_streams_max`."""
        begin, event = self._at, self._event
        size = len(event or b"")
        self._at += self._settings.slice_streams_max
        now_s = trio.current_time()
        served = self._served[begin : self._at]
        for stream in served:
            try:
                if event is not None:
                    stream.offer(event, size, now_s)
                else:
                    stream.close(StreamClose.DEVICE_OFFLINE)
            except Exception as exc:  # one stream's bug is that stream's end
                stream.crash(exc)
        if event is not None:
            self._fan_out.frames += len(served)
        if self.is_being_served:
            return
        self._served, self._at = [], 0
        if self._waiting is not None:
            self._event, self._waiting = self._waiting, None
            self._served = list(self._streams)


class FanOut:
    def __init__(self) -> None:
        self.frames = 0
        """Offered to streams so far; counted by the slice, not by the stream."""
        self._audiences: deque[Audience] = deque()
        self._lot = trio.lowlevel.ParkingLot()

    def add(self, audience: Audience) -> None:
        self._audiences.append(audience)
        self._lot.unpark()

    async def run(self) -> None:
        while True:
            while not self._audiences:
                await self._lot.park()
            audience = self._audiences.popleft()
            audience.serve_slice()
            if audience.is_being_served:
                self._audiences.append(audience)
            await trio.lowlevel.checkpoint()
