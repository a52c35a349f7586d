"""The life of one telemetry stream (RFC-0009 §5 to §7): what may be written, and when it is over and why.

    open ──── a fourth frame while three are pending ───► 4413 backpressure
      ├────── outstanding bytes, none of them acknowledged for 90 s ───► 4408 idle_timeout
      ├────── the node goes, or refuses the cadence ───► 4503 device_offline
      ├────── the tenant has its quota of streams already ───► 4429 rate_limited
      └────── the client half-closes, its token ends, the gateway stops ───► 1000 normal

Whichever comes first wins, and nothing follows it. A frame is pending from when it is offered until its last byte is
acknowledged. What is acknowledged is seen by looking: whoever drives these rules tells them how many bytes are
outstanding, which is all they know of a socket. A look shows how many frames may follow without another (the credit),
for a few seconds.

Pings are due at 25 s, 50 s, … after the opening and are not frames. A look that shows an acknowledged byte, or nothing
outstanding, is progress, dated at that look. Bytes that follow when all is known to be acknowledged are dated too:
until then nothing was outstanding.
"""

import math

from actors.stream.settings import StreamSettings
from schemas.closes import StreamClose


class StreamRules:
    __slots__ = (
        "_acked_bytes",
        "_expires_s",
        "_loose_bytes",
        "_pending",
        "_pings",
        "_progress_s",
        "closed",
        "credit",
        "look_due_s",
        "opened_s",
        "settings",
    )

    def __init__(self, settings: StreamSettings, opened_s: float, expires_s: float = math.inf) -> None:
        self.closed: StreamClose | None = None
        self.credit = settings.frames_pending_max
        """Frames that may be offered before the next look; at 0, look first."""
        self.look_due_s = opened_s
        """From then on an offer is to be preceded by a look too, so that a stall is dated to the frame that met it."""
        self.settings = settings
        self.opened_s = opened_s
        self._expires_s = expires_s
        self._pings = 0
        # What is not known to be acknowledged, oldest first, whether the connection took it yet or not. No totals: for
        # thousands of streams, numbers of each one's own measured a tenth of a frame's cost; shared sizes cost nothing.
        self._pending: list[int] = []  # the frames' sizes, each with that of a ping or the head just before it
        self._loose_bytes = 0  # a ping or the head after the last of them
        self._acked_bytes = 0  # of all these, as far as the last look showed: never all, nor all of the first frame
        self._progress_s = opened_s

    # ---- what is written --------------------------------------------------------------------------------------------

    def wrote(self, size: int, now_s: float) -> None:
        """The head or a ping has been given to the connection."""
        self.look_due_s = now_s  # these are acknowledged when no frame is near: look before the next one
        if not self._pending and not self._loose_bytes:
            self._progress_s = now_s
        self._loose_bytes += size

    def offer(self, size: int, now_s: float) -> bool:
        """Whether a frame of so many bytes is to be written now. If not, the stream is closed, now or before."""
        if self.closed is not None:
            return False
        if self.credit == 0:
            self.closed = StreamClose.BACKPRESSURE
            return False
        self.credit -= 1
        if self._loose_bytes:
            size += self._loose_bytes
            self._loose_bytes = 0
        elif not self._pending:
            self._progress_s = now_s
        self._pending.append(size)
        return True

    def sealed(self, added_bytes: int) -> None:
        """What was written last takes so many bytes more on its connection (TLS), and is acknowledged with them."""
        if self._loose_bytes or not self._pending:
            self._loose_bytes += added_bytes
        else:
            self._pending[-1] += added_bytes

    # ---- what is seen -----------------------------------------------------------------------------------------------

    def looked(self, outstanding_bytes: int, now_s: float) -> None:
        """So many of the written bytes are not acknowledged. After a look at several streams that showed none on
        any, their states are the same."""
        self.look_due_s = now_s + self.settings.look_s
        pending = self._pending
        if outstanding_bytes == 0:
            pending.clear()
            self._loose_bytes = self._acked_bytes = 0
            self._progress_s = now_s
            self.credit = self.settings.frames_pending_max
            return
        acked_bytes = sum(pending) + self._loose_bytes - outstanding_bytes
        if acked_bytes > self._acked_bytes:
            while pending and pending[0] <= acked_bytes:
                acked_bytes -= pending.pop(0)
            self._acked_bytes = acked_bytes
            self._progress_s = now_s
            self.credit = self.settings.frames_pending_max - len(pending)
        elif now_s >= self._progress_s + self.settings.idle_s_max:
            self.end(StreamClose.IDLE_TIMEOUT)

    def tick(self, now_s: float) -> bool:
        """It is `now_s`, and `looked` has just been told. Whether a ping is to be written now."""
        if now_s >= self._expires_s:
            self.end(StreamClose.NORMAL)
        if self.closed is not None or now_s < self._ping_due_s():
            return False
        # One ping, however many were missed: a late clock must not make a burst.
        self._pings = max(self._pings + 1, int((now_s - self.opened_s) // self.settings.ping_s))
        return True

    def end(self, close: StreamClose) -> None:
        """The stream is over, unless it was before."""
        if self.closed is None:
            self.closed = close

    def shared(self) -> tuple[int, float, list[int], float]:
        """For `go_on_from`, of rules that decided for several streams: nothing but frames was written since the last
        look, and that showed nothing outstanding."""
        return self.credit, self.look_due_s, self._pending.copy(), self._progress_s

    def go_on_from(self, shared: tuple[int, float, list[int], float]) -> None:
        self.credit, self.look_due_s, self._pending, self._progress_s = shared
        self._loose_bytes = self._acked_bytes = 0

    def next_deadline_s(self) -> float:
        """When to look and `tick`, if nothing happens before."""
        return min(self._ping_due_s(), self._progress_s + self.settings.idle_s_max, self._expires_s)

    def _ping_due_s(self) -> float:
        return self.opened_s + (self._pings + 1) * self.settings.ping_s
