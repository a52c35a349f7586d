"""Rooms of projects: without a claim, booked with their members, ended with their project, whole after a crash."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.log.store import StoreFailedError
from actors.project.project_rules import NewProject, Project
from actors.space.events import Ending
from actors.space.iam_tokens import Tokens
from actors.space.settings import SpaceSettings
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from schemas.echo.names import ROOM_TOKEN, is_credential
from schemas.echo.scopes import KV_READ
from tests.actors.project.quarter import Process, Quarter
from tests.actors.space.driver import World


@pytest.fixture
def quarter() -> Quarter:
    return Quarter()


async def test_room_of_a_project_has_no_claim_and_its_token_is_shown_after_a_restart(quarter: Quarter) -> None:
    async with quarter.process() as process:
        project = await process.make(protocol=Encoding.PROTOBUF, is_encrypted=True, ttl_s=120)
        space = process.spaces.get(process.room(project))
        assert space is not None
        assert (space.project_id, space.claim_hash, space.protocol, space.is_encrypted) == (
            project.project_id,
            None,
            Encoding.PROTOBUF,
            True,
        )
        assert space.ends_at_ms == quarter.world.now_ms + 120_000
        token = process.token(space.space_id)
        assert is_credential(token, ROOM_TOKEN)
        assert await process.spaces.delete(space.space_id, "") is EchoError.UNAUTHORIZED
    async with quarter.process() as process:
        assert process.token(space.space_id) == token
        found = process.spaces.find(token)
        assert found is not None
        assert found.project_id == project.project_id


async def test_no_token_lies_in_the_log_in_the_clear(quarter: Quarter) -> None:
    async with quarter.process() as process:
        project = await process.make()
        token = process.token(process.room(project))
    kept = b"".join(
        event.data for stream in quarter.world.log_disk.streams.values() for event in stream.events
    ) + b"".join(
        item.data for stream in quarter.world.log_disk.streams.values() for _, item in stream.open_items.values()
    )
    assert b"Board" in kept
    assert token.encode() not in kept


async def test_without_a_seal_there_are_no_projects_and_nothing_is_left(quarter: Quarter) -> None:
    quarter.world.seal = None
    async with quarter.process() as process:
        assert await process.projects.create(NewProject("a")) is EchoError.STORAGE_NOT_READY
        assert (len(process.spaces), len(process.projects)) == (0, 0)


async def test_life_that_no_room_may_have_is_refused(quarter: Quarter) -> None:
    async with quarter.process() as process:
        for ttl_s in (59, 604_801):
            assert await process.projects.create(NewProject("a", ttl_s=ttl_s)) is EchoError.INVALID_PAYLOAD


async def test_rooms_of_projects_count_among_all_spaces_and_booking_needs_no_place_of_its_own() -> None:
    quarter = Quarter(World(SpaceSettings(disk_free_min=0.0, spaces_max=1)))
    async with quarter.process() as process:
        project = await process.make()
        assert await process.projects.create(NewProject("b")) is EchoError.OVERLOADED
        assert await process.spaces.open(Encoding.JSON, None, is_encrypted=False) is EchoError.OVERLOADED
        assert isinstance(await process.projects.replace_space(project.project_id, None), Project)


async def test_booked_room_is_new_and_empty_and_the_old_one_is_gone_without_a_trace(quarter: Quarter) -> None:
    async with quarter.process() as process:
        project = await process.make(ttl_s=60)
        old = process.room(project)
        token = process.token(old)
        quarter.world.now_ms += 10_000
        await process.projects.replace_space(project.project_id, None)
        new = process.spaces.get(process.room(project))
        assert new is not None
        assert new.ends_at_ms == quarter.world.now_ms + 604_800_000
        assert process.token(new.space_id) != token
        assert process.spaces.find(token) is None
        assert quarter.world.ended == [old]
        assert process.spaces.counts.ended[Ending.BOOKED] == 1
        assert list(quarter.world.space_disk.spaces) == [new.space_id]
        assert quarter.world.streams == [f"space/{new.space_id}"]


async def test_room_that_has_expired_is_booked_again_with_iam_as_the_operator_wanted_it(quarter: Quarter) -> None:
    async with quarter.process() as process:
        project = await process.make(ttl_s=60)
        switched = await process.projects.set_iam(project.project_id, process.room(project), is_enabled=True)
        assert isinstance(switched, Project)
        quarter.world.now_ms += 60_000
        await process.spaces.end_what_is_over()
    async with quarter.process() as process:
        await process.projects.replace_space(project.project_id, None)
        found = process.projects.get(project.project_id)
        assert found is not None
        space = process.spaces.get(process.room(found))
        assert space is not None
        assert space.has_iam
        assert process.iam.members(space.space_id) == []


async def test_members_move_along_with_their_passkeys_and_what_they_were_granted_does_not(quarter: Quarter) -> None:
    async with quarter.process() as process:
        project = await process.make(has_iam=True)
        old = process.room(project)
        tokens = await process.join(old)
        await process.join(old, b"other", KV_READ)
        given = await process.operator.give_token(old, frozenset({KV_READ}), None, "bot")
        assert not isinstance(given, EchoError)
        await process.projects.replace_space(project.project_id, None)
        new = process.room(project)
        members = process.iam.members(new)
        assert [(one.member_id == tokens.member_id, one.label, one.user_handle) for one in members] == [
            (True, "Ada", b"handle"),
            (False, "Ada", b"handle"),
        ]
        for dead in (tokens.access_token, given.access_token):
            assert process.iam.find(dead) is None
        assert process.iam.tokens(new) == []
    async with quarter.process() as process:
        known = process.iam.find_passkey(b"key")
        assert known is not None
        assert (known.space_id, known.passkey.sign_count, known.member.is_owner) == (new, 3, True)
        issued = await process.iam.issue(new, tokens.member_id, known.member.scopes)
        assert isinstance(issued, Tokens)
        assert await process.iam.issue(old, tokens.member_id, known.member.scopes) is EchoError.SPACE_NOT_FOUND


async def test_passkey_that_moved_is_forgotten_with_the_room_that_it_moved_to(quarter: Quarter) -> None:
    async with quarter.process() as process:
        project = await process.make(has_iam=True)
        await process.join(process.room(project))
        for _ in range(3):
            await process.projects.replace_space(project.project_id, None)
        assert process.iam.find_passkey(b"key") is not None
        await process.projects.delete(project.project_id)
        assert process.iam.find_passkey(b"key") is None
        assert len(process.iam) == 0


async def test_member_who_comes_while_a_room_is_booked_finds_it_gone(quarter: Quarter) -> None:
    async with quarter.process() as process:
        project = await process.make(has_iam=True)
        old = process.room(project)
        answers: list[object] = []

        async def invite() -> None:
            answers.append(await process.operator.invite(old, frozenset({KV_READ}), None))

        async with trio.open_nursery() as nursery, process.spaces.turn(old):  # both wait for it, the booking first
            nursery.start_soon(process.projects.replace_space, project.project_id, None)
            await wait_all_tasks_blocked()
            nursery.start_soon(invite)
            await wait_all_tasks_blocked()
        assert answers == [EchoError.SPACE_NOT_FOUND]
        assert process.spaces.get(process.room(project)) is not None


async def test_room_that_expires_while_it_is_booked_is_replaced_all_the_same(quarter: Quarter) -> None:
    async with quarter.process() as process:
        project = await process.make(has_iam=True, ttl_s=60)
        old = process.room(project)
        await process.join(old)
        async with trio.open_nursery() as nursery, process.spaces.turn(old):
            nursery.start_soon(process.projects.replace_space, project.project_id, None)
            await wait_all_tasks_blocked()
            quarter.world.now_ms += 60_000
            await process.spaces.end_what_is_over()
        new = process.spaces.get(process.room(project))
        assert new is not None
        assert (new.has_iam, process.iam.members(new.space_id)) == (True, [])
        assert list(quarter.world.space_disk.spaces) == [new.space_id]


async def test_deleted_project_ends_all_its_rooms_and_no_others(quarter: Quarter) -> None:
    async with quarter.process() as process:
        project, other = await process.make(is_multi_space=True), await process.make()
        for name in ("two", "three"):
            assert isinstance(await process.projects.attach_space(project.project_id, name, 60), Project)
        quarter.world.now_ms += 60_000  # and two are over by then, though nobody has swept
        assert await process.projects.delete(project.project_id) is None
        await process.spaces.end_what_is_over()
        assert list(quarter.world.space_disk.spaces) == [process.room(other)]
        assert quarter.deleted == [project.project_id]
        assert len(process.projects) == 1


async def test_full_log_leaves_a_booking_undone(quarter: Quarter) -> None:
    async with quarter.process() as process:
        project = await process.make()
        old = process.room(project)
        quarter.world.log_disk.is_full = True
        assert await process.projects.replace_space(project.project_id, None) is EchoError.STORAGE_NOT_READY
        assert await process.projects.delete(project.project_id) is EchoError.STORAGE_NOT_READY
        assert process.room(project) == old
        quarter.world.log_disk.is_full = False
        await process.spaces.end_what_is_over()
        assert list(quarter.world.space_disk.spaces) == [old]


Act = Callable[[Process, str], Awaitable[object]]
ACTS: dict[str, Act] = {
    "book": lambda process, project_id: process.projects.replace_space(project_id, None),
    "delete": lambda process, project_id: process.projects.delete(project_id),
    "attach": lambda process, project_id: process.projects.attach_space(project_id, None, None),
    "create": lambda process, _: process.projects.create(NewProject("another")),
}


@pytest.mark.parametrize("reaches_disk", [False, True])
@pytest.mark.parametrize("act", ACTS)
async def test_crash_leaves_all_of_it_or_nothing(act: str, reaches_disk: bool) -> None:
    quarter = Quarter()
    async with quarter.process() as process:
        project = await process.make(is_multi_space=True, has_iam=True)
        await process.join(process.room(project))
        process.log.fail(reaches_disk=reaches_disk)
        with pytest.raises(StoreFailedError):
            await ACTS[act](process, project.project_id)
    before, is_done = project.record, reaches_disk
    async with quarter.process() as process:
        attached = {space.space_id for one in process.projects for space in one.record.spaces}
        live = {space.space_id for space in process.spaces.live_behind("", 99)}
        assert live == attached == set(quarter.world.space_disk.spaces)
        found = process.projects.get(project.project_id)
        records = len(process.projects), None if found is None else found.record == before
        expected = {"book": (1, not is_done), "delete": (0, None), "attach": (1, not is_done), "create": (2, True)}
        assert records == (expected[act] if is_done else (1, True))
        assert (process.iam.find_passkey(b"key") is None) is (is_done and act == "delete")


async def test_who_is_cancelled_in_the_middle_has_it_done(quarter: Quarter) -> None:
    async with quarter.process() as process:
        project = await process.make()
        old = process.room(project)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def book() -> None:
                    await process.projects.replace_space(project.project_id, None)

                nursery.start_soon(book)
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
        live = [space.space_id for space in process.spaces.live_behind("", 9)]
        assert live == [process.room(project)]
        assert old not in live
