"""The life of a space: who may begin one, how long it lasts, and what ends it. Pure.

    (nothing) ── open ──► live ── its end, by the clock ──► over
                            ├──── deleted, closed, booked away ──► over
                            └──── its end is moved ──► live

A space is over at the very instant of its end, for everybody who asks: no event says so, and the erasing may come a
moment later. No space lasts longer than `room_ttl_s` from now, whenever that is asked for. Random tokens and ids
are the caller's; what is in a space, and in its room, is not known here.
"""

import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from actors.space.events import Ending, Event, Space, SpaceClosed, SpaceEndMoved, SpaceOpened
from actors.space.settings import SpaceSettings
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from schemas.echo.names import credential_hash

MOVE_MS_MIN = 1_000  # by which an end has to be moved; less changes nothing
DEAD_ENDS_MAX = 64  # entries of ends that were moved or removed, besides as many as there are spaces; then they go

Decision: TypeAlias = Sequence[Event] | EchoError


@dataclass(frozen=True, slots=True)
class NewSpace:
    """What somebody wants to open. Credentials are hashes already."""

    space_id: str
    token_hash: bytes
    claim_hash: bytes | None = None
    protocol: Encoding = Encoding.JSON
    is_encrypted: bool = False
    ttl_s: int | None = None  # None: as long as it may
    project_id: str | None = None
    sealed_token: bytes = b""


_NO_SPACE = Space("", b"", None, Encoding.JSON, False, 0, 0)
"""In the place of one that is not there: over since ever."""


class Spaces:
    """All spaces of a gateway that are not forgotten yet, by the hash of their token and by id."""

    def __init__(self, spaces: Iterable[Space] = ()) -> None:
        self._by_id = {space.space_id: space for space in spaces}
        self._by_token = {space.token_hash: space for space in self._by_id.values()}
        # When each may end, the soonest first. An entry that no longer tells the truth is dropped when it is met.
        self._ends = self._all_ends()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Space]:
        return iter(self._by_id.values())

    def find(self, token: str, now_ms: int) -> Space | None:
        """The live space of this token. Unknown and ended tokens take the same steps, the hash first."""
        space = self._by_token.get(credential_hash(token), _NO_SPACE)
        return space if space.is_live(now_ms) else None

    def get(self, space_id: str) -> Space | None:
        """Also one that is over."""
        return self._by_id.get(space_id)

    def put(self, space: Space) -> None:
        """A new one, or one that has changed."""
        before = self._by_id.get(space.space_id)
        self._by_id[space.space_id] = self._by_token[space.token_hash] = space
        if before is None or before.ends_at_ms != space.ends_at_ms:
            heappush(self._ends, (space.ends_at_ms, space.space_id))
            if len(self._ends) > 2 * len(self._by_id) + DEAD_ENDS_MAX:
                self._ends = self._all_ends()

    def remove(self, space_id: str) -> None:
        """Nothing of it is left."""
        space = self._by_id.pop(space_id, None)
        if space is not None:
            del self._by_token[space.token_hash]

    def next_end_ms(self) -> int | None:
        """When the next one expires; None: there is none. One that is closed already does not expire."""
        while self._ends:
            ends_at_ms, space_id = self._ends[0]
            space = self._by_id.get(space_id)
            if space is not None and space.ending is None and space.ends_at_ms == ends_at_ms:
                return ends_at_ms
            heappop(self._ends)
        return None

    def _all_ends(self) -> list[tuple[int, str]]:
        ends = [(space.ends_at_ms, space.space_id) for space in self._by_id.values()]
        heapify(ends)
        return ends

    def expired(self, now_ms: int) -> list[Space]:
        """Those whose end has come and that are not closed yet, the earliest first."""
        due: dict[str, Space] = {}
        while (ends_at_ms := self.next_end_ms()) is not None and ends_at_ms <= now_ms:
            space_id = heappop(self._ends)[1]
            due[space_id] = self._by_id[space_id]
        for space in due.values():  # until they are removed
            heappush(self._ends, (space.ends_at_ms, space.space_id))
        return list(due.values())


def open_space(wish: NewSpace, spaces_now: int, settings: SpaceSettings, now_ms: int) -> Decision:
    """`spaces_now`: how many there are already."""
    ends_at_ms = _end(wish.ttl_s, settings, now_ms)
    if ends_at_ms is None:
        return EchoError.INVALID_PAYLOAD
    if spaces_now >= settings.spaces_max:
        return EchoError.OVERLOADED
    return (
        SpaceOpened(
            now_ms,
            wish.space_id,
            wish.token_hash,
            wish.claim_hash,
            wish.protocol,
            wish.is_encrypted,
            ends_at_ms,
            wish.project_id,
            wish.sealed_token,
        ),
    )


def move_end(space: Space, ttl_s: int, settings: SpaceSettings, now_ms: int) -> Decision:
    """From now, and never beyond `room_ttl_s`. That the asker may is for the caller to see to (`holds_claim`).

    A move by less than `MOVE_MS_MIN` is none: asked for again and again, the same life is written once a second.
    """
    if not space.is_live(now_ms):
        return EchoError.SPACE_NOT_FOUND
    ends_at_ms = _end(ttl_s, settings, now_ms)
    if ends_at_ms is None:
        return EchoError.INVALID_PAYLOAD
    return () if abs(ends_at_ms - space.ends_at_ms) < MOVE_MS_MIN else (SpaceEndMoved(now_ms, ends_at_ms),)


def resume(space: Space, seen_ms: int, settings: SpaceSettings, now_ms: int) -> Sequence[SpaceEndMoved]:
    """After a restart, of a space that was last seen then.

    It lasts no longer than it would have at that time, even if now seems to be earlier: then the clock was set back
    meanwhile, or was ahead before. Nor does it last longer than `room_ttl_s`, which may have been lowered.
    """
    if space.ending is not None:
        return ()
    left_ms = min(space.ends_at_ms - max(seen_ms, now_ms), 1000 * settings.room_ttl_s)
    return () if now_ms + left_ms == space.ends_at_ms else (SpaceEndMoved(now_ms, now_ms + left_ms),)


def close_space(space: Space, ending: Ending, now_ms: int) -> Decision:
    """By somebody who may. One that has expired meanwhile is not there to be closed."""
    return (SpaceClosed(now_ms, ending),) if space.is_live(now_ms) else EchoError.SPACE_NOT_FOUND


def holds_claim(space: Space, claim: str) -> bool:
    """Whether this is its creator's claim."""
    return hmac.compare_digest(credential_hash(claim), space.claim_hash or b"")


def _end(ttl_s: int | None, settings: SpaceSettings, now_ms: int) -> int | None:
    if ttl_s is not None and not settings.ttl_s_min <= ttl_s <= settings.ttl_s_max:
        return None
    return now_ms + 1000 * (settings.room_ttl_s if ttl_s is None else min(ttl_s, settings.room_ttl_s))
