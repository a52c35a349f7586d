"""Actors that come back after a crash, until they crash too often."""

import pytest
import structlog
import trio
import trio.testing

from actors.supervision.errors import EndedEarlyError, GaveUpError
from actors.supervision.registry import Registry
from actors.supervision.restart_rules import RestartIntensity
from actors.supervision.supervisor import Supervisor
from tests.actors.supervision.specs import permanent, temporary


async def test_a_permanent_actor_is_restarted_after_a_crash_and_stays_listed(supervisor: Supervisor) -> None:
    ledgers: Registry[str, str] = Registry()
    listed: list[bool] = []

    async def crash_once() -> None:
        listed.append("agent" in ledgers)
        if len(listed) == 1:
            raise ValueError
        await trio.sleep_forever()

    with structlog.testing.capture_logs() as logs:
        handle = supervisor.start(permanent(crash_once, entry=ledgers.entry("agent", "ledger")))
        await trio.testing.wait_all_tasks_blocked()
    assert listed == [True, True]
    assert not handle.ended
    assert [line["event"] for line in logs] == ["actor_crashed", "actor_restarted"]


async def test_a_permanent_actor_crashed_from_outside_is_restarted_and_its_next_life_is_clean(
    supervisor: Supervisor,
) -> None:
    lives: list[None] = []
    ends: list[Exception | None] = []

    async def run() -> None:
        lives.append(None)
        await trio.sleep_forever()

    handle = supervisor.start(permanent(run, on_end=ends.append))
    for life in (1, 2, 3):
        await trio.testing.wait_all_tasks_blocked()
        assert len(lives) == life
        handle.crash(ValueError("outside"))
    await trio.testing.wait_all_tasks_blocked()
    assert len(lives) == 4
    assert ends == []
    handle.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert handle.ended
    assert ends == [None]


async def test_the_fourth_crash_within_sixty_seconds_stops_the_process_with_a_clear_last_line(
    autojump_clock: trio.testing.MockClock,
) -> None:
    lives_s: list[float] = []
    ends: list[Exception | None] = []
    supervisor = Supervisor()

    async def crash_every_ten_seconds() -> None:
        lives_s.append(autojump_clock.current_time())
        await trio.sleep(10)
        raise ValueError

    with structlog.testing.capture_logs() as logs, pytest.RaisesGroup(GaveUpError):
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            supervisor.start(temporary(trio.sleep_forever, on_end=ends.append))
            supervisor.start(permanent(crash_every_ten_seconds))
    assert lives_s == [0.0, 10.0, 20.0, 30.0]
    assert ends == [None]
    assert logs[-1] == {
        "event": "process_stops",
        "log_level": "critical",
        "reason": "the gateway stops: sweeper crashed 4 times within 60 s",
    }


async def test_crashes_further_apart_than_the_window_are_restarted_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    lives_s: list[float] = []
    supervisor = Supervisor()

    async def crash_now_and_then() -> None:
        lives_s.append(autojump_clock.current_time())
        await trio.sleep(21)
        raise ValueError

    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        supervisor.start(permanent(crash_now_and_then))
        await trio.sleep(1000)
        supervisor.request_stop()
    assert len(lives_s) == 48


async def test_each_permanent_actor_has_an_intensity_of_its_own(supervisor: Supervisor) -> None:
    handles = [supervisor.start(permanent(trio.sleep_forever)) for _ in range(5)]
    for _ in range(3):
        for handle in handles:
            handle.crash(ValueError("outside"))
        await trio.testing.wait_all_tasks_blocked()
    assert not any(handle.ended for handle in handles)


async def test_a_permanent_actor_that_returns_unasked_counts_as_crashed() -> None:
    supervisor = Supervisor(intensity=RestartIntensity(restarts_max=0))
    with structlog.testing.capture_logs() as logs, pytest.RaisesGroup(GaveUpError):
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            supervisor.start(permanent(trio.lowlevel.checkpoint))
    assert logs[0]["causes"][0]["error"] == f"{EndedEarlyError.__module__}.EndedEarlyError"
