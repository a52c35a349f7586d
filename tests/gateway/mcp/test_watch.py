"""What an MCP client hears of: coalesced, from the cadences of the fleet, and released when nobody listens."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from actors.node.fleet import Fleet
from actors.supervision.supervisor import Supervisor
from gateway.identity.tokens import Scope
from gateway.mcp.errors import RpcError
from gateway.mcp.settings import McpSettings
from gateway.mcp.watch import Changed, Watches
from schemas.frames import Cmd, CmdCancel, Telemetry
from tests.actors.node.harness import Gateway, ScriptedNode, now, until
from tests.gateway.api.client import new_id
from tests.gateway.commands.test_watch import FRAME
from tests.gateway.mcp.test_methods import principal
from tests.schemas.examples import NODE_ID

URI = f"metrics://{NODE_ID}"
LISTS = frozenset(Changed)


@pytest.fixture
async def fleet(nursery: trio.Nursery) -> AsyncIterator[Fleet]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    yield Fleet(supervisor, Gateway().services)
    supervisor.request_stop()


@pytest.fixture
def watches(fleet: Fleet) -> Watches:
    return Watches(
        fleet.services.directory, fleet, McpSettings(listens_max=2, resources_per_listener_max=1), now, new_id
    )


async def live(fleet: Fleet) -> ScriptedNode:
    node = ScriptedNode.started_by(fleet)
    await node.go_live()
    return node


async def cadence_of(node: ScriptedNode) -> Cmd:
    (cmd,) = await node.commands(1)
    node.ack(cmd, {})
    return cmd


def sample(node: ScriptedNode, cmd: Cmd) -> None:
    node.say(Telemetry(msg_id=node.msg_id(), in_reply_to=cmd.msg_id, frame=FRAME))


async def test_frames_of_a_subscribed_node_are_news_told_once(
    autojump_clock: MockClock, fleet: Fleet, watches: Watches
) -> None:
    node = await live(fleet)
    watch = watches.open(principal(), frozenset())
    assert watch is not None
    await watches.subscribe(watch, URI)
    cmd = await cadence_of(node)
    assert (cmd.tool.endswith(".subscribe"), cmd.arguments) == (True, {"interval_ms": 5000})
    for _ in range(3):
        sample(node, cmd)
        await trio.sleep(5)
    assert await watch.next() == [URI]
    with trio.move_on_after(60) as nothing_more:
        await watch.next()
    assert nothing_more.cancelled_caught


async def test_list_of_tools_that_does_not_change_with_nodes_is_told_of_only_when_it_is_another(
    autojump_clock: MockClock, fleet: Fleet, watches: Watches
) -> None:
    versions = [object()]
    watch = watches.open(principal(), LISTS, lambda: versions[-1])
    assert watch is not None
    fleet.services.directory.notify("acme")
    assert await watch.next() == [Changed.RESOURCES]
    versions.append(object())
    fleet.services.directory.notify("acme")
    assert set(await watch.next()) == LISTS
    fleet.services.directory.notify("acme")
    assert await watch.next() == [Changed.RESOURCES]


async def test_last_listener_releases_the_cadence(autojump_clock: MockClock, fleet: Fleet, watches: Watches) -> None:
    node = await live(fleet)
    first, second = watches.open(principal(), LISTS), watches.open(principal(), LISTS)
    assert first is not None
    assert second is not None
    await watches.subscribe(first, URI)
    await watches.subscribe(first, URI)
    await watches.subscribe(second, URI)
    cmd = await cadence_of(node)
    first.unsubscribe(URI)
    first.unsubscribe(URI)
    assert not any(isinstance(frame, CmdCancel) for frame in node.connection.sent)
    second.close()
    second.close()
    assert (await node.connection.next(CmdCancel)).in_reply_to == cmd.msg_id
    assert len(watches) == 1


async def test_node_that_comes_back_is_listened_to_again(
    autojump_clock: MockClock, fleet: Fleet, watches: Watches
) -> None:
    node = await live(fleet)
    watch = watches.open(principal(), LISTS)
    assert watch is not None
    await watches.subscribe(watch, URI)
    await cadence_of(node)
    node.connection.hang_up()
    await until(lambda: len(fleet.nodes) == 0)
    assert set(await watch.next()) == LISTS
    again = await live(fleet)
    assert set(await watch.next()) == LISTS
    cmd = await cadence_of(again)
    sample(again, cmd)
    assert await watch.next() == [URI]


async def test_lists_of_other_tenants_are_no_news(autojump_clock: MockClock, fleet: Fleet, watches: Watches) -> None:
    other = watches.open(principal("other"), LISTS)
    assert other is not None
    await live(fleet)
    with trio.move_on_after(60) as nothing:
        await other.next()
    assert nothing.cancelled_caught


async def test_closed_watch_has_no_more_news(autojump_clock: MockClock, fleet: Fleet, watches: Watches) -> None:
    watch = watches.open(principal(), LISTS)
    assert watch is not None
    watch.tell(Changed.TOOLS)
    watches.close_all()
    assert await watch.next() == []
    assert await watch.next() == []
    await live(fleet)


async def test_limits(autojump_clock: MockClock, fleet: Fleet, watches: Watches) -> None:
    await live(fleet)
    first = watches.open(principal(), LISTS)
    assert first is not None
    assert watches.open(principal(), LISTS) is not None
    assert watches.open(principal(), LISTS) is None
    first.close()
    assert watches.open(principal(), LISTS) is not None


@pytest.mark.parametrize(
    ("who", "uri", "code"),
    [
        (("acme",), f"metrics://{'0' * 26}", "RESOURCE_NOT_FOUND"),
        (("acme",), "nonsense", "RESOURCE_NOT_FOUND"),
        (("other",), URI, "UNAUTHORIZED"),
        (("acme", Scope.REVERSIBLE), URI, "UNAUTHORIZED"),
    ],
)
async def test_subscribing_needs_what_the_subscribe_tool_needs(
    autojump_clock: MockClock, fleet: Fleet, watches: Watches, who: tuple[str, ...], uri: str, code: str
) -> None:
    await live(fleet)
    watch = watches.open(principal(*who), LISTS)
    assert watch is not None
    with pytest.raises(RpcError) as refused:
        await watches.subscribe(watch, uri)
    assert refused.value.data["code"] == code
