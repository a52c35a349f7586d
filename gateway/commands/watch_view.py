"""What `heliograph watch` shows: the last values, how they went, how alive the stream is. Pure: lines out of state."""

import math
import textwrap
from collections import deque
from typing import Any

from gateway.commands.event_stream import Event, ProtocolError
from gateway.commands.parsing import printable
from schemas.closes import StreamClose

BARS = "▁▂▃▄▅▆▇█"
HISTORY = 60
GIB = 1 << 30
SHOWN = ("cpu_pct", "mem_bytes", "mem_total_bytes", "disk_pct", "load_1m", "load_5m", "load_15m")

MEANINGS = {
    StreamClose.NORMAL: "the gateway stopped, or the token ended",
    StreamClose.IDLE_TIMEOUT: "this reader took nothing for 90 s",
    StreamClose.BACKPRESSURE: "this reader fell more than three frames behind",
    StreamClose.RATE_LIMITED: "the tenant has all the streams it may have",
    StreamClose.DEVICE_OFFLINE: "the node went away",
}


def sparkline(values: list[float], top: float | None = None) -> str:
    """One bar a value, from 0 to `top`, or to the largest of them."""
    top = max(values, default=0) if top is None else top
    full = len(BARS) - 1
    return "".join(BARS[max(min(int(value / top * len(BARS)), full), 0) if top > 0 else 0] for value in values)


def meaning_of(code: object) -> str:
    """What a close event's code says, and whether to come back."""
    for close in StreamClose:
        if close.value.code == code:
            return f"{code} {close.value.reason}: {MEANINGS[close]}. Come back: {close.value.come_back}."
    return "the stream ended with an unknown code"


class View:
    def __init__(self, node_id: str, interval_ms: int, opened_s: float) -> None:
        self._title = printable(f"{node_id}  every {interval_ms / 1000:g} s")
        self._opened_s = opened_s
        self._frames: deque[dict[str, float]] = deque(maxlen=HISTORY)
        self._count = 0
        self._frame_s: float | None = None
        self._ping_s: float | None = None

    def on_event(self, event: Event, now_s: float) -> None:
        if event.name == "metric":
            self.on_frame(event.data, now_s)
        elif event.name == "ping":
            self.on_ping(now_s)

    def on_frame(self, frame: dict[str, Any], now_s: float) -> None:
        """Raises ProtocolError for a frame that has not these numbers; whatever else is in it is never shown."""
        try:
            numbers = {name: float(frame[name]) for name in SHOWN}
        except (KeyError, TypeError, ValueError, OverflowError):
            numbers = {}
        if not numbers or not all(map(math.isfinite, numbers.values())):
            raise ProtocolError("the stream has a frame without its numbers")
        self._frames.append(numbers)
        self._count += 1
        self._frame_s = now_s

    def on_ping(self, now_s: float) -> None:
        self._ping_s = now_s

    def lines(self, now_s: float, width: int | None = None) -> list[str]:
        """None of them wider than `width`: the head is broken in pieces, and the rows have fewer bars."""
        pulse = self._pulse(now_s)
        heads = [f"{self._title}   {pulse}"]
        if width is not None and len(heads[0]) > width:
            heads = [*textwrap.wrap(self._title, width), *textwrap.wrap(pulse, width)]
        return [*heads, "", *(_row(*row, width) for row in self._rows())]

    def _pulse(self, now_s: float) -> str:
        if self._frame_s is None:
            return f"waiting for the first frame, {now_s - self._opened_s:.0f} s"
        ping = "no ping yet" if self._ping_s is None else f"ping {now_s - self._ping_s:.0f} s ago"
        return f"last frame {now_s - self._frame_s:.1f} s ago, {ping}, {self._count} frames"

    def _rows(self) -> list[tuple[str, str, str]]:
        """What stands before the bars, the bars, and what stands behind them."""
        if not self._frames:
            return [("", "", "")] * 4
        last = self._frames[-1]
        memory = [100 * frame["mem_bytes"] / max(frame["mem_total_bytes"], 1) for frame in self._frames]
        cpu, disk, load = ([frame[name] for frame in self._frames] for name in ("cpu_pct", "disk_pct", "load_1m"))
        size = f"  {last['mem_bytes'] / GIB:.1f} of {last['mem_total_bytes'] / GIB:.1f} GiB"
        loads = f"  {last['load_1m']:.2f}  {last['load_5m']:.2f}  {last['load_15m']:.2f}"
        return [
            (f"cpu     {cpu[-1]:6.1f} %  ", sparkline(cpu, 100), ""),
            (f"memory  {memory[-1]:6.1f} %  ", sparkline(memory, 100), size),
            (f"disk    {disk[-1]:6.1f} %  ", sparkline(disk, 100), ""),
            (f"load    {load[-1]:6.2f}    ", sparkline(load), loads),
        ]


def _row(before: str, bars: str, behind: str, width: int | None) -> str:
    """The newest bars that fit between the two."""
    room = len(bars) if width is None else max(width - len(before) - len(behind), 0)
    return f"{before}{bars[max(len(bars) - room, 0) :]}{behind}"[:width]
