"""Passkeys of members, verified: the port `PasskeyCeremonies` of `iam_ceremonies.py`, over `gateway/identity/passkeys`.

Ceremonies may be shared with others: each has its purpose and its realm. Whose a passkey is, `SpaceIam` says; that a
count is kept, and that no two members have one passkey, is for whoever records it.
"""

from collections.abc import Callable, Sequence
from functools import partial

import structlog

from actors.space.iam import SpaceIam
from actors.space.iam_events import Passkey
from actors.space.iam_tokens import KnownPasskey
from gateway.identity.passkeys import options
from gateway.identity.passkeys.ceremony_rules import Ceremonies, Purpose, Realms
from gateway.identity.passkeys.faults import PasskeyFault
from gateway.identity.passkeys.relying_party import RelyingParty, UnfitBaseError
from gateway.identity.passkeys.response_rules import read_assertion
from gateway.identity.passkeys.verification import KnownCredential, authenticate, register
from gateway.spaces.iam_ceremonies import Asker, Begun, PasskeyUser, Registered, SignedIn
from schemas.echo.errors import EchoError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class VerifiedPasskeys:
    """Implements `PasskeyCeremonies`."""

    def __init__(
        self,
        ceremonies: Ceremonies,
        party: Callable[[], RelyingParty],
        find: Callable[[bytes], KnownPasskey | None],
        now_s: Callable[[], float],
        is_known_elsewhere: Callable[[bytes], bool] = lambda _: False,
    ) -> None:
        """`is_known_elsewhere`: whether a credential is of a world beside spaces."""
        self.party = party
        self._ceremonies = ceremonies
        self._find = find
        self._now_s = now_s
        self._is_known_elsewhere = is_known_elsewhere

    def begin_registration(
        self, asker: Asker, realm: str, user: PasskeyUser, known: Sequence[bytes], context: object
    ) -> Begun:
        ceremony = self._ceremonies.begin(
            Purpose.REGISTER,
            Realms.only(realm),
            browser=asker.browser,
            address=asker.address,
            now_s=self._now_s(),
            context=context,
        )
        person = options.PasskeyUser(user.handle, user.name, user.name)
        return Begun(ceremony.id, options.creation_options(self.party(), ceremony, person, known))

    def finish_registration(self, asker: Asker, realm: str, ceremony: str, credential: object) -> Registered | None:
        now_s = self._now_s()
        taken = self._ceremonies.take(ceremony, Purpose.REGISTER, realm, browser=asker.browser, now_s=now_s)
        new = None if taken is None else register(self.party(), taken, credential)
        if taken is None or new is None or isinstance(new, PasskeyFault) or self._is_known_elsewhere(new.credential_id):
            return None
        return Registered(Passkey(new.credential_id, new.public_key, new.sign_count), taken.context)

    def begin_login(self, asker: Asker, realm: str) -> Begun:
        ceremony = self._ceremonies.begin(
            Purpose.LOGIN, Realms.only(realm), browser=asker.browser, address=asker.address, now_s=self._now_s()
        )
        return Begun(ceremony.id, options.request_options(self.party(), ceremony))

    def finish_login(self, asker: Asker, realm: str, ceremony: str, credential: object) -> SignedIn | EchoError:
        now_s = self._now_s()
        taken = self._ceremonies.take(ceremony, Purpose.LOGIN, realm, browser=asker.browser, now_s=now_s)
        response = read_assertion(credential)
        if taken is None or isinstance(response, PasskeyFault):
            return EchoError.UNAUTHORIZED
        known = self._find(response.credential_id)
        proved = authenticate(self.party(), taken, response, None if known is None else _credential(known))
        if proved is PasskeyFault.CREDENTIAL_UNKNOWN and not self._is_known_elsewhere(response.credential_id):
            return EchoError.NOT_FOUND  # the page has it forgotten
        if isinstance(proved, PasskeyFault) or known is None:
            return EchoError.UNAUTHORIZED
        return SignedIn(known, proved.sign_count)


def _credential(known: KnownPasskey) -> KnownCredential:
    passkey, realm = known.passkey, f"space:{known.space_id}"
    return KnownCredential(
        passkey.credential_id, passkey.public_key, passkey.sign_count, realm, known.member.user_handle
    )


def passkeys_at(
    base: Callable[[], str],
    ceremonies: Ceremonies,
    iam: SpaceIam,
    now_s: Callable[[], float],
    is_known_elsewhere: Callable[[bytes], bool] = lambda _: False,
) -> VerifiedPasskeys | None:
    """None, and a word to the operator, where no browser makes passkeys for BASE, as for an IP address."""
    try:
        RelyingParty.of(base())
    except UnfitBaseError as error:
        log.warning("passkeys_unavailable", reason=str(error))
        return None
    party = partial(_party, base)
    return VerifiedPasskeys(ceremonies, party, iam.find_passkey, now_s, is_known_elsewhere)


def _party(base: Callable[[], str]) -> RelyingParty:
    return RelyingParty.of(base())
