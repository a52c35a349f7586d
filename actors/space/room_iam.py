"""What a room asks of the IAM of its space. Nothing waits: connections come and go between two steps of the loop."""

from typing import Protocol

from actors.grants.grants import Access


class RoomIam(Protocol):
    def find(self, access_token: str) -> Access | None:
        """What this access token is good for in this space, now."""

    def claim_uid(self, uid: str, member_id: str, *, is_minted: bool) -> bool:
        """Whether this member may go by this `uid`, which is theirs from then on."""

    def uid_owner(self, uid: str) -> str | None:
        """The member who goes by it."""


class NoIam:
    """Of a space that never has any: nobody is let in by it."""

    def find(self, _access_token: str) -> Access | None:
        return None

    def claim_uid(self, _uid: str, _member_id: str, *, is_minted: bool) -> bool:  # noqa: ARG002 - the port's name
        return False

    def uid_owner(self, _uid: str) -> str | None:
        return None
