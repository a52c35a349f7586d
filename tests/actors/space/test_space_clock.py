"""A wall clock that is set, back or forward, while a gateway runs or not: no space lives the longer for it."""

import pytest
import trio
from trio.testing import MockClock

from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import AppendAnswer, AppendRefused, BlindEvents, Part
from actors.node.moment import Moment
from actors.space.memory_space_store import MemorySpaceStore
from actors.space.settings import SpaceSettings
from actors.space.space_clock import SeenTime, forward_only
from actors.space.spaces import EchoSpaces
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from tests.actors.space.driver import World, opened

HOUR_MS = 3_600_000


class Clocks:
    def __init__(self) -> None:
        self.mono_s, self.wall_ms = 100.0, 1_000_000

    def __call__(self) -> Moment:
        return Moment(self.mono_s, self.wall_ms)

    def go_on(self, passed_ms: int, wall_passed_ms: int | None = None) -> None:
        self.mono_s += passed_ms / 1000
        self.wall_ms += passed_ms if wall_passed_ms is None else wall_passed_ms


def test_the_date_goes_on_from_where_it_was_when_the_clock_is_set_back() -> None:
    clocks = Clocks()
    now = forward_only(clocks)
    assert now() == Moment(100.0, 1_000_000)
    clocks.go_on(5_000, -60_000)
    assert now() == Moment(105.0, 1_005_000)
    clocks.go_on(5_000)
    assert now() == Moment(110.0, 1_010_000)
    clocks.go_on(0, 65_500)  # the clock is right again
    assert now() == Moment(110.0, 1_010_500)
    clocks.go_on(1_000, HOUR_MS)  # a step forward is followed
    assert now() == Moment(111.0, 1_010_500 + HOUR_MS)


def test_a_small_correction_is_followed_so_that_no_delay_between_two_clocks_adds_up() -> None:
    clocks = Clocks()
    now = forward_only(clocks)
    for late_ms in (0, 900, 0, 900, 0):
        clocks.wall_ms = 1_000_000 + late_ms
        assert now().wall_ms == 1_000_000 + late_ms


async def test_a_clock_that_is_set_back_while_it_runs_ends_spaces_when_their_time_has_passed() -> None:
    async with (world := World()).process() as spaces:
        made = await opened(spaces, 3_600)
        world.wall_is_ahead_ms = -5 * HOUR_MS
        world.now_ms += HOUR_MS - 1
        assert spaces.find(made.token) is not None
        moved = await spaces.move_end(made.space.space_id, made.claim, 3_600)
        assert not isinstance(moved, EchoError)
        assert moved.ends_at_ms == made.space.ends_at_ms + HOUR_MS - 1
        world.now_ms += HOUR_MS
        assert spaces.find(made.token) is None
        await spaces.end_what_is_over()
        assert world.streams == []


async def test_a_clock_that_is_set_forward_ends_spaces_by_their_date() -> None:
    async with (world := World()).process() as spaces:
        made = await opened(spaces, 3_600)
        world.wall_is_ahead_ms = HOUR_MS
        assert spaces.find(made.token) is None


class Killed(BaseException):
    """The process ends here."""


class DyingLog(MemoryStore):
    """Its process dies at the nth write, before or after that is durable."""

    def __init__(self, disk: MemoryDisk, dies_at: int, *, is_before: bool) -> None:
        super().__init__(disk)
        self._left, self._is_before = dies_at, is_before

    async def append(self, *parts: Part, blind_events: BlindEvents = ()) -> AppendAnswer:
        self._left -= 1
        if self._left == 0 and self._is_before:
            raise Killed
        answer = await super().append(*parts, blind_events=blind_events)
        if self._left == 0:
            raise Killed
        return answer

    async def forget(self, *streams: str) -> AppendRefused | None:
        self._left -= 1
        if self._left == 0:
            raise Killed
        return await super().forget(*streams)


async def start_and_die(world: World, dies_at: int, *, is_before: bool) -> bool:
    """Whether it came that far."""
    async with MemorySpaceStore(world.space_disk) as store:
        await store.load()
        log = DyingLog(world.log_disk, dies_at, is_before=is_before)
        spaces = EchoSpaces(store, log, world.settings, world.now, world.random, lambda: "")
        try:
            await spaces.load()
        except BaseException:
            return True
    return False


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("back_days", [3, 30])
async def test_a_start_that_dies_at_any_write_takes_no_time_off_a_space_and_gives_it_none(
    back_days: int, is_before: bool
) -> None:
    world = World()
    world.wall_is_ahead_ms = back_days * 24 * HOUR_MS
    async with world.process() as spaces:
        made, over = await opened(spaces), await opened(spaces, 60)
        world.now_ms += HOUR_MS
        await SeenTime(MemoryStore(world.log_disk)).write(world.now().wall_ms)
    world.wall_is_ahead_ms = 0
    deaths = 0
    for dies_at in (1, 1, 2, 2, 3):
        deaths += await start_and_die(world, dies_at, is_before=is_before)
        world.now_ms += 60_000
    assert deaths >= 2
    async with world.process() as spaces:
        found = spaces.find(made.token)
        assert found is not None
        left_ms = found.ends_at_ms - world.now_ms
        assert 0 <= 1000 * 604_800 - HOUR_MS - left_ms <= 5 * 60_000  # but for the time of those starts
        assert spaces.find(over.token) is None
        assert world.streams == [f"space/{made.space.space_id}"]


