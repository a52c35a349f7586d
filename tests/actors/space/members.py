"""IAM of a room under test: tokens that say themselves what they are good for, `member/grant/scope,scope`."""

from actors.grants.grants import Access
from actors.space.uid_rules import UidLimits, UidOwners

NAMES_MAX = 8


class FakeIam:
    """Implements `actors.space.room_iam.RoomIam`."""

    def __init__(self) -> None:
        self.ended: set[str] = set()  # grants
        self.uids = UidOwners()

    def find(self, access_token: str) -> Access | None:
        if access_token.count("/") != 2:
            return None
        member_id, grant_id, scopes = access_token.split("/")
        return None if grant_id in self.ended else Access(grant_id, member_id, frozenset(scopes.split(",")), 2**62)

    def claim_uid(self, uid: str, member_id: str, *, is_minted: bool) -> bool:
        if not self.uids.may_claim(uid, member_id, UidLimits(NAMES_MAX, NAMES_MAX), is_minted=is_minted):
            return False
        (self.uids.mint if is_minted else self.uids.name)(uid, member_id)
        return True

    def uid_owner(self, uid: str) -> str | None:
        return self.uids.owner(uid)
