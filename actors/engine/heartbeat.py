"""A process among several says that it lives, and finds out whether it still knows what the others do.

Its entry is put again and again, and ends by itself when the process does. The watcher of the same bucket tells it
back: one that does not is behind, or deaf, and is begun anew.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import trio

from actors.engine.kv import Change, Entry, Gone, Kv
from actors.engine.presence_rules import PROCESS, ProcessEntry, Pulse, Standing, skew_ms
from actors.engine.settings import PresenceSettings


@dataclass(frozen=True, slots=True)
class Me:
    """This process, as others know it."""

    process: str  # a ULID, new with each start
    host: str
    address: str
    wall_ms: Callable[[], int]
    counts: Callable[[], dict[str, int]] = dict
    says: Callable[[], dict[str, Any]] = dict  # how it is, for people
    stamped_ms: Callable[[str], Awaitable[int | None]] | None = None
    """When the engine took what lies under a key, by the engine's clock; None: nobody knows."""


class Heartbeat:
    def __init__(self, kv: Kv, me: Me, settings: PresenceSettings, thought_dead: Callable[[], None]) -> None:
        """`thought_dead` is called when the engine takes a heartbeat again after others have given this process up."""
        self._kv, self._me, self._settings, self._thought_dead = kv, me, settings, thought_dead
        self._pulse = Pulse(settings.lost_s_max, settings.stale_s_max, settings.clock_skew_ms_max)
        self._beat_now = trio.Event()

    def standing(self) -> Standing:
        return self._pulse.standing(trio.current_time())

    @property
    def skew_ms(self) -> int:
        """By how much this process's clock and the engine's differ, at least."""
        return self._pulse.skew_ms

    def lag_ms(self) -> int:
        """For how long the watcher has not told what this process put."""
        return round(1000 * self._pulse.lag_s(trio.current_time()))

    async def run(self) -> None:
        key = PROCESS + self._me.process
        while True:
            self._beat_now = trio.Event()
            await self._beat(key)
            with trio.move_on_after(self._settings.heartbeat_s):
                await self._beat_now.wait()

    async def _beat(self, key: str) -> None:
        before_ms = self._me.wall_ms()
        entry = ProcessEntry(self._me.host, self._me.address, before_ms, self._me.counts(), self._me.says())
        put = await self._kv.put(key, msgspec.json.encode(entry), ttl_s=self._settings.dead_s)
        after_ms = self._me.wall_ms()
        if not isinstance(put, int):
            return
        stamped_ms = None if self._me.stamped_ms is None else await self._me.stamped_ms(key)
        off_ms = None if stamped_ms is None else skew_ms(before_ms, stamped_ms, after_ms)
        if self._pulse.silent_s(trio.current_time()) > self._settings.dead_s:
            self._thought_dead()
        self._pulse.beat(trio.current_time(), put, off_ms)

    async def watch(self, begin: Callable[[], None], heard: Callable[[Change], None]) -> None:
        """Watch the bucket, from the beginning (`begin`) whenever the watcher has fallen behind; until cancelled."""
        while True:
            begin()
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._kv.watch, heard)
                    nursery.start_soon(self._cut_if_stale, scope)

    async def _cut_if_stale(self, watcher: trio.CancelScope) -> None:
        await trio.sleep(self._settings.stale_s_max)  # it takes its time to begin
        while self.standing() is not Standing.STALE:  # noqa: ASYNC110 (nothing happens: that is what it looks for)
            await trio.sleep(self._settings.heartbeat_s)
        watcher.cancel()

    def heard(self, change: Entry | Gone) -> None:
        """What the watcher tells of this process's own entry."""
        if isinstance(change, Gone):
            self._beat_now.set()
        else:
            self._pulse.echoed(change.revision)
