"""Which spaces there are, from the making of a key to its erasure: loaded, created, opened, ended.

A space is there as long as its key is. What is done with one while it is open is left to `sqlite_space_store`.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import trio

from actors.log.store import StoreFailedError
from actors.space import sqlite_space_rows as rows
from actors.space.content_files import ContentFiles
from actors.space.key_files import KeyFiles
from actors.space.sealing import KEY_BYTES, SpaceKey
from actors.space.space_database import SpaceDatabase
from actors.space.space_index import SpaceIndex
from actors.space.store import NOT_READY, Refused, SpaceStoreLimits, check_id

_T = TypeVar("_T")
_NO_KEY = SpaceKey("", bytes(KEY_BYTES))  # of a space of which only the end may be left to do


@dataclass(slots=True, eq=False)
class KeptSpace:
    """A space that is there: its key, and, while it is open, its index."""

    key: SpaceKey
    stored_bytes: int = 0  # of values and files, with overhead
    index: SpaceIndex | None = None
    next_expiry_ms: int | None = None  # of its values, while it is not open
    prefixes: dict[str, bytes] = field(default_factory=dict)  # of the files' nonces
    is_ended: bool = False
    is_keyless: bool = False  # the key is gone for certain
    opening: trio.Lock = field(default_factory=trio.Lock)
    files: trio.Lock = field(default_factory=trio.Lock)  # held by whoever changes its folder
    ending: trio.Lock = field(default_factory=trio.Lock)


class KeptSpaces:
    """The spaces of a folder. `closed` is told of an index that is dropped."""

    def __init__(
        self,
        database: SpaceDatabase,
        content: ContentFiles,
        keys: KeyFiles,
        closed: Callable[[str, SpaceIndex], None],
        limits: SpaceStoreLimits,
    ) -> None:
        self.stored_bytes = 0  # of all spaces
        self.bytes_under_way = 0  # by which that may grow
        self._database = database
        self._content = content
        self._keys = keys
        self._closed = closed
        self._spaces: dict[str, KeptSpace] = {}
        self._ending: dict[str, KeptSpace] = {}  # unknown already, and not erased wholly yet
        self._is_loaded = False
        self._keys_max = limits.erasing_batch_max
        self._erasing_threads = trio.CapacityLimiter(limits.erasing_threads_max)
        self._removing_threads = trio.CapacityLimiter(limits.removing_threads_max)

    def __len__(self) -> int:
        return len(self._spaces)

    def count_under_way(self, size_bytes: int) -> None:
        """More, or less, is on its way."""
        self.bytes_under_way += size_bytes

    def ids(self) -> tuple[str, ...]:
        return tuple(sorted(self._spaces))

    def get(self, space_id: str) -> KeptSpace | None:
        """A space, open or not."""
        return self._spaces.get(space_id)

    def find(self, space_id: str) -> tuple[KeptSpace, SpaceIndex] | None:
        """An open space and its index, or None if there is no such space."""
        space = self._spaces.get(space_id)
        if space is None:
            return None
        if space.index is None:
            raise RuntimeError("the space is not open")
        return space, space.index

    async def load(self) -> tuple[str, ...]:
        """As `SpaceStore.load` says, as do all of this name below."""
        if self._is_loaded:
            raise RuntimeError("spaces are loaded once")
        self._is_loaded = True
        with trio.CancelScope(shield=True):
            keys = await self._in_erasing_thread(self._keys.load)  # first of all: it finishes what was to be erased
            # Without room for it, rows that nobody can open stay until the next start.
            await self._database.commit(lambda db: rows.keep_spaces(db, keys), is_bounded=False)
            in_rows = await self._database.read(rows.file_ids)
            kept = {space_id: in_rows.get(space_id, set()) for space_id in keys}
            present = await self._in_erasing_thread(partial(self._content.sweep, kept))
            for space_id, file_ids in kept.items():
                for file_id in file_ids - present.get(space_id, set()):  # power failed, and took the content
                    remove = partial(rows.remove_file, space_id=space_id, file_id=file_id)
                    await self._database.commit(remove, is_bounded=False)
            sizes = await self._database.read(rows.sizes)
            expiries = await self._database.read(rows.next_expiries)
        for space_id, key in keys.items():
            stored_bytes = int(sizes.get(space_id, 0))
            self._spaces[space_id] = KeptSpace(key, stored_bytes, next_expiry_ms=expiries.get(space_id))
        self.stored_bytes = sum(space.stored_bytes for space in self._spaces.values())
        return tuple(sorted(keys))

    async def create(self, space_id: str) -> Refused | None:
        if check_id(space_id) in self._spaces or space_id in self._ending:
            raise RuntimeError("ids of spaces are used once")
        with trio.CancelScope(shield=True):
            try:
                key = await self._in_erasing_thread(partial(self._keys.make, space_id))
            except OSError:
                return NOT_READY
            refused = await self._database.commit(partial(rows.add_space, space_id=space_id))
            if refused is not None:
                await self._in_erasing_thread(partial(self._keys.erase, space_id))
                return refused
        self._spaces[space_id] = KeptSpace(key, index=SpaceIndex({}, {}, 0))
        return None

    async def open(self, space_id: str) -> bool:
        space = self._spaces.get(check_id(space_id))
        if space is None:
            await trio.lowlevel.checkpoint()
            return False
        async with space.opening:
            if space.index is None and not space.is_ended:
                index, prefixes = await self._database.read(partial(rows.load_index, key=space.key))
                space.index, space.prefixes = index, prefixes
        return not space.is_ended

    def release(self, space_id: str) -> bool:
        space = self._spaces.get(space_id)
        if space is None or space.index is None:
            return True
        if not space.index.is_idle:
            return False
        self._closed(space_id, space.index)
        space.next_expiry_ms = space.index.next_expiry_ms()
        space.index, space.prefixes = None, {}
        return True

    async def sweep_closed(self, space_id: str, space: KeptSpace, now_ms: int) -> rows.Swept | Refused | None:
        """Remove what has expired of a space that is not open, without opening it; None: it is open by now.

        Whoever opens it waits, so that no index has what is gone. Whoever is cancelled waits as well.
        """
        swept: rows.Swept | Refused | None = None

        def arrived(answer: rows.Swept | Refused | StoreFailedError) -> None:
            if isinstance(answer, rows.Swept) and not space.is_ended:
                space.next_expiry_ms = answer.next_expiry_ms
                self._count(space, space.stored_bytes - answer.disk_bytes)

        async with space.opening:
            if space.index is None and not space.is_ended:
                with trio.CancelScope(shield=True):
                    sweep = partial(rows.sweep, space_id=space_id, now_ms=now_ms)
                    swept = await self._database.commit(sweep, arrived)
        return swept

    def _count(self, space: KeptSpace, stored_bytes: int) -> None:
        self.stored_bytes += stored_bytes - space.stored_bytes
        space.stored_bytes = stored_bytes

    async def erase_keys(self, space_ids: Sequence[str]) -> None:
        batches = iter([space_ids[at : at + self._keys_max] for at in range(0, len(space_ids), self._keys_max)])

        async def work() -> None:
            for batch in batches:
                spaces = {space_id: self._over(space_id) for space_id in batch}
                for space_id in await self._in_erasing_thread(partial(self._keys.erase, *batch)):
                    spaces[space_id].is_keyless = True

        async with trio.open_nursery() as nursery:
            for _ in range(int(self._erasing_threads.total_tokens)):
                nursery.start_soon(work)

    async def end(self, space_id: str) -> Refused | None:
        space = self._over(space_id)
        with trio.CancelScope(shield=True):
            async with space.ending:
                refused = await self._erase(space_id, space)
        return refused

    def _over(self, space_id: str) -> KeptSpace:
        """It is unknown from here on."""
        space = self._spaces.pop(check_id(space_id), None) or self._ending.get(space_id) or KeptSpace(_NO_KEY)
        self._ending[space_id] = space
        if not space.is_ended:
            space.is_ended = True
            self.stored_bytes -= space.stored_bytes
            if space.index is not None:
                self._closed(space_id, space.index)
        return space

    async def _erase(self, space_id: str, space: KeptSpace) -> Refused | None:
        if not space.is_keyless:
            space.is_keyless = bool(await self._in_erasing_thread(partial(self._keys.erase, space_id)))
        refused = None if space.is_keyless else NOT_READY
        remove_rows = partial(rows.remove_space, space_id=space_id)
        unremoved = await self._database.commit(remove_rows, is_bounded=False)
        try:
            async with space.files:
                remove_files = partial(self._content.remove_all, space_id)
                await trio.to_thread.run_sync(remove_files, limiter=self._removing_threads)
        except OSError:
            refused = NOT_READY
        if unremoved is not None:  # perhaps there is room now
            unremoved = await self._database.commit(remove_rows, is_bounded=False)
        refused = refused or unremoved
        if refused is None:
            self._ending.pop(space_id, None)
        return refused

    async def commit(
        self,
        space: KeptSpace,
        run: Callable[[sqlite3.Connection], _T],
        arrived: Callable[[_T | Refused | StoreFailedError], None],
        size_bytes: int = 0,
    ) -> _T | Refused:
        """Write something of a space, and count what there is of it where the answer arrives."""
        index = space.index
        assert index is not None
        index.writes_under_way += 1

        def settle(answer: _T | Refused | StoreFailedError) -> None:
            index.writes_under_way -= 1
            arrived(answer)
            if not space.is_ended:
                self._count(space, index.disk_bytes)

        return await self._database.commit(run, settle, size_bytes)

    async def _in_erasing_thread(self, work: Callable[[], _T]) -> _T:
        return await trio.to_thread.run_sync(work, limiter=self._erasing_threads)
