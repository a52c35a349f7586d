"""Spaces that are over, until nothing is left of them: first the keys of all, then rows and files, then streams.

The keys have seconds; what is left without them is noise, and goes in an order that keeps nobody waiting: few spaces at
a time, and of the log, which devices need as well, one bounded transaction at a time. Which ones are due is decided by
`erasing_rules`.
"""

from collections.abc import Callable, Sequence

import structlog
import trio

from actors.log.store import LogStore
from actors.log_throttle import LogThrottle
from actors.node.moment import Moment
from actors.space.counts import SpaceCounts
from actors.space.erasing_rules import ErasingQueue
from actors.space.store import SpaceStore

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

PREFIX = "space/"  # of the streams' names
ENDS_MAX = 32  # spaces whose rows and files go at a time; the next one waits
FORGET_MAX = 64  # streams that go in one transaction: an append to the log waits for one such, no more
COMPLAIN_EVERY_S = 60.0  # between two lines about a disk that refuses


class Erasing:
    def __init__(
        self, store: SpaceStore, stream_log: LogStore, now: Callable[[], Moment], counts: SpaceCounts | None = None
    ) -> None:
        self._store = store
        self._log = stream_log
        self._now = now
        self._counts = counts or SpaceCounts()
        self._queue = ErasingQueue()
        self._forgetting = trio.Lock()
        self._complaints = LogThrottle(COMPLAIN_EVERY_S)

    def __len__(self) -> int:
        """How many are not gone yet."""
        return len(self._queue)

    def add(self, space_id: str) -> None:
        """It is over: `erase_due` will see to it."""
        self._queue.add(space_id)

    @property
    def next_s(self) -> float | None:
        """When to call `erase_due` again, if nothing is added."""
        return self._queue.next_s

    async def erase(self, space_id: str) -> bool:
        """This one, now. Whether nothing is left of it; else `erase_due` tries again."""
        self._queue.take_one(space_id)
        return not await self._erase([space_id])

    async def erase_due(self) -> None:
        """All that are new, and some that the disk refused before. What is cancelled is left to the next start."""
        due = self._queue.take(self._now().mono_s)
        if due:
            await self._erase(due)
        else:
            await trio.lowlevel.checkpoint()

    async def _erase(self, space_ids: Sequence[str]) -> set[str]:
        """Those of which something is left."""
        left = set(space_ids)
        ended: list[str] = []
        waiting = iter(space_ids)

        async def end() -> None:
            for space_id in waiting:
                if await self._store.end(space_id) is None:
                    ended.append(space_id)

        try:
            if len(space_ids) > 1:
                await self._store.erase_keys(space_ids)
            async with trio.open_nursery() as nursery:
                for _ in range(min(ENDS_MAX, len(space_ids))):
                    nursery.start_soon(end)
            for at in range(0, len(ended), FORGET_MAX):
                gone = ended[at : at + FORGET_MAX]
                async with self._forgetting:
                    refused = await self._log.forget(*(PREFIX + space_id for space_id in gone))
                if refused is None:
                    left.difference_update(gone)
                    for space_id in gone:
                        log.info("space_erased", space_id=space_id)
        finally:
            self._queue.settle(space_ids, left, self._now().mono_s)
        self._counts.erase_failures += len(left)
        if left and self._complaints.hit(self._now().mono_s):
            log.warning("spaces_not_erased", spaces=len(self._queue))
        return left
