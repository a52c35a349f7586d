"""A ceremony from its beginning to its end, without routes: what tests of verification share."""

from typing import Any

from gateway.identity.passkeys.ceremony_rules import Ceremonies, Ceremony, Purpose, Realms
from gateway.identity.passkeys.faults import PasskeyFault
from gateway.identity.passkeys.options import PasskeyUser, creation_options, request_options
from gateway.identity.passkeys.relying_party import RelyingParty
from gateway.identity.passkeys.response_rules import read_assertion
from gateway.identity.passkeys.verification import Assertion, KnownCredential, NewCredential, authenticate, register
from tests.gateway.identity.passkeys.authenticator import ES256, Answer, SoftwareAuthenticator, base64url

BASE = "https://gw.example"
PARTY = RelyingParty.of(BASE)
ROOM = "space:01hzxc0000000000000000s000"
FORGED_CLIENT_DATA = [
    ({"crossOrigin": True}, PasskeyFault.WRONG_ORIGIN),
    ({"crossOrigin": "false"}, PasskeyFault.WRONG_ORIGIN),
    ({"crossOrigin": 0}, PasskeyFault.WRONG_ORIGIN),
    ({"crossOrigin": None}, PasskeyFault.WRONG_ORIGIN),
    ({"topOrigin": BASE}, PasskeyFault.WRONG_ORIGIN),
    ({"origin": [BASE]}, PasskeyFault.WRONG_ORIGIN),
    ({"origin": None}, PasskeyFault.WRONG_ORIGIN),
    ({"challenge": base64url(b"x" * 32)}, PasskeyFault.WRONG_CHALLENGE),
    ({"challenge": ""}, PasskeyFault.WRONG_CHALLENGE),
    ({"challenge": None}, PasskeyFault.WRONG_CHALLENGE),
    ({"type": "WebAuthn.create"}, PasskeyFault.WRONG_TYPE),
    ({"type": "payment.get"}, PasskeyFault.WRONG_TYPE),
    ({"type": None}, PasskeyFault.WRONG_TYPE),
]
USER = PasskeyUser(bytes(range(32)), "ada · room s000 · until Friday", "ada")


def begin(purpose: Purpose, realms: Realms | None = None) -> Ceremony:
    wanted = realms or Realms.only(ROOM)
    return Ceremonies().begin(purpose, wanted, browser="secret", address="192.0.2.1", now_s=0.0)


def begin_registration(party: RelyingParty = PARTY) -> tuple[Ceremony, dict[str, Any]]:
    ceremony = begin(Purpose.REGISTER)
    return ceremony, creation_options(party, ceremony, USER)


def begin_login(party: RelyingParty = PARTY, realms: Realms | None = None) -> tuple[Ceremony, dict[str, Any]]:
    ceremony = begin(Purpose.LOGIN, realms)
    return ceremony, request_options(party, ceremony)


def registered(ceremony: Ceremony, credential: object, party: RelyingParty = PARTY) -> KnownCredential:
    new = register(party, ceremony, credential)
    assert isinstance(new, NewCredential), new
    return KnownCredential(new.credential_id, new.public_key, new.sign_count, ROOM, USER.handle)


def logged_in(
    ceremony: Ceremony, credential: object, known: KnownCredential | None, party: RelyingParty = PARTY
) -> Assertion | PasskeyFault:
    response = read_assertion(credential)
    return response if isinstance(response, PasskeyFault) else authenticate(party, ceremony, response, known)


def outcome_of_registration(answer: Answer, algorithm: int = ES256, origin: str = BASE) -> NewCredential | PasskeyFault:
    ceremony, options = begin_registration()
    return register(PARTY, ceremony, SoftwareAuthenticator(origin, algorithm).register(options, answer))


class Member:
    """Somebody with one passkey."""

    def __init__(self, algorithm: int = ES256, *, counts: bool = True) -> None:
        self.authenticator = SoftwareAuthenticator(BASE, algorithm, counts=counts)
        ceremony, options = begin_registration()
        self.known: KnownCredential = registered(ceremony, self.authenticator.register(options))

    def answer(self, answer: Answer) -> Assertion | PasskeyFault:
        ceremony, options = begin_login()
        return logged_in(ceremony, self.authenticator.sign_in(options, answer), self.known)

    def altered(self, name: str, value: object) -> Assertion | PasskeyFault:
        """One part of the response is another."""
        ceremony, options = begin_login()
        sent = self.authenticator.sign_in(options)
        sent["response"][name] = value
        return logged_in(ceremony, sent, self.known)
