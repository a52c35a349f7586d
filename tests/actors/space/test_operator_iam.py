"""What the operator gives in rooms of projects: recorded, found by hash, and ended."""

from actors.log.store import Part
from actors.space.iam_tokens import Invited
from actors.space.operator_iam import GivenToken
from schemas.echo.errors import EchoError
from schemas.echo.scopes import KV_READ
from tests.actors.project.quarter import Process, Quarter

READ = frozenset({KV_READ})


async def given(process: Process, space_id: str) -> GivenToken:
    token = await process.operator.give_token(space_id, READ, None, "bot")
    assert isinstance(token, GivenToken), token
    return token


async def test_token_is_good_for_its_scopes_also_after_a_restart_until_it_is_ended() -> None:
    quarter = Quarter()
    async with quarter.process() as process:
        room = process.room(await process.make(has_iam=True))
        token = await given(process, room)
        assert token.access_token not in repr(token)
    async with quarter.process() as process:
        access = process.iam.find(token.access_token)
        assert access is not None
        assert (access.giver, access.scopes, access.member_id) == (room, READ, token.token_id)
        ended: list[tuple[str, str]] = []
        process.iam.on_grant_end.append(lambda space_id, grant_id: ended.append((space_id, grant_id)))
        assert await process.operator.end_token(room, token.token_id) is None
        assert process.iam.find(token.access_token) is None
        assert ended == [(room, token.token_id)]
        assert await process.operator.end_token(room, token.token_id) is EchoError.NOT_FOUND


async def test_switching_off_ends_all_tokens_and_writes_what_goes_with_it() -> None:
    quarter = Quarter()
    async with quarter.process() as process:
        room = process.room(await process.make(has_iam=True))
        token = await given(process, room)
        told: list[str] = []
        process.iam.on_iam.append(told.append)
        part = Part("other", None, quarter.world.now_ms, (b"{}",))
        assert await process.iam.switch(room, part, is_enabled=False) is None
        assert process.iam.find(token.access_token) is None
        assert await process.iam.switch(room, part, is_enabled=False) is None  # no news, but what goes with it
        assert (told, quarter.world.log_disk.streams["other"].version) == ([room], 2)
        assert process.token(room)  # it is shown still
        assert await process.iam.switch("none", part, is_enabled=True) is EchoError.SPACE_NOT_FOUND
        assert await process.operator.give_token(room, READ, None, "") is EchoError.NOT_FOUND


async def test_invite_of_the_operator_makes_a_member_once() -> None:
    async with Quarter().process() as process:
        room = process.room(await process.make(has_iam=True))
        invited = await process.operator.invite(room, READ, 60)
        assert isinstance(invited, Invited)
        tokens = await process.join(room, b"k", KV_READ)
        assert tokens.scopes == READ
        assert await process.operator.invite("none", READ, None) is EchoError.SPACE_NOT_FOUND
