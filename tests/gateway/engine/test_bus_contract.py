"""What every bus does: in a gateway of one process, and among several, in memory and over NATS."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count

import pytest
import trio

from actors.bus.bus import Failed, Succeeded
from actors.bus.trace import TRACEPARENT
from actors.engine.calls_for_others import ServedCall
from actors.engine.settings import BusSettings, PresenceSettings
from actors.log.memory_store import MemoryDisk
from gateway.engine.connection import Connection
from gateway.engine.nats_kv import NatsKv
from gateway.engine.nats_messages import NatsMessages
from gateway.engine.nats_runs import Names
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.objects import Objects
from gateway.engine.objects_rules import LIVE, MANIFESTS
from gateway.engine.server_run import ServerRun
from gateway.engine.settings import EngineSettings
from schemas.errors import Code
from schemas.frames import Cmd, CmdCancel
from tests.actors.engine.gateways import (
    Asked,
    MemoryEngine,
    Process,
    Recorder,
    one_of_several,
    one_process,
    sent,
    telemetry,
    until,
)
from tests.actors.node.calling import ECHO, SUBSCRIBE
from tests.schemas.examples import FRAME, NODE_ID

TEST_S_MAX = 30.0
ENGINE = EngineSettings(replicas=1, log_bytes_max=2**20, bucket_bytes_max=2**20, sync_is_always=True)
_prefixes = count()


@pytest.fixture(params=["local", "memory", "nats"])
def server(request: pytest.FixtureRequest) -> ServerRun | str:
    """Started outside of the trio run of a test."""
    run: ServerRun | str = request.getfixturevalue("nats_server") if request.param == "nats" else request.param
    return run


@pytest.fixture
async def processes(server: ServerRun | str) -> AsyncIterator[list[Process]]:
    """The owner of the node, and whoever asks."""
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        if server == "local":
            alone = await one_process(nursery)
            yield [alone, alone]
        elif server == "memory":
            engine = MemoryEngine(nursery)
            yield [await engine.process(name) for name in ("P", "Q")]
        else:
            assert isinstance(server, ServerRun)
            yield await over_nats(server, stack, nursery)
        nursery.cancel_scope.cancel()


async def over_nats(server: ServerRun, stack: AsyncExitStack, nursery: trio.Nursery) -> list[Process]:
    names, disk, found = Names(f"bus{next(_prefixes)}"), MemoryDisk(), []
    for name in ("P", "Q"):
        dial = ConnectionSettings((server.url,), token=server.token)
        link = await stack.enter_async_context(await Connection.open(dial))
        await Objects(link, names, ENGINE).prepare()
        live, manifests = (NatsKv(link, names, bucket, ENGINE) for bucket in (LIVE, MANIFESTS))
        settings, presence = BusSettings(), PresenceSettings()
        found.append(await one_of_several(nursery, name, disk, live, manifests, NatsMessages(link), settings, presence))
    return found


@pytest.fixture
async def calls(processes: list[Process]) -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()


async def test_a_call_is_answered_with_what_the_node_says(processes: list[Process], calls: trio.Nursery) -> None:
    owner, asker = processes
    with trio.fail_after(TEST_S_MAX):
        node = await owner.session()
        await until(asker.is_told)
        asked = Asked(asker, calls, message="hello")
        (cmd,) = await node.commands(1)
        assert (cmd.tool, cmd.arguments) == (ECHO, {"message": "hello"})
        node.ack(cmd)
        outcome = await asked.answer()
    assert isinstance(outcome, Succeeded)
    assert (outcome.msg_id, outcome.result["message"]) == (cmd.msg_id, "hello")
    assert asked.held == [cmd.msg_id]


async def test_the_owner_is_told_of_the_trace_of_a_call_that_leaves_its_process(
    server: ServerRun | str, processes: list[Process], calls: trio.Nursery
) -> None:
    owner, asker = processes
    served: list[ServedCall] = []
    if server != "local":
        owner.engine.calls_for_others.on_served = served.append
    asked_for: list[str] = []

    def traceparent() -> str:
        asked_for.append("00-1-2-01")
        return asked_for[-1]

    with trio.fail_after(TEST_S_MAX):
        node = await owner.session()
        await until(asker.is_told)
        Asked(asker, calls)  # nobody traces this one
        (cmd,) = await node.commands(1)
        node.ack(cmd)
        before = TRACEPARENT.set(traceparent)
        asked = Asked(asker, calls)
        TRACEPARENT.reset(before)
        (_, cmd) = await node.commands(2)
        node.ack(cmd)
        outcome = await asked.answer()
        await until(lambda: server == "local" or bool(served))
    assert [(one.traceparent, one.tool, one.outcome) for one in served] == [(said, ECHO, outcome) for said in asked_for]
    assert len(asked_for) == (server != "local"), "what stays in its process asks for none"


async def test_a_refusal_by_the_node_keeps_its_code_and_its_id(processes: list[Process], calls: trio.Nursery) -> None:
    owner, asker = processes
    with trio.fail_after(TEST_S_MAX):
        node = await owner.session()
        await until(asker.is_told)
        asked = Asked(asker, calls)
        (cmd,) = await node.commands(1)
        node.fail(cmd, "E_INTERNAL", begun=True)
        outcome = await asked.answer()
    assert outcome == Failed(Code.INTERNAL, cmd.msg_id, by_node=True)


async def test_what_is_over_a_limit_is_told_with_the_limit(processes: list[Process], calls: trio.Nursery) -> None:
    owner, asker = processes
    with trio.fail_after(TEST_S_MAX):
        node = await owner.session()
        await until(asker.is_told)
        asked = [Asked(asker, calls) for _ in range(12)]
        await until(lambda: any(each.outcome is not None for each in asked))
        for cmd in await node.commands(1):
            node.ack(cmd)
    (refused, *_) = [each.outcome for each in asked if isinstance(each.outcome, Failed)]
    assert refused.code is Code.RATE_LIMITED
    assert refused.cap is not None
    assert refused.retry_after_ms is not None
    assert refused.msg_id is None


async def test_a_node_that_nobody_has_is_offline(processes: list[Process], calls: trio.Nursery) -> None:
    owner, asker = processes
    with trio.fail_after(TEST_S_MAX):
        assert await Asked(asker, calls).answer() == Failed(Code.NODE_OFFLINE)
        assert await asker.bus.attach(NODE_ID, SUBSCRIBE, 1000, Recorder()) == Failed(Code.NODE_OFFLINE)
        node = await owner.session()
        await until(asker.is_told)
        node.connection.hang_up()
        await until(lambda: asker.is_told(live=False))
        assert await Asked(asker, calls).answer() == Failed(Code.NODE_OFFLINE)


async def test_a_tool_that_the_node_does_not_have_is_not_found(processes: list[Process], calls: trio.Nursery) -> None:
    owner, asker = processes
    with trio.fail_after(TEST_S_MAX):
        await owner.session()
        await until(asker.is_told)
        for tool in f"sys.{NODE_ID}.other.subscribe", "nothing":
            assert await Asked(asker, calls, tool).answer() == Failed(Code.MANIFEST_NOT_FOUND)
            assert await asker.bus.attach(NODE_ID, tool, 1000, Recorder()) == Failed(Code.MANIFEST_NOT_FOUND)


async def test_a_caller_whose_time_is_up_is_told_the_commands_id(processes: list[Process], calls: trio.Nursery) -> None:
    owner, asker = processes
    with trio.fail_after(TEST_S_MAX):
        node = await owner.session()
        await until(asker.is_told)
        asked = Asked(asker, calls, s_max=0.5)
        (cmd,) = await node.commands(1)
        outcome = await asked.answer()
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.msg_id) == (Code.DEADLINE_EXCEEDED, cmd.msg_id)


async def test_a_call_whose_time_is_up_before_it_begins_writes_nothing(
    processes: list[Process], calls: trio.Nursery
) -> None:
    owner, asker = processes
    with trio.fail_after(TEST_S_MAX):
        node = await owner.session()
        await until(asker.is_told)
        outcome = await Asked(asker, calls, s_max=-0.001).answer()
        assert isinstance(outcome, Failed)
        assert outcome.code is Code.DEADLINE_EXCEEDED
        asked = Asked(asker, calls)
        (cmd,) = await node.commands(1)
        node.ack(cmd)
        assert isinstance(await asked.answer(), Succeeded)
    assert len(sent(node, Cmd)) == 1


async def test_a_caller_that_goes_away_takes_its_command_back(processes: list[Process], calls: trio.Nursery) -> None:
    owner, asker = processes
    with trio.fail_after(TEST_S_MAX):
        node = await owner.session()
        await until(asker.is_told)
        asked = Asked(asker, calls)
        (cmd,) = await node.commands(1)
        asked.scope.cancel()
        cancel = await node.connection.next(CmdCancel)
    assert cancel.in_reply_to == cmd.msg_id


async def test_frames_reach_every_listener_over_one_cadence(processes: list[Process]) -> None:
    owner, asker = processes
    first, second, at_owner = Recorder(), Recorder(), Recorder()
    with trio.fail_after(TEST_S_MAX):
        node = await owner.session()
        await until(asker.is_told)
        attached = [
            await asker.bus.attach(NODE_ID, SUBSCRIBE, 1000, first),
            await asker.bus.attach(NODE_ID, SUBSCRIBE, 1000, second),
            await owner.bus.attach(NODE_ID, SUBSCRIBE, 1000, at_owner),
        ]
        assert not any(isinstance(each, Failed) for each in attached)
        (cmd,) = await node.commands(1)
        assert cmd.arguments == {"interval_ms": 1000}
        node.ack(cmd, {})
        telemetry(node, cmd)
        await until(lambda: bool(first.frames and second.frames))
        assert first.frames == second.frames == at_owner.frames == [FRAME]
        for bus in asker.bus, owner.bus:
            last = bus.last_frame(NODE_ID)
            assert last is not None
            assert (last.frame, last.cap_id) == (FRAME, "metrics")
        for each in attached:
            assert not isinstance(each, Failed)
            assert not sent(node, CmdCancel)
            each.detach()
            each.detach()
        cancel = await node.connection.next(CmdCancel)
        assert cancel.in_reply_to == cmd.msg_id
    assert len(sent(node, Cmd)) == 1
    assert first.ended == second.ended == at_owner.ended == 0


async def test_two_intervals_are_two_cadences(processes: list[Process]) -> None:
    owner, asker = processes
    slow, quick = Recorder(), Recorder()
    with trio.fail_after(TEST_S_MAX):
        node = await owner.session()
        await until(asker.is_told)
        await asker.bus.attach(NODE_ID, SUBSCRIBE, 1000, quick)
        await asker.bus.attach(NODE_ID, SUBSCRIBE, 5000, slow)
        first, second = await node.commands(2)
        node.ack(first, {})
        node.ack(second, {})
        telemetry(node, second)
        await until(lambda: bool(slow.frames))
        telemetry(node, first)
        await until(lambda: bool(quick.frames))
    assert len(slow.frames) == len(quick.frames) == 1


async def test_a_cadence_that_the_node_refuses_is_over_for_all(processes: list[Process]) -> None:
    owner, asker = processes
    listener = Recorder()
    with trio.fail_after(TEST_S_MAX):
        node = await owner.session()
        await until(asker.is_told)
        attached = await asker.bus.attach(NODE_ID, SUBSCRIBE, 1000, listener)
        assert not isinstance(attached, Failed)
        (cmd,) = await node.commands(1)
        node.fail(cmd, "E_RATE_LIMITED", begun=False)
        await until(lambda: listener.ended == 1)
        attached.detach()
        again = await asker.bus.attach(NODE_ID, SUBSCRIBE, 1000, listener)
        assert not isinstance(again, Failed)
        await node.commands(2)
    assert listener.ended == 1


async def test_a_session_that_ends_takes_its_listeners_with_it(processes: list[Process]) -> None:
    owner, asker = processes
    listener = Recorder()
    with trio.fail_after(TEST_S_MAX):
        node = await owner.session()
        await until(asker.is_told)
        attached = await asker.bus.attach(NODE_ID, SUBSCRIBE, 1000, listener)
        assert not isinstance(attached, Failed)
        node.connection.hang_up()
        await until(lambda: listener.ended == 1)
        attached.detach()


async def test_more_cadences_than_a_node_may_have_are_refused_before_they_open(processes: list[Process]) -> None:
    owner, asker = processes
    with trio.fail_after(TEST_S_MAX):
        node = await owner.session()
        await until(asker.is_told)
        refused: Failed | None = None
        for number in range(20):
            attached = await asker.bus.attach(NODE_ID, SUBSCRIBE, 1000 + number, Recorder())
            if isinstance(attached, Failed):
                refused = attached
                break
        assert refused is not None
        assert refused.code is Code.RATE_LIMITED
        assert refused.retry_after_ms is not None
    assert len(sent(node, Cmd)) <= 16
