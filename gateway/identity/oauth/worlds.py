"""What the authorization server stands on: those who have members and grants, and passkeys. Joined at the root.

A world is a space with IAM, or a tenant's people. Which one a credential is of, its realm says: `space:<id>` or
`fleet:<tenant>`. Each world keeps its grants itself, as hashes; tokens pass through here and are kept nowhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from gateway.identity.oauth.oauth_errors import OAuthError

FLEET = "fleet:"
SPACE = "space:"


@dataclass(frozen=True, slots=True)
class SignedInMember:
    """Whose credential it is."""

    realm: str
    member_id: str
    label: str
    credential_id: bytes
    user_handle: bytes
    public_key: bytes
    sign_count: int
    scopes: frozenset[str]

    @property
    def is_of_fleet(self) -> bool:
        return self.realm.startswith(FLEET)


@dataclass(frozen=True, slots=True)
class TokenAnswer:
    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    expires_in_s: int
    scopes: frozenset[str]
    realm: str
    grant_id: str


class Worlds(Protocol):
    """What cannot be written at present is `server_error`, and has not happened."""

    def find(self, credential_id: bytes) -> SignedInMember | None:
        """Whose passkey it is, in any world."""
        ...

    async def use_passkey(self, member: SignedInMember, sign_count: int) -> OAuthError | None:
        """It has signed, with this count, which is kept for the next time."""
        ...

    async def issue(
        self, member: SignedInMember, scopes: frozenset[str], client_name: str, resource: str
    ) -> TokenAnswer | OAuthError:
        """A new grant: `invalid_grant` when the member is gone, or no longer has these scopes.

        `client_name` is what the client calls itself, for people who look at their grants.
        """
        ...

    async def refresh(self, refresh_token: str, scopes: frozenset[str] | None) -> TokenAnswer | OAuthError:
        """The next pair: `invalid_grant`, or `invalid_scope` when these are more than were granted."""
        ...

    async def revoke(self, token: str) -> OAuthError | None:
        """End the grant of this access or refresh token. One that has none is no fault."""
        ...

    async def end_grant(self, realm: str, grant_id: str) -> OAuthError | None: ...


# ---- passkeys --------------------------------------------------------------------------------------------------------


class SignInFault(Enum):
    REFUSED = "refused"
    """The ceremony is none of this browser, has ended or was used, or the passkey did not prove what it should."""
    CREDENTIAL_UNKNOWN = "credential_unknown"
    """No world has it: the browser may forget it."""
    UNAVAILABLE = "unavailable"
    """It proved itself, and that could not be written: the person tries again later."""


@dataclass(frozen=True, slots=True)
class BegunSignIn:
    ceremony: str
    public_key: Mapping[str, Any]
    """For `navigator.credentials.get`, in JSON."""


@dataclass(frozen=True, slots=True)
class SignIn:
    member: SignedInMember
    context: object
    """What the ceremony was begun with."""


class PasskeySignIn(Protocol):
    """Ceremonies for any member of a space or a fleet. Each belongs to one browser, and is good once.

    What `finish` finds in order has been told to `Worlds.use_passkey`.
    """

    def begin(self, browser: str, address: str, context: object) -> BegunSignIn: ...

    async def finish(self, ceremony: str, browser: str, credential: Mapping[str, Any]) -> SignIn | SignInFault: ...
