"""What members and owners of a space are given, in the clear: once, and in no dump."""

from collections.abc import Callable
from dataclasses import dataclass, field

from actors.grants.grant_rules import NewTokens
from actors.space.iam_events import Passkey
from actors.space.iam_rules import IamMember
from schemas.echo.names import IAM_ACCESS, IAM_REFRESH, SECRET_BYTES, credential, credential_hash


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a member is given, and nobody can be told again."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_in_s: int
    scopes: frozenset[str]
    space_id: str
    member_id: str
    grant_id: str


@dataclass(frozen=True, slots=True)
class Invited:
    invite: str = field(repr=False)
    ends_ms: int


@dataclass(frozen=True, slots=True)
class KnownPasskey:
    """A passkey, and whose it is."""

    space_id: str
    member: IamMember
    passkey: Passkey


@dataclass(frozen=True, slots=True)
class TokenPair:
    """New ones, which nobody has yet."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)

    @property
    def hashes(self) -> NewTokens:
        return NewTokens(credential_hash(self.access), credential_hash(self.refresh))


def new_pair(random: Callable[[int], bytes]) -> TokenPair:
    return TokenPair(*(credential(prefix, random(SECRET_BYTES)) for prefix in (IAM_ACCESS, IAM_REFRESH)))
