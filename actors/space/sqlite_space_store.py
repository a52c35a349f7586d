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
from actors.space.file_upload import FileUpload
from actors.space.kept_spaces import KeptSpace, KeptSpaces
from actors.space.key_files import Disk, KeyFiles
from actors.space.space_database import SpaceDatabase
from actors.space.space_index import SpaceIndex
from actors.space.store import (
    DEFAULT_LIMITS,
    FILE_OVERHEAD_BYTES,
    NOT_FOUND,
    NOT_READY,
    OVERLOADED,
    VALUE_OVERHEAD_BYTES,
    DeleteAnswer,
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
    check_text,
)
from actors.space.value_cache import ValueCache

DATABASE = "spaces.sqlite"
_T = TypeVar("_T")
_COUNTED_AT_ONCE = 16  # closed spaces; other reads have their turn in between


class SqliteSpaceStore:
    """A `SpaceStore` in a folder. Made by `at`, ended by `close` or as an async context manager."""

    def __init__(self, folder: Path, connections: rows.Connections, disk: Disk, limits: SpaceStoreLimits) -> None:
        """Use `at`."""
        self._limits = limits
        self._database = SpaceDatabase(connections, limits)
        self._content = ContentFiles(folder / "spaces", disk)
        self._cache = ValueCache(limits.cache_bytes_max)
        keys = KeyFiles(folder / "spaces" / "keys", disk)
        self._spaces = KeptSpaces(self._database, self._content, keys, self._forget_values, limits)
        self._uploads: set[FileUpload] = set()
        self._uploads_beginning = 0
        self._file_threads = trio.CapacityLimiter(limits.file_threads_max)

    @classmethod
    async def at(
        cls, folder: Path, limits: SpaceStoreLimits = DEFAULT_LIMITS, disk: Disk | None = None
    ) -> "SqliteSpaceStore":
        """Open what is in the folder, or begin there; then `load`. The caller holds the folder's lock."""
        connections = await trio.to_thread.run_sync(rows.open_connections, folder / DATABASE)
        return cls(folder, connections, Disk() if disk is None else disk, limits)

    async def __aenter__(self) -> "SqliteSpaceStore":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ── spaces: see `kept_spaces` ───────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> tuple[str, ...]:
        return await self._spaces.load()

    def space_ids(self) -> tuple[str, ...]:
        return self._spaces.ids()

    async def create(self, space_id: str) -> Refused | None:
        return await self._spaces.create(space_id)

    async def open(self, space_id: str) -> bool:
        return await self._spaces.open(space_id)

    def release(self, space_id: str) -> bool:
        return self._spaces.release(space_id)

    async def erase_keys(self, space_ids: Sequence[str]) -> None:
        await self._spaces.erase_keys(space_ids)

    async def end(self, space_id: str) -> Refused | None:
        return await self._spaces.end(space_id)

    # ── for the bodies of its events ────────────────────────────────────────────────────────────────────────────────

    def seal(self, space_id: str, data: bytes) -> bytes | None:
        space = self._spaces.get(space_id)
        return None if space is None else space.key.seal_event(data)

    def unseal(self, space_id: str, sealed: bytes) -> bytes | None:
        space = self._spaces.get(space_id)
        return None if space is None else space.key.unseal_event(sealed)

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
        check_text(key)
        found = self._spaces.find(space_id)
        if found is None:
            return await _at_once(NOT_FOUND)
        space, index = found
        keys, grown = index.growth_by(key, len(value))
        grown_on_disk = grown + keys * VALUE_OVERHEAD_BYTES
        index.keys_under_way += keys
        index.kv_bytes_under_way += grown
        self._spaces.count_under_way(grown_on_disk)
        asked = Entry(key, value, 0, now_ms, expires_at_ms, encrypted)

        def arrived(answer: PutAnswer | StoreFailedError) -> None:
            index.keys_under_way -= keys
            index.kv_bytes_under_way -= grown
            self._spaces.count_under_way(-grown_on_disk)
            if isinstance(answer, Written):
                index.set_key(KeyInfo(key, answer.version, len(value), expires_at_ms))
                if not space.is_ended:
                    written = Entry(key, value, answer.version, now_ms, expires_at_ms, encrypted)
                    self._cache.put(space_id, written)

        def run(db: sqlite3.Connection) -> PutAnswer:
            return rows.put(db, space.key, asked, now_ms, expected_version)

        return await self._spaces.commit(space, run, arrived, len(value) + len(key))

    async def get(self, space_id: str, key: str, now_ms: int) -> Entry | None:
        found = self._spaces.find(space_id)
        info = None if found is None else found[1].live_key(key, now_ms)
        if found is None or info is None:
            await trio.lowlevel.checkpoint()
            return None
        entry = self._cache.get(space_id, key)
        if entry is not None:
            await trio.lowlevel.checkpoint()
        else:
            space, index = found
            entry = await self._database.read(partial(rows.get, key=space.key, name=key))
            if space.is_ended:
                return None
            known = index.keys.get(key)
            if entry is not None and known is not None and known.version == entry.version and space.index is index:
                self._cache.put(space_id, entry)
        # It may have been written again meanwhile.
        return entry if entry is not None and entry.expires_at_ms > now_ms else None

    async def delete(self, space_id: str, key: str, now_ms: int, expected_version: int | None = None) -> DeleteAnswer:
        check_text(key)
        found = self._spaces.find(space_id)
        if found is None:
            return await _at_once(NOT_FOUND)
        space, index = found

        def arrived(answer: DeleteAnswer | StoreFailedError) -> None:
            if isinstance(answer, bool):
                index.drop_key(key)
                self._cache.drop(space_id, key)

        def run(db: sqlite3.Connection) -> DeleteAnswer:
            return rows.delete(db, space.key, key, now_ms, expected_version)

        return await self._spaces.commit(space, run, arrived)

    def key_info(self, space_id: str, key: str) -> KeyInfo | None:
        found = self._spaces.find(space_id)
        return None if found is None else found[1].keys.get(key)

    def list_keys(self, space_id: str, now_ms: int, prefix: str = "", after: str = "", limit: int = 100) -> KeyPage:
        found = self._spaces.find(space_id)
        if found is None:
            return KeyPage((), None)
        return found[1].page(now_ms, prefix, after, max(1, min(limit, self._limits.page_keys_max)))

    async def sweep_expired(self, space_id: str, now_ms: int) -> int | Refused:
        space = self._spaces.get(space_id)
        if space is None:
            return await _at_once(NOT_FOUND)
        if space.index is None:
            swept = await self._spaces.sweep_closed(space_id, space, now_ms)
            if swept is not None:
                return swept.keys if isinstance(swept, rows.Swept) else swept
        index = space.index
        if index is None:  # over meanwhile
            return NOT_FOUND

        def arrived(answer: rows.Swept | Refused | StoreFailedError) -> None:
            if isinstance(answer, rows.Swept):
                for key in index.expired(now_ms):
                    index.drop_key(key)
                    self._cache.drop(space_id, key)

        swept = await self._spaces.commit(space, partial(rows.sweep, space_id=space_id, now_ms=now_ms), arrived)
        return swept.keys if isinstance(swept, rows.Swept) else swept

    def next_expiry_ms(self, space_id: str) -> int | None:
        space = self._spaces.get(space_id)
        if space is None:
            return None
        return space.next_expiry_ms if space.index is None else space.index.next_expiry_ms()

    # ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin_file(self, space_id: str, file_id: str, name: str, content_type: str) -> FileUpload | Refused:
        check_id(file_id)
        check_text(name, content_type)
        found = self._spaces.find(space_id)
        if found is None:
            return await _at_once(NOT_FOUND)
        if len(self._uploads) + self._uploads_beginning >= self._limits.uploads_max:
            return await _at_once(OVERLOADED)
        space, index = found
        if file_id in index.files:
            raise RuntimeError("ids of files are used once")
        draft = StoredFile(file_id, name, content_type, 0, "", 0)
        self._uploads_beginning += 1
        index.uploads += 1
        self._spaces.count_under_way(FILE_OVERHEAD_BYTES)
        upload: FileUpload | None = None
        try:
            with trio.CancelScope(shield=True):
                async with space.files:
                    if space.is_ended:
                        return NOT_FOUND
                    content = await self._in_thread(partial(self._content.begin, space.key, file_id))
            upload = FileUpload(
                space,
                content,
                draft,
                self._limits.upload_buffer_bytes_max,
                self._in_thread,
                partial(self._publish, space),
                self._spaces.count_under_way,
                self._uploads.discard,
            )
        except OSError:
            return NOT_READY
        finally:
            self._uploads_beginning -= 1
            if upload is None:
                index.uploads -= 1
                self._spaces.count_under_way(-FILE_OVERHEAD_BYTES)
        self._uploads.add(upload)
        return upload

    async def _publish(self, space: KeptSpace, row: rows.FileRow) -> StoredFile | Refused:
        def arrived(answer: StoredFile | Refused | StoreFailedError) -> None:
            if isinstance(answer, StoredFile) and space.index is not None:
                space.index.add_file(answer)
                space.prefixes[answer.file_id] = row.prefix

        return await self._spaces.commit(space, partial(rows.add_file, key=space.key, row=row), arrived)

    def file(self, space_id: str, file_id: str) -> StoredFile | None:
        found = self._spaces.find(space_id)
        return None if found is None else found[1].files.get(file_id)

    def list_files(self, space_id: str) -> tuple[StoredFile, ...]:
        found = self._spaces.find(space_id)
        return () if found is None else tuple(file for _, file in sorted(found[1].files.items()))

    async def read_file(self, space_id: str, file_id: str, start: int, length: int) -> bytes | None:
        found, file = self._spaces.find(space_id), self.file(space_id, file_id)
        if found is None or file is None:
            await trio.lowlevel.checkpoint()
            return None
        space, _ = found
        bounded = min(length, self._limits.read_bytes_max)
        read = partial(self._content.read, space.key, file_id, space.prefixes[file_id], file.size, start, bounded)
        try:
            data = await self._in_thread(read)
        except UnreadableError:
            if space.index is not None and file_id in space.index.files and not space.is_ended:
                raise
            return None  # removed meanwhile, perhaps after the space was let go of
        return None if space.is_ended else data

    async def delete_file(self, space_id: str, file_id: str) -> bool | Refused:
        check_id(file_id)
        found = self._spaces.find(space_id)
        if found is None:
            return await _at_once(NOT_FOUND)
        space, index = found

        def arrived(answer: bool | Refused | StoreFailedError) -> None:
            if isinstance(answer, bool):
                index.drop_file(file_id)
                space.prefixes.pop(file_id, None)

        # Nothing is waited for before this: meanwhile the space might be let go of.
        with trio.CancelScope(shield=True):
            answer = await self._spaces.commit(
                space, partial(rows.remove_file, space_id=space_id, file_id=file_id), arrived
            )
            if answer is True:
                # What cannot be unlinked now has no row, and goes at the next start.
                with suppress(OSError):
                    async with space.files:
                        await self._in_thread(partial(self._content.remove, space_id, file_id))
        return answer

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────

    async def put_subscription(self, space_id: str, endpoint: str, data: bytes) -> bool | Refused:
        check_text(endpoint)
        found = self._spaces.find(space_id)
        if found is None:
            return await _at_once(NOT_FOUND)
        space, index = found
        index.subscriptions_under_way += 1

        def arrived(answer: bool | Refused | StoreFailedError) -> None:
            index.subscriptions_under_way -= 1
            index.subscriptions += answer is True

        def run(db: sqlite3.Connection) -> bool | Refused:
            return rows.put_subscription(db, space.key, endpoint, data)

        return await self._spaces.commit(space, run, arrived, len(endpoint) + len(data))

    async def subscriptions(self, space_id: str) -> tuple[Subscription, ...]:
        found = self._spaces.find(space_id)
        if found is None:
            await trio.lowlevel.checkpoint()
            return ()
        return await self._database.read(partial(rows.subscriptions, key=found[0].key))

    async def delete_subscription(self, space_id: str, endpoint: str) -> bool | Refused:
        check_text(endpoint)
        found = self._spaces.find(space_id)
        if found is None:
            return await _at_once(NOT_FOUND)
        space, index = found

        def arrived(answer: bool | Refused | StoreFailedError) -> None:
            index.subscriptions -= answer is True

        def run(db: sqlite3.Connection) -> bool:
            return rows.delete_subscription(db, space.key, endpoint)

        return await self._spaces.commit(space, run, arrived)

    # ── counting ────────────────────────────────────────────────────────────────────────────────────────────────────

    def usage(self, space_id: str) -> Usage:
        found = self._spaces.find(space_id)
        return Usage() if found is None else found[1].usage

    async def usages(self, space_ids: Sequence[str]) -> dict[str, Usage]:
        await trio.lowlevel.checkpoint()
        there = {space_id: space for space_id in space_ids if (space := self._spaces.get(space_id)) is not None}
        closed = [space_id for space_id, space in there.items() if space.index is None]
        usages: dict[str, Usage] = {}
        for first in range(0, len(closed), _COUNTED_AT_ONCE):
            some = closed[first : first + _COUNTED_AT_ONCE]
            usages |= await self._database.read(partial(rows.usages, space_ids=some))
        return usages | {space_id: space.index.usage for space_id, space in there.items() if space.index is not None}

    def totals(self) -> Totals:
        return Totals(len(self._spaces), self._spaces.stored_bytes + self._spaces.bytes_under_way)

    def disk_free_ratio(self) -> float:
        return self._content.free_ratio()

    async def takes_writes(self) -> bool:
        try:
            return await self._database.commit(rows.touch, is_bounded=False) is True
        except StoreFailedError:
            return False

    def _forget_values(self, space_id: str, index: SpaceIndex) -> None:
        for key in index.keys:
            self._cache.drop(space_id, key)

    # ── threads ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await trio.to_thread.run_sync(work, limiter=self._file_threads)

    # ── ending ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def watch(self) -> None:
        await self._database.watch()

    async def close(self) -> None:
        """Raises `StoreFailedError` if the last writes failed; the files are let go of in any case."""
        with trio.CancelScope(shield=True):
            for upload in list(self._uploads):
                await upload.abort()
        await self._database.close()


async def _at_once(refused: Refused) -> Refused:
    await trio.lowlevel.checkpoint()
    return refused
