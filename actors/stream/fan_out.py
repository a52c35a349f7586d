"""From one frame to all its streams: a few at once, thousands in slices.

The event's bytes are built once. A small audience is written to right where the frame was read; a large one by the one
task of the fan-out, a slice at a time, one audience after the other, with a checkpoint in between. While an audience is
being served at most one frame waits, and a newer one replaces it (device wire §6). A stream that joins meanwhile begins
with this frame or with the next one.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import trio

from actors.stream.settings import StreamSettings
from actors.stream.slice import Lines, Slice, Stream
from schemas.closes import StreamClose
from schemas.sse import metric_event


class Audience:
    """The streams of one cadence, and the cadence's one listener."""

    def __init__(self, fan_out: "FanOut", settings: StreamSettings, on_empty: Callable[["Audience"], None]) -> None:
        self.ended = False
        """The cadence is over: nobody can join any more."""
        self._streams: dict[Stream, Slice] = {}
        self._slices: dict[Slice, None] = {}  # a dict for its order; none is empty
        self._with_room: dict[Slice, None] = {}
        self._held = 0  # by streams that are about to join
        self._fan_out = fan_out
        self._settings = settings
        self._on_empty = on_empty
        self._event: bytes | None = None  # what is being written; None: the close
        self._served: list[Slice] = []  # by this event
        self._at = 0  # whose turn it is
        self._waiting: bytes | None = None

    def join(self, stream: Stream) -> None:
        there = next(iter(self._with_room), None)
        if there is None:
            there = Slice(self._settings, self._fan_out.lines)
            self._slices[there] = self._with_room[there] = None
        there.add(stream)
        self._streams[stream] = there
        if len(there) >= self._settings.slice_streams_max:
            del self._with_room[there]

    def leave(self, stream: Stream) -> None:
        """Idempotent. The last one out ends it."""
        left = self._streams.pop(stream, None)
        if left is None:
            return
        left.remove(stream)
        if left:
            self._with_room[left] = None
        else:
            del self._slices[left]
            self._with_room.pop(left, None)
        self._end_if_empty()

    def step_out(self, stream: Stream) -> None:
        """It is about to do what the others do not: its rules are its own from here on."""
        if stream in self._streams:
            self._streams[stream].step_out(stream)

    def hold(self) -> None:
        """Stay, though nobody may be here yet; until `let_go`."""
        self._held += 1

    def let_go(self) -> None:
        self._held -= 1
        self._end_if_empty()

    def _end_if_empty(self) -> None:
        if not self._streams and not self._held:
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
        self._served, self._at = list(self._slices), 0
        if was_being_served:
            return  # it has its place in the queue
        if len(self._streams) <= self._settings.inline_streams_max:
            while (
                self.is_being_served
            ):  # of what is served here nothing may be left over: nobody would come back for it
                self.serve_slice()
        else:
            self._fan_out.add(self)

    def serve_slice(self) -> None:
        """Write to the next one: at most `slice_streams_max` streams."""
        served = self._served[self._at]
        self._at += 1
        if self._event is None:
            served.close(StreamClose.DEVICE_OFFLINE)
        else:
            self._fan_out.frames += len(served)
            served.offer(self._event, self._fan_out.now_s())
        if self.is_being_served:
            return
        self._served, self._at = [], 0
        if self._waiting is not None:
            self._event, self._waiting = self._waiting, None
            self._served = list(self._slices)


class FanOut:
    def __init__(self, lines: Lines | None = None, now_s: Callable[[], float] = trio.current_time) -> None:
        self.lines = lines
        self.now_s = now_s
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
