"""The port behind which a space keeps its values, files and subscriptions, sealed under a key of its own.

A space is there as long as its key is. `end` erases the key before anything else, so that what is left of the space
anywhere is noise; then it removes the rest. While a space is open, its *index* (names, sizes, versions, ends) is in
memory, so that listing, counting and looking up a file wait for nobody.

Writes are taken, and answered, in the order of the calls. A cancelled caller only stops waiting: what it asked for is
done wholly or not at all, and the index follows where the answer arrives, not where the caller resumes. A full disk, a
full queue and a space that is no more are answers (`Refused`). `StoreFailedError` is none: the process has to stop.
`UnreadableError` is the trouble of whoever asked: what lies on the disk is not what was written.

How large anything may be, how many there may be and how long they last is decided by rules elsewhere, with `usage`. A
store counts what is under way too, so that tasks which ask at the same time cannot pass a limit together. It enforces
only its own bounds, `SpaceStoreLimits`.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

_ID = re.compile(r"[0-9a-hjkmnp-tv-z]{26}", re.ASCII)


class SpaceStoreLimits(msgspec.Struct, frozen=True):
    """Every bound of the store in one place, each with what happens when it is reached."""

    queue_writes_max: int = 4_096  # unanswered writes; the next one is Refused(OVERLOADED)
    queue_bytes_max: int = 64 * 1024 * 1024  # bytes in unanswered writes; the next one is Refused(OVERLOADED)
    batch_writes_max: int = 256  # writes in one transaction; the rest wait for the next
    wal_bytes_max: int = 16 * 1024 * 1024  # written (as estimated) since the last checkpoint; then there is one
    uploads_max: int = 64  # unfinished at a time, of all spaces; the next one is Refused(OVERLOADED)
    upload_buffer_bytes_max: int = 256 * 1024  # held of an upload; then they are sealed and written
    read_bytes_max: int = 256 * 1024  # of a file in one answer; ask again from there
    page_keys_max: int = 1_000  # in one answer of `list_keys`; ask again after the last
    file_threads_max: int = 4  # that seal, write or read files at a time; the next piece waits for one
    erasing_threads_max: int = 32  # that make and erase keys, which has to be done in 5 s; the next batch waits
    erasing_batch_max: int = 64  # keys that are erased together, with one sync of their folder
    removing_threads_max: int = 4  # that remove files of spaces whose keys are gone; the next space waits
    cache_bytes_max: int = 32 * 1024 * 1024  # of values held in memory, with overhead; the least recently used go


DEFAULT_LIMITS = SpaceStoreLimits()

# What one takes besides its bytes: a row and a sealed name; a block of the disk and an inode. They count where room of
# the disk or of memory is bounded, so that many empty ones are not free; not in `Usage`.
VALUE_OVERHEAD_BYTES = 512
FILE_OVERHEAD_BYTES = 4_096


class Refusal(StrEnum):
    """Why nothing was written, in the words of Echo's errors."""

    STORAGE_NOT_READY = "storage_not_ready"
    OVERLOADED = "overloaded"
    SPACE_NOT_FOUND = "space_not_found"


class Refused(msgspec.Struct, frozen=True):
    """Nothing of this was written, for certain."""

    reason: Refusal


NOT_READY = Refused(Refusal.STORAGE_NOT_READY)
OVERLOADED = Refused(Refusal.OVERLOADED)
NOT_FOUND = Refused(Refusal.SPACE_NOT_FOUND)


class Entry(msgspec.Struct, frozen=True):
    """A key with its value. It is unknown from `expires_at_ms` on."""

    key: str
    value: bytes
    version: int
    updated_at_ms: int
    expires_at_ms: int
    encrypted: bool


class KeyInfo(msgspec.Struct, frozen=True):
    """A key as it is listed; `size` is that of the value."""

    key: str
    version: int
    size: int
    expires_at_ms: int


