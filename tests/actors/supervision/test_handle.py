"""What whoever started an actor can do to it: ask, cancel, crash."""

import structlog
import trio
import trio.testing

from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from tests.actors.supervision.specs import temporary


async def test_cancelling_an_actor_is_not_a_crash(supervisor: Supervisor) -> None:
    ends: list[Exception | None] = []
    with structlog.testing.capture_logs() as logs:
        handle = supervisor.start(temporary(trio.sleep_forever, on_end=ends.append))
        handle.cancel()
        await trio.testing.wait_all_tasks_blocked()
        handle.cancel()
    assert ends == [None]
    assert logs == []


async def test_a_crash_from_outside_ends_that_actor_with_that_cause(supervisor: Supervisor) -> None:
    ends: list[Exception | None] = []
    other = supervisor.start(temporary(trio.sleep_forever))
    handle = supervisor.start(temporary(trio.sleep_forever, on_end=ends.append))
    await trio.testing.wait_all_tasks_blocked()
    first = KeyError("first")
    with structlog.testing.capture_logs() as logs, trio.testing.assert_no_checkpoints():
        handle.crash(first)
        handle.crash(KeyError("second"))
    with structlog.testing.capture_logs() as logs:
        await trio.testing.wait_all_tasks_blocked()
    assert ends == [first]
    assert [line["event"] for line in logs] == ["actor_crashed"]
    assert not other.ended


async def test_a_crash_from_outside_before_the_first_step_is_not_lost(supervisor: Supervisor) -> None:
    ends: list[Exception | None] = []
    handle = supervisor.start(temporary(trio.sleep_forever, on_end=ends.append))
    cause = KeyError("early")
    handle.crash(cause)
    await trio.testing.wait_all_tasks_blocked()
    assert ends == [cause]


async def test_a_crash_from_outside_is_the_cause_even_when_the_actor_raises_on_its_way_out(
    supervisor: Supervisor,
) -> None:
    ends: list[Exception | None] = []

    async def stumble() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError

    handle = supervisor.start(temporary(stumble, on_end=ends.append))
    await trio.testing.wait_all_tasks_blocked()
    cause = KeyError("outside")
    with structlog.testing.capture_logs() as logs:
        handle.crash(cause)
        await trio.testing.wait_all_tasks_blocked()
    assert ends == [cause]
    assert [entry["error"] for entry in logs[0]["causes"]][:2] == ["builtins.KeyError", "builtins.OSError"]


async def test_a_crash_after_the_end_does_nothing(supervisor: Supervisor) -> None:
    ends: list[Exception | None] = []
    handle = supervisor.start(temporary(trio.lowlevel.checkpoint, on_end=ends.append))
    await trio.testing.wait_all_tasks_blocked()
    with structlog.testing.capture_logs() as logs:
        handle.crash(KeyError("late"))
        handle.ask_stop()
        await trio.testing.wait_all_tasks_blocked()
    assert ends == [None]
    assert logs == []


async def test_a_permanent_actor_asked_to_stop_through_its_handle_ends_for_good(supervisor: Supervisor) -> None:
    lives: list[None] = []
    asked = trio.Event()

    async def run() -> None:
        lives.append(None)
        await asked.wait()

    spec = ChildSpec(name="ledger", run=run, kind=Kind.PERMANENT, stage=Stage.CORE, ask_stop=asked.set)
    handle = supervisor.start(spec)
    await trio.testing.wait_all_tasks_blocked()
    handle.ask_stop()
    await trio.testing.wait_all_tasks_blocked()
    assert handle.ended
    assert len(lives) == 1


async def test_an_actor_that_was_asked_to_stop_or_cancelled_is_not_asked_again(supervisor: Supervisor) -> None:
    asked: list[str] = []
    specs = {
        name: ChildSpec(
            name=name,
            run=trio.sleep_forever,
            kind=Kind.TEMPORARY,
            stage=Stage.STREAMS,
            ask_stop=lambda name=name: asked.append(name),  # type: ignore[misc]
        )
        for name in ("asked", "cancelled")
    }
    first, second = (supervisor.start(spec) for spec in specs.values())
    first.ask_stop()
    first.ask_stop()
    second.cancel()
    second.ask_stop()
    assert asked == ["asked"]
