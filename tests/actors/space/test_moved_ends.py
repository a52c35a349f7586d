"""The end of a space, moved by its creator: seldom, in order, never after it has come, and nothing grows by it."""

from dataclasses import replace
from functools import partial

import pytest
import trio

from actors.log.memory_store import MemoryStore
from actors.log.store import AppendAnswer, BlindEvents, Part
from actors.space.events import Ending, Space
from actors.space.settings import SpaceSettings
from actors.space.spaces import DISK_S, EchoSpaces, Opened
from schemas.echo.errors import EchoError
from tests.actors.log.shelves import bounded
from tests.actors.space.driver import World, opened

OFTEN = SpaceSettings(disk_free_min=0.0, end_moves_burst=10_000)


class SlowLog(MemoryStore):
    """`on_commit` happens when an append is durable, and before whoever asked for it goes on."""

    async def append(self, *parts: Part, blind_events: BlindEvents = ()) -> AppendAnswer:
        answer = await super().append(*parts, blind_events=blind_events)
        await self.on_commit()
        return answer

    async def on_commit(self) -> None:
        await trio.lowlevel.checkpoint()


def slow_log(world: World) -> SlowLog:
    log = SlowLog(world.log_disk)
    world.log_over = lambda _: log
    return log


async def moved(spaces: EchoSpaces, made: Opened, ttl_s: int) -> Space:
    answer = await spaces.move_end(made.space.space_id, made.claim, ttl_s)
    assert isinstance(answer, Space), answer
    return answer


async def test_a_stream_whose_end_was_moved_many_times_has_one_end_and_a_restart_finds_the_last() -> None:
    world = World(OFTEN)
    async with world.process() as spaces:
        made = await opened(spaces)
        for ttl_s in range(100, 600):
            last = await moved(spaces, made, ttl_s)
        (stream,) = [world.log_disk.streams[name] for name in world.streams]
        assert (len(stream.events), sorted(stream.open_items)) == (1, ["end", "live"])
    async with world.process() as spaces:
        assert spaces.find(made.token) == last


async def test_the_same_life_asked_for_again_is_written_once_a_second_at_most() -> None:
    async with (world := World(OFTEN)).process() as spaces:
        made = await opened(spaces, 60)
        world.now_ms += 999
        assert await moved(spaces, made, 60) == made.space
        world.now_ms += 1
        assert (await moved(spaces, made, 60)).ends_at_ms == world.now_ms + 60_000


async def test_an_end_may_be_moved_some_times_at_once_and_then_once_a_minute() -> None:
    async with (world := World()).process() as spaces:
        made, other = await opened(spaces), await opened(spaces)
        space_id = made.space.space_id
        for number in range(10):
            last = await moved(spaces, made, 1_000 + number)
        assert await spaces.move_end(space_id, made.claim, 2_000) is EchoError.RATE_LIMITED
        assert spaces.move_wait_ms(space_id) == 60_000
        assert spaces.find(made.token) == last
        assert await moved(spaces, made, 1_009) == last  # nothing is moved
        await moved(spaces, other, 2_000)
        assert spaces.move_wait_ms(other.space.space_id) is None
        world.now_ms += 60_000
        await moved(spaces, made, 2_000)
        assert await spaces.move_end(space_id, made.claim, 1_000) is EchoError.RATE_LIMITED
        assert await spaces.delete(space_id, made.claim) is None
        assert spaces.move_wait_ms(space_id) is None


async def test_without_room_on_the_disk_no_end_is_moved() -> None:
    async with (world := World()).process() as spaces:
        made = await opened(spaces)
        spaces.settings = replace(spaces.settings, disk_free_min=1.1)
        world.now_ms += int(DISK_S * 1000)
        assert await spaces.move_end(made.space.space_id, made.claim, 60) is EchoError.STORAGE_NOT_READY
        assert spaces.find(made.token) == made.space


