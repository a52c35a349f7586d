"""What every gateway does, by itself and as one of several on a real `nats-server`: calls, streams, MCP, operators."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from gateway.engine.server_run import ServerRun
from gateway.identity.tokens import OperatorScope, TokenClass
from tests.gateway.api.client import AGENT
from tests.gateway.api.live import Live, live_gateway, request
from tests.gateway.console.visitor import Visitor
from tests.gateway.engine.on_engine import on_engine
from tests.gateway.mcp.site import Site

TEST_S_MAX = 60.0


@pytest.fixture(params=["embedded", "engine"])
def side(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if request.param == "embedded":
        return {}
    server: ServerRun = request.getfixturevalue("nats_server")
    return on_engine(server, tmp_path)


@pytest.fixture
async def live(side: dict[str, Any], tmp_path: Path) -> AsyncIterator[Live]:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[agents]]\nagent = "*"\ntools = ["**"]\nbudget = 0.04\nbudget_period = "1h"\n')
    with trio.fail_after(TEST_S_MAX):
        async with live_gateway(tmp_path, **side, **{"governance.policy": str(policy)}) as here:
            yield here


def operator(live: Live) -> str:
    return live.token(token_class=TokenClass.OPERATOR, tenant="operators", sub="ada", scopes=list(OperatorScope))


async def ask(live: Live, data: bytes) -> Any:
    async with live.client() as client:
        answer = await client.ask(data)
    assert answer is not None
    return answer


async def test_calls_are_answered_and_paid_until_the_budget_is_spent(live: Live) -> None:
    answers = [await ask(live, live.good_call()) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert b"ping" in answers[0].body
    assert answers[2].json["code"] == "E_RATE_LIMITED"
    ledger = (await ask(live, request("GET", f"/admin/ledger/{AGENT}", operator(live)))).json["ledgers"]
    assert [one["used_micros"] for one in ledger] == [30_000]


async def test_a_stream_has_frames_of_the_node(live: Live) -> None:
    body = {"tool": live.tool("sys.{}.metrics.subscribe"), "arguments": {"interval_ms": 1000}}
    head = request("POST", "/mcp/tools/call", live.token(), json.dumps(body).encode())
    async with live.client() as client:
        await client.send(head.replace(b"\r\nHost", b"\r\nAccept: text/event-stream\r\nHost", 1))
        got = b""
        while b"event: metric" not in got:
            more = await client.stream.receive_some()
            assert more, got
            got += more
    assert got.startswith(b"HTTP/1.1 200")


async def test_operators_find_the_node_and_the_gateway_is_ready(live: Live) -> None:
    (node,) = (await ask(live, request("GET", "/admin/nodes", operator(live)))).json["nodes"]
    assert (node["node_id"], node["live"]) == (live.node_id, True)
    assert (await ask(live, request("GET", "/readyz"))).status == 200
    page = (await ask(live, request("GET", "/metrics", operator(live)))).body
    assert re.search(rb'^heliograph_nodes({process="0"})? 1$', page, re.MULTILINE)


async def test_console_shows_the_engine_and_its_processes_where_there_is_one(live: Live, side: dict[str, Any]) -> None:
    ada = await Visitor.come(live, [OperatorScope.FLEET_READ])
    if not side:
        assert await ada.read("engine") == {"engine": None}
        return
    while (engine := (await ada.read("engine"))["engine"])["processes"][0]["nodes"] == 0:
        await trio.lowlevel.checkpoint()  # its own watcher has not told it of the node yet
    assert (engine["prefix"], engine["processes_total"]) == (side["engine.prefix"], 1)
    body = json.dumps({"tool": live.tool(), "arguments": {"message": "hi"}}).encode()
    assert (await ask(live, request("POST", "/mcp/tools/call", live.token(), body))).status == 200
    (row,) = (await ada.read("engine"))["engine"]["processes"]
    assert (row["is_here"], row["nodes"], row["standing"], row["link"]) == (True, 1, "ready", "up")
    assert (row["heartbeat_age_ms"] >= 0, row["started_at_ms"] > 0, row["unknown_outcomes"]) == (True, True, 0)
    assert row["ledgers"] == 1  # this agent's, who is the only one
    assert (await (await Visitor.come(live, [OperatorScope.SPEND_READ])).post("engine")).status == 403


async def test_mcp_lists_the_tools_of_the_node(live: Live, tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery, Site(live.gateway, live.node_id, nursery, tmp_path).client() as client:
        listed = (await client.modern("tools/list")).json()["result"]["tools"]
    assert live.tool() in {tool["name"] for tool in listed}


async def test_what_nodes_announced_is_there_after_a_restart(side: dict[str, Any], tmp_path: Path) -> None:
    with trio.fail_after(TEST_S_MAX):
        async with live_gateway(tmp_path, **side) as live:
            await ask(live, live.good_call())
            before = live.node_id
        async with live_gateway(tmp_path, **side) as live:
            record = live.gateway.devices.directory.find(before)
            assert record is not None
            assert record.live is False
            command = (await ask(live, request("GET", f"/admin/log/{before}", operator(live)))).json["events"]
            assert command
