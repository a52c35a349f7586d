"""MCP's methods over a fleet in memory: results, failures that a model can read, and errors that are none."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock
from ulid import ULID

from actors.node.fleet import Fleet
from actors.supervision.supervisor import Supervisor
from gateway.calls.audit import Origin, Via
from gateway.calls.tool_calls import ToolCalls
from gateway.identity.tokens import Principal, Scope, TokenClass
from gateway.mcp.errors import RpcError
from gateway.mcp.methods import Methods, origin_of
from gateway.mcp.settings import McpSettings
from gateway.mcp.tool_results import CORRELATION_ID, ERROR
from schemas.contract import contract
from schemas.frames import CmdCancel
from tests.actors.node.harness import Gateway, ScriptedNode, now, until
from tests.gateway.api.client import AGENT, new_id
from tests.gateway.api.test_app import ECHO, SNAPSHOT, SUBSCRIBE, live_node
from tests.schemas.examples import NODE_ID, SAMPLE

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def principal(tenant: str = "acme", *scopes: str) -> Principal:
    granted = frozenset(scopes or {Scope.READ_ONLY})
    return Principal(AGENT, tenant, TokenClass.AGENT_RUNTIME, granted, str(ULID()), 0, 2**53)


@pytest.fixture
async def fleet(nursery: trio.Nursery) -> AsyncIterator[Fleet]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    yield Fleet(supervisor, Gateway().services)
    supervisor.request_stop()


@pytest.fixture
def methods(fleet: Fleet) -> Methods:
    return Methods(
        fleet.services.directory,
        ToolCalls(fleet.services.directory, fleet, new_id, now),
        now,
        McpSettings(page_items_max=2),
    )


async def refusal(methods: Methods, who: Principal, method: str, params: dict[str, Any]) -> RpcError:
    with pytest.raises(RpcError) as refused:
        await methods.handle(who, method, params)
    return refused.value


# ---- tools ----------------------------------------------------------------------------------------------------------


async def test_tools_are_listed_in_pages_and_in_one_order(
    autojump_clock: MockClock, fleet: Fleet, methods: Methods, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery)
    first = await methods.handle(principal(), "tools/list", {})
    assert first["nextCursor"] == first["tools"][-1]["name"]
    rest = await methods.handle(principal(), "tools/list", {"cursor": first["nextCursor"]})
    assert "nextCursor" not in rest
    assert [tool["name"] for tool in (*first["tools"], *rest["tools"])] == [SNAPSHOT, SUBSCRIBE, ECHO]
    assert set(first["tools"][0]) == {"name", "description", "inputSchema", "outputSchema", "annotations", "_meta"}


async def test_tools_of_other_tenants_and_of_nodes_that_are_away_are_not_listed(
    autojump_clock: MockClock, fleet: Fleet, methods: Methods, nursery: trio.Nursery
) -> None:
    node = await live_node(fleet, nursery)
    assert (await methods.handle(principal("other"), "tools/list", {}))["tools"] == []
    node.connection.hang_up()
    await until(lambda: len(fleet.nodes) == 0)
    assert (await methods.handle(principal(), "tools/list", {}))["tools"] == []


async def test_cursor_that_no_list_gave_is_an_error(autojump_clock: MockClock, methods: Methods) -> None:
    for method in ("tools/list", "resources/list", "resources/templates/list"):
        error = await refusal(methods, principal(), method, {"cursor": "nonsense"})
        assert (error.code, error.data["code"]) == (-32602, "CURSOR_INVALID")


async def test_call_answers_with_structured_content_and_the_same_as_text(
    autojump_clock: MockClock, fleet: Fleet, methods: Methods, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery)
    result = await methods.handle(principal(), "tools/call", {"name": ECHO, "arguments": {"message": "hi"}})
    assert result["isError"] is False
    assert result["structuredContent"]["message"] == "hi"
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert len(result["_meta"][CORRELATION_ID]) == 26


@pytest.mark.parametrize(
    ("arguments", "answers", "code"),
    [({}, True, "E_MANIFEST_INVALID"), ({"message": "x"}, False, "E_DEADLINE_EXCEEDED")],
)
async def test_failure_is_a_result_that_a_model_can_read(
    autojump_clock: MockClock,
    fleet: Fleet,
    methods: Methods,
    nursery: trio.Nursery,
    arguments: dict[str, Any],
    answers: bool,
    code: str,
) -> None:
    await live_node(fleet, nursery, answers=answers)
    result = await methods.handle(principal(), "tools/call", {"name": ECHO, "arguments": arguments})
    assert result["isError"] is True
    assert contract("error@1.2.0").explain(result["_meta"][ERROR]) == []
    assert result["_meta"][ERROR]["code"] == code
    assert result["_meta"][ERROR]["correlation_id"] == result["_meta"][CORRELATION_ID]
    assert json.loads(result["content"][0]["text"]) == result["_meta"][ERROR]
    assert "structuredContent" not in result


async def test_subscribe_says_how_to_open_the_stream_and_names_the_resource(
    autojump_clock: MockClock, fleet: Fleet, methods: Methods, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery)
    result = await methods.handle(principal(), "tools/call", {"name": SUBSCRIBE, "arguments": {}})
    error = result["_meta"][ERROR]
    assert (result["isError"], error["code"]) == (True, "E_BAD_REQUEST")
    assert "Accept: text/event-stream" in error["suggested_fix"]
    assert f"metrics://{NODE_ID}" in error["suggested_fix"]
    assert contract("error@1.2.0").explain(error) == []


@pytest.mark.parametrize(
    "name", ["nope", "gpio.x.y.z", f"sysecho.{NODE_ID}.echo.snapshot", f"sys.{'0' * 26}.a.snapshot"]
)
async def test_unknown_tool_is_invalid_params(
    autojump_clock: MockClock, fleet: Fleet, methods: Methods, nursery: trio.Nursery, name: str
) -> None:
    await live_node(fleet, nursery)
    error = await refusal(methods, principal(), "tools/call", {"name": name})
    assert (error.code, error.data["code"]) == (-32602, "TOOL_NOT_FOUND")
    assert set(error.data) == {"code", "correlation_id"}


@pytest.mark.parametrize("who", [("other",), ("acme", Scope.REVERSIBLE)])
async def test_what_a_token_may_not_use_is_an_error_of_governance(
    autojump_clock: MockClock, fleet: Fleet, methods: Methods, nursery: trio.Nursery, who: tuple[str, ...]
) -> None:
    await live_node(fleet, nursery)
    for method, params in (("tools/call", {"name": SNAPSHOT}), ("resources/read", {"uri": f"metrics://{NODE_ID}"})):
        error = await refusal(methods, principal(*who), method, params)
        assert (error.code, error.message, error.data["code"]) == (-32003, "Tool not authorized", "UNAUTHORIZED")


async def test_caller_that_gives_up_cancels_the_command(
    autojump_clock: MockClock, fleet: Fleet, methods: Methods, nursery: trio.Nursery
) -> None:
    node = await live_node(fleet, nursery, answers=False)
    with trio.move_on_after(1):
        await methods.handle(principal(), "tools/call", {"name": ECHO, "arguments": {"message": "x"}})
    cancel = await node.connection.next(CmdCancel)
    assert cancel.in_reply_to == (await node.commands(1))[0].msg_id


async def test_trace_of_the_caller_is_in_the_audit_line(
    autojump_clock: MockClock, fleet: Fleet, methods: Methods, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery)
    params = {"name": ECHO, "arguments": {"message": "x"}, "_meta": {"traceparent": TRACEPARENT}}
    with structlog.testing.capture_logs() as logs:
        await methods.handle(principal(), "tools/call", params)
    (line,) = [line for line in logs if line["event"] == "tool_call"]
    assert line["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    "meta",
    [
        None,
        [],
        {},
        {"traceparent": 1},
        {"traceparent": "x" * 55},
        {"traceparent": TRACEPARENT.upper()},
        {"traceparent": TRACEPARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32)},
        {"traceparent": TRACEPARENT.replace("-", "a")},
        {"traceparent": TRACEPARENT + "\n"},
        {"traceparent": "ff" + TRACEPARENT[2:]},
    ],
)
def test_trace_that_is_not_well_formed_is_none(meta: object) -> None:
    assert origin_of({"_meta": meta}) == Origin(Via.MCP, None)


# ---- resources ------------------------------------------------------------------------------------------------------


async def test_metrics_of_live_nodes_are_resources(
    autojump_clock: MockClock, fleet: Fleet, methods: Methods, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery)
    listed = await methods.handle(principal(), "resources/list", {})
    assert [resource["uri"] for resource in listed["resources"]] == [f"metrics://{NODE_ID}"]
    assert (await methods.handle(principal("other"), "resources/list", {}))["resources"] == []
    behind = await methods.handle(principal(), "resources/list", {"cursor": NODE_ID})
    assert behind["resources"] == []
    (template,) = (await methods.handle(principal(), "resources/templates/list", {}))["resourceTemplates"]
    assert template["uriTemplate"] == "metrics://{node_id}"


async def test_reading_a_resource_takes_a_sample(
    autojump_clock: MockClock, fleet: Fleet, methods: Methods, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery)
    read = await methods.handle(principal(), "resources/read", {"uri": f"metrics://{NODE_ID}"})
    (content,) = read["contents"]
    assert (content["uri"], content["mimeType"]) == (f"metrics://{NODE_ID}", "application/json")
    assert json.loads(content["text"]) == SAMPLE


@pytest.mark.parametrize(
    "uri", ["", "metrics://", f"metrics://{'0' * 26}", f"metrics://{NODE_ID}/x", f"METRICS://{NODE_ID}"]
)
async def test_unknown_resource_is_invalid_params(
    autojump_clock: MockClock, fleet: Fleet, methods: Methods, nursery: trio.Nursery, uri: str
) -> None:
    await live_node(fleet, nursery)
    error = await refusal(methods, principal(), "resources/read", {"uri": uri})
    assert (error.code, error.data["code"]) == (-32602, "RESOURCE_NOT_FOUND")


async def test_resource_of_a_node_that_is_away_says_so(
    autojump_clock: MockClock, fleet: Fleet, methods: Methods, nursery: trio.Nursery
) -> None:
    node: ScriptedNode = await live_node(fleet, nursery)
    node.connection.hang_up()
    await until(lambda: len(fleet.nodes) == 0)
    error = await refusal(methods, principal(), "resources/read", {"uri": f"metrics://{NODE_ID}"})
    assert (error.code, error.data["code"]) == (-32603, "E_NODE_OFFLINE")
