"""Members of tenants as a world of the authorization server: what they grant becomes tokens of their agents.

An access token is a JWT as every agent has one, so nothing behind the verifier knows of OAuth. It names its grant, and
as audiences the endpoint that it was asked for and ours.
"""

from collections.abc import Callable

from actors.grants.grant_rules import GrantFault
from actors.member.given import Issued
from actors.member.member_rules import Trouble
from actors.member.members import Members
from actors.node.moment import Moment
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.worlds import FLEET, SignedInMember, TokenAnswer
from gateway.identity.tokens import Issuer, Principal, Scope, TokenClass, Verifier


def realm_of(tenant: str) -> str:
    return f"{FLEET}{tenant}"


class FleetWorld:
    def __init__(
        self,
        members: Members,
        issuer: Issuer,
        verifier: Verifier,
        base: Callable[[], str],
        new_id: Callable[[], str],
        now: Callable[[], Moment],
    ) -> None:
        """`now` is the clock by which tokens are verified."""
        self._members = members
        self._issuer = issuer
        self._verifier = verifier
        self._base = base
        self._new_id = new_id
        self._now = now

    def find(self, credential_id: bytes) -> SignedInMember | None:
        member = self._members.of_passkey(credential_id)
        passkey = None if member is None else member.passkey(credential_id)
        if member is None or passkey is None:
            return None
        return SignedInMember(
            realm=realm_of(member.tenant),
            member_id=member.member_id,
            label=member.label,
            credential_id=credential_id,
            user_handle=member.user_handle,
            public_key=passkey.public_key,
            sign_count=passkey.sign_count,
            scopes=member.scopes,
        )

    async def use_passkey(self, member: SignedInMember, sign_count: int) -> OAuthError | None:
        return _fault(await self._members.use_passkey(member.credential_id, sign_count))

    async def issue(
        self, member: SignedInMember, scopes: frozenset[str], client_name: str, resource: str
    ) -> TokenAnswer | OAuthError:
        path = resource.removeprefix(self._base())  # of a gateway that has moved, it is the same endpoint
        issued = await self._members.issue(member.member_id, member.credential_id, scopes, client_name, path)
        return self._answer(issued)

    async def refresh(self, refresh_token: str, scopes: frozenset[str] | None) -> TokenAnswer | OAuthError:
        return self._answer(await self._members.refresh(refresh_token, scopes))

    async def revoke(self, token: str) -> OAuthError | None:
        principal = self._verifier.verify(token, TokenClass.AGENT_RUNTIME, self._now().wall_ms)
        if isinstance(principal, Principal):
            trouble = None if principal.gid is None else await self._members.end_grant(principal.gid)
        else:
            trouble = await self._members.revoke_token(token)
        return OAuthError.SERVER_ERROR if trouble is Trouble.NOT_WRITTEN else None

    async def end_grant(self, realm: str, grant_id: str) -> OAuthError | None:  # noqa: ARG002  # its id says enough
        trouble = await self._members.end_grant(grant_id)
        return OAuthError.SERVER_ERROR if trouble is Trouble.NOT_WRITTEN else None

    def _answer(self, issued: Issued | GrantFault | Trouble) -> TokenAnswer | OAuthError:
        if issued is GrantFault.SCOPE:
            return OAuthError.INVALID_SCOPE
        if isinstance(issued, Trouble):
            return _fault(issued) or OAuthError.INVALID_GRANT
        if isinstance(issued, GrantFault) or issued.life_s <= 0:  # the last second of a grant is nobody's
            return OAuthError.INVALID_GRANT
        member = issued.member
        token = self._issuer.mint(
            sub=member.agent_id,
            tenant=member.tenant,
            token_class=TokenClass.AGENT_RUNTIME,
            scopes=[Scope(scope) for scope in issued.scopes],
            jti=self._new_id(),
            now_ms=self._now().wall_ms,
            life_s=issued.life_s,
            gid=issued.grant_id,
            resource=self._base() + issued.resource,
        )
        realm = realm_of(member.tenant)
        return TokenAnswer(token, issued.refresh_token, issued.life_s, issued.scopes, realm, issued.grant_id)


def _fault(trouble: Trouble | None) -> OAuthError | None:
    if trouble is None:
        return None
    return OAuthError.SERVER_ERROR if trouble is Trouble.NOT_WRITTEN else OAuthError.INVALID_GRANT
