"""Members of spaces sign in through the authorization server, and their grants are the space's own."""

import pytest

from actors.space.iam import SpaceIam
from actors.space.spaces import EchoSpaces
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.worlds import SignedInMember, TokenAnswer
from gateway.spaces.oauth_world import SpaceWorld
from schemas.echo.errors import EchoError
from tests.actors.space.driver import opened
from tests.actors.space.test_iam import IamWorld, guest, owner

READ = frozenset({"kv_read"})


async def joined(spaces: EchoSpaces, iam: SpaceIam) -> tuple[SpaceWorld, SignedInMember]:
    """A space with an owner, and a guest who may read."""
    tokens = await owner(iam, await opened(spaces))
    await guest(iam, tokens)
    world = SpaceWorld(iam)
    member = world.find(b"guest")
    assert member is not None
    return world, member


async def issued(world: SpaceWorld, member: SignedInMember) -> TokenAnswer:
    answer = await world.issue(member, READ, "inspector", "https://gw.example/mcp")
    assert isinstance(answer, TokenAnswer), answer
    return answer


async def test_a_members_passkey_tells_space_and_scopes() -> None:
    async with IamWorld().iam() as (spaces, iam):
        world, member = await joined(spaces, iam)
        known = iam.find_passkey(b"guest")
        assert known is not None
        realm = f"space:{known.space_id}"
        assert member == SignedInMember(realm, known.member.member_id, "Bob", b"guest", b"h", b"public", 0, READ)
        assert not member.is_of_fleet
        assert world.find(b"nobody") is None
        assert await world.use_passkey(member, 7) is None
        counted = world.find(b"guest")
        assert counted is not None
        assert counted.sign_count == 7
        assert await world.use_passkey(member, 7) is OAuthError.INVALID_GRANT


async def test_a_grant_is_refreshed_narrowed_and_revoked() -> None:
    async with IamWorld().iam() as (spaces, iam):
        world, member = await joined(spaces, iam)
        first = await issued(world, member)
        assert (first.scopes, first.realm, first.expires_in_s) == (READ, member.realm, 3_600)
        found = iam.find(first.access_token)
        assert found is not None
        assert found.grant_id == first.grant_id
        assert first.refresh_token is not None
        assert await world.refresh(first.refresh_token, frozenset({"kv_write"})) is OAuthError.INVALID_SCOPE
        second = await world.refresh(first.refresh_token, READ)
        assert isinstance(second, TokenAnswer)
        assert second.grant_id == first.grant_id
        assert await world.revoke(second.access_token) is None
        assert iam.find(second.access_token) is None
        assert await world.refresh(second.refresh_token or "", None) is OAuthError.INVALID_GRANT
        for unknown in ("er_x", "", first.refresh_token):
            assert await world.revoke(unknown) is None


async def test_a_grant_ends_by_its_name() -> None:
    async with IamWorld().iam() as (spaces, iam):
        world, member = await joined(spaces, iam)
        answer = await issued(world, member)
        assert await world.end_grant(answer.realm, answer.grant_id) is None
        assert iam.find(answer.access_token) is None
        assert await world.end_grant("space:01hzxc0000000000000000s000", answer.grant_id) is None


async def test_a_member_gets_no_more_than_its_own_and_nothing_once_it_is_gone() -> None:
    async with IamWorld().iam() as (spaces, iam):
        tokens = await owner(iam, await opened(spaces))
        await guest(iam, tokens)
        world = SpaceWorld(iam)
        member = world.find(b"guest")
        assert member is not None
        wide = await world.issue(member, frozenset({"kv_read", "kv_write"}), "", "r")
        assert wide is OAuthError.INVALID_GRANT
        by = iam.find(tokens.access_token)
        assert by is not None
        assert await iam.remove_member(by, member.member_id) is None
        assert await world.issue(member, READ, "", "r") is OAuthError.INVALID_GRANT
        assert await world.use_passkey(member, 9) is OAuthError.INVALID_GRANT
        assert world.find(b"guest") is None


@pytest.mark.parametrize("error", [EchoError.STORAGE_NOT_READY, EchoError.OVERLOADED])
async def test_what_cannot_be_written_is_said(error: EchoError, monkeypatch: pytest.MonkeyPatch) -> None:
    async with IamWorld().iam() as (spaces, iam):
        world, member = await joined(spaces, iam)
        answer = await issued(world, member)

        async def record(*_: object) -> EchoError:
            return error

        monkeypatch.setattr(spaces, "record", record)
        assert await world.issue(member, READ, "", "r") is OAuthError.SERVER_ERROR
        assert await world.refresh(answer.refresh_token or "", None) is OAuthError.SERVER_ERROR
        assert await world.revoke(answer.access_token) is OAuthError.SERVER_ERROR
        assert await world.use_passkey(member, 9) is OAuthError.SERVER_ERROR
