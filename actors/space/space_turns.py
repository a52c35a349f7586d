"""Turns of those who want to change the same space, and how often its end may be moved. What they change is theirs."""

from dataclasses import dataclass, field

import trio

from actors.bucket_rules import TokenBucket
from actors.space.settings import SpaceSettings


@dataclass(slots=True, eq=False)
class SpaceTurn:
    moves: TokenBucket
    lock: trio.Lock = field(default_factory=trio.Lock)


class SpaceTurns:
    """Of spaces that somebody has wanted to change; each is forgotten with its space."""

    def __init__(self, settings: SpaceSettings) -> None:
        self._burst = settings.end_moves_burst
        self._per_s = settings.end_moves_per_min / 60
        self._turns: dict[str, SpaceTurn] = {}

    def of(self, space_id: str, now_s: float) -> SpaceTurn:
        if space_id not in self._turns:
            self._turns[space_id] = SpaceTurn(TokenBucket.full(self._per_s, self._burst, now_s))
        return self._turns[space_id]

    def forget(self, space_id: str) -> None:
        """Whoever still waits finds that it is over."""
        self._turns.pop(space_id, None)

    def move_wait_ms(self, space_id: str, now_s: float) -> int | None:
        turn = self._turns.get(space_id)
        return None if turn is None else turn.moves.wait_ms(now_s)
