"""Whose a `uid` is, in a room with IAM: the member's who used it first, for as long as the room lives. Pure.

Names that clients chose are kept; those that the gateway made are random, so only the latest are: as many as there may
be connections that come back for what was sent to them.
"""

from collections import OrderedDict

MINTED_MAX = 1_024  # of a room; then the one used least recently is nobody's any more


class UidOwners:
    def __init__(self) -> None:
        self._named: dict[str, str] = {}
        self._minted: OrderedDict[str, str] = OrderedDict()

    def owner(self, uid: str) -> str | None:
        return self._named.get(uid) or self._minted.get(uid)

    def is_named(self, uid: str) -> bool:
        return uid in self._named

    def may_claim(self, uid: str, member_id: str, named_max: int, *, is_minted: bool) -> bool:
        """Whether it is, or may become, this member's."""
        owner = self.owner(uid)
        return owner == member_id if owner is not None else is_minted or not self.is_full(named_max)

    def is_full(self, named_max: int) -> bool:
        """No other name becomes somebody's for good."""
        return len(self._named) >= named_max

    def name(self, uid: str, member_id: str) -> None:
        """It is theirs for good. The first one keeps it."""
        self._named.setdefault(uid, member_id)
        self._minted.pop(uid, None)

    def mint(self, uid: str, member_id: str) -> None:
        self._minted[uid] = member_id
        self._minted.move_to_end(uid)
        if len(self._minted) > MINTED_MAX:
            self._minted.popitem(last=False)
