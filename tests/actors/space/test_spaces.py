"""The spaces of a gateway: found by their tokens alone, ended on time, and nothing of them left, whatever crashes."""

import pytest
import trio
from trio.testing import MockClock

from actors.space.events import Ending
from actors.space.settings import SpaceSettings
from actors.space.spaces import Opened
from actors.space.store import NOT_READY, Refused
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from schemas.echo.names import CLAIM, ROOM_TOKEN, is_credential
from tests.actors.space.driver import World, opened


async def test_a_space_is_found_by_its_token_and_by_nothing_else() -> None:
    async with (world := World()).process() as spaces:
        made = await opened(spaces)
        assert is_credential(made.token, ROOM_TOKEN)
        assert is_credential(made.claim, CLAIM)
        assert spaces.find(made.token) == made.space
        for wrong in (made.claim, made.space.space_id, made.token[:-1], "", "\ud800"):
            assert spaces.find(wrong) is None
        assert made.space.ends_at_ms == world.now_ms + 604_800_000


async def test_a_space_is_unknown_at_the_very_instant_of_its_end_though_nobody_has_swept() -> None:
    async with (world := World()).process() as spaces:
        made = await opened(spaces, 60)
        world.now_ms += 59_999
        assert spaces.find(made.token) is not None
        world.now_ms += 1
        assert spaces.find(made.token) is None
        assert world.ended == []


async def test_a_space_that_has_ended_leaves_neither_key_nor_stream_and_its_sockets_are_told() -> None:
    async with (world := World()).process() as spaces:
        made, other = await opened(spaces, 60), await opened(spaces, 120)
        world.now_ms += 60_000
        await spaces.end_what_is_over()
        assert world.ended == [made.space.space_id]
        assert list(world.space_disk.spaces) == [other.space.space_id]
        assert world.streams == [f"space/{other.space.space_id}"]


async def test_nothing_in_the_log_tells_a_token_its_hash_or_a_claim() -> None:
    async with (world := World()).process() as spaces:
        made = await opened(spaces)
        (stream,) = world.log_disk.streams.values()
        kept = b"".join(event.data for event in stream.events)
        for secret in (made.token.encode(), made.claim.encode(), made.space.token_hash, b"SpaceOpened"):
            assert secret not in kept


async def test_spaces_are_there_again_after_a_restart_with_the_end_that_was_moved() -> None:
    world = World()
    async with world.process() as spaces:
        made = await opened(spaces)
        moved = await spaces.move_end(made.space.space_id, made.claim, 100)
        assert not isinstance(moved, EchoError)
        assert moved.ends_at_ms == world.now_ms + 100_000
    async with world.process() as spaces:
        found = spaces.find(made.token)
        assert found is not None
        assert found == moved
        assert len(spaces) == 1


async def test_a_start_ends_what_has_expired_meanwhile() -> None:
    world = World()
    async with world.process() as spaces:
        made = await opened(spaces, 60)
    world.now_ms += 60_000
    async with world.process() as spaces:
        assert spaces.find(made.token) is None
        assert (world.streams, world.space_disk.spaces) == ([], {})


async def test_a_crash_between_the_key_and_the_stream_is_finished_by_the_next_start() -> None:
    world = World()
    async with world.process() as spaces:
        made = await opened(spaces)
        assert await spaces.store.end(made.space.space_id) is None  # and here the process dies
    assert world.streams == [f"space/{made.space.space_id}"]
    async with world.process() as spaces:
        assert spaces.find(made.token) is None
        assert world.streams == []


async def test_a_space_that_was_made_and_never_written_down_goes_at_the_next_start() -> None:
    world = World()
    async with world.process() as spaces:
        await spaces.store.create("01jd" + "a" * 22)
    async with world.process():
        assert world.space_disk.spaces == {}


