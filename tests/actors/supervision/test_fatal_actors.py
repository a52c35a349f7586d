"""Actors whose crash stops the process."""

import pytest
import structlog
import trio
import trio.testing

from actors.supervision.errors import FatalActorError, GaveUpError, SupervisorStoppingError
from actors.supervision.restart_rules import RestartIntensity
from actors.supervision.supervisor import Supervisor
from tests.actors.supervision.specs import fatal, permanent, raise_value_error, temporary


async def test_any_crash_of_a_fatal_actor_stops_the_process_at_once() -> None:
    supervisor = Supervisor()
    ends: list[Exception | None] = []
    with structlog.testing.capture_logs() as logs, pytest.RaisesGroup(FatalActorError) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            supervisor.start(temporary(trio.sleep_forever, on_end=ends.append))
            supervisor.start(fatal(raise_value_error))
    assert ends == [None]
    assert [line["event"] for line in logs] == ["actor_crashed", "process_stops"]
    assert "device" not in repr(logs)
    assert caught.value.exceptions[0].__cause__ is None
    assert caught.value.exceptions[0].__context__ is None


async def test_a_fatal_actor_that_returns_unasked_stops_the_process() -> None:
    supervisor = Supervisor()
    with pytest.RaisesGroup(FatalActorError):
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            supervisor.start(fatal(trio.lowlevel.checkpoint))


async def test_a_fatal_actor_that_crashes_while_it_is_asked_to_stop_still_fails_the_process() -> None:
    supervisor = Supervisor()
    asked = trio.Event()

    async def fail_to_flush() -> None:
        await asked.wait()
        raise OSError

    with pytest.RaisesGroup(FatalActorError):
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            supervisor.start(fatal(fail_to_flush, ask_stop=asked.set))
            supervisor.request_stop()


async def test_the_first_of_several_failures_is_the_one_told() -> None:
    supervisor = Supervisor(intensity=RestartIntensity(restarts_max=0))

    async def fail_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError

    with pytest.RaisesGroup(GaveUpError):
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            supervisor.start(fatal(fail_when_cancelled))
            supervisor.start(permanent(raise_value_error))


async def test_nothing_starts_once_the_process_must_stop() -> None:
    supervisor = Supervisor()
    refused = trio.Event()

    def try_again(_: Exception | None) -> None:
        with pytest.raises(SupervisorStoppingError):
            supervisor.start(temporary(trio.sleep_forever))
        refused.set()

    with pytest.RaisesGroup(FatalActorError):
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            supervisor.start(temporary(trio.sleep_forever, on_end=try_again))
            supervisor.start(fatal(raise_value_error))
    assert refused.is_set()
