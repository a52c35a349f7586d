"""Calls in flight: each hears of its outcome once, or of its deadline, whatever order those come in."""

import math

import trio
from trio.testing import MockClock

from actors.bus.bus import Failed, Outcome, Succeeded
from actors.node.calls import PendingCall, PendingCalls
from schemas.errors import Code


def call(msg_id: str) -> PendingCall:
    return PendingCall(msg_id, "tool", {}, "agent_x", "acme", 0)


async def outcomes_at(calls: PendingCalls, pending: dict[PendingCall, float]) -> list[tuple[float, str, Outcome]]:
    """When each was told what, with its deadlines kept."""
    told: list[tuple[float, str, Outcome]] = []

    async def wait(one: PendingCall) -> None:
        outcome = await one.wait()
        calls.remove(one)
        told.append((trio.current_time(), one.msg_id, outcome))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.watch)
        async with trio.open_nursery() as waiting:
            for one, deadline_s in pending.items():
                calls.add(one, deadline_s)
                waiting.start_soon(wait, one)
        nursery.cancel_scope.cancel()
    return told


async def test_each_call_is_told_at_its_own_deadline_whatever_order_they_came_in(autojump_clock: MockClock) -> None:
    pending = {call("a"): 5.0, call("b"): 3.0, call("c"): 4.0, call("d"): 3.0}
    told = await outcomes_at(PendingCalls(), pending)
    assert sorted((at_s, msg_id) for at_s, msg_id, _ in told) == [(3.0, "b"), (3.0, "d"), (4.0, "c"), (5.0, "a")]
    assert {outcome for *_, outcome in told} == {Failed(Code.DEADLINE_EXCEEDED, msg_id) for msg_id in "abcd"}


async def test_a_call_that_is_added_while_others_wait_keeps_an_earlier_deadline(autojump_clock: MockClock) -> None:
    calls, late, early = PendingCalls(), call("late"), call("early")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.watch)
        calls.add(late, 10.0)
        await trio.sleep(1)
        calls.add(early, 2.0)
        assert await early.wait() == Failed(Code.DEADLINE_EXCEEDED, "early")
        assert trio.current_time() == 2.0
        nursery.cancel_scope.cancel()


async def test_the_first_outcome_stands_and_no_deadline_changes_it(autojump_clock: MockClock) -> None:
    calls, one = PendingCalls(), call("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.watch)
        calls.add(one, 5.0)
        calls.settle("a", Succeeded("a", {}))
        calls.settle("a", Failed(Code.INTERNAL, "a"))
        await trio.sleep(10)
        assert await one.wait() == Succeeded("a", {})
        nursery.cancel_scope.cancel()


async def test_deadlines_of_calls_that_have_ended_are_forgotten(autojump_clock: MockClock) -> None:
    calls = PendingCalls(calls_max=10)
    for number in range(1000):
        one = call(str(number))
        calls.add(one, math.inf)
        calls.remove(one)
    assert calls.kept_deadlines <= 21


async def test_a_cancelled_caller_is_told_nothing(autojump_clock: MockClock) -> None:
    calls, one = PendingCalls(), call("a")
    calls.add(one, 5.0)
    with trio.move_on_after(1):
        await one.wait()
    calls.settle("a", Succeeded("a", {}))  # nobody waits: nothing is rescheduled
    assert one.outcome == Succeeded("a", {})
