"""The section `[members]`: how many people may sign agents in, and how long what they give lasts."""

from dataclasses import dataclass

from actors.grants.grant_rules import GrantLimits

ACCESS_S_MAX = 600


@dataclass(frozen=True, slots=True)
class MemberSettings:
    members_max: int = 1_000  # of all tenants, not revoked; the next invitation is refused
    passkeys_max: int = 10  # of a member; the next one is refused
    invite_s: int = 86_400  # life of an invitation; then its link is refused, and the operator makes another
    access_s: int = 600  # life of an access token, 600 at most; then it is refused, and the client refreshes
    refresh_s: int = 30 * 86_400  # of a grant without a refresh; then it is over, and the member signs in again
    grant_s: int = 90 * 86_400  # of a grant however often it is refreshed; then it is over
    grants_max: int = 16  # of a member, standing; one more ends the one that was refreshed least recently
    rotations_max: int = (
        15_000  # refreshes of one grant, enough for `grant_s` at full use; then the member signs in again
    )

    def __post_init__(self) -> None:
        if not 0 < self.access_s <= ACCESS_S_MAX:
            raise ValueError(f"members.access_s is a number of seconds from 1 to {ACCESS_S_MAX}")
        rest = (self.members_max, self.passkeys_max, self.invite_s, self.refresh_s, self.grant_s, self.grants_max)
        if min(*rest, self.rotations_max) < 1:
            raise ValueError("what is in the section members is at least 1")

    @property
    def grant_limits(self) -> GrantLimits:
        return GrantLimits(self.access_s, self.refresh_s, self.grant_s, self.rotations_max, self.grants_max)