async def test_an_end_that_the_disk_refuses_is_tried_again_and_the_space_is_unknown_meanwhile() -> None:
    async with (world := World()).process() as spaces:
        made = await opened(spaces)
        world.log_disk.is_full = True
        assert await spaces.delete(made.space.space_id, made.claim) is EchoError.STORAGE_NOT_READY
        assert spaces.find(made.token) is None
        world.log_disk.is_full = False
        world.now_ms += 1_000
        await spaces.end_what_is_over()
        assert (world.streams, world.space_disk.spaces) == ([], {})


async def test_a_space_whose_key_could_not_be_erased_stays_closed_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    async with world.process() as spaces:
        made = await opened(spaces)

        async def end(_: str) -> Refused:
            await trio.lowlevel.checkpoint()
            return NOT_READY

        monkeypatch.setattr(spaces.store, "end", end)
        assert await spaces.delete(made.space.space_id, made.claim) is EchoError.STORAGE_NOT_READY
    async with world.process() as spaces:
        assert spaces.find(made.token) is None
        assert (world.streams, world.space_disk.spaces) == ([], {})


async def test_only_the_claim_deletes_or_moves_the_end() -> None:
    async with (world := World()).process() as spaces:
        made, other = await opened(spaces), await opened(spaces)
        space_id = made.space.space_id
        for wrong in (made.token, other.claim, ""):
            assert await spaces.delete(space_id, wrong) is EchoError.UNAUTHORIZED
            assert await spaces.move_end(space_id, wrong, 60) is EchoError.UNAUTHORIZED
        assert await spaces.move_end(space_id, made.claim, 59) is EchoError.INVALID_PAYLOAD
        assert await spaces.delete(space_id, made.claim) is None
        assert await spaces.delete(space_id, made.claim) is EchoError.SPACE_NOT_FOUND
        assert await spaces.move_end(space_id, made.claim, 60) is EchoError.SPACE_NOT_FOUND
        assert spaces.find(made.token) is None
        assert spaces.find(other.token) is not None
        assert world.ended == [space_id]


async def test_one_space_too_many_is_overloaded_also_when_they_are_opened_at_the_same_time() -> None:
    async with World(SpaceSettings(spaces_max=3, disk_free_min=0.0)).process() as spaces:
        outcomes: list[Opened | EchoError] = []

        async def make() -> None:
            outcomes.append(await spaces.open(Encoding.JSON, None, is_encrypted=False))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(make)
        assert [outcome for outcome in outcomes if isinstance(outcome, EchoError)] == [EchoError.OVERLOADED] * 2
        assert len(spaces) == 3


async def test_a_log_that_takes_nothing_opens_no_space_and_leaves_none() -> None:
    async with (world := World()).process() as spaces:
        world.log_disk.is_full = True
        assert await spaces.open(Encoding.JSON, None, is_encrypted=False) is EchoError.STORAGE_NOT_READY
        world.log_disk.is_full = False
        await spaces.end_what_is_over()
        assert world.space_disk.spaces == {}


async def test_a_cancelled_opener_leaves_a_whole_space() -> None:
    world = World()
    async with world.process() as spaces:
        with trio.CancelScope() as scope:
            scope.cancel()
            await spaces.open(Encoding.JSON, None, is_encrypted=False)
        assert len(spaces) == 1
    async with world.process() as spaces:
        assert len(spaces) == 1


async def test_an_operator_closes_a_space_without_a_claim() -> None:
    async with World().process() as spaces:
        made = await opened(spaces)
        assert await spaces.close(made.space.space_id, Ending.CLOSED) is None
        assert await spaces.close(made.space.space_id, Ending.CLOSED) is EchoError.SPACE_NOT_FOUND


async def test_a_space_is_erased_within_seconds_of_its_end(autojump_clock: MockClock) -> None:
    world = World()
    world.follows_trio = True
    async with world.process() as spaces, trio.open_nursery() as nursery:
        nursery.start_soon(spaces.run)
        await opened(spaces, 100)
        first = await opened(spaces, 60)
        await trio.sleep(59.9)
        assert world.ended == []
        await trio.sleep(5)
        assert world.ended == [first.space.space_id]
        assert len(world.streams) == 1
        nursery.cancel_scope.cancel()
