"""Two worlds as one: each is asked for what is its own."""

from gateway.identity.oauth.joined_worlds import JoinedWorlds
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.worlds import TokenAnswer
from tests.gateway.identity.oauth.site import ADA, GRACE, FakeWorlds


class Two:
    def __init__(self) -> None:
        self.space = FakeWorlds({ADA.credential_id: ADA})
        self.fleet = FakeWorlds({GRACE.credential_id: GRACE})
        next(self.fleet.numbers)  # so that no token is one of both
        self.joined = JoinedWorlds(space=self.space, fleet=self.fleet)


async def given(two: Two) -> TokenAnswer:
    answer = await two.joined.issue(GRACE, GRACE.scopes, "SDK", "r")
    assert isinstance(answer, TokenAnswer)
    return answer


async def test_a_members_world_is_the_one_of_its_realm() -> None:
    two = Two()
    assert (two.joined.find(b"ada"), two.joined.find(b"grace"), two.joined.find(b"x")) == (ADA, GRACE, None)
    await given(two)
    assert (len(two.space.issued), len(two.fleet.issued)) == (0, 1)
    await two.joined.use_passkey(ADA, 7)
    assert two.space.members[b"ada"].sign_count == 7
    await two.joined.end_grant("fleet:acme", "grant-1")
    assert (two.space.ended, two.fleet.ended) == ([], [("fleet:acme", "grant-1")])


async def test_a_token_is_found_in_whichever_world_has_it() -> None:
    two = Two()
    answer = await given(two)
    assert answer.refresh_token is not None
    refreshed = await two.joined.refresh(answer.refresh_token, None)
    assert isinstance(refreshed, TokenAnswer)
    wide = await two.joined.refresh(refreshed.refresh_token or "", frozenset({"tools:call:reversible"}))
    assert wide is OAuthError.INVALID_SCOPE
    assert await two.joined.refresh("er_x", None) is OAuthError.INVALID_GRANT
    assert await two.joined.revoke(refreshed.access_token) is None
    assert two.fleet.live == {}


async def test_a_world_that_could_not_revoke_is_heard() -> None:
    two = Two()
    two.space.fault = OAuthError.SERVER_ERROR
    assert await two.joined.revoke("er_x") is OAuthError.SERVER_ERROR
    assert two.fleet.revoked == ["er_x"]
