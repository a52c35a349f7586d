"""Several worlds as one: by the realm of a member or a grant, and for tokens by asking one after the other."""

from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.worlds import SignedInMember, TokenAnswer, Worlds


class JoinedWorlds:
    """A credential and a token are of one world at most; the others do not know them."""

    def __init__(self, **of_kind: Worlds) -> None:
        """By the word before the colon of its realms."""
        self._of_kind = of_kind

    def find(self, credential_id: bytes) -> SignedInMember | None:
        return next(filter(None, (world.find(credential_id) for world in self._of_kind.values())), None)

    async def use_passkey(self, member: SignedInMember, sign_count: int) -> OAuthError | None:
        return await self._of(member.realm).use_passkey(member, sign_count)

    async def issue(
        self, member: SignedInMember, scopes: frozenset[str], client_name: str, resource: str
    ) -> TokenAnswer | OAuthError:
        return await self._of(member.realm).issue(member, scopes, client_name, resource)

    async def refresh(self, refresh_token: str, scopes: frozenset[str] | None) -> TokenAnswer | OAuthError:
        for world in self._of_kind.values():
            given = await world.refresh(refresh_token, scopes)
            if given is not OAuthError.INVALID_GRANT:
                return given
        return OAuthError.INVALID_GRANT

    async def revoke(self, token: str) -> OAuthError | None:
        faults = [await world.revoke(token) for world in self._of_kind.values()]
        return next(filter(None, faults), None)

    async def end_grant(self, realm: str, grant_id: str) -> OAuthError | None:
        return await self._of(realm).end_grant(realm, grant_id)

    def _of(self, realm: str) -> Worlds:
        return self._of_kind[realm.partition(":")[0]]
