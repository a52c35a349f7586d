"""The spaces of a gateway: opened, found by their tokens, moved, ended on time. What is in them is for others.

A space is over at the very instant of its end, whoever asks; erasing follows within seconds: first the key, then rows
and files (`SpaceStore.end`), then the stream. Whatever a crash leaves half done, `load` does.

What changes a space is decided, written and applied one at a time (`space_turns`). Somebody who is cancelled while
waiting for that has changed nothing; from then on it is done wholly, whether or not the asker still waits.

The values and files of a space are in `space_values` and `space_files`, its stream in `space_log`; its sockets and
sessions are told by `on_end`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest

import structlog
import trio

from actors.log.store import LogStore, Part
from actors.node.moment import Moment
from actors.space import events
from actors.space.counts import SpaceCounts
from actors.space.erasing import Erasing
from actors.space.events import Ending, Event, Space, SpaceEndMoved
from actors.space.open_indexes import OpenIndexes
from actors.space.settings import SpaceSettings
from actors.space.space_clock import forward_only
from actors.space.space_log import SpaceLog
from actors.space.space_rules import NewSpace, Spaces, close_space, holds_claim, move_end, open_space, resume
from actors.space.space_turns import SpaceTurn, SpaceTurns
from actors.space.store import NOT_FOUND, Refused, SpaceStore
from actors.space.token_seal import TokenSeal
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from schemas.echo.names import CLAIM, ROOM_TOKEN, SECRET_BYTES, credential, credential_hash

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

LOOK_S = 1.0  # between looks for spaces that are over, at most: the wall clock may be set meanwhile
SWEEP_S = 60.0  # between looks for values that have expired, which only take room, and notes of the time
IN_ONE_GO_MAX = 100  # spaces that are looked at, or expire, in one go; then others have their turn
DISK_S = 1.0  # for which a look at the disk is good


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
        seal: TokenSeal | None = None,
    ) -> None:
        """Without `seal` no token is shown again."""
        self.store = store
        self.counts = counts or SpaceCounts()
        self.settings = settings
        self.now = forward_only(now)
        self.random = random
        self.on_end: list[Callable[[str], None]] = []
        """Told of every space that ends while the gateway runs, at once: its sockets and sessions are to be closed."""
        self.on_move: Callable[[str, int], None] = lambda _space_id, _ends_at_ms: None
        """Told of every space that ends at another time from now on."""
        self.bytes_beside: Callable[[], int] = lambda: 0
        """Of what shares the room on the disk, and its limits, with spaces."""
        self.on_load: Callable[[str, Sequence[Event], int], None] = lambda _space_id, _events, _seen_ms: None
        """At the start, told of every live space what its stream has, and when spaces were seen last."""
        self._seal = seal
        self._log = SpaceLog(store, stream_log)
        self._new_id = new_id
        self._spaces = Spaces()
        self._erasing = Erasing(store, stream_log, self.now, self.counts)
        self._indexes = OpenIndexes(store, settings)
        self._turns = SpaceTurns(settings)
        self._opening = 0  # on their way, so that tasks which open at the same time cannot pass the limit together
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
        kept, seen_ms = set(self.store.space_ids()), await self._log.read_seen_ms()
        moved: dict[str, SpaceEndMoved] = {}
        now_ms = self.now().wall_ms
        for space_id in await self._log.space_ids():
            read = await self._log.read(space_id) if space_id in kept else None
            kept.discard(space_id)
            if read is None:
                self._erasing.add(space_id)
                continue
            space = read.space
            for event in resume(space, max(seen_ms, read.at_ms), self.settings, now_ms):
                moved[space_id] = event  # also of one that is over by now: its next start must not find it otherwise
                space = events.evolve(space, event) or space
            if space.is_live(now_ms):
                self._spaces.put(space)
                self.on_load(space_id, read.events, seen_ms)
            else:
                self._note_end(space_id, space.ending or Ending.EXPIRED)
        for space_id in kept:  # made, and never written down
            self._erasing.add(space_id)
        if self._spaces or seen_ms:  # which may have been of a clock that was ahead
            await self._log.note_start(now_ms, moved)
        await self.end_what_is_over()

    # ---- lives -------------------------------------------------------------------------------------------------------

    async def open(self, protocol: Encoding, ttl_s: int | None, *, is_encrypted: bool) -> Opened | EchoError:
        """A new space. Once begun it is finished, whether or not the asker still waits."""
        token, claim = (credential(prefix, self.random(SECRET_BYTES)) for prefix in (ROOM_TOKEN, CLAIM))
        space_id = self._new_id().lower()
        wish = NewSpace(space_id, credential_hash(token), credential_hash(claim), protocol, is_encrypted, ttl_s)
        space = await self._open(wish)
        return space if isinstance(space, EchoError) else Opened(space, token, claim)

    async def open_for_project(
        self,
        wish: NewSpace,
        more: Sequence[Event],
        parts: Sequence[Part],
        instead_of: str | None = None,
    ) -> Space | EchoError:
        """A new space without a claim, whose token is shown again; `more` is true of it from the start.

        `parts` are written with it, and so is the end of the space that it is opened instead of, if that is live: its
        `turn` is the caller's, who calls `end_written` next.
        """
        token = credential(ROOM_TOKEN, self.random(SECRET_BYTES))
        sealed = self.seal_token(wish.space_id, token)
        if not sealed:
            return EchoError.STORAGE_NOT_READY
        wish = replace(wish, token_hash=credential_hash(token), sealed_token=sealed)
        return await self._open(wish, more, parts, instead_of)

    async def _open(
        self,
        wish: NewSpace,
        more: Sequence[Event] = (),
        parts: Sequence[Part] = (),
        instead_of: str | None = None,
    ) -> Space | EchoError:
        now_ms = self.now().wall_ms
        closing = {} if instead_of is None else self._closings((instead_of,), Ending.BOOKED, now_ms)
        # Those that are not erased yet count: a disk that refuses to erase must not be given ever more of them.
        spaces_now = len(self._spaces) + len(self._erasing) + self._opening - len(closing)
        decided = open_space(wish, spaces_now, self.settings, now_ms)
        if isinstance(decided, EchoError):
            return decided
        fault = self.disk_fault()
        if fault is not None:
            return fault
        space_id, decided = wish.space_id, (*decided, *more)
        self._opening += 1
        try:
            with trio.CancelScope(shield=True):
                refused = await self.store.create(space_id)
                if refused is not None:
                    return error_of(refused)
                fault = await self._log.append_together({space_id: decided, **closing}, *parts)
                if fault is not None:
                    self._erasing.add(space_id)
                    self._wake.set()
                    return fault
        finally:
            self._opening -= 1
        self._indexes.use(space_id)
        self._wake.set()
        self.counts.opened += 1
        log.info("space_opened", space_id=space_id)
        return self._apply(None, decided)

    async def close_together(self, space_ids: Sequence[str], ending: Ending, parts: Sequence[Part]) -> EchoError | None:
        """Have the end of all of these written, with parts of others, by the holder of their turns, who is shielded.

        After None, `end_written` is called next. Those that are over already are not missed.
        """
        return await self._log.append_together(self._closings(space_ids, ending, self.now().wall_ms), *parts)

    def _closings(self, space_ids: Sequence[str], ending: Ending, now_ms: int) -> dict[str, Sequence[Event]]:
        live = [space for space in map(self.get, space_ids) if space is not None]
        closings = {space.space_id: close_space(space, ending, now_ms) for space in live}
        return {space_id: decided for space_id, decided in closings.items() if not isinstance(decided, EchoError)}

    async def end_written(self, space_ids: Sequence[str], ending: Ending) -> None:
        """End spaces at once of which the log says so already. What the disk refuses, `run` goes on erasing."""
        live = [space_id for space_id in space_ids if self._spaces.get(space_id) is not None]
        for space_id in live:
            self._over(space_id, ending)
        with trio.CancelScope(shield=True):
            await self._erasing.erase_due()

    def find(self, token: str) -> Space | None:
        """The live space of this token. Hashed first: unknown and ended take as long, and are told apart by nothing."""
        return self._spaces.find(token, self.now().wall_ms)

    def is_live(self, space_id: str) -> bool:
        """Whether it is still there, for those who have waited meanwhile."""
        return self.get(space_id) is not None

    def get(self, space_id: str) -> Space | None:
        """A live one, by its name: whoever asks has to show something else."""
        space = self._spaces.get(space_id)
        return space if space is not None and space.is_live(self.now().wall_ms) else None

    def seal_token(self, space_id: str, token: str) -> bytes:
        """As its events keep a token that is shown again; empty where none is."""
        return b"" if self._seal is None or not token else self._seal.seal(space_id, token)

    def token_of(self, space: Space) -> str | None:
        """To be shown to whoever may see it. None: its events do not have it, or `echo.key` is another by now."""
        return None if self._seal is None else self._seal.open(space.space_id, space.sealed_token)

    async def move_end(self, space_id: str, claim: str | None, ttl_s: int) -> Space | EchoError:
        """To `ttl_s` from now, by its creator; without a claim, by an owner.

        `rate_limited`: `move_wait_ms` says for how long.
        """
        fault = self.claim_fault(space_id, claim)
        if fault is not None:
            return fault
        turn = self._turns.of(space_id, self.now().mono_s)
        async with turn.lock:
            with trio.CancelScope(shield=True):
                answer = await self._move_end(space_id, ttl_s, turn)
        return answer

    async def _move_end(self, space_id: str, ttl_s: int, turn: SpaceTurn) -> Space | EchoError:
        space = self._spaces.get(space_id)
        if space is None:
            return EchoError.SPACE_NOT_FOUND
        decided = move_end(space, ttl_s, self.settings, self.now().wall_ms)
        if isinstance(decided, EchoError):
            return decided
        if not decided:
            return space
        fault = self.disk_fault()
        if fault is None and turn.moves.take(self.now().mono_s) is not None:
            fault = EchoError.RATE_LIMITED
        fault = fault or await self._log.append(space_id, decided)
        if fault is not None:
            return fault
        if not self.is_live(space_id):  # its end came meanwhile, and somebody may have been told so
            return EchoError.SPACE_NOT_FOUND
        moved = self._apply(space, decided)
        self._wake.set()
        self.on_move(space_id, moved.ends_at_ms)
        return moved

    def move_wait_ms(self, space_id: str) -> int | None:
        """How long until its end may be moved again; None: now."""
        return self._turns.move_wait_ms(space_id, self.now().mono_s)

    def turn(self, space_id: str) -> trio.Lock:
        """To be held by whoever decides on a live space elsewhere, and has that recorded."""
        return self._turns.of(space_id, self.now().mono_s).lock

    def giving_fault(self, space_id: str) -> EchoError | None:
        """Why members of it cannot be given anything now, for the holder of its `turn`. None: it counts as given.

        Spaces that are full are no reason: who cannot refresh a token cannot read either.
        """
        if self._has_short_disk():
            return EchoError.STORAGE_NOT_READY
        now_s = self.now().mono_s
        return None if self._turns.of(space_id, now_s).givings.take(now_s) is None else EchoError.OVERLOADED

    async def record(self, space_id: str, decided: Sequence[Event], *parts: Part) -> bool | EchoError:
        """Write what was decided by the holder of its `turn`. Once begun it is finished, whoever still waits.

        True: it is true of the space. False: it is written, but the space ended meanwhile, and nobody asks any more.
        `parts` of others are written with it.
        """
        with trio.CancelScope(shield=True):
            fault = await self._log.append_together({space_id: decided} if decided else {}, *parts)
        if fault is not None:
            return fault
        current = self._spaces.get(space_id)
        if current is not None:
            self._apply(current, decided)
        return current is not None

    async def delete(self, space_id: str, claim: str | None) -> EchoError | None:
        """By its creator; without a claim, by an owner. None when nothing of it is left."""
        space = self._claimed(space_id, claim)
        return space if isinstance(space, EchoError) else await self.close(space_id, Ending.DELETED)

    async def close(self, space_id: str, ending: Ending) -> EchoError | None:
        """By somebody who may. Refused by the disk, it is over nevertheless, and `run` goes on erasing it."""
        if not self.is_live(space_id):
            return EchoError.SPACE_NOT_FOUND
        async with self._turns.of(space_id, self.now().mono_s).lock:
            with trio.CancelScope(shield=True):
                fault = await self._close(space_id, ending)
        return fault

    async def _close(self, space_id: str, ending: Ending) -> EchoError | None:
        space = self._spaces.get(space_id)
        decided = EchoError.SPACE_NOT_FOUND if space is None else close_space(space, ending, self.now().wall_ms)
        if isinstance(decided, EchoError):
            return decided
        # So that it stays closed if the process dies before its key is gone. It ends though the log takes nothing.
        await self._log.append(space_id, decided)
        if self._spaces.get(space_id) is None:  # its end came meanwhile
            return EchoError.SPACE_NOT_FOUND
        self._over(space_id, ending)
        return None if await self._erasing.erase(space_id) else EchoError.STORAGE_NOT_READY

    def claim_fault(self, space_id: str, claim: str | None) -> EchoError | None:
        """What there is against this claim, for whoever asks before anything else."""
        space = self._claimed(space_id, claim)
        return space if isinstance(space, EchoError) else None

    def _claimed(self, space_id: str, claim: str | None) -> Space | EchoError:
        space = self.get(space_id)
        if space is None:
            return EchoError.SPACE_NOT_FOUND
        return space if claim is None or holds_claim(space, claim) else EchoError.UNAUTHORIZED

    def _apply(self, space: Space | None, decided: Sequence[Event]) -> Space:
        for event in decided:
            space = events.evolve(space, event)
        assert space is not None
        self._spaces.put(space)
        return space

    # ---- ends --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """End spaces on time, and sweep out values that have expired."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sweep)
            while True:
                await self._note_ends()
                nursery.start_soon(self._erasing.erase_due)  # those that end next do not wait for these
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
                self._over(space.space_id, Ending.EXPIRED)
            if number % IN_ONE_GO_MAX == 0:
                await trio.lowlevel.checkpoint()

    def _over(self, space_id: str, ending: Ending) -> None:
        """From here on nobody finds it."""
        self._spaces.remove(space_id)
        self._indexes.forget(space_id)
        self._turns.forget(space_id)
        self._note_end(space_id, ending)
        for tell in self.on_end:
            tell(space_id)

    def _note_end(self, space_id: str, ending: Ending) -> None:
        self._erasing.add(space_id)
        self.counts.ended[ending] += 1
        log.info("space_ended", space_id=space_id, reason=str(ending))

    async def _sweep(self) -> None:
        """Every minute, beside all else: it may take long."""
        while True:
            await trio.sleep(SWEEP_S)
            if self._spaces:
                await self._log.note_seen(self.now().wall_ms)
            await self.sweep_values()

    async def sweep_values(self) -> None:
        """Remove what has expired, of spaces that are open or not. A disk that refuses is asked the next time."""
        for number, space in enumerate(list(self._spaces), start=1):
            due_ms, now_ms = self.store.next_expiry_ms(space.space_id), self.now().wall_ms
            if due_ms is not None and due_ms <= now_ms:
                swept = await self.store.sweep_expired(space.space_id, now_ms)
                if isinstance(swept, Refused) and swept != NOT_FOUND:
                    return
            elif number % IN_ONE_GO_MAX == 0:
                await trio.lowlevel.checkpoint()

    # ---- for whoever looks into a space ------------------------------------------------------------------------------

    async def opened(self, space_id: str) -> bool:
        """Have the index of a space in memory until the next wait; False if there is no such space."""
        if not await self.store.open(space_id) or not self.is_live(space_id):
            return False
        self._indexes.use(space_id)
        return True

    def disk_fault(self, more_bytes: int = 0) -> EchoError | None:
        """Why as much as this may not be written at present, to any space or beside them; reads go on."""
        kept_bytes = self.store.totals().bytes + self.bytes_beside()
        is_full = kept_bytes + max(1, more_bytes) > self.settings.total_bytes_max
        return EchoError.STORAGE_NOT_READY if is_full or self._has_short_disk() else None

    def _has_short_disk(self) -> bool:
        now_s = self.now().mono_s
        if now_s >= self._disk_seen_s + DISK_S:
            self._is_disk_short = self.store.disk_free_ratio() < self.settings.disk_free_min
            self._disk_seen_s = now_s
        return self._is_disk_short


def error_of(refused: Refused) -> EchoError:
    return EchoError[refused.reason.name]
