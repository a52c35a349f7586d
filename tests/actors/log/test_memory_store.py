"""What a simulation can do to the store in memory, on top of the contract."""

import pytest
import trio

from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import AppendAnswer, Appended, AppendRefused, Conflict, RefusalReason, StoreFailedError
from tests.actors.log.shelves import bounded, part


async def append_into(answers: list[object], store: MemoryStore, name: str, queueing: trio.Event) -> None:
    queueing.set()
    try:
        answers.append(await store.append(part(name, 0, "x")))
    except StoreFailedError as failure:
        answers.append(str(failure))


async def queue_one(nursery: trio.Nursery, answers: list[object], store: MemoryStore, name: str) -> None:
    queueing = trio.Event()
    nursery.start_soon(append_into, answers, store, name, queueing)
    await queueing.wait()


@bounded
async def test_a_crash_before_the_commit_leaves_nothing_on_the_disk() -> None:
    answers: list[object] = []
    go_on = trio.Event()
    store = MemoryStore(before_commit=go_on.wait)
    async with trio.open_nursery() as nursery:
        await queue_one(nursery, answers, store, "a")
        store.crash()
        go_on.set()
    assert answers == ["the process has crashed"]
    assert store.disk.load("a").version == 0


@bounded
async def test_a_crash_after_the_commit_leaves_it_on_the_disk_and_nobody_hears() -> None:
    answers: list[object] = []
    go_on = trio.Event()
    store = MemoryStore(before_answer=go_on.wait)
    async with trio.open_nursery() as nursery:
        await queue_one(nursery, answers, store, "a")
        await trio.testing.wait_all_tasks_blocked()
        store.crash()
        go_on.set()
    assert answers == ["the process has crashed"]
    assert store.disk.load("a").version == 1


@bounded
async def test_a_caller_cancelled_by_the_crash_does_not_commit_after_all() -> None:
    store = MemoryStore(before_commit=trio.sleep_forever)
    async with trio.open_nursery() as nursery:
        await queue_one(nursery, [], store, "a")
        store.crash()
        nursery.cancel_scope.cancel()
    assert store.disk.load("a").version == 0


@bounded
async def test_a_crashed_store_refuses_everything_and_says_why() -> None:
    store = MemoryStore()
    store.crash()
    for attempt in (store.append(part("a", 0, "x")), store.forget("a"), store.compact(0), store.watch()):
        with pytest.raises(StoreFailedError, match="crashed"):
            await attempt


@pytest.mark.parametrize("reaches_disk", [False, True])
@bounded
async def test_a_commit_of_unknown_outcome_fails_every_waiter(reaches_disk: bool) -> None:
    answers: list[object] = []
    store = MemoryStore()
    store.fail(reaches_disk=reaches_disk)
    async with trio.open_nursery() as nursery:
        for name in "abc":
            await queue_one(nursery, answers, store, name)
    assert answers == ["the outcome of a commit is unknown"] * 3
    assert [store.disk.load(name).version for name in "abc"] == [int(reaches_disk), 0, 0]
    with pytest.raises(StoreFailedError, match="unknown"):
        await store.watch()


@bounded
async def test_two_processes_over_one_disk_see_each_other() -> None:
    disk = MemoryDisk()
    one, other = MemoryStore(disk), MemoryStore(disk)
    assert one.log_id == other.log_id
    assert await one.append(part("a", 0, "x")) == Appended((1,))
    assert await other.append(part("a", 0, "y")) == Conflict("a", 1)
    one.crash()
    assert await other.append(part("a", 1, "y")) == Appended((2,))


@bounded
async def test_a_full_disk_refuses_appends_while_reads_go_on() -> None:
    store = MemoryStore()
    await store.append(part("a", 0, "x"))
    store.disk.is_full = True
    assert await store.append(part("a", 1, "y")) == AppendRefused(RefusalReason.DISK_FULL)
    assert len(await store.read("a")) == 1
    store.disk.is_full = False
    assert await store.append(part("a", 1, "y")) == Appended((2,))


@bounded
async def test_there_is_a_checkpoint_before_the_commit_and_one_before_the_answer() -> None:
    seen: list[str] = []

    async def note(what: str) -> None:
        seen.append(f"{what}: version {disk.load('a').version}")
        await trio.lowlevel.checkpoint()

    disk = MemoryDisk()
    store = MemoryStore(disk, before_commit=lambda: note("commit"), before_answer=lambda: note("answer"))
    answer: AppendAnswer = await store.append(part("a", 0, "x"))
    assert answer == Appended((1,))
    assert seen == ["commit: version 0", "answer: version 1"]
