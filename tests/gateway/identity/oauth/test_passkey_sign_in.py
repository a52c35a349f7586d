"""Sign-in with passkeys that really sign: what the consent page's ceremonies take, and what they do not."""

from dataclasses import replace

import pytest

from actors.node.moment import Moment
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.passkey_sign_in import CeremonySignIn
from gateway.identity.oauth.worlds import SignedInMember, SignIn, SignInFault
from gateway.identity.passkeys.ceremony_rules import Ceremonies, Purpose, Realms
from tests.gateway.identity.oauth.site import ADA, FakeWorlds
from tests.gateway.identity.passkeys.authenticator import HONEST, Answer
from tests.gateway.identity.passkeys.ceremonies import PARTY, Member


class Desk:
    """One member with a passkey, and the ceremonies of the consent page."""

    def __init__(self, realm: str = "space:01j") -> None:
        self.person = Member()
        known = self.person.known
        self.member: SignedInMember = replace(
            ADA,
            realm=realm,
            credential_id=known.credential_id,
            user_handle=known.user_handle,
            public_key=known.public_key,
            sign_count=known.sign_count,
        )
        self.worlds = FakeWorlds({known.credential_id: self.member})
        self.ceremonies = Ceremonies()
        self.now_s = 0.0
        self.sign_in = CeremonySignIn(self.ceremonies, lambda: PARTY, self.worlds, lambda: Moment(self.now_s, 0))

    async def try_once(
        self, answer: Answer = HONEST, browser: str = "mine", wait_s: float = 0.0
    ) -> SignIn | SignInFault:
        begun = self.sign_in.begin("mine", "192.0.2.1", "context")
        self.now_s += wait_s
        credential = self.person.authenticator.sign_in(begun.public_key, answer)
        return await self.sign_in.finish(begun.ceremony, browser, credential)


@pytest.mark.parametrize("realm", ["space:01j", "fleet:acme"])
async def test_a_passkey_of_either_world_signs_in_and_its_count_is_kept(realm: str) -> None:
    desk = Desk(realm)
    assert await desk.try_once() == SignIn(desk.member, "context")
    kept = desk.worlds.members[desk.member.credential_id]
    assert kept.sign_count > desk.member.sign_count


async def test_a_passkey_of_another_realm_does_not_sign_in() -> None:
    assert await Desk("console").try_once() is SignInFault.REFUSED


async def test_a_passkey_that_no_world_has_is_told_apart() -> None:
    desk = Desk()
    desk.worlds.members.clear()
    assert await desk.try_once() is SignInFault.CREDENTIAL_UNKNOWN


@pytest.mark.parametrize(
    "answer",
    [
        Answer(client={"origin": "https://x.gw.example"}),
        Answer(client={"crossOrigin": True}),
        Answer(client={"challenge": "AAAA"}),
        Answer(flags=1),
        Answer(rp_id="evil.example"),
        Answer(user_handle=b"x" * 32),
        Answer(sign_count=0),
    ],
)
async def test_what_a_passkey_does_not_prove_is_refused(answer: Answer) -> None:
    desk = Desk()
    assert await desk.try_once(answer) is SignInFault.REFUSED
    assert desk.worlds.members == {desk.member.credential_id: desk.member}


async def test_a_ceremony_is_of_one_browser_for_minutes() -> None:
    assert await Desk().try_once(browser="another") is SignInFault.REFUSED
    assert await Desk().try_once(wait_s=300.0) is SignInFault.REFUSED


async def test_a_ceremony_is_good_once() -> None:
    desk = Desk()
    begun = desk.sign_in.begin("mine", "192.0.2.1", None)
    credential = desk.person.authenticator.sign_in(begun.public_key)
    assert isinstance(await desk.sign_in.finish(begun.ceremony, "mine", credential), SignIn)
    assert await desk.sign_in.finish(begun.ceremony, "mine", credential) is SignInFault.REFUSED


async def test_a_ceremony_for_something_else_does_not_sign_in() -> None:
    desk = Desk()
    login = desk.ceremonies.begin(
        Purpose.LOGIN, Realms.all_of("space"), browser="mine", address="192.0.2.1", now_s=0.0, context="other"
    )
    assert await desk.sign_in.finish(login.id, "mine", {}) is SignInFault.REFUSED


@pytest.mark.parametrize("credential", [{}, {"id": 1}, {"type": "public-key", "rawId": "x"}])
async def test_a_credential_that_is_none_is_refused(credential: dict[str, object]) -> None:
    desk = Desk()
    begun = desk.sign_in.begin("mine", "192.0.2.1", None)
    assert await desk.sign_in.finish(begun.ceremony, "mine", credential) is SignInFault.REFUSED


async def test_a_count_that_cannot_be_kept_signs_nobody_in() -> None:
    desk = Desk()
    desk.worlds.fault = OAuthError.SERVER_ERROR
    assert await desk.try_once() is SignInFault.UNAVAILABLE
    gone = Desk()
    gone.worlds.fault = OAuthError.INVALID_GRANT
    assert await gone.try_once() is SignInFault.REFUSED
