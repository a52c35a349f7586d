"""Whose a `uid` is, in a room with IAM: the member's who used it first, for as long as the room lives. Pure.

Names that clients chose are kept, so a member may choose only so many: else one could leave none to the others. Those
that the gateway made are random, so only the latest are: as many as there may be connections that come back for what
was sent to them.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass

MINTED_MAX = 1_024  # of a room; then the one used least recently is nobody's any more


@dataclass(frozen=True, slots=True)
class UidLimits:
    """How many names may be chosen."""

    in_all_max: int
    of_member_max: int


class UidOwners:
    def __init__(self) -> None:
        self._named: dict[str, str] = {}
        self._of_member: Counter[str] = Counter()  # how many they chose
        self._minted: OrderedDict[str, str] = OrderedDict()

    def owner(self, uid: str) -> str | None:
        return self._named.get(uid) or self._minted.get(uid)

    def is_named(self, uid: str) -> bool:
        return uid in self._named

    def may_claim(self, uid: str, member_id: str, limits: UidLimits, *, is_minted: bool) -> bool:
        """Whether it is, or may become, this member's."""
        owner = self.owner(uid)
        return owner == member_id if owner is not None else is_minted or self.has_room_for(member_id, limits)

    def has_room_for(self, member_id: str, limits: UidLimits) -> bool:
        """Whether another name may become this member's for good."""
        return len(self._named) < limits.in_all_max and self._of_member[member_id] < limits.of_member_max

    def name(self, uid: str, member_id: str) -> None:
        """It is theirs for good. The first one keeps it."""
        if uid not in self._named:
            self._named[uid] = member_id
            self._of_member[member_id] += 1
        self._minted.pop(uid, None)

    def mint(self, uid: str, member_id: str) -> None:
        self._minted[uid] = member_id
        self._minted.move_to_end(uid)
        if len(self._minted) > MINTED_MAX:
            self._minted.popitem(last=False)