async def test_a_log_that_takes_nothing_at_the_start_gets_ends_and_time_before_anything_else() -> None:
    world = World()
    world.wall_is_ahead_ms = 30 * 24 * HOUR_MS
    async with world.process() as spaces:
        made = await opened(spaces)
        await SeenTime(MemoryStore(world.log_disk)).write(world.now().wall_ms)
    world.wall_is_ahead_ms, world.log_disk.is_full = 0, True
    async with world.process() as spaces:
        found = spaces.find(made.token)
        assert found is not None
        refused = await spaces.open(Encoding.JSON, None, is_encrypted=False)
        assert refused is EchoError.STORAGE_NOT_READY
        assert await spaces.move_end(made.space.space_id, made.claim, 60) is EchoError.STORAGE_NOT_READY
        world.log_disk.is_full = False
        second = await opened(spaces)
    for _ in range(2):
        async with world.process() as spaces:
            assert (spaces.find(made.token), spaces.find(second.token)) == (found, second.space)


@pytest.mark.parametrize("back_h", [1, 5, 24 * 365])
async def test_a_clock_that_is_set_back_between_two_runs_gives_a_space_no_longer_life(back_h: int) -> None:
    world = World()
    async with world.process() as spaces:
        made = await opened(spaces, 2 * 3_600)
        world.now_ms += HOUR_MS // 2
        await SeenTime(MemoryStore(world.log_disk)).write(world.now_ms)
    world.wall_is_ahead_ms = -back_h * HOUR_MS
    for _ in range(3):  # the next start finds what this one made of it
        async with world.process() as spaces:
            found = spaces.find(made.token)
            assert found is not None
            assert found.ends_at_ms == made.space.ends_at_ms - back_h * HOUR_MS
    world.now_ms += HOUR_MS + HOUR_MS // 2
    async with world.process() as spaces:
        assert spaces.find(made.token) is None
        assert world.streams == []


async def test_a_space_that_was_over_by_the_time_last_seen_is_over_though_the_clock_was_set_back() -> None:
    world = World()
    async with world.process() as spaces:
        made = await opened(spaces, 60)
        await SeenTime(MemoryStore(world.log_disk)).write(world.now_ms + 60_000)
    async with world.process() as spaces:
        assert spaces.find(made.token) is None
        assert (world.streams, world.space_disk.spaces) == ([], {})


async def test_a_space_of_a_clock_that_was_years_ahead_does_not_live_for_years() -> None:
    world = World()
    world.wall_is_ahead_ms = 10 * 365 * 24 * HOUR_MS
    async with world.process() as spaces:
        made = await opened(spaces)
    world.wall_is_ahead_ms = 0
    async with world.process() as spaces:
        found = spaces.find(made.token)
        assert found is not None
        assert found.ends_at_ms == world.now_ms + 1000 * spaces.settings.room_ttl_s


async def test_a_time_that_was_noted_years_ahead_does_not_end_spaces_that_are_opened_after_it() -> None:
    world = World()
    await SeenTime(MemoryStore(world.log_disk)).write(world.now_ms + 10 * 365 * 24 * HOUR_MS)
    async with world.process() as spaces:
        made = await opened(spaces)
    async with world.process() as spaces:
        assert spaces.find(made.token) == made.space


async def test_no_space_lasts_longer_than_a_ttl_that_was_lowered_meanwhile() -> None:
    world = World()
    async with world.process() as spaces:
        made = await opened(spaces)
    world.settings = SpaceSettings(disk_free_min=0.0, room_ttl_s=3_600)
    async with world.process() as spaces:
        found = spaces.find(made.token)
        assert found is not None
        assert found.ends_at_ms == world.now_ms + HOUR_MS
    world.now_ms += HOUR_MS // 2
    async with world.process() as spaces:
        assert spaces.find(made.token) == found


async def test_the_time_is_noted_while_there_are_spaces(autojump_clock: MockClock) -> None:
    world = World()
    world.follows_trio = True
    async with world.process() as spaces, trio.open_nursery() as nursery:
        nursery.start_soon(spaces.run)
        await trio.sleep(200)
        seen = SeenTime(MemoryStore(world.log_disk))
        assert await seen.read() == 0
        await opened(spaces)
        await trio.sleep(200)
        assert 0 <= world.now().wall_ms - await seen.read() <= 61_000
        nursery.cancel_scope.cancel()


async def test_a_log_that_cannot_be_read_or_takes_nothing_has_seen_no_time() -> None:
    disk = MemoryDisk()
    seen = SeenTime(MemoryStore(disk))
    disk.is_full = True
    await seen.write(1)
    assert await seen.read() == 0
    disk.is_full = False
    await seen.write(2)
    disk.unreadable.add("spaces")
    assert await seen.read() == 0
