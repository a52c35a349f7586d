"""Actors that own a socket: a crash stays with its actor, and the supervisor cleans up."""

import structlog
import trio
import trio.testing

from actors.supervision.registry import Registry
from actors.supervision.supervisor import Supervisor
from tests.actors.supervision.specs import raise_value_error, temporary


async def test_a_crash_of_one_actor_is_logged_with_its_cause_and_leaves_every_other_untouched(
    supervisor: Supervisor,
) -> None:
    ends: list[Exception | None] = []
    others = [supervisor.start(temporary(trio.sleep_forever)) for _ in range(3)]
    with structlog.testing.capture_logs() as logs:
        crashed = supervisor.start(temporary(raise_value_error, on_end=ends.append))
        await trio.testing.wait_all_tasks_blocked()
    assert crashed.ended
    assert not any(other.ended for other in others)
    assert [type(end) for end in ends] == [ValueError]
    (line,) = logs
    assert line["event"] == "actor_crashed"
    assert line["actor"] == "node"
    assert line["causes"][0]["error"] == "builtins.ValueError"
    assert line["causes"][0]["at"][-1].endswith(" raise_value_error")


async def test_the_text_of_a_crash_never_reaches_the_log(supervisor: Supervisor) -> None:
    with structlog.testing.capture_logs() as logs:
        supervisor.start(temporary(raise_value_error))
        await trio.testing.wait_all_tasks_blocked()
    assert logs
    assert "device" not in repr(logs)


async def test_an_exception_group_is_reduced_at_the_actors_boundary(supervisor: Supervisor) -> None:
    ends: list[Exception | None] = []

    async def two_tasks() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raise_value_error)
            nursery.start_soon(trio.sleep_forever)

    with structlog.testing.capture_logs() as logs:
        supervisor.start(temporary(two_tasks, on_end=ends.append))
        await trio.testing.wait_all_tasks_blocked()
    assert [type(end) for end in ends] == [ValueError]
    assert [cause["error"] for cause in logs[0]["causes"]] == ["builtins.ValueError"]


async def test_an_actor_that_returns_ends_without_a_cause_or_a_log_line(supervisor: Supervisor) -> None:
    ends: list[Exception | None] = []
    with structlog.testing.capture_logs() as logs:
        handle = supervisor.start(temporary(trio.lowlevel.checkpoint, on_end=ends.append))
        await trio.testing.wait_all_tasks_blocked()
    assert handle.ended
    assert ends == [None]
    assert logs == []


async def test_start_does_not_yield_and_the_actor_is_listed_when_it_returns(supervisor: Supervisor) -> None:
    nodes: Registry[str, str] = Registry()
    with trio.testing.assert_no_checkpoints():
        handle = supervisor.start(temporary(trio.sleep_forever, entry=nodes.entry("n1", "actor")))
    assert nodes.find("n1") == "actor"
    assert not handle.ended


async def test_an_actor_is_listed_until_its_task_has_ended_and_no_longer_when_its_end_is_told(
    supervisor: Supervisor,
) -> None:
    nodes: Registry[str, str] = Registry()
    listed: list[bool] = []

    async def linger() -> None:
        try:
            await trio.sleep_forever()
        finally:
            listed.append("n1" in nodes)

    spec = temporary(linger, on_end=lambda _: listed.append("n1" in nodes), entry=nodes.entry("n1", "actor"))
    handle = supervisor.start(spec)
    await trio.testing.wait_all_tasks_blocked()
    handle.cancel()
    assert "n1" in nodes
    await trio.testing.wait_all_tasks_blocked()
    assert listed == [True, False]


async def test_a_crash_takes_the_actor_from_the_registry(supervisor: Supervisor) -> None:
    nodes: Registry[str, str] = Registry()
    with structlog.testing.capture_logs() as logs:
        supervisor.start(temporary(raise_value_error, entry=nodes.entry("n1", "actor")))
        await trio.testing.wait_all_tasks_blocked()
    assert "n1" not in nodes
    assert logs[0]["key"] == "n1"


async def test_the_end_of_a_superseded_actor_leaves_the_newer_one_listed(supervisor: Supervisor) -> None:
    nodes: Registry[str, str] = Registry()
    old = supervisor.start(temporary(trio.sleep_forever, entry=nodes.entry("n1", "old")))
    supervisor.start(temporary(trio.sleep_forever, entry=nodes.entry("n1", "new")))
    old.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert old.ended
    assert nodes.find("n1") == "new"


async def test_an_end_hook_that_raises_is_logged_and_harms_nobody(supervisor: Supervisor) -> None:
    def fail(_: Exception | None) -> None:
        raise OSError("what the peer said")

    other = supervisor.start(temporary(trio.sleep_forever))
    with structlog.testing.capture_logs() as logs:
        handle = supervisor.start(temporary(trio.lowlevel.checkpoint, on_end=fail))
        await trio.testing.wait_all_tasks_blocked()
    assert handle.ended
    assert not other.ended
    assert [line["event"] for line in logs] == ["actor_end_failed"]
    assert "peer" not in repr(logs)
