"""The spaces' port in memory: the same answers as the embedded store, no threads. For simulations and tests.

`MemorySpaceDisk` is what survives; a `MemorySpaceStore` is one process's access to it. `disk.is_full` refuses every
write while reads go on. A write happens where it is asked for and is answered after a checkpoint, so that a cancelled
caller has written, as with real files. Nothing is sealed here but what `seal` is asked for.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import trio

from actors.space.sealing import KEY_BYTES, SpaceKey
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
    VersionConflict,
    Written,
    check_id,
    check_text,
)

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Kept:
    key: SpaceKey
    version: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    files: dict[str, tuple[StoredFile, bytes]] = field(default_factory=dict)
    subscriptions: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class MemorySpaceDisk:
    """What is left when a process dies."""

    is_full: bool = False
    spaces: dict[str, _Kept] = field(default_factory=dict)


class MemorySpaceStore:
    """A `SpaceStore` over a `MemorySpaceDisk`."""

    def __init__(self, disk: MemorySpaceDisk | None = None, limits: SpaceStoreLimits = DEFAULT_LIMITS) -> None:
        self.disk = MemorySpaceDisk() if disk is None else disk
        self._limits = limits
        self._open: dict[str, SpaceIndex] = {}
        self._uploads: set[MemoryUpload] = set()
        self._unanswered = 0
        self._is_closed = False
        self._ended = trio.Event()

    async def __aenter__(self) -> "MemorySpaceStore":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ── spaces ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> tuple[str, ...]:
        await trio.lowlevel.checkpoint()
        return self.space_ids()

    def space_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self.disk.spaces))

    async def create(self, space_id: str) -> Refused | None:
        if check_id(space_id) in self.disk.spaces:
            raise RuntimeError("ids of spaces are used once")
        refused = self._refusal()
        if refused is None:
            self.disk.spaces[space_id] = _Kept(SpaceKey(space_id, os.urandom(KEY_BYTES)))
            self._open[space_id] = SpaceIndex({}, {}, 0)
        return await self._answer(refused)

    async def open(self, space_id: str) -> bool:
        await trio.lowlevel.checkpoint()
        kept = self.disk.spaces.get(check_id(space_id))
        if kept is not None and space_id not in self._open:
            keys = {key: _info_of(entry) for key, entry in kept.entries.items()}
            files = {file_id: file for file_id, (file, _) in kept.files.items()}
            self._open[space_id] = SpaceIndex(keys, files, len(kept.subscriptions))
        return kept is not None

    def release(self, space_id: str) -> bool:
        if space_id in self._open and not self._open[space_id].is_idle:
            return False
        self._open.pop(space_id, None)
        return True

    async def erase_keys(self, space_ids: Sequence[str]) -> None:
        for space_id in space_ids:
            self._over(space_id)
        await trio.lowlevel.checkpoint()

    async def end(self, space_id: str) -> Refused | None:
        self._over(space_id)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return None

    def _over(self, space_id: str) -> None:
        self.disk.spaces.pop(check_id(space_id), None)
        self._open.pop(space_id, None)

    def seal(self, space_id: str, data: bytes) -> bytes | None:
        kept = self.disk.spaces.get(space_id)
        return None if kept is None else kept.key.seal_event(data)

    def unseal(self, space_id: str, sealed: bytes) -> bytes | None:
        kept = self.disk.spaces.get(space_id)
        return None if kept is None else kept.key.unseal_event(sealed)

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
        asked = Entry(key, value, 0, now_ms, expires_at_ms, encrypted)
        return await self._answer(self._put(space_id, asked, expected_version))

    def _put(self, space_id: str, asked: Entry, expected_version: int | None) -> PutAnswer:
        found = self._find(space_id)
        refused = self._refusal(found)
        if refused is not None or found is None:
            return refused or NOT_FOUND
        kept, index = found
        known = index.live_key(asked.key, asked.updated_at_ms)
        actual = 0 if known is None else known.version
        if expected_version is not None and expected_version != actual:
            return VersionConflict(actual)
        kept.version += 1
        entry = msgspec.structs.replace(asked, version=kept.version)
        kept.entries[asked.key] = entry
        index.set_key(_info_of(entry))
        return Written(kept.version, is_new=actual == 0)

    async def get(self, space_id: str, key: str, now_ms: int) -> Entry | None:
        found = self._find(space_id)
        await trio.lowlevel.checkpoint()
        if found is None or space_id not in self.disk.spaces or found[1].live_key(key, now_ms) is None:
            return None
        return found[0].entries[key]

    async def delete(self, space_id: str, key: str, now_ms: int, expected_version: int | None = None) -> DeleteAnswer:
        check_text(key)
        found = self._find(space_id)
        refused = self._refusal(found)
        if refused is not None or found is None:
            return await self._answer(refused or NOT_FOUND)
        kept, index = found
        known = index.live_key(key, now_ms)
        if known is not None and expected_version not in (None, known.version):
            return await self._answer(VersionConflict(known.version))
        kept.entries.pop(key, None)
        index.drop_key(key)
        return await self._answer(known is not None)

    def key_info(self, space_id: str, key: str) -> KeyInfo | None:
        found = self._find(space_id)
        return None if found is None else found[1].keys.get(key)

    def list_keys(self, space_id: str, now_ms: int, prefix: str = "", after: str = "", limit: int = 100) -> KeyPage:
        found = self._find(space_id)
        if found is None:
            return KeyPage((), None)
        return found[1].page(now_ms, prefix, after, max(1, min(limit, self._limits.page_keys_max)))

    async def sweep_expired(self, space_id: str, now_ms: int) -> int | Refused:
        kept = self.disk.spaces.get(space_id)
        refused = self._refusal(kept)
        if refused is not None or kept is None:
            return await self._answer(refused or NOT_FOUND)
        expired = [key for key, entry in kept.entries.items() if entry.expires_at_ms <= now_ms]
        for key in expired:
            del kept.entries[key]
            if space_id in self._open:
                self._open[space_id].drop_key(key)
        return await self._answer(len(expired))

    def next_expiry_ms(self, space_id: str) -> int | None:
        kept = self.disk.spaces.get(space_id)
        entries = () if kept is None else kept.entries.values()
        return min((entry.expires_at_ms for entry in entries), default=None)

    # ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin_file(self, space_id: str, file_id: str, name: str, content_type: str) -> "MemoryUpload | Refused":
        check_id(file_id)
        check_text(name, content_type)
        begun = self._begin_file(self._find(space_id), StoredFile(file_id, name, content_type, 0, "", 0))
        await trio.lowlevel.cancel_shielded_checkpoint()
        return begun

    def _begin_file(self, found: "tuple[_Kept, SpaceIndex] | None", draft: StoredFile) -> "MemoryUpload | Refused":
        refused = self._refusal(found)
        if refused is not None or found is None:
            return refused or NOT_FOUND
        if len(self._uploads) >= self._limits.uploads_max:
            return OVERLOADED
        if draft.file_id in found[1].files:
            raise RuntimeError("ids of files are used once")
        upload = MemoryUpload(self.disk, *found, draft, self._uploads)
        self._uploads.add(upload)
        return upload

    def file(self, space_id: str, file_id: str) -> StoredFile | None:
        found = self._find(space_id)
        return None if found is None else found[1].files.get(file_id)

    def list_files(self, space_id: str) -> tuple[StoredFile, ...]:
        found = self._find(space_id)
        return () if found is None else tuple(file for _, file in sorted(found[1].files.items()))

    async def read_file(self, space_id: str, file_id: str, start: int, length: int) -> bytes | None:
        found = self._find(space_id)
        await trio.lowlevel.checkpoint()
        if found is None or space_id not in self.disk.spaces or file_id not in found[0].files:
            return None
        return found[0].files[file_id][1][start : start + min(length, self._limits.read_bytes_max)]

    async def delete_file(self, space_id: str, file_id: str) -> bool | Refused:
        check_id(file_id)
        found = self._find(space_id)
        refused = self._refusal(found)
        if refused is not None or found is None:
            return await self._answer(refused or NOT_FOUND)
        found[1].drop_file(file_id)
        return await self._answer(found[0].files.pop(file_id, None) is not None)

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────

    async def put_subscription(self, space_id: str, endpoint: str, data: bytes) -> bool | Refused:
        check_text(endpoint)
        found = self._find(space_id)
        refused = self._refusal(found)
        if refused is not None or found is None:
            return await self._answer(refused or NOT_FOUND)
        kept, index = found
        is_new = endpoint not in kept.subscriptions
        kept.subscriptions[endpoint] = data
        index.subscriptions = len(kept.subscriptions)
        return await self._answer(is_new)

    async def subscriptions(self, space_id: str) -> tuple[Subscription, ...]:
        found = self._find(space_id)
        await trio.lowlevel.checkpoint()
        return () if found is None else tuple(Subscription(*each) for each in sorted(found[0].subscriptions.items()))

    async def delete_subscription(self, space_id: str, endpoint: str) -> bool | Refused:
        check_text(endpoint)
        found = self._find(space_id)
        refused = self._refusal(found)
        if refused is not None or found is None:
            return await self._answer(refused or NOT_FOUND)
        kept, index = found
        was_there = kept.subscriptions.pop(endpoint, None) is not None
        index.subscriptions = len(kept.subscriptions)
        return await self._answer(was_there)

    # ── counting, ending ────────────────────────────────────────────────────────────────────────────────────────────

    def usage(self, space_id: str) -> Usage:
        found = self._find(space_id)
        return Usage() if found is None else found[1].usage

    async def usages(self, space_ids: Sequence[str]) -> dict[str, Usage]:
        await trio.lowlevel.checkpoint()
        return {space_id: self._usage(space_id) for space_id in space_ids if space_id in self.disk.spaces}

    def _usage(self, space_id: str) -> Usage:
        if space_id in self._open:
            return self._open[space_id].usage
        kept = self.disk.spaces[space_id]
        values, files = kept.entries.values(), kept.files.values()
        kv_bytes, file_bytes = sum(len(entry.value) for entry in values), sum(file.size for file, _ in files)
        return Usage(len(values), kv_bytes, len(files), file_bytes, len(kept.subscriptions))

    def totals(self) -> Totals:
        spaces = self.disk.spaces.values()
        values = [len(entry.value) + VALUE_OVERHEAD_BYTES for kept in spaces for entry in kept.entries.values()]
        files = [file.size + FILE_OVERHEAD_BYTES for kept in spaces for file, _ in kept.files.values()]
        coming = [upload.size + FILE_OVERHEAD_BYTES for upload in self._uploads]
        return Totals(len(spaces), sum(values) + sum(files) + sum(coming))

    def disk_free_ratio(self) -> float:
        return 0.0 if self.disk.is_full else 1.0

    async def takes_writes(self) -> bool:
        if self._is_closed:
            raise trio.ClosedResourceError("the store of spaces is closed")
        return await self._answer(not self.disk.is_full)

    async def watch(self) -> None:
        await self._ended.wait()

    async def close(self) -> None:
        self._is_closed = True
        self._ended.set()
        for upload in list(self._uploads):
            await upload.abort()
        await trio.lowlevel.cancel_shielded_checkpoint()

    def _find(self, space_id: str) -> tuple[_Kept, SpaceIndex] | None:
        kept = self.disk.spaces.get(space_id)
        if kept is None:
            return None
        if space_id not in self._open:
            raise RuntimeError("the space is not open")
        return kept, self._open[space_id]

    def _refusal(self, found: object = ...) -> Refused | None:
        if self._is_closed:
            raise trio.ClosedResourceError("the store of spaces is closed")
        if found is None:
            return NOT_FOUND
        if self._unanswered >= self._limits.queue_writes_max:
            return OVERLOADED
        return NOT_READY if self.disk.is_full else None

    async def _answer(self, answer: _T) -> _T:
        self._unanswered += 1
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._unanswered -= 1
        return answer


class MemoryUpload:
    """An `Upload` that gathers what comes."""

    def __init__(
        self, disk: MemorySpaceDisk, kept: _Kept, index: SpaceIndex, draft: StoredFile, uploads: "set[MemoryUpload]"
    ) -> None:
        self._disk = disk
        self._kept = kept
        self._index = index
        self._draft = draft
        self._uploads = uploads
        self._data = b""
        self._is_over = False
        self._ended_by: Refused | None = None
        index.uploads += 1

    @property
    def file_id(self) -> str:
        return self._draft.file_id

    @property
    def size(self) -> int:
        return len(self._data)

    async def __aenter__(self) -> "MemoryUpload":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.abort()

    async def append(self, data: bytes) -> Refused | None:
        refused = self._refusal()
        if refused is None:
            self._data += data
            self._index.upload_bytes += len(data)
        await trio.lowlevel.checkpoint()
        return refused

    async def finish(self, now_ms: int) -> StoredFile | Refused:
        await trio.lowlevel.cancel_shielded_checkpoint()
        refused = self._refusal()
        if refused is not None:
            return refused
        self._end()
        digest = hashlib.sha256(self._data).hexdigest()
        draft = self._draft
        file = StoredFile(draft.file_id, draft.name, draft.content_type, self.size, digest, now_ms)
        self._kept.files[file.file_id] = (file, self._data)
        self._index.add_file(file)
        return file

    async def abort(self) -> None:
        self._end()
        await trio.lowlevel.cancel_shielded_checkpoint()

    def _refusal(self) -> Refused | None:
        if self._kept.key.space_id not in self._disk.spaces:
            self._end()
            return NOT_FOUND
        if self._disk.is_full and not self._is_over:
            self._ended_by = NOT_READY
            self._end()
        if self._is_over and self._ended_by is None:
            raise RuntimeError("the upload is over")
        return self._ended_by

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._index.uploads -= 1
            self._index.upload_bytes -= len(self._data)
            self._uploads.discard(self)


def _info_of(entry: Entry) -> KeyInfo:
    return KeyInfo(entry.key, entry.version, len(entry.value), entry.expires_at_ms)
