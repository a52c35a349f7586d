"""Buckets in memory: what every process sees (`MemoryBucket`), and one process's access to it (`MemoryKv`).

For simulations: `lag_s` keeps a watcher behind, `is_reachable` cuts a process off; a value that it put is told to the
others all the same. Revisions are those of the bucket, as in the real engine.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from actors.engine.kv import KEY_PATTERN, TTL_S_MIN, Change, Current, Entry, Gone, NotPut
from actors.log.store import UnreadableError

_KEY = re.compile(KEY_PATTERN)


@dataclass(slots=True, eq=False)
class MemoryBucket:
    """What there is."""

    is_full: bool = False
    _revision: int = 0
    _entries: dict[str, Entry] = field(default_factory=dict)
    _gone: dict[str, int] = field(default_factory=dict)  # the revision at which a key went
    _watchers: list[Callable[[Entry | Gone], None]] = field(default_factory=list)

    def find(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def everything(self) -> list[Entry | Gone]:
        gone = [Gone(key, revision) for key, revision in self._gone.items()]
        return sorted([*self._entries.values(), *gone], key=lambda change: change.revision)

    def write(self, key: str, data: bytes | None, expected: int | None, ttl_s: float | None) -> int | NotPut:
        """Without data, it is deleted."""
        if self.is_full and data is not None:
            return NotPut.FULL
        found = self._entries.get(key)
        if expected is not None and expected != (0 if found is None else found.revision):
            return NotPut.MOVED
        if data is None and found is None:
            return self._revision
        self._revision += 1
        change: Entry | Gone
        if data is None:
            change = Gone(key, self._revision)
            del self._entries[key]
            self._gone[key] = self._revision
        else:
            change = self._entries[key] = Entry(key, data, self._revision)
            self._gone.pop(key, None)
            if ttl_s is not None:
                trio.lowlevel.spawn_system_task(self._end, key, self._revision, ttl_s)
        for tell in list(self._watchers):
            tell(change)
        return self._revision

    async def _end(self, key: str, revision: int, ttl_s: float) -> None:
        await trio.sleep(ttl_s)
        self.write(key, None, revision, None)

    def follow(self, tell: Callable[[Entry | Gone], None]) -> Callable[[], None]:
        self._watchers.append(tell)
        return lambda: self._watchers.remove(tell)


class MemoryKv:
    """A `Kv` over a `MemoryBucket`."""

    def __init__(self, bucket: MemoryBucket | None = None) -> None:
        self.bucket = MemoryBucket() if bucket is None else bucket
        self.lag_s = 0.0  # of watchers behind the bucket
        self.is_reachable = True

    async def get(self, key: str) -> Entry | None:
        check_key(key)
        await trio.lowlevel.checkpoint()
        if not self.is_reachable:
            raise UnreadableError("unreachable")
        return self.bucket.find(key)

    async def put(
        self, key: str, data: bytes, *, expected: int | None = None, ttl_s: float | None = None
    ) -> int | NotPut:
        check_key(key, ttl_s)
        return await self._write(key, data, expected, ttl_s)

    async def delete(self, key: str, *, expected: int | None = None) -> NotPut | None:
        check_key(key)
        written = await self._write(key, None, expected, None)
        return written if isinstance(written, NotPut) else None

    async def _write(self, key: str, data: bytes | None, expected: int | None, ttl_s: float | None) -> int | NotPut:
        await trio.lowlevel.checkpoint()
        return self.bucket.write(key, data, expected, ttl_s) if self.is_reachable else NotPut.UNREACHABLE

    async def watch(self, heard: Callable[[Change], None]) -> None:
        changes: list[Entry | Gone] = []
        news = trio.Event()

        def tell(change: Entry | Gone) -> None:
            changes.append(change)
            news.set()

        stop = self.bucket.follow(tell)
        try:
            for entry in self.bucket.everything():
                if isinstance(entry, Entry):
                    heard(entry)
            heard(Current())
            while True:
                await news.wait()
                news = trio.Event()
                await trio.sleep(self.lag_s)
                told, changes[:] = list(changes), []
                latest = {change.key: change for change in told}
                for change in latest.values():
                    heard(change)
        finally:
            stop()


def check_key(key: str, ttl_s: float | None = None) -> None:
    """Refuse what no engine takes."""
    if not _KEY.fullmatch(key):
        raise ValueError("this is not a key")
    if ttl_s is not None and ttl_s < TTL_S_MIN:
        raise ValueError("a value does not end so soon")
