"""Lists of a large fleet: a page costs what it shows, others are served meanwhile, and nothing is made twice."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from actors.device.handlers import CAPABILITIES, METRICS_CAPABILITY
from actors.log.store import Appended, answered
from actors.node.fleet import Fleet
from actors.supervision.supervisor import Supervisor
from gateway.calls import catalogue as tool_list
from gateway.calls.catalogue import list_tools
from gateway.calls.paging import LOOKS_MAX
from gateway.calls.tool_calls import ToolCalls
from gateway.identity.tokens import Principal, Scope
from gateway.mcp import metrics_resource
from gateway.mcp.methods import Methods
from gateway.mcp.settings import McpSettings
from gateway.mcp.views import FLEET
from schemas.canonical import digest
from schemas.closes import NodeClose
from schemas.manifest import Accepted, NodeIdentity
from schemas.projection import project
from tests.actors.node.harness import Gateway, now
from tests.gateway.api.client import new_id
from tests.gateway.mcp.test_methods import principal

TENANT = "acme"
PAGE = 100


def node_id(number: int) -> str:
    return f"{number:026d}"


async def announce(fleet: Fleet, number: int, capabilities: Any = CAPABILITIES) -> None:
    wall_ms = now().wall_ms
    manifest = {
        "node_id": node_id(number),
        "capabilities": list(capabilities),
        "issued_at_ms": wall_ms,
        "expires_at_ms": wall_ms + 3_600_000,
    }
    accepted = Accepted(manifest, digest(manifest), project(manifest))
    node = NodeIdentity(node_id(number), TENANT)
    assert await answered(partial(fleet.services.directory.announce, node, accepted, wall_ms)) == Appended((0,))
    fleet.services.directory.came(node, 1, wall_ms)


async def fleet_of(nodes: int) -> Fleet:
    fleet = Fleet(Supervisor(), Gateway().services)
    for number in range(nodes):
        await announce(fleet, number)
    return fleet


def methods_of(fleet: Fleet) -> Methods:
    return Methods(
        fleet.services.directory,
        ToolCalls(fleet.services.directory, fleet, new_id, now),
        now,
        McpSettings(page_items_max=PAGE),
    )


async def test_list_of_the_fleet_view_looks_at_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = await fleet_of(20)
    directory = fleet.services.directory
    methods = Methods(directory, ToolCalls(directory, fleet, new_id, now), now, McpSettings(), view=FLEET)
    listed = await methods.handle(principal(), "tools/list", {})

    def looked(*_: object) -> None:
        raise AssertionError("a node was looked at")

    for name in ("find", "ids", "live_ids", "names", "tagged"):
        monkeypatch.setattr(directory, name, looked)
    assert await methods.handle(principal(), "tools/list", {}) == listed


async def walk(methods: Methods, who: Principal, method: str, what: str) -> list[Any]:
    items: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page = await methods.handle(who, method, cursor)
        assert len(page[what]) <= PAGE
        items += page[what]
        if "nextCursor" not in page:
            return items
        cursor = {"cursor": page["nextCursor"]}


class Steps(trio.abc.Instrument):
    """Counts what happens between two checkpoints."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0

    def before_task_step(self, _: trio.lowlevel.Task) -> None:
        self.now = 0

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)
            return function(*arguments)

        return counted


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Of tools that are judged."""
    steps = Steps()
    for module in (tool_list, metrics_resource):
        monkeypatch.setattr(module, "authorize", steps.counting(module.authorize))
    return steps


@pytest.mark.parametrize(
    ("method", "what", "judged"), [("tools/list", "tools", 3000), ("resources/list", "resources", 1000)]
)
@pytest.mark.parametrize("scope", [Scope.READ_ONLY, Scope.REVERSIBLE])
async def test_only_so_many_tools_are_looked_at_between_two_checkpoints(
    steps: Steps, scope: Scope, method: str, what: str, judged: int
) -> None:
    methods = methods_of(await fleet_of(1000))
    trio.lowlevel.add_instrument(steps)
    listed = await walk(methods, principal(TENANT, scope), method, what)
    trio.lowlevel.remove_instrument(steps)
    assert len(listed) == (judged if scope is Scope.READ_ONLY else 0)
    assert steps.total >= judged
    assert steps.most <= LOOKS_MAX


async def test_others_are_served_while_a_list_without_anything_to_show_is_looked_through() -> None:
    fleet = await fleet_of(1000)
    turns = 0

    async def another() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(another)
        page = await list_tools(fleet.services.directory, principal(TENANT, Scope.REVERSIBLE), now().wall_ms)
        nursery.cancel_scope.cancel()
    assert page == tool_list.Page([], None)
    assert turns >= 4000 // LOOKS_MAX - 1


async def test_page_far_behind_costs_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = await fleet_of(1000)
    looked_up: Counter[str] = Counter()
    find = fleet.services.directory.find

    def counted(wanted: str) -> Any:
        looked_up[wanted] += 1
        return find(wanted)

    monkeypatch.setattr(fleet.services.directory, "find", counted)
    after = f"sysecho.{node_id(900)}.echo.invoke"
    page = await list_tools(fleet.services.directory, principal(), now().wall_ms, after, limit=30)
    assert page is not None
    assert [tool.name.split(".")[1] for tool in page.tools[::3]] == [node_id(number) for number in range(901, 911)]
    assert looked_up.total() <= 12


async def test_every_tool_is_listed_once_and_in_order() -> None:
    fleet = await fleet_of(400)
    listed = [tool["name"] for tool in await walk(methods_of(fleet), principal(), "tools/list", "tools")]
    assert listed == [tool.name for retained in fleet.services.directory for tool in retained.accepted.tools]
    uris = [resource["uri"] for resource in await walk(methods_of(fleet), principal(), "resources/list", "resources")]
    assert uris == [f"metrics://{node_id(number)}" for number in range(400)]


async def test_node_with_more_tools_than_are_looked_at_at_once_is_listed_whole() -> None:
    fleet = await fleet_of(1)
    await announce(fleet, 1, [{**METRICS_CAPABILITY, "cap_id": f"m{n}"} for n in range(LOOKS_MAX)])
    await announce(fleet, 2)
    names = [tool["name"] for tool in await walk(methods_of(fleet), principal(), "tools/list", "tools")]
    assert len(names) == len(set(names)) == 3 + 2 * LOOKS_MAX + 3


async def test_node_that_goes_while_the_list_is_looked_through_takes_no_other_with_it() -> None:
    fleet = await fleet_of(500)

    async def go() -> None:  # behind the first turn; the node's own is the third
        fleet.services.directory.went(NodeIdentity(node_id(300), TENANT), 1, NodeClose.NORMAL, now().wall_ms)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go)
        page = await list_tools(fleet.services.directory, principal(), now().wall_ms, limit=1000)
    assert page is not None
    nodes = list(dict.fromkeys(tool.name.split(".")[1] for tool in page.tools))
    assert nodes == [node_id(number) for number in range(335) if number != 300]


async def test_what_has_not_changed_is_not_made_again() -> None:
    fleet = await fleet_of(50)
    methods = methods_of(fleet)
    before = await walk(methods, principal(), "tools/list", "tools")
    again = await walk(methods, principal(), "tools/list", "tools")
    assert all(one is other for one, other in zip(before, again, strict=True))
    await announce(fleet, 7)
    after = await walk(methods, principal(), "tools/list", "tools")
    made = [one["name"] for one, other in zip(after, before, strict=True) if one is not other]
    assert made == [tool["name"] for tool in before if node_id(7) in tool["name"]]


async def test_tools_of_one_kind_share_what_they_have_in_common() -> None:
    listed = await walk(methods_of(await fleet_of(50)), principal(), "tools/list", "tools")
    echoes = [tool for tool in listed if tool["name"].startswith("sysecho.")]
    for part in ("description", "inputSchema", "outputSchema", "annotations"):
        assert len({id(tool[part]) for tool in echoes}) == 1
