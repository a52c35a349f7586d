"""What may be written to a space's values, and what a reader may see of them. Pure.

Over an abstract index: whoever asks tells what lies under the key and how much there is in all, and hands what is
answered to the store. A value that has expired is not there, for whoever asks, though it may still count until it is
swept out. Versions count all writes of the room and are given by the store when it commits: a write with a precondition
carries the version that it was decided by, so that nothing can come between. How bytes are kept and sealed is the
store's business.
"""

import re
from dataclasses import dataclass
from typing import Protocol

from actors.space.settings import SpaceSettings
from schemas.echo.errors import EchoError
from schemas.echo.names import is_key, is_key_prefix

_ETAGS = re.compile(r'\s*(W/)?"([\x21\x23-\x7e]*)"\s*')


class KeyInfo(Protocol):
    """What an index knows of a key."""

    @property
    def version(self) -> int: ...
    @property
    def size(self) -> int:
        """Of the stored bytes."""

    @property
    def expires_at_ms(self) -> int: ...


class KvUsage(Protocol):
    """What a space has, with what is under way. Keys that have expired may count."""

    @property
    def keys(self) -> int: ...
    @property
    def kv_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Precondition:
    """`If-Match` and `If-None-Match`: the versions that are named, or None for `*`."""

    match: frozenset[str] | None = frozenset()
    none_match: frozenset[str] | None = frozenset()
    has_match: bool = False
    has_none_match: bool = False

    def holds(self, current: KeyInfo | None) -> bool:
        version = None if current is None else str(current.version)
        if self.has_match and (version is None or (self.match is not None and version not in self.match)):
            return False
        if not self.has_none_match or version is None:
            return True
        return self.none_match is not None and version not in self.none_match


UNCONDITIONAL = Precondition()


def precondition(if_match: str | None, if_none_match: str | None) -> Precondition | EchoError:
    """Of the headers' values."""
    match, none_match = _versions(if_match, is_strong=True), _versions(if_none_match, is_strong=False)
    if isinstance(match, EchoError):
        return match
    if isinstance(none_match, EchoError):
        return none_match
    if if_match is None and if_none_match is None:
        return UNCONDITIONAL
    return Precondition(match, none_match, if_match is not None, if_none_match is not None)


def _versions(header: str | None, *, is_strong: bool) -> frozenset[str] | EchoError | None:
    if header is None:
        return frozenset()
    if header.strip() == "*":
        return None
    found = [_ETAGS.fullmatch(part) for part in header.split(",")]
    if None in found:
        return EchoError.INVALID_PAYLOAD
    # `If-Match` compares strongly: a weak tag is well formed and never the same.
    return frozenset(tag[2] for tag in found if tag is not None and not (is_strong and tag[1]))


@dataclass(frozen=True, slots=True)
class KvWish:
    """A write as it was asked for. `size` is of the bytes that would be stored."""

    key: str
    size: int
    ttl_s: int | None = None
    expires_at_ms: int | None = None
    precondition: Precondition = UNCONDITIONAL


@dataclass(frozen=True, slots=True)
class KvAdmitted:
    """It may be stored, to expire then, if the key is still at this version (0: absent; None: whatever it is)."""

    expires_at_ms: int
    expected_version: int | None


def admit_write(
    wish: KvWish,
    current: KeyInfo | None,
    usage: KvUsage,
    room_ends_at_ms: int,
    settings: SpaceSettings,
    now_ms: int,
) -> KvAdmitted | EchoError:
    """`current` is what lies under the key and counts in `usage`, alive or not."""
    if not is_key(wish.key):
        return EchoError.INVALID_KEY
    if now_ms >= room_ends_at_ms:
        return EchoError.SPACE_NOT_FOUND
    expires_at_ms = _expiry(wish, room_ends_at_ms, now_ms)
    if expires_at_ms is None:
        return EchoError.INVALID_PAYLOAD
    if wish.size > settings.value_bytes_max:
        return EchoError.PAYLOAD_TOO_LARGE
    before = readable(current, now_ms)
    if not wish.precondition.holds(before):
        return EchoError.VERSION_CONFLICT
    replaced_bytes = 0 if current is None else current.size
    if current is None and usage.keys >= settings.keys_max:
        return EchoError.SPACE_FULL
    if usage.kv_bytes - replaced_bytes + wish.size > settings.kv_bytes_max:
        return EchoError.SPACE_FULL
    if wish.precondition is UNCONDITIONAL:
        return KvAdmitted(expires_at_ms, None)
    return KvAdmitted(expires_at_ms, 0 if before is None else before.version)


def _expiry(wish: KvWish, room_ends_at_ms: int, now_ms: int) -> int | None:
    """At most the room's end. None: both times are given, or one is not in the future."""
    if wish.ttl_s is not None and wish.expires_at_ms is not None:
        return None
    wanted_ms = wish.expires_at_ms
    if wish.ttl_s is not None:
        wanted_ms = now_ms + 1000 * wish.ttl_s
    if wanted_ms is None:
        return room_ends_at_ms
    return min(wanted_ms, room_ends_at_ms) if wanted_ms > now_ms else None


def readable(current: KeyInfo | None, now_ms: int) -> KeyInfo | None:
    """What a reader finds. Reading extends nothing."""
    return current if current is not None and now_ms < current.expires_at_ms else None


def fault_of_delete(
    key: str, current: KeyInfo | None, now_ms: int, precondition: Precondition = UNCONDITIONAL
) -> EchoError | None:
    """Why there is nothing to delete; None: there is. A condition counts only where there is (RFC 9110 §13.2.1)."""
    if not is_key(key):
        return EchoError.INVALID_KEY
    before = readable(current, now_ms)
    if before is None:
        return EchoError.KEY_NOT_FOUND
    return None if precondition.holds(before) else EchoError.VERSION_CONFLICT


@dataclass(frozen=True, slots=True)
class ListWish:
    """Keys that begin with `prefix`, in their order, from behind `after` on."""

    prefix: str
    after: str | None
    limit: int


def list_wish(prefix: str, cursor: str | None, limit: int | None, settings: SpaceSettings) -> ListWish | EchoError:
    """Of a query. A cursor is the last key of the page before. Who asks for more than there may be gets that many."""
    count = settings.list_keys_max if limit is None else min(limit, settings.list_keys_max)
    is_good = is_key_prefix(prefix) and count >= 1 and (cursor is None or is_key(cursor))
    return ListWish(prefix, cursor, count) if is_good else EchoError.INVALID_PAYLOAD
