"""Times of many streams, kept by one task: each rings when it is due, once, and none that has been ended."""

import gc
import math
import weakref
from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from actors.stream.alarms import GONE_MIN, RINGS_MAX, Alarm, Alarms


async def test_each_rings_when_it_is_due_and_once(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    alarms, rung = Alarms(), list[tuple[str, float]]()
    nursery.start_soon(alarms.run)
    for name, at_s in (("late", 9.0), ("soon", 3.0), ("sooner", 2.0)):
        Alarm(alarms, lambda name=name: rung.append((name, trio.current_time()))).set(trio.current_time() + at_s)  # type: ignore[misc]
    began_s = trio.current_time()
    await trio.sleep(20)
    assert [(name, round(at_s - began_s, 3)) for name, at_s in rung] == [("sooner", 2), ("soon", 3), ("late", 9)]


async def test_one_that_ends_rings_no_more_and_lets_go_of_whoever_was_to_be_rung(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    class Somebody:
        def ring(self) -> None:
            raise AssertionError("it has ended")

    alarms, somebody = Alarms(), Somebody()
    nursery.start_soon(alarms.run)
    alarm, there = Alarm(alarms, somebody.ring), weakref.ref(somebody)
    alarm.set(trio.current_time() + 1)
    alarm.end()
    gc.disable()
    try:
        del somebody
        assert there() is None
    finally:
        gc.enable()
    await trio.sleep(5)
    assert len(alarms) == 0


async def test_many_that_are_due_at_one_instant_let_others_run_in_between(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    alarms, rung, seen = Alarms(), list[int](), [0]
    nursery.start_soon(alarms.run)
    many = 5 * RINGS_MAX + 1
    for number in range(many):
        Alarm(alarms, lambda number=number: rung.append(number)).set(trio.current_time() + 5)  # type: ignore[misc]
    await trio.sleep(5)
    while seen[-1] < many:
        await trio.lowlevel.checkpoint()
        seen.append(len(rung))
    # Two turns of theirs at most lie between two of ours: trio shuffles each turn.
    assert max(later - before for before, later in pairwise(seen)) <= 2 * RINGS_MAX
    assert sorted(rung) == list(range(many))


def test_streams_that_come_and_go_leave_no_more_entries_than_there_are_streams_and_a_bound() -> None:
    alarms = Alarms()
    for number in range(20 * GONE_MIN):
        alarm = Alarm(alarms, lambda: None)
        alarm.set(25.0 + number)
        alarm.end()
    assert len(alarms) <= 2 * GONE_MIN + 1


@pytest.mark.parametrize("gone_min", [1, GONE_MIN])
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1.0, 2.0, 3.0, math.inf, None, 0.0])), max_size=60))
def test_every_alarm_rings_at_the_time_that_it_was_set_to_last(
    gone_min: int, steps: list[tuple[int, float | None]]
) -> None:
    alarms, rung = Alarms(), list[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("actors.stream.alarms.GONE_MIN", gone_min)
        them = [Alarm(alarms, lambda number=number: rung.append(number)) for number in range(4)]  # type: ignore[misc]
        due = [math.inf] * 4
        ended: set[int] = set()
        for number, at_s in steps:
            if at_s is None:
                them[number].end()
                ended.add(number)
                due[number] = math.inf
            elif number not in ended:
                them[number].set(at_s)
                due[number] = at_s
        for now_s in (0.0, 1.0, 2.0, 3.0):
            rung.clear()
            alarms._ring(now_s)  # noqa: SLF001
            assert sorted(rung) == [number for number in range(4) if due[number] == now_s]
        assert len(alarms) == 0
        assert alarms.gone == 0
