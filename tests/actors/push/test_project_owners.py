"""Subscriptions of projects: made with the first one, erased with their project, whatever comes between."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.push.project_owners import RETRY_S, ProjectOwners
from actors.push.subscriptions import Subscriptions
from actors.space.memory_space_store import MemorySpaceDisk, MemorySpaceStore
from actors.space.sqlite_space_store import SqliteSpaceStore
from actors.space.store import NOT_READY, Refused
from schemas.echo.errors import EchoError
from tests.actors.push.test_subscriptions import one

A, B = "01jd0000000000000000000001", "01jd0000000000000000000002"


class Town:
    """Projects by their ids alone, and what lies on their disk."""

    def __init__(self) -> None:
        self.projects = {A, B}
        self.disk = MemorySpaceDisk()
        self.fault: EchoError | None = None

    @asynccontextmanager
    async def process(self, known: set[str] | None = None) -> AsyncIterator[tuple[ProjectOwners, Subscriptions]]:
        async with MemorySpaceStore(self.disk) as store:
            await store.load()
            owners = ProjectOwners(store, self.projects.__contains__, lambda _: self.fault, lambda: 1)
            await owners.load(self.projects if known is None else known)
            yield owners, Subscriptions(owners, 10)


async def test_project_has_none_until_the_first_and_keeps_them_over_a_restart() -> None:
    town = Town()
    async with town.process() as (owners, subscriptions):
        assert await subscriptions.all(A) == []
        assert await subscriptions.remove(A, "a") is False
        assert owners.store.space_ids() == ()
        assert await subscriptions.add(A, one("a")) is True
        assert await subscriptions.add(A, one("b")) is True
        assert owners.store.space_ids() == (A,)
    async with town.process() as (_, subscriptions):
        assert await subscriptions.all(A) == [one("a"), one("b")]
        assert await subscriptions.all(B) == []


async def test_project_that_there_is_not_takes_none() -> None:
    async with Town().process() as (owners, subscriptions):
        assert await subscriptions.add("01jd0000000000000000000009", one("a")) is EchoError.PROJECT_NOT_FOUND
        assert owners.store.space_ids() == ()


async def test_without_room_on_the_disk_nothing_is_made() -> None:
    town = Town()
    town.fault = EchoError.STORAGE_NOT_READY
    async with town.process() as (owners, subscriptions):
        assert await subscriptions.add(A, one("a")) is EchoError.STORAGE_NOT_READY
        assert owners.store.space_ids() == ()


async def test_deleted_project_is_erased_and_the_others_stay(autojump_clock: MockClock) -> None:
    town = Town()
    async with town.process() as (owners, subscriptions), trio.open_nursery() as nursery:
        nursery.start_soon(owners.run)
        for project_id in (A, B):
            await subscriptions.add(project_id, one("a"))
        town.projects.discard(A)
        owners.forget(A)
        assert await subscriptions.all(A) == []
        await trio.testing.wait_all_tasks_blocked()
        assert owners.store.space_ids() == (B,)
        assert await subscriptions.all(B) == [one("a")]
        nursery.cancel_scope.cancel()


async def test_what_a_crash_left_of_a_deleted_project_is_erased_at_the_next_start() -> None:
    town = Town()
    async with town.process() as (_, subscriptions):
        for project_id in (A, B):
            await subscriptions.add(project_id, one("a"))
    town.projects.discard(A)
    async with town.process() as (owners, _):
        assert owners.store.space_ids() == (B,)


async def test_project_that_this_release_cannot_read_keeps_its_own() -> None:
    town = Town()
    async with town.process() as (_, subscriptions):
        await subscriptions.add(A, one("a"))
    town.projects.discard(A)
    async with town.process(known={A}) as (owners, subscriptions):
        assert owners.store.space_ids() == (A,)
        assert await subscriptions.all(A) == []


async def test_project_that_is_deleted_while_its_first_one_comes_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    town = Town()
    async with town.process() as (owners, subscriptions):
        create = owners.store.create

        async def create_slowly(project_id: str) -> Refused | None:
            town.projects.discard(A)
            owners.forget(A)
            await owners.erase()  # before there is anything
            return await create(project_id)

        monkeypatch.setattr(owners.store, "create", create_slowly)
        assert await subscriptions.add(A, one("a")) is EchoError.PROJECT_NOT_FOUND
        await owners.erase()
        assert owners.store.space_ids() == ()


async def test_what_the_disk_refuses_to_erase_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    town = Town()
    async with town.process() as (owners, subscriptions), trio.open_nursery() as nursery:
        await subscriptions.add(A, one("a"))
        end, tries = owners.store.end, list[float]()

        async def end_at_third(project_id: str) -> Refused | None:
            tries.append(trio.current_time())
            await trio.lowlevel.checkpoint()
            return NOT_READY if len(tries) < 3 else await end(project_id)

        monkeypatch.setattr(owners.store, "end", end_at_third)
        nursery.start_soon(owners.run)
        town.projects.discard(A)
        owners.forget(A)
        await trio.sleep(3 * RETRY_S)
        assert [at - tries[0] for at in tries] == [0.0, RETRY_S, 2 * RETRY_S]
        assert owners.store.space_ids() == ()
        nursery.cancel_scope.cancel()


async def test_on_a_disk_an_endpoint_is_nowhere_in_the_clear_and_gone_with_its_project(tmp_path: Path) -> None:
    endpoint = "https://push.example/canary-of-an-endpoint"
    there = {A}
    with trio.fail_after(20):
        async with await SqliteSpaceStore.at(tmp_path) as store:
            await store.load()
            owners = ProjectOwners(store, there.__contains__, lambda _: None, lambda: 1)
            await owners.load(there)
            assert await Subscriptions(owners, 10).add(A, one(endpoint, uid="canary-of-a-uid")) is True
            there.clear()
            owners.forget(A)
            await owners.erase()
            assert list((tmp_path / "spaces" / "keys").iterdir()) == []
    assert has_canary(tmp_path) == []


def has_canary(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]
