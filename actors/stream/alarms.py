"""When streams are to be looked at, though nothing happens: one task keeps the times of all of them.

A cancel scope for each costs every opening what only a ping in 25 s needs. What is to be done then is the stream's.
"""

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

import trio

GONE_MIN = 1_024  # entries of streams that have gone, or have another time by now; then they are cleared away
RINGS_MAX = 256  # in one turn of the event loop: streams of one token end at one instant; the others ring in the next


class Alarm:
    """One stream's. It has one time at most."""

    __slots__ = ("_alarms", "at_s", "entry", "ring")

    def __init__(self, alarms: "Alarms", ring: Callable[[], None]) -> None:
        self._alarms = alarms
        self.ring: Callable[[], None] | None = ring
        self.at_s = math.inf
        self.entry = 0  # which one counts

    def set(self, at_s: float) -> None:
        """Ring then, and not before."""
        if at_s != self.at_s:
            self._alarms.gone += self.at_s != math.inf
            self.at_s = at_s
            self._alarms.add(self)

    def end(self) -> None:
        """It rings no more. Whoever was to be rung is let go of."""
        self._alarms.gone += self.at_s != math.inf
        self.at_s, self.entry, self.ring = math.inf, 0, None


class Alarms:
    def __init__(self) -> None:
        self.gone = 0
        self._entries: list[tuple[float, int, Alarm]] = []
        self._number = count(1)
        self._sleep = trio.CancelScope()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, alarm: Alarm) -> None:
        """For the alarm: it has a new time."""
        entries = self._entries
        alarm.entry = next(self._number)  # before the clearing: what it had counts no more
        if self.gone >= GONE_MIN and self.gone > len(entries) // 2:
            entries[:] = [entry for entry in entries if entry[1] == entry[2].entry]
            heapify(entries)
            self.gone = 0
        if alarm.at_s != math.inf:
            heappush(entries, (alarm.at_s, alarm.entry, alarm))
            if entries[0][2] is alarm:
                self._sleep.cancel()

    async def run(self) -> None:
        while True:
            with trio.CancelScope() as self._sleep:
                await trio.sleep_until(self._entries[0][0] if self._entries else math.inf)
            self._ring(trio.current_time())

    def _ring(self, now_s: float) -> None:
        rung = 0
        while rung < RINGS_MAX and self._entries and self._entries[0][0] <= now_s:
            _, entry, alarm = heappop(self._entries)
            if entry != alarm.entry:
                self.gone -= 1
                continue
            rung += 1
            alarm.at_s, alarm.entry = math.inf, 0
            if alarm.ring is not None:
                alarm.ring()
