"""The spaces of a gateway: opened, found by their tokens, moved, ended on time. What is in them is for others.

The log has a stream for each, `space/{id}`, whose bodies are sealed under the space's own key: without the key they are
noise, as all else of it. A space is over at the very instant of its end, whoever asks; erasing follows within seconds:
first the key, then rows and files (`SpaceStore.end`), then the stream. Whatever a crash leaves half done, `load` does.

The values and files of a space are in `space_values` and `space_files`; its sockets are told by `on_end`.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog
import trio

from actors.log.store import Appended, AppendRefused, LogStore, OpenItem, Part, RefusalReason, UnreadableError
from actors.node.moment import Moment
from actors.space import events
from actors.space.events import Ending, Event, Space, SpaceClosed
from actors.space.settings import SpaceSettings
from actors.space.space_rules import NewSpace, Spaces, close_space, expire, holds_claim, move_end, open_space
from actors.space.store import Refused, SpaceStore
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from schemas.echo.names import CLAIM, ROOM_TOKEN, SECRET_BYTES, credential, credential_hash

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

LOOK_S = 1.0  # between looks for spaces that are over, at most: the wall clock may be set meanwhile
SWEEP_S = 60.0  # between looks for values that have expired; they are unknown before, and only take room
DISK_S = 1.0  # for which a look at the disk is good
_PREFIX = "space/"
_LIVE = "live"  # the open item that every space's stream has, so that a start finds it
_OVER = "over"  # the open item of one that was closed and could not be erased


@dataclass(frozen=True, slots=True)
class Opened:
    """A new space with its credentials, which nobody can be told again."""

    space: Space
    token: str
    claim: str


class EchoSpaces:
    """`random(n)` gives n random bytes, `new_id` a ULID. `load` first, then `run` for as long as the gateway does."""

    def __init__(
        self,
        store: SpaceStore,
        stream_log: LogStore,
        settings: SpaceSettings,
        now: Callable[[], Moment],
        random: Callable[[int], bytes],
        new_id: Callable[[], str],
    ) -> None:
        self.store = store
        self.settings = settings
        self.now = now
        self.random = random
        self.on_end: Callable[[str], None] = lambda _: None
        """Told of every space that ends while the gateway runs, at once: its sockets are to be closed (4410)."""
        self.on_move: Callable[[str, int], None] = lambda _space_id, _ends_at_ms: None
        """Told of every space that ends at another time from now on."""
        self._log = stream_log
        self._new_id = new_id
        self._spaces = Spaces()
        self._unerased: dict[str, bool] = {}  # that are over; whether the store has done its part
        self._opening = 0  # on their way, so that tasks which open at the same time cannot pass the limit together
        self._in_use: OrderedDict[str, None] = OrderedDict()  # whose index is in memory, the latest last
        self._wake = trio.Event()
        self._disk_fault: EchoError | None = None
        self._disk_seen_s = float("-inf")

    def __len__(self) -> int:
        return len(self._spaces)

    # ---- at the start ------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Once, after the store's own `load`: what the log and the store have, and an end to what is over."""
        kept = set(self.store.space_ids())
        for stream in await self._log.open_streams():
            space_id = stream.removeprefix(_PREFIX)
            if space_id == stream:
                continue
            space = await self._read(stream, space_id) if space_id in kept else None
            kept.discard(space_id)
            if space is not None and space.is_live(self.now().wall_ms):
                self._spaces.put(space)
            else:
                self._unerased[space_id] = False
        self._unerased.update(dict.fromkeys(kept, False))  # made, and never written down
        await self.end_what_is_over()

    async def _read(self, stream: str, space_id: str) -> Space | None:
        """None: nobody will ever open it again, so it is as good as over."""
        space: Space | None = None
        try:
            loaded = await self._log.load(stream)
            if any(item.key == _OVER for item in loaded.open_items):
                return None
            for recorded in loaded.events:
                body = self.store.unseal(space_id, recorded.data)
                space = space if body is None else events.evolve(space, events.decode(body))
        except (UnreadableError, ValueError):  # ValueError: what is in there is not an event of ours
            log.error("space_unreadable", space_id=space_id)
            return None
        return space

    # ---- lives -------------------------------------------------------------------------------------------------------

    async def open(self, protocol: Encoding, ttl_s: int | None, *, is_encrypted: bool) -> Opened | EchoError:
        """A new space. Once begun it is finished, whether or not the asker still waits."""
        now_ms = self.now().wall_ms
        token, claim = (credential(prefix, self.random(SECRET_BYTES)) for prefix in (ROOM_TOKEN, CLAIM))
        space_id = self._new_id().lower()
        wish = NewSpace(space_id, credential_hash(token), credential_hash(claim), protocol, is_encrypted, ttl_s)
        decided = open_space(wish, len(self._spaces) + self._opening, self.settings, now_ms)
        if isinstance(decided, EchoError):
            return decided
        fault = self.disk_fault()
        if fault is not None:
            return fault
        self._opening += 1
        try:
            with trio.CancelScope(shield=True):
                refused = await self.store.create(space_id)
                if refused is not None:
                    return error_of(refused)
                fault = await self._append(space_id, decided, is_first=True)
                if fault is not None:
                    self._unerased[space_id] = False
                    self._wake.set()
                    return fault
        finally:
            self._opening -= 1
        self._use(space_id)
        self._wake.set()
        return Opened(self._apply(None, decided), token, claim)

    def find(self, token: str) -> Space | None:
        """The live space of this token, now."""
        return self.find_at(token, self.now().wall_ms)

    def find_at(self, token: str, now_ms: int) -> Space | None:
        """The live space of this token. Hashed first: unknown and ended take as long, and are told apart by nothing."""
        return self._spaces.find(token, now_ms)

    def is_live(self, space_id: str) -> bool:
        """Whether it is still there, for those who have waited meanwhile."""
        space = self._spaces.get(space_id)
        return space is not None and space.is_live(self.now().wall_ms)

    async def move_end(self, space_id: str, claim: str, ttl_s: int) -> Space | EchoError:
        """To `ttl_s` from now, by its creator."""
        space = self._claimed(space_id, claim)
        if isinstance(space, EchoError):
            return space
        decided = move_end(space, ttl_s, self.settings, self.now().wall_ms)
        if isinstance(decided, EchoError):
            return decided
        if decided:
            with trio.CancelScope(shield=True):
                fault = await self._append(space_id, decided)
            if fault is not None:
                return fault
        current = self._spaces.get(space_id)
        if current is None:  # it ended meanwhile
            return EchoError.SPACE_NOT_FOUND
        self._wake.set()
        moved = self._apply(current, decided)
        self.on_move(space_id, moved.ends_at_ms)
        return moved

    async def delete(self, space_id: str, claim: str) -> EchoError | None:
        """By its creator. None when nothing of it is left."""
        space = self._claimed(space_id, claim)
        return space if isinstance(space, EchoError) else await self.close(space_id, Ending.DELETED)

    async def close(self, space_id: str, ending: Ending) -> EchoError | None:
        """By somebody who may. Refused by the disk, it is over nevertheless, and `run` goes on erasing it."""
        space = self._spaces.get(space_id)
        decided = EchoError.SPACE_NOT_FOUND if space is None else close_space(space, ending, self.now().wall_ms)
        if isinstance(decided, EchoError):
            return decided
        self._over(space_id, decided)
        with trio.CancelScope(shield=True):
            if await self._erase(space_id):
                return None
            # The disk did not do its part. That it is over is written, if that is possible, for the next start: as a
            # mark, because there may be no key any more to seal an event with.
            now_ms = self.now().wall_ms
            await self._log.append(Part(_PREFIX + space_id, None, now_ms, opened=(OpenItem(_OVER, b""),)))
        return EchoError.STORAGE_NOT_READY

    def claim_fault(self, space_id: str, claim: str) -> EchoError | None:
        """What there is against this claim, for whoever asks before anything else."""
        space = self._claimed(space_id, claim)
        return space if isinstance(space, EchoError) else None

    def _claimed(self, space_id: str, claim: str) -> Space | EchoError:
        space = self._spaces.get(space_id)
        if space is None or not space.is_live(self.now().wall_ms):
            return EchoError.SPACE_NOT_FOUND
        return space if holds_claim(space, claim) else EchoError.UNAUTHORIZED

    def _apply(self, space: Space | None, decided: Sequence[Event]) -> Space:
        for event in decided:
            space = events.evolve(space, event)
        assert space is not None
        self._spaces.put(space)
        return space

    async def _append(self, space_id: str, decided: Sequence[Event], *, is_first: bool = False) -> EchoError | None:
        sealed = [self.store.seal(space_id, events.encode(event)) for event in decided]
        bodies = tuple(body for body in sealed if body is not None)
        if len(bodies) != len(sealed):
            return EchoError.SPACE_NOT_FOUND
        opened = (OpenItem(_LIVE, b""),) if is_first else ()
        part = Part(_PREFIX + space_id, 0 if is_first else None, decided[0].at_ms, bodies, opened)
        answer = await self._log.append(part)
        if isinstance(answer, Appended):
            return None
        if isinstance(answer, AppendRefused) and answer.reason is RefusalReason.OVERLOADED:
            return EchoError.OVERLOADED
        return EchoError.STORAGE_NOT_READY

    # ---- ends --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """End spaces on time, and sweep out values that have expired."""
        swept_s = self.now().mono_s
        while True:
            await self.end_what_is_over()
            now = self.now()
            if now.mono_s >= swept_s + SWEEP_S:
                swept_s = now.mono_s
                await self._sweep_values()
            ends_at_ms = self._spaces.next_end_ms()
            wait_s = LOOK_S if ends_at_ms is None else (ends_at_ms - self.now().wall_ms) / 1000
            self._wake = trio.Event()
            with trio.move_on_after(max(0.001, min(LOOK_S, wait_s))):
                await self._wake.wait()

    async def end_what_is_over(self) -> None:
        """All at once: each has its seconds. What the disk refuses is tried again in the next round."""
        now_ms = self.now().wall_ms
        for space in self._spaces.expired(now_ms):
            self._over(space.space_id, expire(space, now_ms))
        async with trio.open_nursery() as nursery:
            for space_id in list(self._unerased):
                nursery.start_soon(self._erase, space_id)

    def _over(self, space_id: str, decided: Sequence[Event]) -> None:
        """From here on nobody finds it."""
        self._spaces.remove(space_id)
        self._in_use.pop(space_id, None)
        self._unerased[space_id] = False
        log.info("space_ended", space_id=space_id, ending=_ending_of(decided))
        self.on_end(space_id)

    async def _erase(self, space_id: str) -> bool:
        """Whether nothing is left of it. The key goes first, so that a crash in the middle leaves noise."""
        with trio.CancelScope(shield=True):
            if not self._unerased.get(space_id, True):
                if await self.store.end(space_id) is not None:
                    return False
                self._unerased[space_id] = True
            if await self._log.forget(_PREFIX + space_id) is not None:
                return False
            self._unerased.pop(space_id, None)
        return True

    # ---- for whoever looks into a space ------------------------------------------------------------------------------

    async def opened(self, space_id: str) -> bool:
        """Have the index of a space in memory until the next wait; False if there is no such space."""
        if not await self.store.open(space_id) or not self.is_live(space_id):
            return False
        self._use(space_id)
        return True

    def _use(self, space_id: str) -> None:
        self._in_use[space_id] = None
        self._in_use.move_to_end(space_id)
        if len(self._in_use) > self.settings.open_spaces_max:
            oldest = next(iter(self._in_use))
            self._in_use.move_to_end(oldest)  # something may be under way there; then its turn comes again
            if self.store.release(oldest):
                del self._in_use[oldest]

    def disk_fault(self) -> EchoError | None:
        """Why nothing may be written at present, to any space; reads go on."""
        now_s = self.now().mono_s
        if now_s >= self._disk_seen_s + DISK_S:
            totals = self.store.totals()
            is_short = totals.disk_free_ratio < self.settings.disk_free_min
            is_full = is_short or totals.bytes >= self.settings.total_bytes_max
            self._disk_fault = EchoError.STORAGE_NOT_READY if is_full else None
            self._disk_seen_s = now_s
        return self._disk_fault

    async def _sweep_values(self) -> None:
        for space_id in list(self._in_use):
            if await self.opened(space_id):
                now_ms = self.now().wall_ms
                due_ms = self.store.next_expiry_ms(space_id)
                if due_ms is not None and due_ms <= now_ms:
                    await self.store.sweep_expired(space_id, now_ms)


def error_of(refused: Refused) -> EchoError:
    return EchoError[refused.reason.name]


def _ending_of(decided: Sequence[Event]) -> str:
    return next((event.ending for event in decided if isinstance(event, SpaceClosed)), Ending.EXPIRED)
