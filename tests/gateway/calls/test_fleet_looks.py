"""`fleet_find` and `fleet_node`: who sees which nodes, by what they are found, and what it costs."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from actors.bus.directory import NodeRecord, OwnersDirectory
from actors.device.handlers import METRICS_CAPABILITY
from actors.log.store import answered
from gateway.calls import fleet_looks
from gateway.calls.answers import Answered, Reason, Refused
from gateway.governance.denials import iso
from gateway.identity.tokens import Principal, Scope
from schemas.canonical import digest
from schemas.closes import NodeClose
from schemas.contract import contract
from schemas.errors import Code
from schemas.frames import Telemetry
from schemas.manifest import Accepted
from schemas.projection import project
from tests.actors.node.harness import ScriptedNode, now
from tests.gateway.api.test_app import live_node
from tests.gateway.calls.nodes import add, label, node_id
from tests.gateway.calls.site import Site
from tests.gateway.mcp.test_methods import principal
from tests.schemas.attested import SESSION
from tests.schemas.examples import ECHO_CAPABILITY, FRAME, NODE_ID


@pytest.fixture
def directory(site: Site) -> OwnersDirectory:
    return site.fleet.services.directory


async def look(site: Site, tool: str, who: Principal | None = None, /, **arguments: Any) -> dict[str, Any]:
    answer = await site.calls.call_tool(who or principal(), tool, arguments)
    assert isinstance(answer, Answered), answer
    result: dict[str, Any] = json.loads(json.dumps(answer.result))
    assert contract(tool.replace("_", ".") + ".output@1.0.0").explain(result) == []
    return result


async def ids(site: Site, who: Principal | None = None, /, **arguments: Any) -> list[int]:
    return [int(node["node_id"]) for node in (await look(site, "fleet_find", who, **arguments))["nodes"]]


async def refused(site: Site, tool: str, who: Principal | None = None, /, **arguments: Any) -> Refused:
    answer = await site.calls.call_tool(who or principal(), tool, arguments)
    assert isinstance(answer, Refused), answer
    return answer


# ---- fleet_find -----------------------------------------------------------------------------------------------------


async def test_node_is_listed_with_what_operators_call_it_and_what_it_is(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    await add(directory, 1, name="pump-7", tags=["site=lab"])
    assert await look(site, "fleet_find") == {
        "nodes": [
            {
                "node_id": node_id(1),
                "name": "pump-7",
                "tags": {"site": "lab"},
                "state": "live",
                "last_seen": iso(now().wall_ms),
                "kinds": ["system.echo", "system.metrics"],
            }
        ]
    }


async def test_nodes_are_found_by_name_tag_state_and_kind_and_all_must_hold(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    await add(directory, 1, name="pump-2", tags=["site=lab", "row=a"])
    await add(directory, 2, name="pump-1", tags=["site=lab"], live=False)
    await add(directory, 3, name="fan-1", tags=["site=roof"], capabilities=[ECHO_CAPABILITY])
    await add(directory, 4, life_ms=1)
    await trio.sleep(0.002)
    assert await ids(site) == [1, 2, 3, 4]
    assert await ids(site, name="pump-") == [2, 1]  # in the order of names
    assert await ids(site, name="pump-1") == [2]
    assert await ids(site, name="x") == []
    assert await ids(site, tag="site=lab") == [1, 2]
    assert await ids(site, tag=["site=lab", "row=a"]) == [1]
    assert await ids(site, tag=["site=lab", "site=roof"]) == []
    assert await ids(site, tag="site=nowhere") == []
    assert await ids(site, tag="site=lab", name="pump-1") == [2]
    assert await ids(site, state="live") == [1, 3]
    assert await ids(site, state="away") == [2]
    assert await ids(site, state="expired") == [4]
    assert await ids(site, kind="system.metrics", state="live") == [1]
    assert await ids(site, kind="system.nothing") == []


@pytest.mark.parametrize("filters", [{}, {"tag": "site=lab"}, {"name": "pump"}, {"state": "live"}])
async def test_pages_hold_every_node_once(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory, filters: dict[str, str]
) -> None:
    for number in range(7):
        await add(directory, number, name=f"pump-{9 - number}", tags=["site=lab"])
    found: list[int] = []
    more: dict[str, Any] = {}
    for size in (3, 3, 1):
        page = await look(site, "fleet_find", limit=3, **filters, **more)
        assert len(page["nodes"]) == size
        found += [int(node["node_id"]) for node in page["nodes"]]
        more = {"cursor": page.get("next_cursor")}
    assert more == {"cursor": None}
    assert sorted(found) == list(range(7))
    assert len(await ids(site, **filters)) == 7


async def test_page_has_fifty_nodes_unless_another_number_is_asked_for(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    for number in range(101):
        await add(directory, number, tags=["site=lab"])
    assert len(await ids(site, tag="site=lab")) == 50
    assert len(await ids(site, limit=100)) == 100


async def test_cursor_that_is_no_named_node_of_this_tenant_is_refused_in_a_search_by_name(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    await add(directory, 1, name="pump-1", tenant="other")
    for number in (1, 2):
        answer = await refused(site, "fleet_find", name="pump", cursor=node_id(number))
        assert (answer.code, answer.reason) == (Code.MANIFEST_INVALID, Reason.ARGUMENTS)


async def test_nodes_of_others_and_nodes_that_never_came_are_not_there(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    theirs = await add(directory, 1, tenant="other", name="pump-1", tags=["site=lab"])
    label(directory, SESSION, "pump-2", ["site=lab"])
    for filters in ({}, {"name": "pump"}, {"tag": "site=lab"}):
        assert await ids(site, **filters) == []
    for node in (theirs.node_id, "pump-1"):
        assert (await refused(site, "fleet_node", node=node)).code is Code.MANIFEST_NOT_FOUND
    assert (await refused(site, "fleet_node", node="pump-2")).code is Code.NODE_OFFLINE


async def test_search_by_tag_looks_at_no_other_node(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        await add(directory, number, tags=[f"row={number % 6}", "site=lab"])
    looked: list[str] = []
    find = directory.find

    def counted(node_id: str) -> NodeRecord | None:
        looked.append(node_id)
        return find(node_id)

    monkeypatch.setattr(directory, "find", counted)
    assert len(await ids(site, tag=["site=lab", "row=3"])) == len(looked) == 10


async def test_search_that_shows_little_lets_others_run_meanwhile(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_looks, "LOOKS_MAX", 8)
    for number in range(40):
        await add(directory, number)
    turns = 0

    def count() -> Iterator[None]:
        nonlocal turns
        while True:
            turns += 1
            yield

    async def others() -> None:
        for _ in count():
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await ids(site, kind="system.nothing")
        nursery.cancel_scope.cancel()
    assert turns >= 20  # two nodes at a time


# ---- fleet_node -----------------------------------------------------------------------------------------------------


async def test_node_is_told_with_its_capabilities_limits_and_tools(
    autojump_clock: MockClock, site: Site, node: ScriptedNode, directory: OwnersDirectory
) -> None:
    label(directory, SESSION, "pump-7", ["site=lab"])
    by_id, by_name = await look(site, "fleet_node", node=NODE_ID), await look(site, "fleet_node", node="pump-7")
    assert by_id | {"last_seen": ""} == by_name | {"last_seen": ""}
    assert (by_id["name"], by_id["tags"], by_id["state"]) == ("pump-7", {"site": "lab"}, "live")
    assert by_id["left"] is None
    assert by_id["sample"] is None
    assert by_id["capabilities"] == [
        {
            "cap_id": "echo",
            "kind": "system.echo",
            "verbs": ["invoke"],
            "safety_class": "read_only",
            "limits": {"rate_limit_rps": 10, "max_concurrency": 4, "deadline_ms_default": 2000},
            "tools": [f"sysecho.{NODE_ID}.echo.invoke"],
        },
        {
            "cap_id": "metrics",
            "kind": "system.metrics",
            "verbs": ["snapshot", "subscribe"],
            "safety_class": "read_only",
            "limits": {"rate_limit_rps": 2.5, "max_concurrency": 1, "deadline_ms_default": 2000},
            "tools": [f"sys.{NODE_ID}.metrics.snapshot", f"sys.{NODE_ID}.metrics.subscribe"],
        },
    ]


async def test_node_that_left_says_how(autojump_clock: MockClock, site: Site, directory: OwnersDirectory) -> None:
    node = await add(directory, 1)
    directory.went(node, 1, NodeClose.TIMEOUT, now().wall_ms)
    seen = await look(site, "fleet_node", node=node_id(1))
    assert (seen["state"], seen["left"]) == ("away", {"code": 4408, "reason": NodeClose.TIMEOUT.value.reason})
    assert seen["since"] == seen["last_seen"]


class Ear:
    def on_frame(self, frame: Any) -> None: ...

    def on_cadence_end(self) -> None: ...


async def test_last_sample_is_told_with_its_age_to_whoever_may_have_metrics(
    autojump_clock: MockClock, site: Site, nursery: trio.Nursery
) -> None:
    node = await live_node(site.fleet, nursery, answers=False)
    attached = node.actor.attach(f"sys.{NODE_ID}.metrics.subscribe", 5000, Ear())
    (cmd,) = [cmd for cmd in await node.commands(1) if cmd.tool.endswith("subscribe")]
    node.ack(cmd, {})
    node.say(Telemetry(msg_id=node.msg_id(), in_reply_to=cmd.msg_id, frame=FRAME))
    await trio.sleep(1.5)
    seen = await look(site, "fleet_node", node=NODE_ID)
    assert seen["sample"] == {"age_ms": 1500, "frame": FRAME}
    site.rule('tools = ["fleet_node", "sysecho.**"]')
    assert (await look(site, "fleet_node", node=NODE_ID))["sample"] is None
    del attached
    node.connection.hang_up()
    await trio.sleep(1)
    assert site.fleet.last_frame(NODE_ID) is None


async def test_sample_of_a_capability_that_the_agent_may_not_use_is_not_told(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory, nursery: trio.Nursery
) -> None:
    node = await live_node(site.fleet, nursery, answers=False)
    attached = node.actor.attach(f"sys.{NODE_ID}.metrics.subscribe", 5000, Ear())
    (cmd,) = [cmd for cmd in await node.commands(1) if cmd.tool.endswith("subscribe")]
    node.ack(cmd, {})
    node.say(Telemetry(msg_id=node.msg_id(), in_reply_to=cmd.msg_id, frame=FRAME))
    wall_ms, capabilities = now().wall_ms, [METRICS_CAPABILITY, {**METRICS_CAPABILITY, "cap_id": "public"}]
    manifest = {
        "node_id": NODE_ID,
        "capabilities": capabilities,
        "issued_at_ms": wall_ms,
        "expires_at_ms": wall_ms + 1000,
    }
    accepted = Accepted(manifest, digest(manifest), project(manifest))
    await answered(partial(directory.announce, SESSION, accepted, wall_ms))
    site.rule('tools = ["fleet_node", "sys.*.public.*"]')
    seen = await look(site, "fleet_node", node=NODE_ID)
    assert [capability["cap_id"] for capability in seen["capabilities"]] == ["public"]
    assert seen["sample"] is None
    site.rule('tools = ["fleet_node", "sys.*.metrics.*"]')
    assert (await look(site, "fleet_node", node=NODE_ID))["sample"] is not None
    del attached


# ---- who may look ---------------------------------------------------------------------------------------------------


async def test_only_nodes_with_a_tool_that_the_policy_allows_are_seen(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    await add(directory, 1, capabilities=[ECHO_CAPABILITY])
    await add(directory, 2, capabilities=[METRICS_CAPABILITY, ECHO_CAPABILITY])
    site.rule('tools = ["fleet_find", "fleet_node", "*.*.*.snapshot"]')
    (found,) = (await look(site, "fleet_find"))["nodes"]
    assert (found["node_id"], found["kinds"]) == (node_id(2), ["system.metrics"])
    assert (await refused(site, "fleet_node", node=node_id(1))).code is Code.MANIFEST_NOT_FOUND
    (capability,) = (await look(site, "fleet_node", node=node_id(2)))["capabilities"]
    assert capability["verbs"] == ["snapshot"]


async def test_a_tool_scope_is_needed_and_shows_what_it_opens(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    await add(directory, 1)
    nobody = principal("acme", Scope.DEVICE_CONNECT)
    assert (await refused(site, "fleet_find", nobody)).reason is Reason.SCOPE
    assert await ids(site, principal("acme", Scope.REVERSIBLE)) == []


async def test_policy_rate_and_audit_know_it_by_its_name(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    await add(directory, 1)
    site.rule('tools = ["fleet_find", "**"]\nrates = [{ tools = ["fleet_find"], calls = 1, per = "1h" }]')
    with structlog.testing.capture_logs() as lines:
        assert await ids(site) == [1]
        assert (await refused(site, "fleet_find")).reason is Reason.RATE
    audited = [line for line in lines if line["event"] == "tool_call"]
    assert [(line["tool"], line["node_id"], line["decision"]) for line in audited] == [
        ("fleet_find", None, "answered"),
        ("fleet_find", None, "refused"),
    ]
    site.rule('tools = ["sys.**"]')
    for name, arguments in (("fleet_find", {}), ("fleet_node", {"node": node_id(1)})):
        assert (await refused(site, name, **arguments)).reason is Reason.POLICY


async def test_it_costs_nothing_and_writes_nothing_unless_a_row_of_prices_concerns_it(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    await add(directory, 1)
    site.rule('tools = ["**"]\nprice = 2\nbudget = 0')
    assert await ids(site) == [1]
    assert await site.store.names("ledger/", "") == ()
    site.rule('tools = ["**"]\nprices = [{ tools = ["fleet_*"], price = 0.5 }]')
    await ids(site)
    await look(site, "fleet_node", node=node_id(1))
    await refused(site, "fleet_node", node="nobody")  # found nothing: costs nothing
    assert await site.spent() == 1_000_000
    assert await site.store.names("ledger/", "") != ()


async def test_personal_data_among_operators_words_is_withheld(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    await add(directory, 1, tags=["phone=31612345678"], name="pump-1")
    await add(directory, 2, name="pump-2")
    site.rule('tools = ["**"]\n[agents.pii.result]\nphone = "allow"\nip = "block"\n')
    assert await ids(site) == [1, 2]
    label(directory, SESSION, None)
    await add(directory, 3, tags=["address=10.1.2.3"])
    assert (await refused(site, "fleet_find")).reason is Reason.PERSONAL_DATA
