"""One append after another: what waits, what is decided anew, and who answers for what is lost."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock

from actors.log.appender import Appender, Lost
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import Appended, AppendRefused, Loaded, Part, StoreFailedError, Then

STREAM = "numbers"


@dataclass
class Numbers:
    """A batch of numbers to append; zeros leave no event."""

    expected_version: int
    numbers: list[int]
    answers: list[int]

    @property
    def is_empty(self) -> bool:
        return not self.numbers


@dataclass
class Recorder:
    """An owner that remembers."""

    store: MemoryStore
    is_superseded: bool = False
    version: int = 0
    performed: list[int] = field(default_factory=list)
    performed_late: list[int] = field(default_factory=list)
    lost: list[tuple[int, Lost]] = field(default_factory=list)
    loads: int = 0
    batches: list[list[int]] = field(default_factory=list)
    follow_ups: dict[int, list[int]] = field(default_factory=dict)
    fault: Exception | None = None

    def load(self, loaded: Loaded) -> bool:
        self.loads += 1
        self.version = loaded.version
        return not self.is_superseded

    def decide(self, batch: Sequence[int], now_ms: int) -> Numbers:
        assert now_ms == 7
        self.batches.append(list(batch))
        return Numbers(self.version, [number for number in batch if number], list(batch))

    def submit(self, draft: Numbers, then: Then) -> AppendRefused | None:
        events = tuple(str(number).encode() for number in draft.numbers)
        return self.store.submit((Part(STREAM, draft.expected_version, 7, events),), then)

    def perform(self, draft: Numbers) -> Sequence[int]:
        if self.fault is not None:
            raise self.fault
        self.version += len(draft.numbers)
        self.performed += draft.answers
        return [more for number in draft.answers for more in self.follow_ups.pop(number, [])]

    def perform_late(self, draft: Numbers) -> None:
        self.performed_late += draft.answers

    def lose(self, batch: Sequence[int], why: Lost) -> None:
        self.lost += [(number, why) for number in batch]


def written(disk: MemoryDisk) -> list[int]:
    return [int(event.data) for event in disk.streams[STREAM].events] if STREAM in disk.streams else []


class Site:
    def __init__(self, items_max: int = 100, bytes_max: int = 1000) -> None:
        self.disk = MemoryDisk()
        self.store = MemoryStore(self.disk)
        self.owner = Recorder(self.store)
        self.appender: Appender[int, Numbers] = Appender(
            self.store, STREAM, self.owner, lambda: 7, items_max, bytes_max
        )

    def offer(self, *numbers: int) -> list[bool]:
        return [self.appender.offer(number, 7) for number in numbers]

    async def settle(self) -> None:
        await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
def site() -> Site:
    return Site()


async def test_what_comes_before_the_stream_is_read_waits_for_it(
    autojump_clock: MockClock, nursery: trio.Nursery, site: Site
) -> None:
    assert site.offer(1, 2) == [True, True]
    assert site.owner.batches == []
    nursery.start_soon(site.appender.run)
    await site.settle()
    assert site.owner.batches == [[1, 2]]
    assert site.owner.performed == written(site.disk) == [1, 2]


async def test_what_comes_during_an_append_goes_together_in_the_next(
    autojump_clock: MockClock, nursery: trio.Nursery, site: Site
) -> None:
    nursery.start_soon(site.appender.run)
    await site.settle()
    site.offer(1, 2, 3)
    await site.settle()
    assert site.owner.batches == [[1], [2, 3]]
    assert site.owner.performed == written(site.disk) == [1, 2, 3]


async def test_one_too_many_items_or_bytes_are_refused(autojump_clock: MockClock) -> None:
    site = Site(items_max=2, bytes_max=10)
    assert site.offer(1, 2, 3) == [True, True, False]
    site = Site(items_max=5, bytes_max=10)
    assert [site.appender.offer(1, 7, size) for size in (6, 5, 4, 1)] == [True, False, True, False]


async def test_what_has_no_events_is_performed_without_an_append(
    autojump_clock: MockClock, nursery: trio.Nursery, site: Site
) -> None:
    nursery.start_soon(site.appender.run)
    await site.settle()
    site.offer(0)
    assert site.owner.performed == [0]
    assert written(site.disk) == []


async def test_follow_ups_go_before_all_that_waits(
    autojump_clock: MockClock, nursery: trio.Nursery, site: Site
) -> None:
    nursery.start_soon(site.appender.run)
    await site.settle()
    site.owner.follow_ups[1] = [8, 9]
    site.offer(1, 2)
    await site.settle()
    assert site.owner.performed == [1, 8, 9, 2]


async def test_conflict_is_decided_anew_on_what_is_there(
    autojump_clock: MockClock, nursery: trio.Nursery, site: Site
) -> None:
    nursery.start_soon(site.appender.run)
    await site.settle()
    assert await MemoryStore(site.disk).append(Part(STREAM, 0, 7, (b"77",))) == Appended((1,))
    site.offer(1, 2)
    await site.settle()
    assert site.owner.loads == 2
    assert written(site.disk) == [77, 1, 2]
    assert site.owner.performed == [1, 2]


async def test_conflict_with_somebody_newer_loses_the_batch(
    autojump_clock: MockClock, nursery: trio.Nursery, site: Site
) -> None:
    nursery.start_soon(site.appender.run)
    await site.settle()
    await MemoryStore(site.disk).append(Part(STREAM, 0, 7, (b"77",)))
    site.owner.is_superseded = True
    site.offer(1, 2)
    await site.settle()
    assert site.owner.lost == [(1, Lost.SUPERSEDED), (2, Lost.SUPERSEDED)]
    assert site.offer(3) == [False]
    assert written(site.disk) == [77]


@pytest.mark.parametrize("at_once", [False, True])
async def test_refused_batch_is_lost_and_the_next_one_goes_on(
    autojump_clock: MockClock, nursery: trio.Nursery, site: Site, at_once: bool
) -> None:
    nursery.start_soon(site.appender.run)
    await site.settle()
    site.disk.is_full = not at_once
    if at_once:
        limits, site.store._limits = site.store._limits, type(site.store._limits)(queue_appends_max=0)  # noqa: SLF001
    site.offer(1)
    await site.settle()
    assert site.owner.lost == [(1, Lost.REFUSED)]
    site.disk.is_full = False
    if at_once:
        site.store._limits = limits  # noqa: SLF001
    site.offer(2)
    await site.settle()
    assert site.owner.performed == written(site.disk) == [2]


async def test_item_can_be_withdrawn_until_it_is_decided(
    autojump_clock: MockClock, nursery: trio.Nursery, site: Site
) -> None:
    nursery.start_soon(site.appender.run)
    await site.settle()
    site.offer(1, 2, 3)
    assert not site.appender.withdraw(1)
    assert site.appender.withdraw(2)
    await site.settle()
    assert site.owner.performed == [1, 3]


async def test_close_does_what_waits_and_takes_nothing_more(autojump_clock: MockClock, site: Site) -> None:
    site.offer(1)
    site.appender.close()
    await site.appender.run()
    assert site.owner.performed == [1]
    assert site.offer(2) == [False]
    assert site.owner.lost == []


async def test_cancelled_worker_loses_what_waits_and_what_was_to_be_decided_anew(
    autojump_clock: MockClock, site: Site
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.appender.run)
        await site.settle()
        await MemoryStore(site.disk).append(Part(STREAM, 0, 7, (b"77",)))
        site.offer(1, 2)
        with trio.CancelScope():
            while not site.appender._is_stale:  # noqa: SLF001  # the log has said that there is a conflict
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert site.owner.lost == [(1, Lost.ENDED), (2, Lost.ENDED)]


async def test_batch_that_is_with_the_log_when_the_worker_ends_is_not_lost(
    autojump_clock: MockClock, site: Site
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.appender.run)
        await site.settle()
        site.offer(1)
        nursery.cancel_scope.cancel()
    await site.settle()
    assert written(site.disk) == [1]
    assert (site.owner.performed, site.owner.performed_late, site.owner.lost) == ([], [1], [])


async def test_fault_of_the_owner_ends_the_worker_and_not_whoever_offered(
    autojump_clock: MockClock, site: Site
) -> None:
    async def offer() -> None:
        await site.settle()
        assert site.offer(0) == [True]

    site.owner.fault = ZeroDivisionError()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(offer)
        with pytest.raises(ZeroDivisionError):
            await site.appender.run()


async def test_log_that_fails_ends_the_worker(autojump_clock: MockClock, site: Site) -> None:
    site.store.fail(reaches_disk=True)
    site.offer(1)
    with pytest.raises(StoreFailedError):
        await site.appender.run()
    assert site.owner.lost == []
