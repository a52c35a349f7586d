"""A policy that selects nodes by what operators call them, around calls, lists, streams and subscriptions."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.log.store import answered
from gateway.mcp.errors import RpcError
from schemas.canonical import digest
from schemas.labels import UNLABELLED, Labels
from schemas.manifest import Accepted, NodeIdentity
from schemas.projection import project
from tests.actors.node.harness import ScriptedNode, now
from tests.gateway.api.client import token
from tests.gateway.api.live import TENANT, live_gateway
from tests.gateway.api.test_app import ECHO, SNAPSHOT, SUBSCRIBE, refused
from tests.gateway.calls.place import AGENT_OF, PRICE, Place
from tests.gateway.calls.site import Site
from tests.gateway.mcp.test_methods import principal
from tests.schemas.examples import ECHO_CAPABILITY, NODE_ID

OTHER = "01jz0000000000000000000000"
OTHER_ECHO = f"sysecho.{OTHER}.echo.invoke"
LAB, ROOF = Labels("pump-7", {"site": "lab"}), Labels("pump-7", {"site": "roof"})
ONLY_THE_LAB = 'tools = ["**"]\nnodes = ["tag:site=lab"]'


def label(site: Site, labels: Labels, node_id: str = NODE_ID) -> None:
    """As an operator does, by a command."""
    site.fleet.services.directory.label(NodeIdentity(node_id, "acme"), labels)


async def another_node(site: Site) -> None:
    """Live, as far as lists can see."""
    directory, node, wall_ms = site.fleet.services.directory, NodeIdentity(OTHER, "acme"), now().wall_ms
    document = {
        "node_id": OTHER,
        "capabilities": [ECHO_CAPABILITY],
        "issued_at_ms": wall_ms,
        "expires_at_ms": wall_ms + 3_600_000,
    }
    accepted = Accepted(document, digest(document), project(document))
    await answered(lambda then: directory.announce(node, accepted, wall_ms, then))
    directory.came(node, 1, wall_ms)


async def listed(site: Site) -> list[str]:
    return [tool["name"] for tool in (await site.methods.handle(principal(), "tools/list", {}))["tools"]]


async def listed_over_http(site: Site) -> list[str]:
    headers = {"authorization": f"Bearer {token()}"}
    response = await site.client.request("GET", "/mcp/tools", b"", headers)
    assert response is not None
    return [tool["name"] for tool in response.json["tools"]]


async def stream_status(site: Site) -> int:
    body = b'{"tool": "%b", "arguments": {}}' % SUBSCRIBE.encode()
    headers = {"authorization": f"Bearer {token()}", "accept": "text/event-stream"}
    opened = await site.client.request("POST", "/mcp/tools/call", body, headers, hangs_up_after_s=20)
    assert opened is not None
    return opened.status


async def test_call_of_a_node_that_is_not_selected_is_unauthorized_at_both_doors(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule(ONLY_THE_LAB)
    label(site, ROOF)
    assert refused(await site.http(message="hi")) == (403, "E_SAFETY_DENIED")
    error = await site.rpc(message="hi")
    assert (error.code, error.message, error.data["code"]) == (-32003, "Tool not authorized", "UNAUTHORIZED")
    assert await node.commands(0) == []
    assert await site.spent() == 0


async def test_relabelled_node_is_judged_by_what_it_is_called_at_the_next_call(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule(ONLY_THE_LAB)
    statuses = []
    for labels in (UNLABELLED, LAB, ROOF, LAB):
        label(site, labels)
        statuses.append((await site.http(message="hi")).status)
    assert statuses == [403, 200, 403, 200]


async def test_lists_show_the_tools_of_selected_nodes_only(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    await another_node(site)
    everything = [SNAPSHOT, SUBSCRIBE, ECHO, OTHER_ECHO]
    assert await listed(site) == await listed_over_http(site) == everything
    site.rule(ONLY_THE_LAB)
    assert await listed(site) == await listed_over_http(site) == []
    label(site, LAB)
    assert await listed(site) == await listed_over_http(site) == everything[:3]
    label(site, Labels("valve", {"site": "lab"}), OTHER)
    label(site, ROOF)
    assert await listed(site) == await listed_over_http(site) == [OTHER_ECHO]


async def test_metrics_of_a_node_that_is_not_selected_are_no_resource(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule(ONLY_THE_LAB)

    async def resources() -> list[Any]:
        return list((await site.methods.handle(principal(), "resources/list", {}))["resources"])

    assert await resources() == []
    label(site, LAB)
    assert [resource["uri"] for resource in await resources()] == [f"metrics://{NODE_ID}"]


async def test_upstream_is_called_by_an_agent_of_the_lab_if_its_tools_say_so(
    autojump_clock: MockClock, place: Place
) -> None:
    place.site.rule(ONLY_THE_LAB)
    assert await place.upstream_call()
    place.site.rule('tools = ["sys.**", "sysecho.**"]\nnodes = "tag:site=lab"')
    answer = await place.site.client.call("up.tool", {}, token(scopes=list(AGENT_OF.scopes or ())))
    assert refused(answer) == (403, "E_SAFETY_DENIED")


async def test_stream_and_subscription_of_a_node_that_is_not_selected_are_refused(
    autojump_clock: MockClock, place: Place
) -> None:
    place.site.rule(ONLY_THE_LAB)
    label(place.site, ROOF)
    assert await stream_status(place.site) == 403
    watch = place.site.watches.open(AGENT_OF, frozenset())
    assert watch is not None
    with pytest.raises(RpcError) as denied:
        await place.site.watches.subscribe(watch, f"metrics://{NODE_ID}")
    assert denied.value.code == -32003
    watch.close()
    assert not place.happened
    label(place.site, LAB)
    assert await stream_status(place.site) == 200
    assert await place.subscription()


@pytest.mark.parametrize("ask", [Place.call, Place.subscription])
async def test_node_relabelled_while_the_ledger_is_read_is_judged_by_what_it_is_called_then(
    autojump_clock: MockClock, place: Place, ask: Any
) -> None:
    place.site.rule(ONLY_THE_LAB)
    label(place.site, LAB)
    place.site.store.load_s = 1.0
    let_through: list[bool] = []

    async def wait() -> None:
        let_through.append(await ask(place))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(0.5)
        label(place.site, ROOF)
    assert let_through == [False]
    assert not place.happened
    assert await place.site.spent() == 0


async def test_price_is_that_of_the_nodes_labels_at_the_time_of_the_call(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule('tools = "**"\nprices = [{ tools = "**", nodes = "tag:site=lab", price = 0.001 }]')
    assert (await site.http(message="hi")).status == 200
    assert await site.spent() == PRICE
    label(site, LAB)
    assert (await site.http(message="hi")).status == 200
    assert await site.spent() == PRICE + 1000
    label(site, ROOF)
    assert (await site.http(message="hi")).status == 200
    assert await site.spent() == 2 * PRICE + 1000


async def test_rate_of_some_nodes_goes_on_counting_where_it_was_when_a_node_is_renamed(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule('tools = "**"\nrates = [{ tools = "**", nodes = ["tag:site=lab"], calls = 2, per = "1d" }]')
    statuses = []
    for labels in (LAB, Labels("pump-8", {"site": "lab"}), LAB, ROOF, LAB):
        label(site, labels)
        statuses.append((await site.http(message="hi")).status)
    assert statuses == [200, 200, 429, 200, 429]


async def test_whole_gateway_judges_by_what_its_directory_calls_a_node(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[[agents]]\nagent = "*"\n{ONLY_THE_LAB}\n')
    statuses = []
    with trio.fail_after(30):
        async with live_gateway(tmp_path, **{"governance.policy": str(policy)}) as live, live.client() as client:
            for labels in (UNLABELLED, LAB, ROOF):
                live.gateway.devices.directory.label(NodeIdentity(live.node_id, TENANT), labels)
                answer = await client.ask(live.good_call())
                assert answer is not None
                statuses.append(answer.status)
    assert statuses == [403, 200, 403]
