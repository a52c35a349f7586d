"""`GET /metrics`: who may read it, that it can be read, that its numbers move, and that nobody can make it grow."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.node.fleet import Fleet
from actors.node.reports import Drop
from actors.supervision.supervisor import Supervisor
from gateway.calls.audit import Decision, Origin, Via
from gateway.calls.tool_calls import ToolCalls
from gateway.identity.tokens import OperatorScope, Principal, Scope, TokenClass
from gateway.observe.metrics.histogram import Histogram
from gateway.observe.metrics.text import Family, histograms, render
from schemas.contract import contract
from tests.actors.node.harness import Gateway, ScriptedNode, now
from tests.gateway.api.client import AGENT, new_id
from tests.gateway.api.exposition import Exposition, read
from tests.gateway.api.live import TENANT, Answer, Client, Live, live_gateway, request
from tests.gateway.mcp.site import site as mcp_site
from tests.gateway.mcp.site import until
from tests.schemas.examples import NODE_ID

PATIENCE_S = 30.0
# What moves by itself, or by time: kept lines are counted when their writer thread has written them.
NOISE = (
    "process_",
    "heliograph_log_appends_total",
    "heliograph_call_seconds",
    "heliograph_audit_lines_total outcome=kept",
)
ODD_REQUESTS = 1000


def operator(here: Live) -> str:
    return here.token(token_class=TokenClass.OPERATOR, sub="ada", scopes=list(OperatorScope))


async def ask(here: Live, data: bytes, *, to_head: bool = False) -> Answer:
    async with here.client() as client:
        answer = await client.ask(data, to_head=to_head)
    assert answer is not None
    return answer


async def scraped(here: Live) -> Exposition:
    answer = await ask(here, request("GET", "/metrics", operator(here)))
    assert answer.status == 200
    return read(answer.body.decode())


def moved(before: Exposition, after: Exposition) -> dict[str, float]:
    return {name: change for name, change in after.since(before).items() if not name.startswith(NOISE)}


def call(here: Live, tool: str, arguments: Any, **token: Any) -> bytes:
    body = json.dumps({"tool": here.tool(tool), "arguments": arguments}).encode()
    return request("POST", "/mcp/tools/call", here.token(**token), body)


# ---- who may read it ------------------------------------------------------------------------------------------------


async def test_page_is_for_operators(tmp_path: Path) -> None:
    async with live_gateway(tmp_path) as here:
        for token in (None, "nonsense", here.token()):
            refused = await ask(here, request("GET", "/metrics", token))
            assert (refused.status, refused.json["code"]) == (401, "E_SAFETY_DENIED")
            assert contract("error@1.2.0").explain(refused.json) == []
            assert "operator token" in refused.json["message"]
            assert refused.headers["www-authenticate"].startswith("Bearer ")
        page = await ask(here, request("GET", "/metrics", operator(here)))
        assert (page.status, page.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert page.headers["cache-control"] == "no-store"


async def test_page_is_open_when_the_setting_says_so_and_has_a_head(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, **{"http.metrics_open": True}) as here:
        page = await ask(here, request("GET", "/metrics"))
        assert page.status == 200
        head = await ask(here, request("HEAD", "/metrics"), to_head=True)
        assert (head.status, head.body) == (200, b"")
        assert abs(int(head.headers["content-length"]) - len(page.body)) < 50  # numbers have moved
        assert (await ask(here, request("POST", "/metrics"))).status == 405


# ---- values move ----------------------------------------------------------------------------------------------------


async def test_calls_are_counted_by_how_they_ended(tmp_path: Path) -> None:
    echo = "sysecho.{}.echo.invoke"
    async with live_gateway(tmp_path) as here:
        before = await scraped(here)
        assert before.value("heliograph_nodes") == 1
        assert (await ask(here, call(here, echo, {"message": "x"}))).status == 200
        assert (await ask(here, call(here, echo, {"message": 1}))).status == 400
        assert (await ask(here, call(here, echo, {"message": "x"}, scopes=[]))).status == 403
        assert (await ask(here, call(here, "no such tool", {}))).status == 404
        after = await scraped(here)
        calls = "heliograph_calls_total code={} decision={} door=http"
        assert moved(before, after) == {
            calls.format("", "answered"): 1,
            calls.format("E_MANIFEST_INVALID", "refused"): 1,
            calls.format("E_SAFETY_DENIED", "refused"): 1,
            calls.format("E_MANIFEST_NOT_FOUND", "refused"): 1,
            "heliograph_spend_micros_total": 15_000,  # the default price, of the one that was made
        }
        assert after.value("heliograph_call_seconds_count", decision="answered") == 1
        assert after.value("heliograph_call_seconds_count", decision="refused") == 3
        assert 0 < after.value("heliograph_call_seconds_sum", decision="answered") < 5
        appends = {"answer": "appended"}
        assert after.value("heliograph_log_appends_total", **appends) > before.value(
            "heliograph_log_appends_total", **appends
        )
        assert after.value("heliograph_log_queue") == 0


async def test_streams_their_frames_and_closes_are_counted(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path) as here:
            before = await scraped(here)
            async with here.client() as client:
                head, _, body = call(here, "sys.{}.metrics.subscribe", {"interval_ms": 1000}).partition(b"\r\n\r\n")
                await client.send(head + b"\r\nAccept: text/event-stream\r\n\r\n" + body)
                got = b""
                while b"event: metric" not in got:
                    got += bytes(await client.stream.receive_some())
                during = await scraped(here)
                while not during.value("heliograph_spend_micros_total") or during.value("heliograph_log_queue"):
                    during = await scraped(here)  # a frame may come before the stream is charged for
                assert moved(before, during) == {
                    "heliograph_calls_total code= decision=streaming door=http": 1,
                    "heliograph_spend_micros_total": 15_000,
                    "heliograph_stream_frames_total": during.value("heliograph_stream_frames_total"),
                    "heliograph_streams": 1,
                }
                assert during.value("heliograph_stream_frames_total") >= 1
                await client.stream.send_eof()
                await _to_the_end(client)
            after = await scraped(here)
            while after.value("heliograph_streams"):  # until the close is acknowledged
                after = await scraped(here)
            assert after.value("heliograph_stream_closes_total", code="1000") == 1


async def _to_the_end(client: Client) -> None:
    while await client.stream.receive_some():
        pass


async def test_call_whose_caller_hangs_up_is_counted_as_abandoned(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    fleet = Fleet(supervisor, Gateway().services)
    await ScriptedNode.started_by(fleet).go_live()
    calls = ToolCalls(fleet.services.directory, fleet, new_id, now)
    principal = Principal(AGENT, TENANT, TokenClass.AGENT_RUNTIME, frozenset(Scope), new_id(), 0, 2**50)
    with trio.move_on_after(1):
        await calls.call_tool(principal, f"sysecho.{NODE_ID}.echo.invoke", {"message": "x"}, origin=Origin(Via.MCP))
    assert calls.audit.counts.ended[Via.MCP, Decision.ABANDONED, None] == 1
    assert sum(calls.audit.counts.ended.values()) == sum(calls.audit.counts.seconds[Decision.ABANDONED].cells) == 1
    supervisor.request_stop()


POLICY = f"""
[[agents]]
agent = "{AGENT}"
tools = ["sysecho.**", "sys.**"]
budget = 0.05
price = 0.02
rates = [{{ tools = "*.*.*.snapshot", calls = 1, per = "1h" }}]
"""


async def test_what_governance_refuses_is_counted_by_reason_and_spend_by_what_was_charged(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    async with live_gateway(tmp_path, **{"governance.policy": str(tmp_path / "policy.toml")}) as here:
        before = await scraped(here)
        echo, snapshot = "sysecho.{}.echo.invoke", "sys.{}.metrics.snapshot"
        statuses = [
            (await ask(here, data)).status
            for data in (
                call(here, snapshot, {}),
                call(here, snapshot, {}),
                call(here, echo, {"message": "ada@example.org"}),
                call(here, echo, {"message": "x"}),
                call(here, echo, {"message": "x"}),
                call(here, echo, {"message": "x"}, sub="agent_00000000-0000-4000-8000-000000000000"),
            )
        ]
        assert statuses == [200, 429, 403, 200, 429, 403]
        changes = moved(before, await scraped(here))
        assert {name: n for name, n in changes.items() if not name.startswith("heliograph_calls")} == {
            "heliograph_refusals_total reason=BUDGET_EXCEEDED": 1,
            "heliograph_refusals_total reason=PII_DETECTED": 1,
            "heliograph_refusals_total reason=RATE_LIMITED": 1,
            "heliograph_refusals_total reason=UNAUTHORIZED": 1,
            "heliograph_spend_micros_total": 40_000,
        }


async def test_calls_sessions_and_listeners_of_mcp_are_counted(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.replace("0.05", "0.03"))
    async with mcp_site(tmp_path, governance__policy=str(tmp_path / "policy.toml")) as site:
        here = Live(site.gateway, site.node_id)
        before = await scraped(here)
        async with site.client() as client:
            await client.initialize()
            answer = await client.legacy("tools/call", name=site.echo, arguments={"message": "x"})
            assert answer["result"]["isError"] is False
            denied = await client.legacy("resources/subscribe", uri=f"metrics://{site.node_id}")
            assert denied["error"]["code"] == -32001
            await until(lambda: len(site.gateway.mcp.watches) == 1)
            assert moved(before, await scraped(here)) == {
                "heliograph_calls_total code= decision=answered door=mcp": 1,
                "heliograph_calls_total code=E_RATE_LIMITED decision=refused door=mcp": 1,
                "heliograph_listeners": 1,
                "heliograph_mcp_sessions": 1,
                "heliograph_refusals_total reason=BUDGET_EXCEEDED": 1,
                "heliograph_spend_micros_total": 20_000,
            }


async def test_what_nodes_send_and_is_dropped_is_counted_by_reason(tmp_path: Path) -> None:
    async with live_gateway(tmp_path) as here:
        before = await scraped(here)
        for drop in Drop:
            here.gateway.devices.fleet.services.count(drop)
        name = "heliograph_node_frames_dropped_total reason="
        assert moved(before, await scraped(here)) == {name + drop: 1 for drop in Drop}


# ---- bounded --------------------------------------------------------------------------------------------------------


async def test_a_thousand_odd_requests_add_no_series(tmp_path: Path) -> None:
    rng = Random(8)
    with trio.fail_after(2 * PATIENCE_S):
        async with live_gateway(tmp_path) as here, here.client() as client:
            before = await scraped(here)
            for n in range(ODD_REQUESTS):
                odd = f"x{rng.getrandbits(64):x}"
                data = rng.choice(
                    [
                        call(here, odd, {odd: odd}),
                        call(here, f"{odd}.{{}}.echo.invoke", {}, sub=f"agent_{n:08x}-0000-4000-8000-000000000000"),
                        call(here, "sysecho.{}.echo.invoke", {odd: n}, tenant=odd),
                        request("DELETE", f"/{odd}", here.token()),
                        request("GET", f"/metrics/{odd}", odd),
                        request("POST", "/mcp/tools/call", here.token(), odd.encode()),
                    ]
                )
                answer = await client.ask(data)
                assert answer is not None
                assert answer.status in (400, 401, 403, 404, 405)
            after = await scraped(here)
            assert set(after.values) == set(before.values)
            assert sum(moved(before, after).values()) > ODD_REQUESTS / 4


# ---- the parts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "cell"), [(0.0, 0), (0.5, 0), (0.5000001, 1), (1.0, 1), (1.1, 2), (1e9, 2)])
def test_bound_belongs_to_the_bucket_below_it(value: float, cell: int) -> None:
    histogram = Histogram((0.5, 1.0))
    histogram.observe(value)
    assert histogram.cells[cell] == 1
    told = read(render([histograms("seconds", "Of it.", [({"kind": "a"}, histogram)])]).decode())
    assert told.value("seconds_bucket", kind="a", le="0.5") == (cell == 0)
    assert told.value("seconds_bucket", kind="a", le="+Inf") == told.value("seconds_count", kind="a") == 1


def test_label_that_has_quotes_and_line_breaks_is_escaped() -> None:
    text = render([Family("x", "gauge", "Of it.", (("", {"a": 'b"c\\d\ne'}, 1.5),))]).decode()
    assert text.splitlines()[-1] == r'x{a="b\"c\\d\ne"} 1.5'
    assert read(text).value("x", a=r"b\"c\\d\ne") == 1.5
