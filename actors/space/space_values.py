"""The values of a space: what the rules admit goes to the store, and what the store says comes back as an answer.

Sealing for clients without cryptography happens here, under the room's key, which follows from the token and is kept
nowhere. Which bytes a request has, and how an answer is encoded, is for whoever speaks with clients.
"""

from dataclasses import dataclass

from actors.space.counts import Operation
from actors.space.events import Space
from actors.space.kv_rules import (
    UNCONDITIONAL,
    KvAdmitted,
    KvWish,
    ListWish,
    Precondition,
    admit_write,
    fault_of_delete,
)
from actors.space.spaces import EchoSpaces, error_of
from actors.space.store import VALUE_OVERHEAD_BYTES, KeyPage, Refused, VersionConflict
from schemas.echo.envelope import IV_BYTES, kv_kid, room_key, seal, sealed_fault
from schemas.echo.errors import EchoError
from schemas.echo.kv import KvEntry, KvWrite
from schemas.echo.names import is_key


@dataclass(frozen=True, slots=True)
class Put:
    entry: KvEntry
    is_new: bool


class SpaceValues:
    def __init__(self, spaces: EchoSpaces) -> None:
        self._spaces = spaces
        self._store = spaces.store
        self._done = spaces.counts.operations

    async def put(
        self, space: Space, token: str, key: str, write: KvWrite, precondition: Precondition = UNCONDITIONAL
    ) -> Put | EchoError:
        """`token` is the room's, from which its key follows."""
        if not is_key(key):
            return EchoError.INVALID_KEY
        value = self._stored(space, token, key, write)
        if isinstance(value, EchoError):
            return value
        if not await self._spaces.opened(space.space_id):
            return EchoError.SPACE_NOT_FOUND
        wish = KvWish(key, len(value), write.ttl_s, write.expires_at_ms, precondition)
        admitted = self._admit(space, wish)
        if admitted is EchoError.SPACE_FULL and await self._made_room(space.space_id):
            admitted = self._admit(space, wish)
        if isinstance(admitted, EchoError):
            return admitted
        known = self._store.key_info(space.space_id, key)
        grown = len(value) + VALUE_OVERHEAD_BYTES if known is None else len(value) - known.size
        fault = self._spaces.disk_fault(grown)
        if fault is not None:
            return fault
        now_ms = self._now_ms
        answer = await self._store.put(
            space.space_id,
            key,
            value,
            now_ms=now_ms,
            expires_at_ms=admitted.expires_at_ms,
            encrypted=space.is_encrypted,
            expected_version=admitted.expected_version,
        )
        if isinstance(answer, Refused):
            return error_of(answer)
        if isinstance(answer, VersionConflict):
            return EchoError.VERSION_CONFLICT
        self._done[Operation.KV_WRITE] += 1
        entry = KvEntry(key, answer.version, now_ms, admitted.expires_at_ms, space.is_encrypted)
        return Put(entry, answer.is_new)

    async def get(self, space: Space, key: str) -> KvEntry | EchoError:
        if not is_key(key):
            return EchoError.INVALID_KEY
        if not await self._spaces.opened(space.space_id):
            return EchoError.SPACE_NOT_FOUND
        found = await self._store.get(space.space_id, key, self._now_ms)
        if not self._spaces.is_live(space.space_id):
            return EchoError.SPACE_NOT_FOUND
        if found is None:
            return EchoError.KEY_NOT_FOUND
        self._done[Operation.KV_READ] += 1
        return KvEntry(key, found.version, found.updated_at_ms, found.expires_at_ms, found.encrypted, found.value)

    async def delete(self, space: Space, key: str, precondition: Precondition = UNCONDITIONAL) -> EchoError | None:
        if not await self._spaces.opened(space.space_id):
            return EchoError.SPACE_NOT_FOUND
        known = self._store.key_info(space.space_id, key)
        fault = fault_of_delete(key, known, self._now_ms, precondition)
        if fault is not None:
            return fault
        expected_version = None if known is None or precondition is UNCONDITIONAL else known.version
        answer = await self._store.delete(space.space_id, key, self._now_ms, expected_version)
        if isinstance(answer, Refused):
            return error_of(answer)
        if isinstance(answer, VersionConflict):
            return EchoError.VERSION_CONFLICT
        if not answer:
            return EchoError.KEY_NOT_FOUND
        self._done[Operation.KV_DELETE] += 1
        return None

    async def list(self, space: Space, wish: ListWish) -> KeyPage | EchoError:
        if not await self._spaces.opened(space.space_id):
            return EchoError.SPACE_NOT_FOUND
        return self._store.list_keys(space.space_id, self._now_ms, wish.prefix, wish.after or "", wish.limit)

    def _stored(self, space: Space, token: str, key: str, write: KvWrite) -> bytes | EchoError:
        if not space.is_encrypted:
            return EchoError.ENCRYPTION_NOT_ENABLED if write.wants_sealing else write.value
        if write.wants_sealing:
            iv = self._spaces.random(IV_BYTES)
            return seal(room_key(token, space.space_id), kv_kid(key), write.value, iv).encode()
        try:
            fault = sealed_fault(write.value.decode())
        except UnicodeDecodeError:
            fault = EchoError.ENCRYPTION_REQUIRED
        return write.value if fault is None else fault

    def _admit(self, space: Space, wish: KvWish) -> KvAdmitted | EchoError:
        current, usage = self._store.key_info(space.space_id, wish.key), self._store.usage(space.space_id)
        return admit_write(wish, current, usage, space.ends_at_ms, self._spaces.settings, self._now_ms)

    async def _made_room(self, space_id: str) -> bool:
        """Whether anything had expired and is swept out now."""
        due_ms = self._store.next_expiry_ms(space_id)
        if due_ms is None or due_ms > self._now_ms:
            return False
        await self._store.sweep_expired(space_id, self._now_ms)
        return await self._spaces.opened(space_id)

    @property
    def _now_ms(self) -> int:
        return self._spaces.now().wall_ms
