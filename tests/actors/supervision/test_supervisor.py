"""The supervisor as a whole: interrupts and cancellation pass through, and it starts nothing when it does not run."""

import contextlib

import pytest
import structlog
import trio
import trio.testing

from actors.supervision.errors import SupervisorStoppingError
from actors.supervision.registry import Registry
from actors.supervision.supervisor import Supervisor
from tests.actors.supervision.specs import permanent, temporary


async def test_a_keyboard_interrupt_in_an_actor_leaves_the_supervisor_as_itself() -> None:
    supervisor = Supervisor()
    ends: list[Exception | None] = []

    async def interrupted() -> None:
        async with trio.open_nursery():
            raise KeyboardInterrupt

    async def run_and_catch() -> None:
        with pytest.raises(KeyboardInterrupt):
            await supervisor.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_and_catch)
        await trio.testing.wait_all_tasks_blocked()
        supervisor.start(temporary(trio.sleep_forever, on_end=ends.append))
        supervisor.start(temporary(interrupted, on_end=ends.append))
    assert ends == [None, None]


async def test_cancelling_the_supervisor_ends_every_actor_and_is_no_crash() -> None:
    supervisor = Supervisor()
    nodes: Registry[str, str] = Registry()
    ends: list[Exception | None] = []
    with structlog.testing.capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            supervisor.start(temporary(trio.sleep_forever, on_end=ends.append, entry=nodes.entry("n1", "actor")))
            supervisor.start(permanent(trio.sleep_forever))
            nursery.cancel_scope.cancel()
    assert ends == [None]
    assert len(nodes) == 0
    assert logs == []


async def test_a_crash_while_everything_is_cancelled_is_told_and_does_not_stop_the_cancellation() -> None:
    supervisor = Supervisor()
    ends: list[Exception | None] = []

    async def crash_beside_a_cancelled_task() -> None:
        async def fail() -> None:
            with contextlib.suppress(trio.Cancelled):
                await trio.sleep_forever()
            raise ValueError

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        supervisor.start(temporary(crash_beside_a_cancelled_task, on_end=ends.append))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [type(end) for end in ends] == [ValueError]


async def test_a_supervisor_that_does_not_run_starts_nothing(autojump_clock: trio.testing.MockClock) -> None:
    supervisor = Supervisor()
    nodes: Registry[str, str] = Registry()
    with pytest.raises(SupervisorStoppingError):
        supervisor.start(temporary(trio.sleep_forever, entry=nodes.entry("n1", "actor")))
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        supervisor.request_stop()
    with pytest.raises(SupervisorStoppingError):
        supervisor.start(temporary(trio.sleep_forever, entry=nodes.entry("n1", "actor")))
    assert len(nodes) == 0
    assert autojump_clock.current_time() == 0.0
