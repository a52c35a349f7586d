"""Members of tenants in the words of the authorization server, over a log in memory."""

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from actors.member.members import Members
from gateway.identity.members.fleet_world import FleetWorld
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.worlds import SignedInMember, TokenAnswer
from gateway.identity.tokens import Issuer, Verifier, key_id
from tests.actors.member.people import CHANGE, DAY_S, READ, Town, joined

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
BASE = "https://gw.example"


async def world(town: Town, base: str = BASE) -> tuple[FleetWorld, Members]:
    members = await town.members()
    verifier = Verifier({key_id(KEY.public_key()): KEY.public_key()}, issuer="us", audience="us")
    verifier.know_grants(members.standing, lambda resource: resource.startswith(f"{base}/mcp"))
    issuer = Issuer(KEY, issuer="us", audience="us")
    return FleetWorld(members, issuer, verifier, lambda: base, lambda: town.ids.mint(town.now_ms), town.now), members


async def signed_in(one: FleetWorld) -> SignedInMember:
    member = one.find(b"p")
    assert member is not None
    return member


async def given(one: FleetWorld, path: str = "/mcp") -> TokenAnswer:
    answer = await one.issue(await signed_in(one), frozenset({READ}), "inspector", BASE + path)
    assert isinstance(answer, TokenAnswer), answer
    return answer


async def test_member_is_found_by_its_passkey_in_the_realm_of_its_tenant() -> None:
    one, members = await world(Town())
    member_id = await joined(members)
    found = await signed_in(one)
    assert (found.realm, found.member_id, found.is_of_fleet) == ("fleet:acme", member_id, True)
    assert found.scopes == {READ, CHANGE}
    assert one.find(b"unknown") is None


async def test_count_of_a_passkey_is_kept_for_the_next_time() -> None:
    town = Town()
    one, members = await world(town)
    await joined(members)
    assert await one.use_passkey(await signed_in(one), 7) is None
    assert (await signed_in((await world(town))[0])).sign_count == 7


async def test_gateway_that_has_moved_gives_refreshed_tokens_for_the_same_endpoint_there() -> None:
    town = Town()
    one, members = await world(town)
    await joined(members)
    first = await given(one, "/mcp/fleet")
    moved, _ = await world(town, "https://new.example")
    again = await moved.refresh(first.refresh_token or "", None)
    assert isinstance(again, TokenAnswer)
    claims = jwt.decode(again.access_token, options={"verify_signature": False})
    assert claims["aud"] == ["https://new.example/mcp/fleet", "us"]
    assert claims["gid"] == first.grant_id == again.grant_id


async def test_what_cannot_be_written_is_a_fault_of_ours_and_has_not_happened() -> None:
    town = Town()
    one, members = await world(town)
    await joined(members)
    answer = await given(one)
    refresh_token = answer.refresh_token or ""
    town.disk.is_full = True
    assert await one.issue(await signed_in(one), frozenset({READ}), "", f"{BASE}/mcp") is OAuthError.SERVER_ERROR
    assert await one.refresh(refresh_token, None) is OAuthError.SERVER_ERROR
    assert await one.use_passkey(await signed_in(one), 3) is OAuthError.SERVER_ERROR
    for token in (answer.access_token, refresh_token):
        assert await one.revoke(token) is OAuthError.SERVER_ERROR
    assert await one.end_grant("fleet:acme", answer.grant_id) is OAuthError.SERVER_ERROR
    town.disk.is_full = False
    assert isinstance(await one.refresh(refresh_token, None), TokenAnswer)


async def test_faults_of_a_grant_are_those_of_oauth() -> None:
    town = Town()
    one, members = await world(town)
    member_id = await joined(members)
    member, answer = await signed_in(one), await given(one)
    assert await one.refresh("er_unknown", None) is OAuthError.INVALID_GRANT
    assert await one.refresh(answer.refresh_token or "", frozenset({CHANGE})) is OAuthError.INVALID_SCOPE
    assert await one.revoke("nonsense") is None
    await members.revoke(member_id, "ops")
    assert await one.issue(member, frozenset({READ}), "", f"{BASE}/mcp") is OAuthError.INVALID_GRANT
    assert await one.use_passkey(member, 1) is OAuthError.INVALID_GRANT
    assert await one.refresh(answer.refresh_token or "", None) is OAuthError.INVALID_GRANT


async def test_no_token_is_made_in_the_last_second_of_a_grant() -> None:
    town = Town()
    one, members = await world(town)
    await joined(members)
    answer = await given(one)
    for _ in range(3):
        town.passes(29 * DAY_S)
        again = await one.refresh(answer.refresh_token or "", None)
        assert isinstance(again, TokenAnswer)
        answer = again
    town.passes(3 * DAY_S - 0.5)
    assert await one.refresh(answer.refresh_token or "", None) is OAuthError.INVALID_GRANT
