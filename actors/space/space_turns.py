"""Turns of those who want to change the same space, and how often that may be. What they change is theirs."""

from dataclasses import dataclass, field

import trio

from actors.bucket_rules import TokenBucket
from actors.space.settings import SpaceSettings


@dataclass(slots=True, eq=False)
class SpaceTurn:
    moves: TokenBucket  # of its end
    givings: TokenBucket  # of what members are given: each makes its stream longer
    lock: trio.Lock = field(default_factory=trio.Lock)


class SpaceTurns:
    """Of spaces that somebody has wanted to change; each is forgotten with its space."""

    def __init__(self, settings: SpaceSettings) -> None:
        self._settings = settings
        self._turns: dict[str, SpaceTurn] = {}

    def of(self, space_id: str, now_s: float) -> SpaceTurn:
        if space_id not in self._turns:
            settings = self._settings
            self._turns[space_id] = SpaceTurn(
                TokenBucket.full(settings.end_moves_per_min / 60, settings.end_moves_burst, now_s),
                TokenBucket.full(settings.iam_givings_per_min / 60, settings.iam_givings_burst, now_s),
            )
        return self._turns[space_id]

    def forget(self, space_id: str) -> None:
        """Whoever still waits finds that it is over."""
        self._turns.pop(space_id, None)

    def move_wait_ms(self, space_id: str, now_s: float) -> int | None:
        turn = self._turns.get(space_id)
        return None if turn is None else turn.moves.wait_ms(now_s)
