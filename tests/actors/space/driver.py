"""Spaces of a gateway over stores in memory that outlive it, with a clock that only tests move."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.node.moment import Moment
from actors.space.memory_space_store import MemorySpaceDisk, MemorySpaceStore
from actors.space.settings import SpaceSettings
from actors.space.spaces import EchoSpaces, Opened
from actors.space.token_seal import TokenSeal
from schemas.echo.frames import Encoding
from schemas.ulids import Mint
from tests.actors.space.shelves import NOW_MS


class World:
    """What is left when a process dies, and the time."""

    def __init__(self, settings: SpaceSettings | None = None) -> None:
        self.now_ms = NOW_MS
        self.wall_is_ahead_ms = 0  # of the time that has passed, after it was set
        self.log_disk = MemoryDisk()
        self.space_disk = MemorySpaceDisk()
        self.settings = settings or SpaceSettings(disk_free_min=0.0)
        self.ended: list[str] = []
        self.log_over: Callable[[MemoryDisk], MemoryStore] = MemoryStore  # makes a process's access to the log
        self.seal: TokenSeal | None = None  # with it tokens are shown again
        self.follows_trio = False  # or time passes only when a test says so
        self.before_load: Callable[[EchoSpaces], None] = lambda _: None
        self._randoms = 0

    def now(self) -> Moment:
        passed_s = trio.current_time() if self.follows_trio else 0.0
        return Moment(self.now_ms / 1000 + passed_s, self.now_ms + self.wall_is_ahead_ms + int(passed_s * 1000))

    def random(self, count: int) -> bytes:
        self._randoms += 1
        return self._randoms.to_bytes(count)

    @asynccontextmanager
    async def process(self) -> AsyncIterator[EchoSpaces]:
        mint = Mint(self.random)
        async with MemorySpaceStore(self.space_disk) as store:
            await store.load()
            log = self.log_over(self.log_disk)
            spaces = EchoSpaces(
                store, log, self.settings, self.now, self.random, lambda: mint.mint(self.now_ms), seal=self.seal
            )
            spaces.on_end.append(self.ended.append)
            self.before_load(spaces)
            await spaces.load()
            yield spaces

    @property
    def streams(self) -> list[str]:
        return sorted(name for name in self.log_disk.streams if name.startswith("space/"))


async def opened(spaces: EchoSpaces, ttl_s: int | None = None, *, is_encrypted: bool = False) -> Opened:
    made = await spaces.open(Encoding.JSON, ttl_s, is_encrypted=is_encrypted)
    assert isinstance(made, Opened), made
    return made
