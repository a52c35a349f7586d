"""What becomes of a node's intents when something goes wrong under way."""

from collections.abc import Callable
from functools import partial

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors.bus.bus import Failed, Succeeded
from actors.log.store import LogLimits, StoreFailedError
from actors.node.settings import NodeSettings
from actors.supervision.crash_report import first_leaf
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.frames import AuthOk, Cmd
from tests.actors.node.calling import Caller, live
from tests.actors.node.harness import Gateway, ScriptedNode
from tests.schemas.examples import ECHO_CAPABILITY, NODE_ID


async def crash_of(gateway: Gateway, harm: Callable[[ScriptedNode], None], callers: trio.Nursery) -> Exception:
    """How the actor of a node ends that is called after it was harmed; and the call, at its deadline."""
    caller: Caller | None = None
    crash: Exception | None = None
    try:
        async with trio.open_nursery() as actors:
            node = await live(gateway, actors)
            harm(node)
            caller = Caller(node, callers)
    except ExceptionGroup as group:
        crash = first_leaf(group)
    assert crash is not None
    assert caller is not None
    outcome = await caller.answer()
    assert isinstance(outcome, Failed)
    assert outcome.code is Code.DEADLINE_EXCEEDED
    return crash


async def test_a_bug_while_acting_crashes_the_actor_and_not_whoever_called(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(*_: object) -> None:
        raise ZeroDivisionError

    crash = await crash_of(gateway, lambda node: monkeypatch.setattr(node.actor, "perform", act), nursery_of_actors)
    assert isinstance(crash, ZeroDivisionError)


async def test_a_log_that_fails_under_a_call_crashes_the_actor(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    crash = await crash_of(gateway, lambda _: gateway.store.fail(reaches_disk=True), nursery_of_actors)
    assert isinstance(crash, StoreFailedError)


async def test_a_command_that_the_log_refuses_at_once_takes_no_slot(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    gateway.store._limits = LogLimits(queue_appends_max=0)  # noqa: SLF001
    for _ in range(ECHO_CAPABILITY["constraints"]["max_concurrency"] + 1):
        outcome = await Caller(node, nursery_of_actors).answer()
        assert isinstance(outcome, Failed)
        assert outcome.code is Code.INTERNAL


@pytest.mark.parametrize("is_full", [False, True], ids=["taken", "refused"])
async def test_what_the_log_answers_after_the_actors_end_is_not_acted_on(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery, is_full: bool
) -> None:
    commit = trio.Event()
    with trio.CancelScope() as actor:
        async with trio.open_nursery() as nursery:
            node = await live(gateway, nursery)
            gateway.store._before_commit = commit.wait  # noqa: SLF001
            caller = Caller(node, nursery_of_actors)
            await trio.testing.wait_all_tasks_blocked()
            actor.cancel()
    gateway.store.disk.is_full = is_full
    commit.set()
    outcome = await caller.answer()
    assert isinstance(outcome, Failed)
    assert outcome.code is (Code.INTERNAL if is_full else Code.DEADLINE_EXCEEDED)
    assert not [frame for frame in node.connection.sent if isinstance(frame, Cmd)]
    assert len(gateway.store.disk.streams[f"node/{NODE_ID}"].open_items) == (0 if is_full else 1)


async def test_a_node_that_hangs_up_still_has_what_it_said_recorded(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    caller = Caller(node, nursery_of_actors)
    cmd = await node.connection.next(Cmd)
    node.ack(cmd)
    node.connection.hang_up()
    node.actor.close(NodeClose.NORMAL)
    outcome = await caller.answer()
    assert not isinstance(outcome, Failed)


async def test_ack_that_becomes_durable_after_its_actor_has_ended_reaches_its_caller(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    commit = trio.Event()
    with trio.CancelScope() as actor:
        async with trio.open_nursery() as nursery:
            node = await live(gateway, nursery)
            caller = Caller(node, nursery_of_actors)
            cmd = await node.connection.next(Cmd)
            gateway.store._before_commit = commit.wait  # noqa: SLF001
            node.ack(cmd)
            await trio.testing.wait_all_tasks_blocked()
            actor.cancel()
    commit.set()
    assert isinstance(await caller.answer(), Succeeded)
    assert not gateway.store.disk.streams[f"node/{NODE_ID}"].open_items


async def test_unwritten_command_that_the_log_cannot_settle_ends_the_session_so_that_the_node_resumes(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    node = await live(gateway, nursery_of_actors)
    commit = trio.Event()
    gateway.store._before_commit = commit.wait  # noqa: SLF001
    caller = Caller(node, nursery_of_actors)
    await trio.testing.wait_all_tasks_blocked()
    caller.scope.cancel()  # its arguments go, and the append cannot be taken back
    await trio.testing.wait_all_tasks_blocked()

    async def fill_up() -> None:
        gateway.store.disk.is_full = True
        await trio.lowlevel.checkpoint()

    gateway.store._before_answer = fill_up  # noqa: SLF001
    commit.set()
    await trio.sleep(1)
    assert node.connection.closed is NodeClose.INTERNAL


async def test_open_commands_are_bounded_while_the_log_is_slow_too(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    gateway = Gateway(settings=NodeSettings(open_commands_max=2))
    node = await live(gateway, nursery)
    commit = trio.Event()
    gateway.store._before_commit = commit.wait  # noqa: SLF001
    callers = [Caller(node, nursery) for _ in range(4)]  # as many as may run at once
    await trio.testing.wait_all_tasks_blocked()
    commit.set()
    assert len(await node.commands(2)) == 2
    assert [caller.outcome is None for caller in callers].count(True) == 2
    nursery.cancel_scope.cancel()


async def test_epoch_that_our_log_takes_a_minute_for_is_no_timeout_of_the_node(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    gateway.store._before_commit = partial(trio.sleep, 61)  # noqa: SLF001
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await node.connection.next(AuthOk)
    assert node.connection.closed is None
