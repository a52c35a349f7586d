"""What the console shows of a whole gateway with one real node, over real sockets."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from gateway.identity.tokens import OperatorScope
from tests.gateway.api.client import AGENT
from tests.gateway.api.live import Live, live_gateway, request
from tests.gateway.console.visitor import Visitor

PATIENCE_S = 20
QUICK = {"audit.write_s": 0.0}
FLEET, SPEND = OperatorScope.FLEET_READ, OperatorScope.SPEND_READ
READS = {
    "fleet": FLEET,
    "live": FLEET,
    "node": FLEET,
    "history": FLEET,
    "streams": FLEET,
    "policy": FLEET,
    "policy/explain": FLEET,
    "spaces": FLEET,
    "upstreams": FLEET,
    "engine": FLEET,
    "audit": FLEET,
    "audit/export": FLEET,
    "agents": SPEND,
    "agent": SPEND,
}


async def call(live: Live) -> None:
    async with live.client() as client:
        answer = await client.ask(live.good_call())
        assert answer is not None
        assert answer.status == 200


async def called(live: Live, visitor: Visitor) -> list[dict[str, Any]]:
    """Make a call; its line, once it is kept."""
    await call(live)
    while True:
        lines: list[dict[str, Any]] = (await visitor.read("audit", {"event": "tool_call"}))["lines"]
        if lines:
            return lines
        await trio.lowlevel.checkpoint()


async def test_a_fleet_and_a_node_are_shown_with_what_they_did(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path, **QUICK) as live:
            ada = await Visitor.come(live)
            await call(live)
            page = await ada.read("fleet", {"state": "live", "sort": "last_call", "descending": True})
            assert page["counts"] == {"enrolled": 0, "live": 1, "away": 0, "expired": 0, "revoked": 0}
            (row,) = page["rows"]
            assert (row["node_id"], row["tenant"], row["state"], row["tools"]) == (live.node_id, "acme", "live", 3)
            assert (row["calls"], row["drops"], row["left"]) == (1, 0, None)
            assert row["last_call_ms"] <= page["now_ms"]

            node = await ada.read("node", {"node_id": live.node_id})
            assert {name: node[name] for name in row} == row
            assert (node["owner"], node["epoch"], node["streams"]) == ("here", 1, [])
            metrics, echo = node["capabilities"]
            assert (echo["cap_id"], echo["kind"], echo["verbs"]) == ("echo", "system.echo", ["invoke"])
            assert echo["use"]["in_flight"] == 0
            assert echo["use"]["tokens_left"] in (9, 10)
            assert echo["tools"][0]["input_schema"]["properties"].keys() == {"message"}
            assert metrics["verbs"] == ["snapshot", "subscribe"]
            assert metrics["limits"] == {"rate_limit_rps": 10, "max_concurrency": 4}
            (certificate,) = node["certificates"]
            assert certificate["not_after_ms"] > page["now_ms"]

            events = (await ada.read("history", {"node_id": live.node_id}))["events"]
            assert "command_acked@1" in [event["event"] for event in events]
            last = events[-1]["version"]
            assert (await ada.read("history", {"node_id": live.node_id, "after": last}))["events"] == []


async def test_streams_are_shown_while_they_are_open(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path) as live:
            ada = await Visitor.come(live)
            assert await ada.read("streams") == {"streams": [], "total": 0}
            body = json.dumps({"tool": live.tool("sys.{}.metrics.subscribe"), "arguments": {"interval_ms": 1000}})
            opening = request("POST", "/mcp/tools/call", live.token(), body.encode())
            opening = opening.replace(b"Host: test", b"Host: test\r\nAccept: text/event-stream")
            async with live.client() as client:
                await client.send(opening)
                assert b"200 OK" in await client.stream.receive_some()
                (stream,) = (await ada.read("streams"))["streams"]
                assert (stream["node_id"], stream["interval_ms"], stream["sub"]) == (live.node_id, 1000, AGENT)
                (same,) = (await ada.read("node", {"node_id": live.node_id}))["streams"]
                assert same["stream_id"] == stream["stream_id"]
                assert abs(same["since_ms"] - stream["since_ms"]) <= 2  # by two clocks, read twice
                # An operator's look joins the cadence that is open.
                async with ada.feed("live", {"node": live.node_id}) as (_, feed):
                    assert (await feed.event("frame"))["frame"]["node_id"] == live.node_id
                    actor = live.gateway.devices.fleet.nodes.find(live.node_id)
                    assert actor is not None
                    assert len(actor.cadences) == 1


async def test_a_live_page_has_the_fleet_a_node_and_the_audit_on_one_feed(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path, **QUICK) as live:
            ada = await Visitor.come(live)
            ask = {"fleet": {"limit": 10}, "node": live.node_id, "audit": {"event": "tool_call"}}
            async with ada.feed("live", ask) as (head, feed):
                assert "200 ok" in head
                assert "content-type: text/event-stream" in head
                assert "cache-control: no-store" in head
                whole = await feed.event("fleet")
                assert (whole["ids"], whole["rows"][0]["calls"]) == ([live.node_id], 0)
                await call(live)
                seen: dict[str, Any] = {}
                while seen.keys() < {"fleet", "node", "audit"}:
                    first, _, said = (await feed.until(b"\n\n")).decode().partition("\n")
                    data = json.loads(said.removeprefix("data: "))
                    match first.removeprefix("event: "):
                        case "fleet" if data["rows"] and data["rows"][0]["calls"]:
                            seen["fleet"] = data
                        case "node" if data["row"]["calls"]:
                            seen["node"] = data
                        case "audit" if data["lines"]:
                            seen["audit"] = data
                assert "ids" not in seen["fleet"]
                assert seen["audit"]["lines"][0]["sub"] == AGENT


async def test_agents_are_shown_with_what_they_spent_and_have_left(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path, **QUICK) as live:
            ada = await Visitor.come(live)
            await called(live, ada)
            answer = await ada.read("agents", {"since": "1h"})
            assert (answer["counted_since_ms"], answer["is_kept"]) == (None, True)  # all of it is counted
            (agent,) = answer["agents"]
            assert (agent["sub"], agent["tenant"], agent["calls"], agent["refused"]) == (AGENT, "acme", 1, 0)
            assert agent["tools"] == [{"tool": live.tool(), "calls": 1, "micros": agent["spent_micros"]}]
            budget = agent["budget"]
            assert budget["used_micros"] == agent["spent_micros"] > 0
            assert budget["rates"] == []
            one = await ada.read("agent", {"sub": AGENT})
            assert one["ledgers"][0]["used_micros"] == agent["spent_micros"]
            assert one["ledgers"][0]["budget"] == budget
            assert [line["tool"] for line in one["lines"]] == [live.tool()]
            thrifty = await Visitor.come(live, [SPEND])
            assert (await thrifty.read("agent", {"sub": AGENT}))["lines"] is None
            nobody = await ada.post("agent", {"sub": "agent_nobody"})
            assert nobody.status == 404


async def test_the_audit_is_exported_as_a_file(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path, **QUICK) as live:
            ada = await Visitor.come(live)
            lines = await called(live, ada)
            async with ada.feed("audit/export", {"event": "tool_call"}) as (head, feed):
                assert "content-type: application/x-ndjson" in head
                assert "content-disposition: attachment" in head
                written = [json.loads(line) for line in (await feed.rest()).splitlines()]
            assert written == lines


async def test_policy_upstreams_and_spaces_are_shown_without_secrets(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[[agents]]\nagent = "*"\ntools = ["sysecho.**"]\n'
        '[[upstreams]]\nname = "search"\ntenants = ["acme"]\ncommand = ["/nowhere/at/all", "--key=hush-hush"]\n'
    )
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path, **{"governance.policy": str(policy)}) as live:
            ada = await Visitor.come(live)
            shown = await ada.read("policy")
            assert "sysecho" in shown["text"]
            assert "hush" not in json.dumps(shown)
            assert shown["revision"] == shown["file_revision"]
            told = await ada.read("policy/explain", {"agent": AGENT, "tool": live.tool()})
            assert (told["allowed"], told["file"], told["revision"]) == (True, str(policy), shown["revision"])
            denied = await ada.read("policy/explain", {"agent": AGENT, "tool": "search.web"})
            assert not denied["allowed"]
            while (upstream := (await ada.read("upstreams"))["upstreams"][0])["last_error"] is None:
                await trio.lowlevel.checkpoint()
            assert (upstream["name"], upstream["transport"], upstream["tools"]) == ("search", "stdio", 0)
            assert upstream["last_error"] == "lost"
            assert await ada.read("engine") == {"engine": None}
            policy.write_text("no policy any more")
            broken = await ada.read("policy")
            assert (broken["text"], broken["revision"]) == (None, shown["revision"])
            assert broken["flaw"]["line"] == 1


@pytest.mark.parametrize("is_on", [True, False])
async def test_spaces_are_shown_by_how_much_they_have(tmp_path: Path, is_on: bool) -> None:
    settings = {"echo.enabled": is_on}
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path, **settings) as live:
            ada = await Visitor.come(live)
            shown = await ada.read("spaces")
            assert (shown["spaces"], shown["total"]) == ([], 0)
            assert (shown["limits"] is not None) is is_on
            assert (await ada.post("spaces", {"cursor": "nonsense"})).status == (400 if is_on else 200)


async def test_each_read_takes_its_scope_and_says_which(tmp_path: Path) -> None:
    bodies: dict[str, Any] = {"policy/explain": {"agent": AGENT, "tool": "t"}, "agent": {"sub": AGENT}}
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path) as live:
            bodies |= {name: {"node_id": live.node_id} for name in ("node", "history")}
            for scope in (FLEET, SPEND):
                others = [other for other in OperatorScope if other is not scope]
                lacking = await Visitor.come(live, others)
                for name in (name for name, needed in READS.items() if needed is scope):
                    answer = await lacking.post(name, bodies.get(name))
                    assert answer.status == 403, name
                    assert answer.json["code"] == "E_SAFETY_DENIED"
                    assert scope in answer.json["message"]


async def test_without_a_kept_audit_the_rest_is_shown(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path, **{"audit.enabled": False}) as live:
            ada = await Visitor.come(live)
            await call(live)
            answer = await ada.read("agents")
            assert (answer["agents"], answer["is_kept"]) == ([], False)
            assert (await ada.read("agent", {"sub": AGENT}))["lines"] is None
            for name in ("audit", "audit/export"):
                assert (await ada.post(name)).status == 404
