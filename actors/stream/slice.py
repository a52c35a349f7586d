"""Up to some hundred streams of one cadence, served together: those that are *even* share one state and one write call.

Streams are even when the same look showed that each had all its bytes acknowledged: from then on the same frames are
pending on all of them, and the rules decide the same for each. So one record of the rules (`StreamRules`) decides for
all, and each frame costs a system call a stream and next to nothing besides. Whoever is different steps out and is
treated alone, by the same rules from the same state: a short write, bytes outstanding at a look, a ping, a close. It
steps in again at the next look of its own that shows nothing outstanding. Looks are never early or late for the sake of
company: shared or alone, a stream is looked at when its own rules ask for it.
"""

from collections.abc import Sequence
from typing import Protocol

from actors.stream.rules import StreamRules
from actors.stream.settings import StreamSettings
from schemas.closes import StreamClose


class Stream(Protocol):
    rules: StreamRules

    def look(self, now_s: float) -> int | None:
        """See what is acknowledged, if the rules ask for that before a frame. The descriptor to write to, if that has
        just shown that everything is, and frames may be written to it past this stream."""

    def offer(self, event: bytes, size: int, now_s: float) -> None:
        """A frame, after the look. `size` is that of the event, taken once for all streams."""

    def fell_short(self, event: bytes, sent: int | None) -> None:
        """Of a frame that was written past this stream the connection took only so much; None: it is lost."""

    def close(self, close: StreamClose) -> None: ...

    def crash(self, exc: Exception) -> None: ...


class Lines(Protocol):
    """Many connections at once, by their descriptors."""

    def write(self, descriptors: Sequence[int], event: bytes) -> list[tuple[int, int | None]]:
        """To each. Returns the places of those that did not take all, with what they took; None: it is lost."""

    def outstanding(self, descriptors: Sequence[int]) -> list[tuple[int, int]]:
        """The places of those with bytes that are not acknowledged, and how many."""


class _Even:
    """Streams in the same state."""

    __slots__ = ("_descriptors", "_members", "_streams", "rules")

    def __init__(self, rules: StreamRules) -> None:
        self.rules = rules
        self._members: dict[Stream, int] = {}
        self._streams: list[Stream] = []
        self._descriptors: list[int] = []  # of the same; both empty where they have to be made again

    def __bool__(self) -> bool:
        return bool(self._members)

    def add(self, stream: Stream, descriptor: int) -> None:
        self._members[stream] = descriptor
        self._streams, self._descriptors = [], []

    def drop(self, stream: Stream) -> None:
        del self._members[stream]
        self._streams, self._descriptors = [], []

    def listed(self) -> tuple[list[Stream], list[int]]:
        if not self._streams:
            self._streams, self._descriptors = list(self._members), list(self._members.values())
        return self._streams, self._descriptors


class Slice:
    def __init__(self, settings: StreamSettings, lines: Lines | None) -> None:
        """Without `lines`, every stream is treated alone."""
        self._settings = settings
        self._lines = lines
        self._streams: dict[Stream, _Even | None] = {}  # None: alone
        self._alone: dict[Stream, None] = {}
        self._evens: list[_Even] = []  # no more than frames may be pending, for each is looked at that often

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: Stream) -> None:
        self._streams[stream] = None
        self._alone[stream] = None

    def remove(self, stream: Stream) -> None:
        even = self._streams.pop(stream)
        if even is None:
            del self._alone[stream]
        else:
            even.drop(stream)

    def step_out(self, stream: Stream) -> None:
        """From here on it is treated alone, from the state that it shared. Idempotent."""
        even = self._streams[stream]
        if even is not None:
            even.drop(stream)
            stream.rules.go_on_from(even.rules.shared())
            self.add(stream)

    def close(self, close: StreamClose) -> None:
        for stream in list(self._streams):
            try:
                stream.close(close)
            except Exception as exc:  # one stream's bug is that stream's end
                stream.crash(exc)

    def offer(self, event: bytes, now_s: float) -> None:
        """A frame for every stream."""
        size = len(event)
        alone = list(self._alone)
        fresh = None if self._lines is None else self._look_at_even(self._lines, event, size, now_s)
        for stream in alone:
            try:
                descriptor = stream.look(now_s)
                if descriptor is None or self._lines is None or stream.rules.settings is not self._settings:
                    stream.offer(event, size, now_s)
                    continue
            except Exception as exc:
                stream.crash(exc)
                continue
            if fresh is None:
                fresh = self._begin_even(now_s)
            self._step_in(stream, descriptor, fresh)
        if self._lines is not None:
            for even in self._evens:
                self._write_to(even, self._lines, event, size, now_s)

    def _begin_even(self, now_s: float) -> _Even:
        """Of streams that were just seen to have nothing outstanding."""
        even = _Even(StreamRules(self._settings, now_s))
        even.rules.looked(0, now_s)
        self._evens.append(even)
        return even

    def _step_in(self, stream: Stream, descriptor: int, even: _Even) -> None:
        del self._alone[stream]
        self._streams[stream] = even
        even.add(stream, descriptor)

    def _look_at_even(self, lines: Lines, event: bytes, size: int, now_s: float) -> _Even | None:
        """At those whose look is due. Who is behind steps out and has its frame; all others are even from here on."""
        fresh = None
        for even in [even for even in self._evens if even.rules.credit == 0 or now_s >= even.rules.look_due_s]:
            streams, descriptors = even.listed()
            for place, outstanding_bytes in lines.outstanding(descriptors):
                stream = streams[place]
                self.step_out(stream)
                try:
                    stream.rules.looked(outstanding_bytes, now_s)
                    stream.offer(event, size, now_s)
                except Exception as exc:
                    stream.crash(exc)
            even.rules.looked(0, now_s)
            if fresh is None:
                fresh = even
            else:
                for stream, descriptor in zip(*even.listed(), strict=True):
                    even.drop(stream)
                    fresh.add(stream, descriptor)
                    self._streams[stream] = fresh
        self._evens = [even for even in self._evens if even or even is fresh]
        return fresh

    def _write_to(self, even: _Even, lines: Lines, event: bytes, size: int, now_s: float) -> None:
        has_room = even.rules.offer(size, now_s)
        assert has_room, "looked at before"
        streams, descriptors = even.listed()
        for place, sent in lines.write(descriptors, event):
            stream = streams[place]
            self.step_out(stream)
            try:
                stream.fell_short(event, sent)
            except Exception as exc:
                stream.crash(exc)
