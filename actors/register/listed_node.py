"""A node as operators have it in their lists: what the register says of it, and what the directory does. Pure.

enrolled   it has never announced itself       live, away, expired   by its session and its manifest
revoked    for good, until it is forgotten
"""

from dataclasses import dataclass
from enum import StrEnum

from actors.bus.directory import NodeRecord
from actors.register.events import Member
from schemas.closes import NodeClose


class ListedState(StrEnum):
    ENROLLED = "enrolled"
    LIVE = "live"
    AWAY = "away"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class ListedNode:
    """One of both: a node that never announced itself, or one that a version without a register enrolled."""

    member: Member | None
    record: NodeRecord | None

    @property
    def known(self) -> Member | NodeRecord:
        known: Member | NodeRecord | None = self.member or self.record
        assert known is not None
        return known

    def state(self, wall_ms: int) -> ListedState:
        if self.member is not None and self.member.is_revoked:
            return ListedState.REVOKED
        return ListedState.ENROLLED if self.record is None else ListedState(self.record.presence(wall_ms))

    @property
    def left(self) -> NodeClose | None:
        """How its last session ended. Whoever is revoked cannot come back, however it went."""
        if self.member is not None and self.member.is_revoked:
            return NodeClose.FORBIDDEN
        return None if self.record is None else self.record.left
