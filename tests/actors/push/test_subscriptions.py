"""Subscriptions in a store: replaced by endpoint, within their number, and true to what sending showed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from actors.push.space_owners import SpaceOwners
from actors.push.subscription_rules import Outcome, Subscriber
from actors.push.subscriptions import Subscriptions
from actors.space.events import Ending
from actors.space.settings import SpaceSettings
from actors.space.spaces import EchoSpaces
from actors.space.store import NOT_READY, Refused
from schemas.echo.errors import EchoError
from tests.actors.space.driver import World, opened


def one(endpoint: str, since_ms: int = 1, **more: object) -> Subscriber:
    return msgspec.convert(
        {"endpoint": endpoint, "p256dh": b"p", "auth": b"a", "since_ms": since_ms, **more}, Subscriber
    )


class Table:
    """Of one space."""

    def __init__(self, world: World, spaces: EchoSpaces, space_id: str, count_max: int) -> None:
        self.world = world
        self.spaces = spaces
        self.space_id = space_id
        self.owners = SpaceOwners(spaces)
        self.subscriptions = Subscriptions(self.owners, count_max)

    async def add(self, new: Subscriber) -> bool | EchoError:
        return await self.subscriptions.add(self.space_id, new)

    async def settle(self, outcomes: dict[Subscriber, Outcome]) -> set[Subscriber]:
        return await self.subscriptions.settle(self.space_id, outcomes)

    async def all(self) -> list[Subscriber]:
        return await self.subscriptions.all(self.space_id)


@asynccontextmanager
async def table(count_max: int = 10, settings: SpaceSettings | None = None) -> AsyncIterator[Table]:
    world = World(settings)
    async with world.process() as spaces:
        made = await opened(spaces)
        yield Table(world, spaces, made.space.space_id, count_max)


async def test_subscription_is_replaced_by_its_endpoint_and_removed_once() -> None:
    async with table() as here:
        assert await here.add(one("a")) is True
        assert await here.add(one("a", 2, uid="ada", subs=["lobby"])) is False
        assert await here.all() == [one("a", 2, uid="ada", subs=["lobby"])]
        assert await here.subscriptions.remove(here.space_id, "a") is True
        assert await here.subscriptions.remove(here.space_id, "a") is False
        assert await here.all() == []


async def test_full_table_keeps_what_it_has_unless_something_there_fails() -> None:
    async with table(2) as here:
        for endpoint in "ab":
            assert await here.add(one(endpoint)) is True
        assert await here.add(one("c")) is EchoError.SPACE_FULL
        await here.settle({one("b"): Outcome.FAILED})
        assert await here.add(one("c")) is True
        assert await here.all() == [one("a"), one("c")]


async def test_as_many_as_there_may_be_of_those_who_come_together() -> None:
    async with table(3) as here:
        answers: list[bool | EchoError] = []

        async def come(endpoint: str) -> None:
            answers.append(await here.add(one(endpoint)))

        async with trio.open_nursery() as nursery:
            for endpoint in "abcdefgh":
                nursery.start_soon(come, endpoint)
        assert sorted(map(str, answers)) == sorted(map(str, [True] * 3 + [EchoError.SPACE_FULL] * 5))
        assert len(await here.all()) == 3


async def test_outcomes_are_kept_and_those_that_are_gone_removed() -> None:
    async with table() as here:
        some = [one(endpoint) for endpoint in "abcd"]
        for each in some:
            await here.add(each)
        here.world.now_ms += 5
        outcomes = dict(zip(some, [Outcome.SENT, Outcome.FAILED, Outcome.REMOVED, Outcome.LEFT_OVER], strict=True))
        assert await here.settle(outcomes) == set()
        assert await here.all() == [
            one("a"),
            one("b", failing_since_ms=here.world.now_ms),
            one("d", is_left_over=True),
        ]
        assert await here.settle(dict.fromkeys(some, Outcome.SENT)) == set()
        assert await here.all() == [one("a"), one("b"), one("d")]


async def test_outcome_that_comes_late_touches_nobody_who_has_gone_or_subscribed_anew() -> None:
    async with table() as here:
        before = [one("a"), one("b")]
        for each in before:
            await here.add(each)
        await here.subscriptions.remove(here.space_id, "a")
        await here.add(one("b", 9))
        assert await here.settle({before[0]: Outcome.FAILED, before[1]: Outcome.REMOVED}) == set()
        assert await here.all() == [one("b", 9)]


async def test_two_outcomes_at_a_time_are_both_kept() -> None:
    async with table() as here:
        await here.add(one("a"))
        await here.settle({one("a"): Outcome.FAILED})
        assert (await here.all())[0].failing_since_ms is not None
        await here.settle({one("a"): Outcome.SENT})  # of somebody who began before the other was done
        assert await here.all() == [one("a")]


async def test_what_the_disk_refuses_to_remove_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with table() as here:
        await here.add(one("a"))

        async def refuse(_space_id: str, _endpoint: str) -> bool | Refused:
            await trio.lowlevel.checkpoint()
            return NOT_READY

        monkeypatch.setattr(here.spaces.store, "delete_subscription", refuse)
        assert await here.settle({one("a"): Outcome.REMOVED}) == {one("a")}
        assert await here.subscriptions.remove(here.space_id, "a") is EchoError.STORAGE_NOT_READY
        assert await here.all() == [one("a")]


async def test_without_room_on_the_disk_nothing_new_is_taken() -> None:
    async with table(settings=SpaceSettings(disk_free_min=0.0, total_bytes_max=100)) as here:
        assert await here.add(one("a")) is EchoError.STORAGE_NOT_READY


async def test_last_word_against_it_is_asked_for_when_all_else_is_right() -> None:
    async with table(1) as here:
        asked: list[str] = []

        def against() -> EchoError:
            asked.append("")
            return EchoError.INSUFFICIENT_SCOPE

        refused = await here.subscriptions.add(here.space_id, one("a"), still_good=against)
        assert refused is EchoError.INSUFFICIENT_SCOPE
        await here.add(one("b"))
        full = await here.subscriptions.add(here.space_id, one("a"), still_good=against)
        assert (full, len(asked)) == (EchoError.SPACE_FULL, 1)


async def test_space_that_has_ended_has_none_and_takes_none() -> None:
    async with table() as here:
        await here.add(one("a"))
        await here.spaces.close(here.space_id, Ending.CLOSED)
        assert await here.add(one("b")) is EchoError.SPACE_NOT_FOUND
        assert await here.subscriptions.remove(here.space_id, "a") is False
        assert await here.all() == []
        assert await here.settle({one("a"): Outcome.FAILED}) == set()


async def test_cancelled_caller_leaves_it_wholly_done_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async with table() as here:
        with trio.CancelScope() as scope:
            scope.cancel()
            await here.add(one("a"))
        assert await here.all() == []  # it was cancelled before its turn

        started = trio.Event()

        async def slowly(space_id: str) -> bool:
            started.set()
            await trio.lowlevel.checkpoint()
            return await here.spaces.opened(space_id)

        async with trio.open_nursery() as nursery:
            monkeypatch.setattr(here.owners, "opened", slowly)
            nursery.start_soon(here.add, one("b"))
            await started.wait()
            nursery.cancel_scope.cancel()
        assert await here.all() == [one("b")]
