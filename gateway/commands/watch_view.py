"""What `heliograph watch` shows: the last values, how they went, how alive the stream is. Pure: lines out of state."""

from collections import deque
from typing import Any

from schemas.closes import StreamClose

BARS = "▁▂▃▄▅▆▇█"
HISTORY = 60
GIB = 1 << 30

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
    return "".join(BARS[min(int(value / top * len(BARS)), len(BARS) - 1) if top > 0 else 0] for value in values)


def meaning_of(code: object) -> str:
    """What a close event's code says, and whether to come back."""
    for close in StreamClose:
        if close.value.code == code:
            return f"{code} {close.value.reason}: {MEANINGS[close]}. Come back: {close.value.come_back}."
    return "the stream ended with an unknown code"


class View:
    def __init__(self, node_id: str, interval_ms: int, opened_s: float) -> None:
        self._title = f"{node_id}  every {interval_ms / 1000:g} s"
        self._opened_s = opened_s
        self._frames: deque[dict[str, Any]] = deque(maxlen=HISTORY)
        self._count = 0
        self._frame_s: float | None = None
        self._ping_s: float | None = None

    def on_frame(self, frame: dict[str, Any], now_s: float) -> None:
        self._frames.append(frame)
        self._count += 1
        self._frame_s = now_s

    def on_ping(self, now_s: float) -> None:
        self._ping_s = now_s

    def lines(self, now_s: float) -> list[str]:
        return [f"{self._title}   {self._pulse(now_s)}", "", *self._values()]

    def _pulse(self, now_s: float) -> str:
        if self._frame_s is None:
            return f"waiting for the first frame, {now_s - self._opened_s:.0f} s"
        ping = "no ping yet" if self._ping_s is None else f"ping {now_s - self._ping_s:.0f} s ago"
        return f"last frame {now_s - self._frame_s:.1f} s ago, {ping}, {self._count} frames"

    def _values(self) -> list[str]:
        if not self._frames:
            return ["", "", "", ""]
        last = self._frames[-1]
        used, total = last["mem_bytes"], last["mem_total_bytes"]
        memory = [100 * frame["mem_bytes"] / frame["mem_total_bytes"] for frame in self._frames]
        load = f"{last['load_1m']:.2f}  {last['load_5m']:.2f}  {last['load_15m']:.2f}"
        return [
            f"cpu     {last['cpu_pct']:6.1f} %  {sparkline([frame['cpu_pct'] for frame in self._frames], 100)}",
            f"memory  {memory[-1]:6.1f} %  {sparkline(memory, 100)}  {used / GIB:.1f} of {total / GIB:.1f} GiB",
            f"disk    {last['disk_pct']:6.1f} %  {sparkline([frame['disk_pct'] for frame in self._frames], 100)}",
            f"load    {last['load_1m']:6.2f}    {sparkline([frame['load_1m'] for frame in self._frames])}  {load}",
        ]
