"""Counting what is under way, and waiting for nothing to be."""

import pytest
import trio
import trio.testing

from actors.supervision.in_flight import InFlight


async def test_waiting_for_idle_returns_at_once_when_nothing_is_under_way() -> None:
    with trio.testing.assert_checkpoints():
        await InFlight().wait_idle()


async def test_waiting_for_idle_ends_when_the_last_one_leaves(nursery: trio.Nursery) -> None:
    calls = InFlight()
    idle = trio.Event()

    async def wait() -> None:
        await calls.wait_idle()
        idle.set()

    with calls:
        calls.enter()
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        calls.leave()
        await trio.testing.wait_all_tasks_blocked()
        assert not idle.is_set()
        assert calls.count == 1
    await trio.testing.wait_all_tasks_blocked()
    assert idle.is_set()
    assert calls.count == 0


async def test_one_that_enters_before_the_waiter_runs_is_waited_for_too(nursery: trio.Nursery) -> None:
    calls = InFlight()
    calls.enter()
    idle = trio.Event()

    async def wait() -> None:
        await calls.wait_idle()
        idle.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    calls.leave()
    calls.enter()
    await trio.testing.wait_all_tasks_blocked()
    assert not idle.is_set()
    calls.leave()
    await trio.testing.wait_all_tasks_blocked()
    assert idle.is_set()


def test_a_call_that_raises_has_left_as_well() -> None:
    calls = InFlight()
    with pytest.raises(KeyError), calls:
        raise KeyError
    assert calls.count == 0


def test_leaving_more_often_than_entering_is_a_bug() -> None:
    with pytest.raises(RuntimeError):
        InFlight().leave()