class KeyPage(msgspec.Struct, frozen=True):
    """Keys in the order of their names. `next_after` is what to go on after, or None at the end."""

    keys: tuple[KeyInfo, ...]
    next_after: str | None


class Written(msgspec.Struct, frozen=True):
    """It is committed, as this version of the room: each write of the room has a higher one than all before."""

    version: int
    is_new: bool  # there was no such key, or it had expired


class VersionConflict(msgspec.Struct, frozen=True):
    """The key is not at the expected version; nothing was written. 0: there is no such key."""

    actual_version: int


class StoredFile(msgspec.Struct, frozen=True):
    """A file that is wholly there. It lasts as long as its space."""

    file_id: str
    name: str
    content_type: str
    size: int
    sha256: str  # hex, of the content
    created_at_ms: int


class Subscription(msgspec.Struct, frozen=True):
    """What a subscriber left, by endpoint; what is in it is the business of whoever sends."""

    endpoint: str
    data: bytes


class Usage(msgspec.Struct, frozen=True):
    """What one space has, and what it would have if everything under way went well.

    Keys that have expired count until they are swept out. Unfinished uploads count with what has come of them.
    """

    keys: int = 0
    kv_bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    subscriptions: int = 0


class Totals(msgspec.Struct, frozen=True):
    """What all spaces have together, open or not, and would have if everything under way went well."""

    spaces: int
    bytes: int  # of values and files, with the overhead of each


PutAnswer: TypeAlias = Written | VersionConflict | Refused
DeleteAnswer: TypeAlias = bool | VersionConflict | Refused  # whether it was there


class Upload(Protocol):
    """A file on its way in: nobody sees it before `finish`. As a context manager it ends aborted unless finished."""

    @property
    def file_id(self) -> str: ...

    @property
    def size(self) -> int:
        """How many bytes have come so far."""

    async def append(self, data: bytes) -> Refused | None:
        """Take some more bytes, of any number. Refused, the upload is over."""

    async def finish(self, now_ms: int) -> StoredFile | Refused:
        """Publish it. A caller that is cancelled here waits for the outcome nevertheless."""

    async def abort(self) -> None:
        """Leave nothing of it. Nothing happens if it is finished or aborted already."""

    async def __aenter__(self) -> "Upload": ...

    async def __aexit__(self, *_: object) -> None: ...