@bounded
async def test_two_who_move_an_end_at_once_leave_memory_and_log_in_agreement() -> None:
    world = World(OFTEN)
    for number in range(20):
        async with world.process() as spaces:
            made = await opened(spaces)
            async with trio.open_nursery() as nursery:
                for ttl_s in (1_000 + number, 500_000 + number, 60):
                    nursery.start_soon(spaces.move_end, made.space.space_id, made.claim, ttl_s)
            kept = spaces.find(made.token)
        async with world.process() as spaces:
            assert spaces.find(made.token) == kept


@bounded
async def test_one_who_is_cancelled_has_moved_the_end_wholly_or_not_at_all() -> None:
    world = World(OFTEN)
    for steps in range(12):
        async with world.process() as spaces:
            made = await opened(spaces)
            async with trio.open_nursery() as nursery:
                for ttl_s in (1_000, 2_000):
                    nursery.start_soon(spaces.move_end, made.space.space_id, made.claim, ttl_s)
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            kept = spaces.find(made.token)
        async with world.process() as spaces:
            assert spaces.find(made.token) == kept


async def test_a_move_that_is_committed_after_the_end_does_not_bring_the_space_back() -> None:
    world = World()
    log = slow_log(world)
    async with world.process() as spaces:
        made = await opened(spaces, 60)
        told: list[int] = []
        spaces.on_move = lambda _, ends_at_ms: told.append(ends_at_ms)
        world.now_ms += 59_999

        async def later() -> None:
            await trio.lowlevel.checkpoint()
            world.now_ms += 1
            assert spaces.find(made.token) is None

        log.on_commit = later  # type: ignore[method-assign]
        assert await spaces.move_end(made.space.space_id, made.claim, 3_600) is EchoError.SPACE_NOT_FOUND
        assert (spaces.find(made.token), told) == (None, [])
        await spaces.end_what_is_over()
        assert (world.streams, world.space_disk.spaces) == ([], {})


# ---- closed ----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


async def test_a_space_stays_closed_when_the_process_dies_while_it_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    async with world.process() as spaces:
        made = await opened(spaces)

        async def dies(_: str) -> None:
            await trio.lowlevel.checkpoint()
            raise Killed

        monkeypatch.setattr(spaces.store, "end", dies)
        with pytest.raises(BaseExceptionGroup):
            await spaces.delete(made.space.space_id, made.claim)
        assert list(world.space_disk.spaces) == [made.space.space_id]
    async with world.process() as spaces:
        assert spaces.find(made.token) is None
        assert spaces.counts.ended[Ending.DELETED] == 1
        assert (world.streams, world.space_disk.spaces) == ([], {})


@bounded
async def test_a_space_that_is_moved_and_closed_at_once_is_closed() -> None:
    async with (world := World(OFTEN)).process() as spaces:
        for is_first in (True, False):
            made = await opened(spaces)
            close = partial(spaces.close, made.space.space_id, Ending.CLOSED)
            move = partial(spaces.move_end, made.space.space_id, made.claim, 100)
            async with trio.open_nursery() as nursery:
                for ask in (close, move) if is_first else (move, close):
                    nursery.start_soon(ask)
            assert (spaces.find(made.token), world.streams, world.space_disk.spaces) == (None, [], {})
        assert spaces.counts.ended[Ending.CLOSED] == 2


async def test_a_space_that_expires_while_it_is_closed_has_expired() -> None:
    world = World()
    log = slow_log(world)
    async with world.process() as spaces:
        made = await opened(spaces, 60)

        async def ends() -> None:
            world.now_ms += 60_000
            await spaces.end_what_is_over()

        log.on_commit = ends  # type: ignore[method-assign]
        assert await spaces.close(made.space.space_id, Ending.CLOSED) is EchoError.SPACE_NOT_FOUND
        assert {ending: count for ending, count in spaces.counts.ended.items() if count} == {Ending.EXPIRED: 1}
