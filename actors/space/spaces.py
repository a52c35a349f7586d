"""The spaces of a gateway: opened, found by their tokens, moved, ended on time. What is in them is for others.

The log has a stream for each, `space/{id}`, whose bodies are sealed under the space's own key: without the key they are
noise, as all else of it. A space is over at the very instant of its end, whoever asks; erasing follows within seconds:
first the key, then rows and files (`SpaceStore.end`), then the stream. Whatever a crash leaves half done, `load` does.

The values and files of a space are in `space_values` and `space_files`; its sockets are told by `on_end`.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import nsmallest

import structlog
import trio

from actors.log.store import Appended, AppendRefused, LogStore, OpenItem, Part, RefusalReason, UnreadableError
from actors.node.moment import Moment
from actors.space import events
from actors.space.counts import SpaceCounts
from actors.space.erasing import PREFIX, Erasing
from actors.space.events import Ending, Event, Space, SpaceClosed
from actors.space.settings import SpaceSettings
from actors.space.space_clock import SeenTime, forward_only
from actors.space.space_rules import (
    NewSpace,
    Spaces,
    close_space,
    expire,
    holds_claim,
    move_end,
    open_space,
    resume,
)
from actors.space.store import Refused, SpaceStore
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from schemas.echo.names import CLAIM, ROOM_TOKEN, SECRET_BYTES, credential, credential_hash

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

LOOK_S = 1.0  # between looks for spaces that are over, at most: the wall clock may be set meanwhile
SWEEP_S = 60.0  # between looks for values that have expired, which only take room, and notes of the time
IN_ONE_GO_MAX = 100  # spaces that are looked at, or expire, in one go; then others have their turn
DISK_S = 1.0  # for which a look at the disk is good
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
        counts: SpaceCounts | None = None,
    ) -> None:
        self.store = store
        self.counts = counts or SpaceCounts()
        self.settings = settings
        self.now = forward_only(now)
        self.random = random
        self.on_end: Callable[[str], None] = lambda _: None
        """Told of every space that ends while the gateway runs, at once: its sockets are to be closed (4410)."""
        self.on_move: Callable[[str, int], None] = lambda _space_id, _ends_at_ms: None
        """Told of every space that ends at another time from now on."""
        self.on_load: Callable[[str, Sequence[Event], int], None] = lambda _space_id, _events, _seen_ms: None
        """At the start, told of every live space what its stream has, and when spaces were seen last."""
        self._log = stream_log
        self._new_id = new_id
        self._spaces = Spaces()
        self._erasing = Erasing(store, stream_log, self.now, self.counts)
        self._seen = SeenTime(stream_log)
        self._opening = 0  # on their way, so that tasks which open at the same time cannot pass the limit together
        self._in_use: OrderedDict[str, None] = OrderedDict()  # whose index is in memory, the latest last
        self._wake = trio.Event()
        self._is_disk_short = False
        self._disk_seen_s = float("-inf")

    def __len__(self) -> int:
        return len(self._spaces)

    @property
    def unerased(self) -> int:
        """How many are over and not wholly erased yet."""
        return len(self._erasing)

    def live_behind(self, space_id: str, count_max: int) -> list[Space]:
        """Live spaces in the order of their ids, from the first one behind this."""
        now_ms = self.now().wall_ms
        behind = (space for space in self._spaces if space.space_id > space_id and space.is_live(now_ms))
        return nsmallest(count_max, behind, key=lambda space: space.space_id)

    # ---- at the start ------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Once, after the store's own `load`: what the log and the store have, and an end to what is over."""
        kept, seen_ms = set(self.store.space_ids()), await self._seen.read()
        for stream in await self._log.open_streams():
            space_id = stream.removeprefix(PREFIX)
            if space_id == stream:
                continue
            history: list[Event] = []
            space = await self._read(stream, space_id, seen_ms, history) if space_id in kept else None
            kept.discard(space_id)
            if space is not None and space.is_live(self.now().wall_ms):
                self._spaces.put(space)
                self.on_load(space_id, history, seen_ms)
            elif space is not None:
                self._note_end(space_id, space.ending or Ending.EXPIRED)
            else:
                self._erasing.add(space_id)
        for space_id in kept:  # made, and never written down
            self._erasing.add(space_id)
        if self._spaces or seen_ms:  # which may have been of a clock that was ahead
            await self._seen.write(self.now().wall_ms)
        await self.end_what_is_over()

    async def _read(self, stream: str, space_id: str, seen_ms: int, history: list[Event]) -> Space | None:
        """None: nobody will ever open it again, so it is as good as over. What was read goes into `history`."""
        space: Space | None = None
        try:
            loaded = await self._log.load(stream)
            if any(item.key == _OVER for item in loaded.open_items):
                return None
            for recorded in loaded.events:
                body = self.store.unseal(space_id, recorded.data)
                if body is not None:
                    history.append(events.decode(body))
                    space = events.evolve(space, history[-1])
        except (UnreadableError, ValueError):  # ValueError: what is in there is not an event of ours
            log.error("space_unreadable", space_id=space_id)
            return None
        if space is None:
            return None
        now_ms = self.now().wall_ms
        moved = resume(space, max(seen_ms, loaded.events[-1].at_ms), self.settings, now_ms)
        for event in moved:
            space = events.evolve(space, event)
        if moved and space is not None and space.is_live(now_ms):
            await self._append(space_id, moved)
        return space

    # ---- lives -------------------------------------------------------------------------------------------------------

    async def open(self, protocol: Encoding, ttl_s: int | None, *, is_encrypted: bool) -> Opened | EchoError:
        """A new space. Once begun it is finished, whether or not the asker still waits."""
        now_ms = self.now().wall_ms
        token, claim = (credential(prefix, self.random(SECRET_BYTES)) for prefix in (ROOM_TOKEN, CLAIM))
        space_id = self._new_id().lower()
        wish = NewSpace(space_id, credential_hash(token), credential_hash(claim), protocol, is_encrypted, ttl_s)
        # Those that are not erased yet count: a disk that refuses to erase must not be given ever more of them.
        spaces_now = len(self._spaces) + len(self._erasing) + self._opening
        decided = open_space(wish, spaces_now, self.settings, now_ms)
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
                    self._erasing.add(space_id)
                    self._wake.set()
                    return fault
        finally:
            self._opening -= 1
        self._use(space_id)
        self._wake.set()
        self.counts.opened += 1
        log.info("space_opened", space_id=space_id)
        return Opened(self._apply(None, decided), token, claim)

    def find(self, token: str) -> Space | None:
        """The live space of this token, now."""
        return self.find_at(token, self.now().wall_ms)

    def find_at(self, token: str, now_ms: int) -> Space | None:
        """The live space of this token. Hashed first: unknown and ended take as long, and are told apart by nothing."""
        return self._spaces.find(token, now_ms)

    def is_live(self, space_id: str) -> bool:
        """Whether it is still there, for those who have waited meanwhile."""
        return self.get(space_id) is not None

    async def move_end(self, space_id: str, claim: str | None, ttl_s: int) -> Space | EchoError:
        """To `ttl_s` from now, by its creator; without a claim, by an owner."""
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

    async def record(self, space_id: str, decided: Sequence[Event]) -> EchoError | None:
        """Write what was decided elsewhere on a live space. Once begun it is finished, whoever still waits.

        After None it is true of the space; with a fault it is not, and of a space that ended meanwhile nobody asks.
        """
        with trio.CancelScope(shield=True):
            fault = await self._append(space_id, decided)
        current = self._spaces.get(space_id)
        if fault is None and current is not None:
            self._apply(current, decided)
        return fault if current is not None else EchoError.SPACE_NOT_FOUND

    def get(self, space_id: str) -> Space | None:
        """A live one, by its name: whoever asks has to show something else."""
        space = self._spaces.get(space_id)
        return space if space is not None and space.is_live(self.now().wall_ms) else None

    async def delete(self, space_id: str, claim: str | None) -> EchoError | None:
        """By its creator; without a claim, by an owner. None when nothing of it is left."""
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
            if await self._erasing.erase(space_id):
                return None
            # The disk did not do its part. That it is over is written, if that is possible, for the next start: as a
            # mark, because there may be no key any more to seal an event with.
            now_ms = self.now().wall_ms
            await self._log.append(Part(PREFIX + space_id, None, now_ms, opened=(OpenItem(_OVER, b""),)))
        return EchoError.STORAGE_NOT_READY

    def claim_fault(self, space_id: str, claim: str) -> EchoError | None:
        """What there is against this claim, for whoever asks before anything else."""
        space = self._claimed(space_id, claim)
        return space if isinstance(space, EchoError) else None

    def _claimed(self, space_id: str, claim: str | None) -> Space | EchoError:
        space = self._spaces.get(space_id)
        if space is None or not space.is_live(self.now().wall_ms):
            return EchoError.SPACE_NOT_FOUND
        return space if claim is None or holds_claim(space, claim) else EchoError.UNAUTHORIZED

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
        part = Part(PREFIX + space_id, 0 if is_first else None, decided[0].at_ms, bodies, opened)
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
        async with trio.open_nursery() as nursery:
            while True:
                await self._note_ends()
                nursery.start_soon(self._erasing.erase_due)  # those that end next do not wait for these
                now = self.now()
                if now.mono_s >= swept_s + SWEEP_S:
                    swept_s = now.mono_s
                    await self._sweep_values()
                    if self._spaces:
                        await self._seen.write(now.wall_ms)
                self._wake = trio.Event()
                with trio.move_on_after(self._wait_s()):
                    await self._wake.wait()

    def _wait_s(self) -> float:
        now, ends_at_ms, retry_s = self.now(), self._spaces.next_end_ms(), self._erasing.next_s
        wait_s = LOOK_S if ends_at_ms is None else (ends_at_ms - now.wall_ms) / 1000
        return max(0.001, min(LOOK_S, wait_s, LOOK_S if retry_s is None else retry_s - now.mono_s))

    async def end_what_is_over(self) -> None:
        """What the disk refuses is tried again later."""
        await self._note_ends()
        await self._erasing.erase_due()

    async def _note_ends(self) -> None:
        """All that have expired, with a pause now and then for whoever else has something to do."""
        now_ms = self.now().wall_ms
        for number, space in enumerate(self._spaces.expired(now_ms), start=1):
            if self._spaces.get(space.space_id) is space:
                self._over(space.space_id, expire(space, now_ms))
            if number % IN_ONE_GO_MAX == 0:
                await trio.lowlevel.checkpoint()

    def _over(self, space_id: str, decided: Sequence[Event]) -> None:
        """From here on nobody finds it."""
        self._spaces.remove(space_id)
        self._in_use.pop(space_id, None)
        self._note_end(space_id, _ending_of(decided))
        self.on_end(space_id)

    def _note_end(self, space_id: str, ending: Ending) -> None:
        self._erasing.add(space_id)
        self.counts.ended[ending] += 1
        log.info("space_ended", space_id=space_id, reason=str(ending))

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

    def disk_fault(self, more_bytes: int = 0) -> EchoError | None:
        """Why as much as this may not be written at present, to any space; reads go on."""
        now_s = self.now().mono_s
        if now_s >= self._disk_seen_s + DISK_S:
            self._is_disk_short = self.store.disk_free_ratio() < self.settings.disk_free_min
            self._disk_seen_s = now_s
        is_full = self.store.totals().bytes + max(1, more_bytes) > self.settings.total_bytes_max
        return EchoError.STORAGE_NOT_READY if self._is_disk_short or is_full else None

    async def _sweep_values(self) -> None:
        for number, space in enumerate(list(self._spaces), start=1):
            due_ms = self.store.next_expiry_ms(space.space_id)
            if due_ms is not None and due_ms <= self.now().wall_ms and await self.opened(space.space_id):
                await self.store.sweep_expired(space.space_id, self.now().wall_ms)
            if number % IN_ONE_GO_MAX == 0:
                await trio.lowlevel.checkpoint()


def error_of(refused: Refused) -> EchoError:
    return EchoError[refused.reason.name]


def _ending_of(decided: Sequence[Event]) -> Ending:
    return next((event.ending for event in decided if isinstance(event, SpaceClosed)), Ending.EXPIRED)
