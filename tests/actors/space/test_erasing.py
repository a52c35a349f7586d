"""Many spaces that end at once, on disks that do their part and on disks that do not."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import structlog
import trio
from trio.testing import MockClock

from actors.log.memory_store import MemoryStore
from actors.log.store import AppendRefused
from actors.space.erasing import FORGET_MAX, Erasing
from actors.space.key_files import Disk
from actors.space.memory_space_store import MemorySpaceStore
from actors.space.settings import SpaceSettings
from actors.space.store import NOT_READY, Refused, SpaceStoreLimits
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from tests.actors.log.shelves import bounded
from tests.actors.space.driver import World, opened
from tests.actors.space.shelves import SqliteShelf, put

IDS = [f"{number:026d}" for number in range(500)]


class Refusing(MemorySpaceStore):
    """Counts how often it is asked to end something, and refuses while `refuses` is set."""

    refuses = True
    asked = 0

    async def end(self, space_id: str) -> Refused | None:
        self.asked += 1
        return NOT_READY if self.refuses else await super().end(space_id)


class Counting(MemoryStore):
    """Counts how many streams go at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.at_a_time: list[int] = []

    async def forget(self, *streams: str) -> AppendRefused | None:
        self.at_a_time.append(len(streams))
        return await super().forget(*streams)


async def run(erasing: Erasing, until_s: float) -> None:
    while trio.current_time() < until_s:
        await erasing.erase_due()
        await trio.sleep(1.0 if erasing.next_s is None else max(0.01, erasing.next_s - trio.current_time()))


async def test_a_disk_that_refuses_is_asked_seldom_and_told_of_once_a_minute(autojump_clock: MockClock) -> None:
    world = World()
    world.follows_trio = True
    store, stream_log = Refusing(), Counting()
    erasing = Erasing(store, stream_log, lambda: world.now()._replace(mono_s=trio.current_time()))
    for space_id in IDS:
        erasing.add(space_id)
    began_s = trio.current_time()
    with structlog.testing.capture_logs() as logged:
        await run(erasing, began_s + 300.0)
        assert len(erasing) == len(IDS)
        assert store.asked <= 3 * len(IDS)  # once each at first, then 64 in half a minute
        assert 4 <= len(logged) <= 6
        assert {(line["event"], line["log_level"], line["spaces"]) for line in logged} == {
            ("spaces_not_erased", "warning", len(IDS))
        }
        store.refuses = False
        await run(erasing, began_s + 335.0)
    assert len(erasing) == 0
    assert max(stream_log.at_a_time) <= FORGET_MAX


async def test_spaces_that_are_not_erased_yet_count_so_that_a_broken_disk_is_not_given_more() -> None:
    async with (world := World(SpaceSettings(spaces_max=2, disk_free_min=0.0))).process() as spaces:
        made = await opened(spaces)
        await opened(spaces)
        world.log_disk.is_full = True
        assert await spaces.delete(made.space.space_id, made.claim) is EchoError.STORAGE_NOT_READY
        world.log_disk.is_full = False
        assert await spaces.open(Encoding.JSON, None, is_encrypted=False) is EchoError.OVERLOADED
        world.now_ms += 1_000
        await spaces.end_what_is_over()
        await opened(spaces)


async def test_whatever_else_is_to_be_done_is_done_while_thousands_expire() -> None:
    async with (world := World()).process() as spaces:
        for _ in range(1_000):
            await opened(spaces, 60)
        world.now_ms += 60_000
        ended: list[int] = []

        async def others() -> None:
            while len(world.ended) < 1_000:
                ended.append(len(world.ended))
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            nursery.start_soon(spaces.end_what_is_over)
        assert max(after - before for before, after in pairwise(ended)) <= 200
        assert world.streams == []


class CountingDisk(Disk):
    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()
        self.order: list[str] = []

    def sync(self, descriptor: int) -> None:
        self.steps["sync"] += 1
        super().sync(descriptor)

    def unlink(self, path: Path) -> None:
        self.order.append(path.parent.name)
        super().unlink(path)

    def sync_folder(self, folder: Path) -> None:
        self.steps["sync_folder"] += 1
        super().sync_folder(folder)


@bounded
async def test_the_keys_of_all_go_before_anything_else_of_any_with_few_syncs_of_their_folder(tmp_path: Path) -> None:
    disk, shelf, ids = CountingDisk(), SqliteShelf(tmp_path), IDS[:40]
    async with await shelf.open(SpaceStoreLimits(erasing_batch_max=8, erasing_threads_max=2), disk) as store:
        for space_id in ids:
            await store.create(space_id)
            await put(store, space_id, "k")
        disk.steps.clear()
        disk.order.clear()
        await store.erase_keys(ids)
        assert (store.space_ids(), store.totals().bytes) == ((), 0)
        assert shelf.files() == set()
        assert disk.steps == {"sync": 40, "sync_folder": 5}
        assert set(disk.order) == {"keys"}
        for space_id in ids:
            assert await store.end(space_id) is None
        assert disk.steps == {"sync": 40, "sync_folder": 5}


class OneBadKey(Disk):
    """Does not unlink this one."""

    bad = ""

    def unlink(self, path: Path) -> None:
        if path.name == self.bad:
            raise OSError(5, "no")
        super().unlink(path)


@bounded
async def test_a_key_that_the_disk_keeps_does_not_keep_the_others_and_is_told_of_by_its_end(tmp_path: Path) -> None:
    disk, shelf, ids = OneBadKey(), SqliteShelf(tmp_path), IDS[:5]
    async with await shelf.open(disk=disk) as store:
        for space_id in ids:
            await store.create(space_id)
        key = (tmp_path / "spaces" / "keys" / ids[2]).read_bytes()
        disk.bad = ids[2]
        await store.erase_keys(ids)
        assert shelf.files() == {f"spaces/keys/{ids[2]}"}
        assert shelf.files_with(key[:32]) == set()
        assert [await store.end(space_id) for space_id in ids] == [None, None, NOT_READY, None, None]
        disk.bad = ""
        assert await store.end(ids[2]) is None
        assert shelf.files() == set()
