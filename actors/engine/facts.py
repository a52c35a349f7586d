"""What is true for all gateways of a fleet at once: a bucket, watched, with somebody to tell for each prefix of keys.

Whoever follows a prefix is told of every key that is there, of each change, and of what went while nobody watched.
`standing` says whether this process still knows what the others do: its own heartbeats go through the same bucket, so
one that comes back has brought everything before it along. A process that does not get them back must not serve: what
was revoked elsewhere is good here.

Follow before `run`. What a key means is up to its follower.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import trio

from actors.engine.heartbeat import Heartbeat, Me
from actors.engine.kv import Change, Current, Entry, Gone, Kv
from actors.engine.presence_rules import PROCESS, Standing
from actors.engine.settings import DEFAULT_PRESENCE, PresenceSettings

LOOK_S = 0.02  # for the first heartbeat

Heard: TypeAlias = Callable[[Entry | Gone], None]
"""Neither waits nor raises. It may hear of the same entry again."""


class Facts:
    def __init__(self, kv: Kv, me: Me, settings: PresenceSettings = DEFAULT_PRESENCE) -> None:
        self.kv = kv
        """For those who put something there."""
        self.process = me.process
        # The clock is compared by whoever says where nodes are.
        self._heartbeat = Heartbeat(kv, replace(me, counts=dict, stamped_ms=None), settings, lambda: None)
        self._followers: list[tuple[str, Heard]] = []
        self._there: set[str] = set()  # keys, as the watcher has them
        self._unnamed: set[str] = set()  # of these, what a watcher that has begun anew has not named yet
        self._is_told = trio.Event()

    def follow(self, prefix: str, heard: Heard) -> None:
        if self._there or self._is_told.is_set():
            raise RuntimeError("whoever follows now has missed what was told")
        self._followers.append((prefix, heard))

    def standing(self) -> Standing:
        return self._heartbeat.standing()

    def lag_ms(self) -> int:
        return self._heartbeat.lag_ms()

    async def load(self) -> None:
        """Returns when everything was told once, and a heartbeat of ours was taken."""
        await self._is_told.wait()
        while self.standing() is not Standing.READY:  # noqa: ASYNC110 (that passes with time alone, too)
            await trio.sleep(LOOK_S)

    async def run(self) -> None:
        """Until it is cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._heartbeat.watch, self._begin, self._heard)
            await self._heartbeat.run()

    def _begin(self) -> None:
        self._unnamed = set(self._there)

    def _heard(self, change: Change) -> None:
        if isinstance(change, Current):
            gone, self._unnamed = self._unnamed, set()
            for key in gone:
                self._heard(Gone(key, 0))
            self._is_told.set()
            return
        if change.key.startswith(PROCESS):
            if change.key == PROCESS + self.process:
                self._heartbeat.heard(change)
            return
        self._unnamed.discard(change.key)
        if isinstance(change, Entry):
            self._there.add(change.key)
        else:
            self._there.discard(change.key)
        for prefix, heard in self._followers:
            if change.key.startswith(prefix):
                heard(change)
