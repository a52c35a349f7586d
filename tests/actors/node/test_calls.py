"""Calls in flight: each hears of its outcome once, or of its deadline, whatever order those come in."""

import math

import trio
from trio.testing import MockClock

from actors.bus.bus import Failed, Outcome, Succeeded
from actors.node.calls import ABANDONED_MAX, PendingCall, PendingCalls
from schemas.errors import Code
from schemas.manifest import NodeIdentity

NODE = NodeIdentity("01hzx9k3m4p7q8r9s0t1v2w3xy", "acme")
OTHER = NodeIdentity("01hzx9k3m4p7q8r9s0t1v2w3xz", "acme")


def call(msg_id: str, deadline_s: float) -> PendingCall:
    return PendingCall(msg_id, {"message": "x"}, deadline_s)


async def outcomes_at(calls: PendingCalls, pending: list[PendingCall]) -> list[tuple[float, str, Outcome]]:
    """When each was told what, with its deadlines kept."""
    told: list[tuple[float, str, Outcome]] = []

    async def wait(one: PendingCall) -> None:
        outcome = await one.wait()
        calls.of(NODE).remove(one)
        told.append((trio.current_time(), one.msg_id, outcome))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.watch)
        async with trio.open_nursery() as waiting:
            for one in pending:
                calls.of(NODE).add(one)
                waiting.start_soon(wait, one)
        nursery.cancel_scope.cancel()
    return told


async def test_each_call_is_told_at_its_own_deadline_whatever_order_they_came_in(autojump_clock: MockClock) -> None:
    pending = [call("a", 5.0), call("b", 3.0), call("c", 4.0), call("d", 3.0)]
    told = await outcomes_at(PendingCalls(), pending)
    assert sorted((at_s, msg_id) for at_s, msg_id, _ in told) == [(3.0, "b"), (3.0, "d"), (4.0, "c"), (5.0, "a")]
    assert {outcome for *_, outcome in told} == {Failed(Code.DEADLINE_EXCEEDED, msg_id) for msg_id in "abcd"}


async def test_a_call_that_is_added_while_others_wait_keeps_an_earlier_deadline(autojump_clock: MockClock) -> None:
    calls, late, early = PendingCalls(), call("late", 10.0), call("early", 2.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.watch)
        calls.of(NODE).add(late)
        await trio.sleep(1)
        calls.of(NODE).add(early)
        assert await early.wait() == Failed(Code.DEADLINE_EXCEEDED, "early")
        assert trio.current_time() == 2.0
        nursery.cancel_scope.cancel()


async def test_the_first_outcome_stands_and_no_deadline_changes_it(autojump_clock: MockClock) -> None:
    calls, one = PendingCalls(), call("a", 5.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.watch)
        calls.of(NODE).add(one)
        calls.of(NODE).settle("a", Succeeded("a", {}))
        calls.of(NODE).settle("a", Failed(Code.INTERNAL, "a"))
        await trio.sleep(10)
        assert await one.wait() == Succeeded("a", {})
        nursery.cancel_scope.cancel()


async def test_deadlines_of_calls_that_have_ended_are_forgotten(autojump_clock: MockClock) -> None:
    calls = PendingCalls(calls_max=10)
    for number in range(1000):
        one = call(str(number), math.inf)
        calls.of(NODE).add(one)
        calls.of(NODE).remove(one)
    assert calls.kept_deadlines <= 21


async def test_a_cancelled_caller_is_told_nothing(autojump_clock: MockClock) -> None:
    calls, one = PendingCalls(), call("a", 5.0)
    calls.of(NODE).add(one)
    with trio.move_on_after(1):
        await one.wait()
    calls.of(NODE).settle("a", Succeeded("a", {}))  # nobody waits: nothing is rescheduled
    assert one.outcome == Succeeded("a", {})


async def test_calls_of_two_nodes_that_have_the_same_id_are_told_their_own(autojump_clock: MockClock) -> None:
    calls, mine, other = PendingCalls(), call("a", 5.0), call("a", 7.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.watch)
        calls.of(NODE).add(mine)
        calls.of(OTHER).add(other)
        calls.of(OTHER).settle("a", Succeeded("a", {"of": "another"}))
        assert mine.outcome is None
        assert await mine.wait() == Failed(Code.DEADLINE_EXCEEDED, "a")
        assert trio.current_time() == 5.0
        assert await other.wait() == Succeeded("a", {"of": "another"})
        nursery.cancel_scope.cancel()


def test_arguments_go_with_their_caller() -> None:
    calls, one = PendingCalls(), call("a", 5.0)
    calls.of(NODE).add(one)
    assert "a" in calls.of(NODE)
    assert calls.of(NODE).arguments_of("a") == {"message": "x"}
    calls.of(NODE).remove(one)
    assert "a" not in calls.of(NODE)
    assert calls.of(NODE).arguments_of("a") is None
    assert one.arguments == {}
    assert len(calls) == 0


def test_abandoned_commands_are_remembered_while_they_are_open_and_only_then() -> None:
    calls = PendingCalls().of(NODE)
    for msg_id in "abc":
        calls.abandon(msg_id)
    calls.settle("a", Failed(Code.INTERNAL, "a"))
    assert calls.abandoned_of(["a", "b"]) == ["b"]
    assert calls.abandoned == 1
    for number in range(2 * ABANDONED_MAX):
        calls.abandon(str(number))
    assert calls.abandoned == ABANDONED_MAX


async def test_stop_waits_for_callers_as_long_as_it_may_and_no_longer_than_they_wait(autojump_clock: MockClock) -> None:
    calls, quick, slow = PendingCalls(), call("quick", 5.0), call("slow", 5.0)
    ended_s: list[float] = []

    async def watch() -> None:
        await calls.watch()
        ended_s.append(trio.current_time())

    async def wait(one: PendingCall) -> None:
        await one.wait()
        calls.of(NODE).remove(one)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        for one in (quick, slow):
            calls.of(NODE).add(one)
            nursery.start_soon(wait, one)
        await trio.sleep(0.5)
        calls.hurry(3.5)
        calls.of(NODE).settle("quick", Succeeded("quick", {}))
    assert slow.outcome == Failed(Code.DEADLINE_EXCEEDED, "slow")
    assert ended_s == [4.0]


async def test_stop_without_callers_waits_for_nobody(autojump_clock: MockClock) -> None:
    calls, one = PendingCalls(), call("a", 5.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.watch)
        calls.of(NODE).add(one)
        await trio.sleep(1)
        calls.hurry(3.5)
        calls.of(NODE).remove(one)
    assert trio.current_time() == 1.0
