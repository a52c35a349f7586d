"""Sign-in at the consent page by passkey: ceremonies of `gateway/identity/passkeys`, for members of any world."""

from collections.abc import Callable, Mapping
from typing import Any

from actors.node.moment import Moment
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.worlds import BegunSignIn, SignIn, SignInFault, Worlds
from gateway.identity.passkeys.ceremony_rules import Ceremonies, Purpose, Realms
from gateway.identity.passkeys.faults import PasskeyFault
from gateway.identity.passkeys.options import request_options
from gateway.identity.passkeys.relying_party import RelyingParty
from gateway.identity.passkeys.response_rules import read_assertion
from gateway.identity.passkeys.verification import KnownCredential, authenticate

_REALMS = Realms.all_of("space", "fleet")


class CeremonySignIn:
    """`ceremonies` may be shared with others: each has its purpose."""

    def __init__(
        self, ceremonies: Ceremonies, party: Callable[[], RelyingParty], worlds: Worlds, now: Callable[[], Moment]
    ) -> None:
        self._ceremonies = ceremonies
        self._party = party
        self._worlds = worlds
        self._now = now

    def begin(self, browser: str, address: str, context: object) -> BegunSignIn:
        now_s = self._now().mono_s
        ceremony = self._ceremonies.begin(
            Purpose.AUTHORIZE, _REALMS, browser=browser, address=address, now_s=now_s, context=context
        )
        return BegunSignIn(ceremony.id, request_options(self._party(), ceremony))

    async def finish(self, ceremony: str, browser: str, credential: Mapping[str, Any]) -> SignIn | SignInFault:
        now_s = self._now().mono_s
        taken = self._ceremonies.take(ceremony, Purpose.AUTHORIZE, None, browser=browser, now_s=now_s)
        response = read_assertion(credential)
        if taken is None or isinstance(response, PasskeyFault):
            return SignInFault.REFUSED
        member = self._worlds.find(response.credential_id)
        known = None
        if member is not None:
            known = KnownCredential(
                member.credential_id, member.public_key, member.sign_count, member.realm, member.user_handle
            )
        proved = authenticate(self._party(), taken, response, known)
        if proved is PasskeyFault.CREDENTIAL_UNKNOWN:
            return SignInFault.CREDENTIAL_UNKNOWN
        if isinstance(proved, PasskeyFault) or member is None:
            return SignInFault.REFUSED
        fault = await self._worlds.use_passkey(member, proved.sign_count)
        if fault is OAuthError.SERVER_ERROR:
            return SignInFault.UNAVAILABLE
        return SignInFault.REFUSED if fault is not None else SignIn(member, taken.context)
