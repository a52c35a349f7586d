"""Streams of the shared log that every process follows: who is registered, who is a member, whose passkey is whose.

Whoever has appended to one says so (`grew`): a hint in the facts that all processes watch. Each then reads on from
where it was. A hint that was lost, with the process that owed it, costs time and nothing else: every stream is read on
every `feed_look_s` too. A process that cannot read a stream on for `stale_s_max` does not know what the others do, and
`standing` says so.

How a stream is read on, and what its events mean, is for whoever follows it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog
import trio

from actors.engine.facts import Facts
from actors.engine.kv import Entry, Gone
from actors.engine.presence_rules import Standing
from actors.engine.settings import DEFAULT_PRESENCE, PresenceSettings
from actors.log.store import UnreadableError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_GREW = "grew."


@dataclass(slots=True, eq=False)
class _Feed:
    read_on: Callable[[], Awaitable[None]]
    news: trio.Event = field(default_factory=trio.Event)
    behind_since_s: float | None = None  # since when there is something that could not be read


class Feeds:
    def __init__(self, facts: Facts, settings: PresenceSettings = DEFAULT_PRESENCE) -> None:
        self._facts = facts
        self._settings = settings
        self._feeds: dict[str, _Feed] = {}
        self._to_tell: dict[str, None] = {}
        self._tell_now = trio.Event()
        self._nursery: trio.Nursery | None = None
        facts.follow(_GREW, self._heard)

    def follow(self, stream: str, read_on: Callable[[], Awaitable[None]]) -> None:
        """`read_on` raises `UnreadableError` when it has to be tried again. `stream` is a key of a bucket too."""
        feed = self._feeds[stream] = _Feed(read_on)
        if self._nursery is not None:
            self._nursery.start_soon(self._follow, stream, feed)

    def grew(self, stream: str) -> None:
        """Tell the others, behind the caller's back."""
        self._to_tell[stream] = None
        self._tell_now.set()

    def standing(self) -> Standing:
        """Whether this process knows what all others do."""
        now_s = trio.current_time()
        behind = [feed.behind_since_s for feed in self._feeds.values() if feed.behind_since_s is not None]
        if behind and now_s - min(behind) > self._settings.stale_s_max:
            return Standing.STALE
        return self._facts.standing()

    async def run(self) -> None:
        """Until it is cancelled."""
        async with trio.open_nursery() as nursery:
            for stream, feed in self._feeds.items():
                nursery.start_soon(self._follow, stream, feed)
            self._nursery = nursery
            try:
                await self._tell()
            finally:
                self._nursery = None

    def _heard(self, change: Entry | Gone) -> None:
        feed = self._feeds.get(change.key.removeprefix(_GREW))
        if feed is not None:
            feed.news.set()

    async def _follow(self, stream: str, feed: _Feed) -> None:
        while True:
            if feed.behind_since_s is None:
                with trio.move_on_after(self._settings.feed_look_s):
                    await feed.news.wait()
            else:
                await trio.sleep(self._settings.again_s)
            feed.news = trio.Event()
            try:
                await feed.read_on()
            except UnreadableError as error:
                if feed.behind_since_s is None:
                    feed.behind_since_s = trio.current_time()
                    log.warning("feed_unreadable", stream=stream, reason=str(error))
            else:
                feed.behind_since_s = None

    async def _tell(self) -> None:
        while True:
            await self._tell_now.wait()
            self._tell_now = trio.Event()
            streams, self._to_tell = list(self._to_tell), {}
            for stream in streams:
                if not isinstance(await self._facts.kv.put(_GREW + stream, self._facts.process.encode()), int):
                    self._to_tell[stream] = None
            if self._to_tell:
                await trio.sleep(self._settings.again_s)
                self._tell_now.set()
