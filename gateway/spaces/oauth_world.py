"""Spaces with IAM as a world of the authorization server: their members, passkeys and grants, in its words."""

from actors.grants.grant_rules import GrantFault
from actors.space.iam import SpaceIam
from actors.space.iam_tokens import Tokens
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.worlds import SPACE, SignedInMember, TokenAnswer
from schemas.echo.errors import EchoError

_UNAVAILABLE = frozenset({EchoError.STORAGE_NOT_READY, EchoError.OVERLOADED})


class SpaceWorld:
    def __init__(self, iam: SpaceIam) -> None:
        self._iam = iam

    def find(self, credential_id: bytes) -> SignedInMember | None:
        known = self._iam.find_passkey(credential_id)
        if known is None:
            return None
        member, passkey = known.member, known.passkey
        return SignedInMember(
            realm=f"{SPACE}{known.space_id}",
            member_id=member.member_id,
            label=member.label,
            credential_id=credential_id,
            user_handle=member.user_handle,
            public_key=passkey.public_key,
            sign_count=passkey.sign_count,
            scopes=member.scopes,
        )

    async def use_passkey(self, member: SignedInMember, sign_count: int) -> OAuthError | None:
        known = self._iam.find_passkey(member.credential_id)
        if known is None:
            return OAuthError.INVALID_GRANT
        return _fault(await self._iam.use_passkey(known, sign_count))

    async def issue(
        self,
        member: SignedInMember,
        scopes: frozenset[str],
        client_name: str,
        resource: str,  # noqa: ARG002  # a space has one
    ) -> TokenAnswer | OAuthError:
        return _answer(await self._iam.issue(_space_id(member.realm), member.member_id, scopes, client_name))

    async def refresh(self, refresh_token: str, scopes: frozenset[str] | None) -> TokenAnswer | OAuthError:
        return _answer(await self._iam.refresh(refresh_token, scopes))

    async def revoke(self, token: str) -> OAuthError | None:
        return _fault_of_end(await self._iam.revoke(token))

    async def end_grant(self, realm: str, grant_id: str) -> OAuthError | None:
        return _fault_of_end(await self._iam.end_grant(_space_id(realm), grant_id))


def _space_id(realm: str) -> str:
    return realm.removeprefix(SPACE)


def _answer(given: Tokens | GrantFault | EchoError) -> TokenAnswer | OAuthError:
    if isinstance(given, Tokens):
        realm = f"{SPACE}{given.space_id}"
        return TokenAnswer(
            given.access_token, given.refresh_token, given.expires_in_s, given.scopes, realm, given.grant_id
        )
    if given is GrantFault.SCOPE:
        return OAuthError.INVALID_SCOPE
    return OAuthError.SERVER_ERROR if given in _UNAVAILABLE else OAuthError.INVALID_GRANT


def _fault(error: EchoError | None) -> OAuthError | None:
    if error is None:
        return None
    return OAuthError.SERVER_ERROR if error in _UNAVAILABLE else OAuthError.INVALID_GRANT


def _fault_of_end(error: EchoError | None) -> OAuthError | None:
    """What is gone already is ended: only what could not be written is a fault."""
    return OAuthError.SERVER_ERROR if error in _UNAVAILABLE else None
