"""What operators and clients are given, in the clear: once, and in no dump."""

from dataclasses import dataclass, field

from actors.member.member_events import Member


@dataclass(frozen=True, slots=True)
class Invited:
    member: Member
    invite: str = field(repr=False)
    ends_ms: int


@dataclass(frozen=True, slots=True)
class Issued:
    """What an access token is to say, and the refresh token that goes with it."""

    member: Member
    grant_id: str
    scopes: frozenset[str]
    life_s: int
    resource: str
    refresh_token: str = field(repr=False)
