"""The embedded store of spaces: `spaces.sqlite` and content files behind the port. The side of it that lives in trio.

    FOLDER/spaces.sqlite          rows of values, files, subscriptions: `sqlite_space_rows`
    FOLDER/spaces/<space id>/     content of files: `content_files`
    FOLDER/spaces/keys/           keys, and nowhere else: `key_files`

Writes are queued at once and committed in groups, as the log's are, by a thread of their own; sealing happens there.
Reads run on a connection of their own and do not wait for writes. Work on files runs in a few threads more.

One process at a time may have the folder: holding its lock is left to whoever opens the store, and so is the log of
what happened in a space.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import trio

from actors.log.store import StoreFailedError, UnreadableError
from actors.space import sqlite_space_rows as rows
from actors.space.content_files import ContentFiles
from actors.space.file_upload import FileUpload, KeptSpace
from actors.space.key_files import Disk, KeyFiles
from actors.space.sealing import SpaceKey
from actors.space.space_database import SpaceDatabase
from actors.space.space_index import SpaceIndex
from actors.space.store import (
    DEFAULT_LIMITS,
    NOT_FOUND,
    NOT_READY,
    OVERLOADED,
    Entry,
    KeyInfo,
    KeyPage,
    PutAnswer,
    Refused,
    SpaceStoreLimits,
    StoredFile,
    Subscription,
    Totals,
    Usage,
    Written,
    check_id,
)
from actors.space.value_cache import ValueCache

_T = TypeVar("_T")
_ERASING_THREADS_MAX = 16  # of ends under way at a time; the next one waits for one. Apart from uploads: 5 s are to do


class SqliteSpaceStore:
    """A `SpaceStore` in a folder. Made by `at`, ended by `close` or as an async context manager."""

    def __init__(self, folder: Path, connections: rows.Connections, disk: Disk, limits: SpaceStoreLimits) -> None:
        """Use `at`."""
        self._limits = limits
        self._database = SpaceDatabase(connections, limits)
        self._content = ContentFiles(folder / "spaces", disk)
        self._keys = KeyFiles(folder / "spaces" / "keys", disk)
        self._cache = ValueCache(limits.cache_bytes_max)
        self._spaces: dict[str, KeptSpace] = {}
        self._ending: dict[str, KeptSpace] = {}  # unknown already, and not erased wholly yet
        self._bytes = 0
        self._uploads: set[FileUpload] = set()
        self._uploads_beginning = 0
        self._file_threads = trio.CapacityLimiter(limits.file_threads_max)
        self._erasing_threads = trio.CapacityLimiter(_ERASING_THREADS_MAX)

    @classmethod
    async def at(
        cls, folder: Path, limits: SpaceStoreLimits = DEFAULT_LIMITS, disk: Disk | None = None
    ) -> "SqliteSpaceStore":
        """Open what is in the folder, or begin there; then `load`. The caller holds the folder's lock."""
        connections = await trio.to_thread.run_sync(rows.open_connections, folder / "spaces.sqlite")
        return cls(folder, connections, Disk() if disk is None else disk, limits)

    async def __aenter__(self) -> "SqliteSpaceStore":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ── spaces ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> tuple[str, ...]:
        with trio.CancelScope(shield=True):
            keys = await self._erasing(self._keys.load)  # first of all: it finishes what was to be erased
            # Without room for it, rows that nobody can open stay until the next start.
            await self._database.commit(lambda db: rows.keep_spaces(db, keys), is_bounded=False)
            in_rows = await self._database.read(rows.file_ids)
            kept = {space_id: in_rows.get(space_id, set()) for space_id in keys}
            present = await self._erasing(partial(self._content.sweep, kept))
            for space_id, file_ids in kept.items():
                for file_id in file_ids - present.get(space_id, set()):  # power failed, and took the content
                    remove = partial(rows.remove_file, space_id=space_id, file_id=file_id)
                    await self._database.commit(remove, is_bounded=False)
            sizes = await self._database.read(rows.sizes)
        for space_id, key in keys.items():
            self._spaces[space_id] = KeptSpace(key, int(sizes.get(space_id, 0)))
        self._bytes = sum(space.stored_bytes for space in self._spaces.values())
        return tuple(sorted(keys))

    async def create(self, space_id: str) -> Refused | None:
        if check_id(space_id) in self._spaces or space_id in self._ending:
            raise RuntimeError("ids of spaces are used once")
        with trio.CancelScope(shield=True):
            try:
                key = await self._in_thread(partial(self._keys.make, space_id))
            except OSError:
                return NOT_READY
            refused = await self._database.commit(partial(rows.add_space, space_id=space_id))
            if refused is not None:
                with suppress(OSError):
                    await self._in_thread(partial(self._keys.erase, space_id))
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
                index, prefixes = await self._database.read(partial(rows.load_index, key=_key_of(space)))
                space.index, space.prefixes = index, prefixes
        return not space.is_ended

    def release(self, space_id: str) -> bool:
        space = self._spaces.get(space_id)
        if space is None or space.index is None:
            return True
        if not space.index.is_idle:
            return False
        self._forget_values(space_id, space.index.keys)
        space.index, space.prefixes = None, {}
        return True

    async def end(self, space_id: str) -> Refused | None:
        space = self._spaces.pop(check_id(space_id), None) or self._ending.get(space_id) or KeptSpace(None)
        self._ending[space_id] = space
        if not space.is_ended:
            space.is_ended = True
            self._bytes -= space.stored_bytes
            if space.index is not None:
                self._forget_values(space_id, space.index.keys)
        with trio.CancelScope(shield=True):
            async with space.ending:
                refused = await self._erase(space_id, space)
        return refused

    async def _erase(self, space_id: str, space: KeptSpace) -> Refused | None:
        refused: Refused | None = None
        try:
            await self._erasing(partial(self._keys.erase, space_id))
        except OSError:
            refused = NOT_READY
        remove_rows = partial(rows.remove_space, space_id=space_id)
        unremoved = await self._database.commit(remove_rows, is_bounded=False)
        try:
            async with space.files:
                await self._erasing(partial(self._content.remove_all, space_id))
        except OSError:
            refused = NOT_READY
        if unremoved is not None:  # perhaps there is room now
            unremoved = await self._database.commit(remove_rows, is_bounded=False)
        refused = refused or unremoved
        if refused is None:
            self._ending.pop(space_id, None)
        return refused

    # ── for the bodies of its events ────────────────────────────────────────────────────────────────────────────────

    def seal(self, space_id: str, data: bytes) -> bytes | None:
        space = self._spaces.get(space_id)
        return None if space is None else _key_of(space).seal_event(data)

    def unseal(self, space_id: str, sealed: bytes) -> bytes | None:
        space = self._spaces.get(space_id)
        return None if space is None else _key_of(space).unseal_event(sealed)

    # ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def put(
        self,
        space_id: str,
        key: str,
        value: bytes,
        *,
        now_ms: int,
        expires_at_ms: int,
        encrypted: bool = False,
        expected_version: int | None = None,
    ) -> PutAnswer:
        found = self._find(space_id)
        if found is None:
            return await _at_once(NOT_FOUND)
        space, index = found
        keys, grown = index.growth_by(key, len(value))
        index.keys_under_way += keys
        index.kv_bytes_under_way += grown
        asked = Entry(key, value, 0, now_ms, expires_at_ms, encrypted)

        def arrived(answer: PutAnswer | StoreFailedError) -> None:
            index.keys_under_way -= keys
            index.kv_bytes_under_way -= grown
            if isinstance(answer, Written):
                index.set_key(KeyInfo(key, answer.version, len(value), expires_at_ms))
                if not space.is_ended:
                    written = Entry(key, value, answer.version, now_ms, expires_at_ms, encrypted)
                    self._cache.put(space_id, written)

        def run(db: sqlite3.Connection) -> PutAnswer:
            return rows.put(db, _key_of(space), asked, now_ms, expected_version)

        return await self._commit(space, run, arrived, len(value) + len(key))

    async def get(self, space_id: str, key: str, now_ms: int) -> Entry | None:
        found = self._find(space_id)
        info = None if found is None else found[1].live_key(key, now_ms)
        if found is None or info is None:
            await trio.lowlevel.checkpoint()
            return None
        entry = self._cache.get(space_id, key)
        if entry is not None:
            await trio.lowlevel.checkpoint()
        else:
            space, index = found
            entry = await self._database.read(partial(rows.get, key=_key_of(space), name=key))
            known = index.keys.get(key)
            if entry is not None and known is not None and known.version == entry.version and not space.is_ended:
                self._cache.put(space_id, entry)
        # It may have been written again meanwhile, or its space may have ended.
        return entry if entry is not None and entry.expires_at_ms > now_ms and space_id in self._spaces else None

    async def delete(self, space_id: str, key: str, now_ms: int) -> bool | Refused:
        found = self._find(space_id)
        if found is None:
            return await _at_once(NOT_FOUND)
        space, index = found

        def arrived(answer: bool | Refused | StoreFailedError) -> None:
            if isinstance(answer, bool):
                index.drop_key(key)
                self._cache.drop(space_id, key)

        def run(db: sqlite3.Connection) -> bool | Refused:
            return rows.delete(db, _key_of(space), key, now_ms)

        return await self._commit(space, run, arrived)

    def list_keys(self, space_id: str, now_ms: int, prefix: str = "", after: str = "", limit: int = 100) -> KeyPage:
        found = self._find(space_id)
        if found is None:
            return KeyPage((), None)
        return found[1].page(now_ms, prefix, after, max(1, min(limit, self._limits.page_keys_max)))

    async def sweep_expired(self, space_id: str, now_ms: int) -> int | Refused:
        found = self._find(space_id)
        if found is None:
            return await _at_once(NOT_FOUND)
        space, index = found

        def arrived(answer: int | Refused | StoreFailedError) -> None:
            if isinstance(answer, int):
                expired = index.expired(now_ms)
                self._forget_values(space_id, expired)
                for key in expired:
                    index.drop_key(key)

        return await self._commit(space, partial(rows.sweep, space_id=space_id, now_ms=now_ms), arrived)

    def next_expiry_ms(self, space_id: str) -> int | None:
        found = self._find(space_id)
        return None if found is None else found[1].next_expiry_ms()

    # ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin_file(self, space_id: str, file_id: str, name: str, content_type: str) -> FileUpload | Refused:
        check_id(file_id)
        found = self._find(space_id)
        if found is None:
            return await _at_once(NOT_FOUND)
        if len(self._uploads) + self._uploads_beginning >= self._limits.uploads_max:
            return await _at_once(OVERLOADED)
        space, _ = found
        key, draft = _key_of(space), StoredFile(file_id, name, content_type, 0, "", 0)
        await trio.lowlevel.checkpoint()
        self._uploads_beginning += 1
        try:
            with trio.CancelScope(shield=True):
                async with space.files:
                    if space.is_ended:
                        return NOT_FOUND
                    content = await self._in_thread(partial(self._content.begin, key, file_id))
        except OSError:
            return NOT_READY
        finally:
            self._uploads_beginning -= 1
        upload = FileUpload(
            space,
            content,
            draft,
            self._limits.upload_buffer_bytes_max,
            self._in_thread,
            partial(self._publish, space),
            self._uploads.discard,
        )
        self._uploads.add(upload)
        return upload

    async def _publish(self, space: KeptSpace, row: rows.FileRow) -> StoredFile | Refused:
        def arrived(answer: StoredFile | Refused | StoreFailedError) -> None:
            if isinstance(answer, StoredFile) and space.index is not None:
                space.index.add_file(answer)
                space.prefixes[answer.file_id] = row.prefix

        return await self._commit(space, partial(rows.add_file, key=_key_of(space), row=row), arrived)

    def file(self, space_id: str, file_id: str) -> StoredFile | None:
        found = self._find(space_id)
        return None if found is None else found[1].files.get(file_id)

    def list_files(self, space_id: str) -> tuple[StoredFile, ...]:
        found = self._find(space_id)
        return () if found is None else tuple(file for _, file in sorted(found[1].files.items()))

    async def read_file(self, space_id: str, file_id: str, start: int, length: int) -> bytes | None:
        found, file = self._find(space_id), self.file(space_id, file_id)
        if found is None or file is None:
            await trio.lowlevel.checkpoint()
            return None
        space, _ = found
        bounded = min(length, self._limits.read_bytes_max)
        read = partial(self._content.read, _key_of(space), file_id, space.prefixes[file_id], file.size, start, bounded)
        try:
            data = await self._in_thread(read)
        except UnreadableError:
            if self.file(space_id, file_id) is not None:
                raise
            return None  # removed meanwhile
        return None if space.is_ended else data

    async def delete_file(self, space_id: str, file_id: str) -> bool | Refused:
        check_id(file_id)
        found = self._find(space_id)
        if found is None:
            return await _at_once(NOT_FOUND)
        space, index = found

        def arrived(answer: bool | Refused | StoreFailedError) -> None:
            if isinstance(answer, bool):
                index.drop_file(file_id)
                space.prefixes.pop(file_id, None)

        await trio.lowlevel.checkpoint()
        with trio.CancelScope(shield=True):
            answer = await self._commit(space, partial(rows.remove_file, space_id=space_id, file_id=file_id), arrived)
            if answer is True:
                # What cannot be unlinked now has no row, and goes at the next start.
                with suppress(OSError):
                    async with space.files:
                        await self._in_thread(partial(self._content.remove, space_id, file_id))
        return answer

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────

    async def put_subscription(self, space_id: str, endpoint: str, data: bytes) -> bool | Refused:
        found = self._find(space_id)
        if found is None:
            return await _at_once(NOT_FOUND)
        space, index = found
        index.subscriptions_under_way += 1

        def arrived(answer: bool | Refused | StoreFailedError) -> None:
            index.subscriptions_under_way -= 1
            index.subscriptions += answer is True

        def run(db: sqlite3.Connection) -> bool | Refused:
            return rows.put_subscription(db, _key_of(space), endpoint, data)

        return await self._commit(space, run, arrived, len(endpoint) + len(data))

    async def subscriptions(self, space_id: str) -> tuple[Subscription, ...]:
        found = self._find(space_id)
        if found is None:
            await trio.lowlevel.checkpoint()
            return ()
        return await self._database.read(partial(rows.subscriptions, key=_key_of(found[0])))

    async def delete_subscription(self, space_id: str, endpoint: str) -> bool | Refused:
        found = self._find(space_id)
        if found is None:
            return await _at_once(NOT_FOUND)
        space, index = found

        def arrived(answer: bool | Refused | StoreFailedError) -> None:
            index.subscriptions -= answer is True

        def run(db: sqlite3.Connection) -> bool:
            return rows.delete_subscription(db, _key_of(space), endpoint)

        return await self._commit(space, run, arrived)

    # ── counting ────────────────────────────────────────────────────────────────────────────────────────────────────

    def usage(self, space_id: str) -> Usage:
        found = self._find(space_id)
        return Usage() if found is None else found[1].usage

    def totals(self) -> Totals:
        return Totals(len(self._spaces), self._bytes, self._content.free_ratio())

    def _find(self, space_id: str) -> tuple[KeptSpace, SpaceIndex] | None:
        space = self._spaces.get(space_id)
        if space is None:
            return None
        if space.index is None:
            raise RuntimeError("the space is not open")
        return space, space.index

    def _forget_values(self, space_id: str, keys: Sequence[str] | dict[str, KeyInfo]) -> None:
        for key in keys:
            self._cache.drop(space_id, key)

    # ── threads ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _commit(
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
                stored_bytes = index.kv_bytes + index.file_bytes
                self._bytes += stored_bytes - space.stored_bytes
                space.stored_bytes = stored_bytes

        return await self._database.commit(run, settle, size_bytes)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await trio.to_thread.run_sync(work, limiter=self._file_threads)

    async def _erasing(self, work: Callable[[], _T]) -> _T:
        return await trio.to_thread.run_sync(work, limiter=self._erasing_threads)

    # ── ending ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def watch(self) -> None:
        await self._database.watch()

    async def close(self) -> None:
        """Raises `StoreFailedError` if the last writes failed; the files are let go of in any case."""
        with trio.CancelScope(shield=True):
            for upload in list(self._uploads):
                await upload.abort()
        await self._database.close()


def _key_of(space: KeptSpace) -> SpaceKey:
    assert space.key is not None
    return space.key


async def _at_once(refused: Refused) -> Refused:
    await trio.lowlevel.checkpoint()
    return refused
