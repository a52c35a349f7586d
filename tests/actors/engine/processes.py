"""Several gateway processes in memory, which share a log and a bucket of facts."""

from collections.abc import Awaitable, Callable

import trio

from actors.engine.facts import Facts
from actors.engine.feeds import Feeds
from actors.engine.heartbeat import Me
from actors.engine.memory_kv import MemoryBucket, MemoryKv
from actors.engine.settings import PresenceSettings
from actors.log.memory_store import MemoryDisk, MemoryStore

WALL_MS = 1_790_000_000_000
SETTINGS = PresenceSettings()


def wall_ms() -> int:
    return WALL_MS + int(trio.current_time() * 1000) % 10**9


class Process:
    """What one of them has before it starts; follow, then `start`."""

    def __init__(self, name: str, bucket: MemoryBucket, disk: MemoryDisk) -> None:
        self.name = name
        self.kv = MemoryKv(bucket)
        self.before_commit: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.store = MemoryStore(disk, before_commit=lambda: self.before_commit())
        self.facts = Facts(self.kv, Me(name, "host", "unix:x", wall_ms), SETTINGS)
        self.feeds = Feeds(self.facts, SETTINGS)
        self.scope = trio.CancelScope()

    async def start(self, nursery: trio.Nursery) -> None:
        async def run() -> None:
            with self.scope:
                async with trio.open_nursery() as within:
                    within.start_soon(self.facts.run)
                    within.start_soon(self.feeds.run)

        nursery.start_soon(run)
        await self.facts.load()


class Several:
    def __init__(self) -> None:
        self.bucket = MemoryBucket()
        self.disk = MemoryDisk()

    def process(self, name: str) -> Process:
        return Process(name, self.bucket, self.disk)


async def until(holds: Callable[[], bool], s_max: float = 60.0) -> None:
    with trio.fail_after(s_max):
        while not holds():  # noqa: ASYNC110 (of another process: there is no event to wait for)
            await trio.sleep(0.01)