class SpaceStore(Protocol):
    """What every store does; `tests/actors/space/test_store_contract.py` holds each of them to it.

    `space_id` and `file_id` are lower-case ULIDs, never used twice. A space that was ended, or never created, is
    `NOT_FOUND` for what writes and as if it were empty for what reads. One that is there and not open is the caller's
    mistake: RuntimeError. So is a key, endpoint, name or type that is no text: ValueError, and nothing is written.
    """

    # ── spaces ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> tuple[str, ...]:
        """Once, before anything else: put in order what a crash has left. Answers which spaces there are, sorted.

        An end that was interrupted is finished; uploads that were not finished are removed, as are files and rows of
        spaces that have no key.
        """

    def space_ids(self) -> tuple[str, ...]:
        """Which there are, sorted."""

    async def create(self, space_id: str) -> Refused | None:
        """Make a space with a random key of its own; it is open. None once it is durable."""

    async def open(self, space_id: str) -> bool:
        """Take a space's index into memory; False if there is no such space. Nothing happens if it is open."""

    def release(self, space_id: str) -> bool:
        """Drop the index of a space that nobody uses; False, and it stays, if something is under way."""

    async def erase_keys(self, space_ids: Sequence[str]) -> None:
        """Of many spaces, before `end` of each: they are unknown, and their keys are erased together.

        Says nothing: `end` knows whether a key is gone, and tries again if it is not. If the caller is cancelled, what
        was not begun is left as it is.
        """

    async def end(self, space_id: str) -> Refused | None:
        """Erase a space: it is unknown at once, and when this returns None there is nothing left of it.

        The key goes first. Refused, the disk did not do what it should: the space stays unknown, ask again. May be
        asked any number of times. A cancelled caller waits for the outcome nevertheless.
        """

    # ── for the bodies of its events in the log ─────────────────────────────────────────────────────────────────────

    def seal(self, space_id: str, data: bytes) -> bytes | None:
        """Bytes that only this space's key opens; None if there is no such space. It need not be open."""

    def unseal(self, space_id: str, sealed: bytes) -> bytes | None:
        """What `seal` was given; None if there is no such space. Raises `UnreadableError` if it was not made so."""

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
        """Write a value. An expected version of 0 means that there must be no such key, None that anything will do."""

    async def get(self, space_id: str, key: str, now_ms: int) -> Entry | None:
        """The value, or None if there is none, or none any more."""

    async def delete(self, space_id: str, key: str, now_ms: int, expected_version: int | None = None) -> DeleteAnswer:
        """Remove a key; whether it was there. One of another version than expected stays."""

    def key_info(self, space_id: str, key: str) -> KeyInfo | None:
        """What lies under the key and counts in `usage`, though it may have expired."""

    def list_keys(self, space_id: str, now_ms: int, prefix: str = "", after: str = "", limit: int = 100) -> KeyPage:
        """Keys that begin with the prefix, in the order of their names, from the first one after `after`."""

    async def sweep_expired(self, space_id: str, now_ms: int) -> int | Refused:
        """Remove what has expired; how many. The space need not be open, and nothing of it is taken into memory."""

    def next_expiry_ms(self, space_id: str) -> int | None:
        """When the next key expires, of a space that is not open too: there is nothing to sweep before."""

    # ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin_file(self, space_id: str, file_id: str, name: str, content_type: str) -> Upload | Refused:
        """Begin an upload."""

    def file(self, space_id: str, file_id: str) -> StoredFile | None:
        """A file, if there is such a one."""

    def list_files(self, space_id: str) -> tuple[StoredFile, ...]:
        """All files, in the order of their ids."""

    async def read_file(self, space_id: str, file_id: str, start: int, length: int) -> bytes | None:
        """Some bytes from `start` on: at most `length` and `read_bytes_max`, none at the end. None: no such file."""

    async def delete_file(self, space_id: str, file_id: str) -> bool | Refused:
        """Remove a file; whether it was there."""

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────

    async def put_subscription(self, space_id: str, endpoint: str, data: bytes) -> bool | Refused:
        """Keep this for the endpoint, in the place of what was there; whether there was nothing."""

    async def subscriptions(self, space_id: str) -> tuple[Subscription, ...]:
        """All of them, in the order of their endpoints."""

    async def delete_subscription(self, space_id: str, endpoint: str) -> bool | Refused:
        """Remove one; whether it was there."""

    # ── counting, ending ────────────────────────────────────────────────────────────────────────────────────────────

    def usage(self, space_id: str) -> Usage:
        """What the space has."""

    async def usages(self, space_ids: Sequence[str]) -> dict[str, Usage]:
        """What each of these has, open or not; those that there are not are left out."""

    def totals(self) -> Totals:
        """What all spaces have."""

    def disk_free_ratio(self) -> float:
        """How much of the disk is free, 0 … 1: of its bytes or of the files it can have, whichever is less."""

    async def takes_writes(self) -> bool:
        """Whether the disk takes a write: one is made that changes nothing. It waits for its turn in a full queue."""

    async def watch(self) -> None:
        """Wait until the store is closed, or raise `StoreFailedError` as soon as it has failed."""

    async def close(self) -> None:
        """Write what is queued, abort what is unfinished, let go of the files."""


def check_id(value: str) -> str:
    """The id, or ValueError: it becomes part of a path, so nothing else may ever come this far."""
    if _ID.fullmatch(value) is None:
        raise ValueError("an id is a lower-case ULID")
    return value


def check_text(*values: str) -> None:
    """ValueError if one cannot be encoded: only here is that the trouble of one caller, not of all who write."""
    for value in values:
        value.encode()
