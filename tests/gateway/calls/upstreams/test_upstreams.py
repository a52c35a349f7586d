"""Upstreams that are real servers, over standard input and output and over HTTP, behind a whole gateway."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from gateway.identity.tokens import Scope
from tests.gateway.calls.upstreams.server import digest
from tests.gateway.calls.upstreams.site import (
    AGENTS,
    SECRET,
    Front,
    by_http,
    by_stdio,
    children,
    free_port,
    front,
    http_server,
)
from tests.gateway.mcp.site import until

PRICE = 15_000

pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")  # which the SDK's client drops


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


def error_of(answer: dict[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = answer["result"]["_meta"]["io.heliograph/error"]
    return error


async def check_all(gate: Front, name: str) -> None:
    """What holds for an upstream however it is reached."""
    await gate.until_listed(f"{name}.add")
    await listed_behind_devices(gate, name)
    await called_at_both_doors(gate, name)
    await arguments_are_judged_first(gate, name)
    await results_are_looked_through(gate, name)
    await new_tools_are_found(gate, name)


async def listed_behind_devices(gate: Front, name: str) -> None:
    page = (await gate.http.get("/mcp/tools")).json()["tools"]
    names = [tool["name"] for tool in page]
    mine = [one for one in names if one.startswith(f"{name}.")]
    assert mine == sorted(mine) == names[-len(mine) :]
    assert names[0].startswith("sys.")
    add = next(tool for tool in page if tool["name"] == f"{name}.add")
    assert add["description"] == "Add two numbers.[31m"
    assert add["annotations"] == {"readOnlyHint": False, "x-safety-class": "reversible"}
    assert add["inputSchema"]["required"] == ["a"]
    assert add["outputSchema"]["properties"]["result"]["type"] == "integer"
    # In pages of one, also across the seam.
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        answer = (await gate.http.get("/mcp/tools", params={"limit": "1", **cursor})).json()
        seen += [tool["name"] for tool in answer["tools"]]
        if "nextCursor" not in answer:
            break
        cursor = {"cursor": answer["nextCursor"]}
    assert seen == names
    async with gate.site.client(gate.token) as client:
        over_mcp = (await client.modern("tools/list")).json()["result"]["tools"]
    assert [(tool["name"], tool["inputSchema"]) for tool in over_mcp] == [(t["name"], t["inputSchema"]) for t in page]


async def called_at_both_doors(gate: Front, name: str) -> None:
    before = await gate.spent_micros()
    answer = await gate.call(f"{name}.add", a=2, b=3)
    assert (answer.status_code, answer.json()) == (200, {"result": 5})
    over_mcp = await gate.mcp(f"{name}.add", a=2, b=3)
    result = over_mcp["result"]
    assert (result["structuredContent"], result["isError"], text_of(over_mcp)) == ({"result": 5}, False, "5")
    assert set(result["_meta"]) >= {"io.heliograph/correlationId"}
    assert (await gate.call(f"{name}.null", value=None)).json() == {"content": [{"type": "text", "text": "None"}]}
    picture = (await gate.call(f"{name}.picture")).json()["content"]
    assert picture == [
        {"type": "text", "text": "look"},
        {"type": "image", "data": "AAECAw==", "mimeType": "image/png"},
    ]
    failed = await gate.mcp(f"{name}.fail", text="no such thing")
    assert failed["result"]["isError"] is True
    assert "no such thing" in text_of(failed)
    failed_too = await gate.call(f"{name}.fail", text="no such thing")
    assert (failed_too.status_code, failed_too.json()["code"]) == (500, "E_INTERNAL")
    assert "no such thing" not in failed_too.text
    assert len((await gate.call(f"{name}.big", size=500_000)).json()["content"][0]["text"]) == 500_000
    too_big = await gate.call(f"{name}.big", size=1_100_000)
    assert (too_big.status_code, too_big.json()["code"]) == (500, "E_INTERNAL")
    assert await gate.spent_micros() == before + 8 * PRICE


async def arguments_are_judged_first(gate: Front, name: str) -> None:
    before = await gate.spent_micros()
    for wrong, told in (
        ({"a": "2"}, "arguments/a has the wrong type."),
        ({}, "arguments/a is missing."),
        ({"a": 1, "b": SECRET}, "arguments/b has the wrong type."),
    ):
        answer = await gate.call(f"{name}.add", **wrong)
        assert (answer.status_code, answer.json()["code"]) == (400, "E_MANIFEST_INVALID")
        assert answer.json()["message"].endswith(told)
    body = {"tool": f"{name}.add", "arguments": [1]}
    assert (await gate.http.post("/mcp/tools/call", json=body)).status_code == 400
    assert (await gate.call(f"{name}.nothing")).status_code == 404
    assert (await gate.mcp(f"{name}.nothing"))["error"]["data"]["code"] == "TOOL_NOT_FOUND"
    refused = await gate.mcp(f"{name}.say", text="jan.jansen@example.com")
    assert (refused["error"]["code"], refused["error"]["data"]["side"]) == (-32002, "arguments")
    assert await gate.spent_micros() == before


async def results_are_looked_through(gate: Front, name: str) -> None:
    before = await gate.spent_micros()
    for tool in ("pii", "pii_in_text"):
        answer = await gate.call(f"{name}.{tool}")
        assert (answer.status_code, answer.json()["code"]) == (403, "E_SAFETY_DENIED")
        assert "jansen" not in answer.text
    assert (await gate.mcp(f"{name}.pii"))["error"]["data"]["side"] == "result"
    assert await gate.spent_micros() == before + 3 * PRICE


async def new_tools_are_found(gate: Front, name: str) -> None:
    async with (
        gate.site.client(gate.token) as client,
        gate.site.client(gate.token) as listener,
        listener.listen(toolsListChanged=True) as news,
    ):
        assert (await news.receive())["method"] == "notifications/subscriptions/acknowledged"
        await client.modern("tools/call", name=f"{name}.grow", arguments={})
        assert (await news.receive())["method"] == "notifications/tools/list_changed"
    await gate.until_listed(f"{name}.grown")
    assert (await gate.call(f"{name}.grown")).json() == {"content": [{"type": "text", "text": "new"}]}


async def test_upstream_over_stdio_is_listed_called_scanned_and_charged(tmp_path: Path) -> None:
    async with front(tmp_path, AGENTS + by_stdio()) as gate:
        await check_all(gate, "std")
    assert children() == []


async def test_upstream_over_http_is_listed_called_scanned_and_charged(tmp_path: Path) -> None:
    port = free_port()
    with http_server(port):
        async with front(tmp_path, AGENTS + by_http(port)) as gate:
            await check_all(gate, "web")


# ---- who may --------------------------------------------------------------------------------------------------------


async def test_scope_tenant_and_policy_decide_what_is_listed_and_called(tmp_path: Path) -> None:
    policy = "[[agents]]\nagent = '*'\ntools = ['sys.**', 'std.add', 'std.say']\n" + by_stdio(read_only=["add", "slow"])
    async with front(tmp_path, policy, Scope.READ_ONLY) as gate:
        await gate.until_listed("std.add")
        assert [name for name in await gate.tools() if name.startswith("std.")] == ["std.add"]
        assert (await gate.call("std.add", a=1)).status_code == 200
        assert (await gate.call("std.say", text="x")).json()["message"] == (
            "This tool needs the scope tools:call:reversible."
        )
        assert (await gate.call("std.slow", seconds=0)).json()["message"] == (
            "The policy does not give this tool to this agent."
        )
        assert (await gate.mcp("std.slow", seconds=0))["error"]["code"] == -32003
        stranger = gate.site.token(Scope.READ_ONLY, tenant="other")
        gate.http.headers["authorization"] = f"Bearer {stranger}"
        assert await gate.tools() == []
        assert (await gate.call("std.add", a=1)).json()["message"] == "This tool belongs to another tenant."
        assert (await gate.call("std.nothing")).status_code == 403


async def test_budget_and_rate_hold_for_upstreams(tmp_path: Path) -> None:
    agents = AGENTS + "budget = 0.03\nrates = [{ tools = 'std.say', calls = 1, per = '1h' }]\n"
    async with front(tmp_path, agents + by_stdio()) as gate:
        await gate.until_listed("std.add")
        assert (await gate.call("std.say", text="x")).status_code == 200
        too_often = await gate.call("std.say", text="x")
        assert (too_often.status_code, too_often.json()["code"]) == (429, "E_RATE_LIMITED")
        assert (await gate.call("std.add", a=1)).status_code == 200
        over = await gate.mcp("std.add", a=1)
        assert (over["error"]["code"], over["error"]["data"]["code"]) == (-32001, "BUDGET_EXCEEDED")
        assert (await gate.call("std.add", a=1)).status_code == 429
        assert await gate.spent_micros() == 2 * PRICE


async def test_redacted_result_goes_on(tmp_path: Path) -> None:
    agents = AGENTS + "pii.result.email = 'redact'\n"
    async with front(tmp_path, agents + by_stdio()) as gate:
        await gate.until_listed("std.add")
        over_mcp = await gate.mcp("std.pii")
        assert "jansen" not in str(over_mcp)
        assert over_mcp["result"]["structuredContent"]["who"].startswith("write to ")


# ---- when one goes wrong --------------------------------------------------------------------------------------------


async def test_upstream_that_dies_leaves_the_list_and_comes_back(tmp_path: Path) -> None:
    policy = AGENTS + by_stdio() + by_stdio("other")
    flags = {"upstreams__retry_s_min": 1.0, "upstreams__retry_s_max": 1.0}
    async with front(tmp_path, policy, **flags) as gate:
        await gate.until_listed("std.add")
        await gate.until_listed("other.add")
        before = children()
        async with trio.open_nursery() as nursery:
            lost: list[int] = []

            async def wait_for_it() -> None:
                lost.append((await gate.call("std.slow", seconds=20)).status_code)

            nursery.start_soon(wait_for_it)
            await trio.sleep(0.3)
            crashed = await gate.call("std.crash")
        assert (crashed.status_code, crashed.json()["code"], lost) == (503, "E_NODE_OFFLINE", [503])
        await gate.until_gone("std.add")
        began = time.monotonic()
        for _ in range(3):
            offline = await gate.call("std.add", a=1)
            assert (offline.status_code, offline.json()["code"]) in ((503, "E_NODE_OFFLINE"), (200, None))
        assert time.monotonic() - began < 0.9
        assert (await gate.call("other.add", a=1)).status_code == 200
        assert (await gate.call(gate.site.echo, message="hi")).status_code == 200
        await gate.until_listed("std.add")
        assert (await gate.call("std.add", a=1)).status_code == 200
        assert len(set(children()) - set(before)) == 1
    assert children() == []


async def test_call_that_was_sent_is_charged_and_one_that_was_not_is_free(tmp_path: Path) -> None:
    async with front(tmp_path, AGENTS + by_stdio(), upstreams__retry_s_max=60.0, upstreams__retry_s_min=60.0) as gate:
        await gate.until_listed("std.add")
        assert (await gate.call("std.crash")).status_code == 503
        assert await gate.spent_micros() == PRICE
        await gate.until_gone("std.add")
        refused = await gate.mcp("std.add", a=1)
        assert (refused["result"]["isError"], error_of(refused)["code"]) == (True, "E_NODE_OFFLINE")
        assert await gate.spent_micros() == PRICE


async def test_upstream_that_hangs_is_bounded_found_out_and_started_anew(tmp_path: Path) -> None:
    policy = AGENTS + by_stdio(call_timeout="1s") + by_stdio("other")
    async with front(tmp_path, policy, upstreams__list_s_max=0.5) as gate:
        await gate.until_listed("std.add")
        await gate.until_listed("other.add")
        before = sorted(children())
        began = time.monotonic()
        answers: dict[str, int] = {}

        async def ask(tool: str, **arguments: Any) -> None:
            answers[tool] = (await gate.call(tool, **arguments)).status_code

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ask("std.freeze", seconds=20))
            await trio.sleep(0.2)
            await ask("other.add", a=1)
            await ask(gate.site.echo, message="hi")
            assert time.monotonic() - began < 0.9
        assert answers == {"std.freeze": 504, "other.add": 200, gate.site.echo: 200}
        assert time.monotonic() - began < 3
        assert await gate.spent_micros() == 3 * PRICE
        await gate.until_gone("std.add")
        await gate.until_listed("std.add")
        await until(lambda: len(children()) == 2 and sorted(children()) != before)
        assert (await gate.call("std.add", a=1)).status_code == 200


async def test_slow_call_ends_at_its_timeout_and_the_upstream_stays(tmp_path: Path) -> None:
    async with front(tmp_path, AGENTS + by_stdio(call_timeout="1s")) as gate:
        await gate.until_listed("std.add")
        before = children()
        slow = await gate.call("std.slow", seconds=30)
        assert (slow.status_code, slow.json()["code"]) == (504, "E_DEADLINE_EXCEEDED")
        assert (await gate.call("std.add", a=1)).status_code == 200
        await trio.sleep(0.3)
        assert children() == before


async def test_http_upstream_that_dies_is_noticed_and_comes_back(tmp_path: Path) -> None:
    port = free_port()
    async with front(tmp_path, AGENTS + by_http(port), upstreams__check_s=0.2) as gate:
        assert (await gate.call("web.add", a=1)).status_code == 503  # it is not there yet
        with http_server(port):
            await gate.until_listed("web.add")
            assert (await gate.call("web.add", a=1)).status_code == 200
        await gate.until_gone("web.add")
        assert (await gate.call("web.add", a=1)).status_code == 503
        assert await gate.spent_micros() == PRICE
        with http_server(port):
            await gate.until_listed("web.add")
            assert (await gate.call("web.crash")).status_code == 503
            assert await gate.spent_micros() == 2 * PRICE


STUBBORN = "trap '' TERM INT; sleep 77 & while :; do sleep 1; done"


@pytest.mark.parametrize(
    "command",
    [["/nonexistent/prog"], ["true"], ["sleep", "60"], ["yes"], ["cat", "/dev/zero"], ["sh", "-c", STUBBORN]],
    ids=["nothing", "ends", "silent", "babbles", "endless line", "stubborn"],
)
async def test_command_that_is_no_server_harms_nobody(tmp_path: Path, command: list[str]) -> None:
    policy = AGENTS + by_stdio("bad", command=command, connect_timeout="1s") + by_stdio()
    async with front(tmp_path, policy) as gate:
        await gate.until_listed("std.add")
        assert (await gate.call("bad.add")).status_code == 503
        assert (await gate.call("std.add", a=1)).status_code == 200
        assert (await gate.call(gate.site.echo, message="hi")).status_code == 200
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert children() == []


async def test_caller_that_hangs_up_is_charged_and_the_upstream_goes_on(tmp_path: Path) -> None:
    async with front(tmp_path, AGENTS + by_stdio()) as gate:
        await gate.until_listed("std.add")
        with trio.move_on_after(0.3):
            await gate.call("std.slow", seconds=30)
        assert (await gate.call("std.add", a=1)).status_code == 200
        assert await gate.spent_micros() == 2 * PRICE


async def test_policy_that_changes_starts_and_stops_upstreams(tmp_path: Path) -> None:
    async with front(tmp_path, AGENTS + by_stdio(), governance__reload_s=0.05) as gate:
        await gate.until_listed("std.add")
        (tmp_path / "policy.toml").write_text(AGENTS + by_stdio("other"))
        await gate.until_gone("std.add")
        assert (await gate.call("std.add", a=1)).status_code == 404
        await gate.until_listed("other.add")
        await until(lambda: len(children()) == 1)
        (tmp_path / "policy.toml").write_text(AGENTS)
        await gate.until_gone("other.add")
        await until(lambda: children() == [])


# ---- secrets --------------------------------------------------------------------------------------------------------


async def test_secrets_go_to_the_upstream_only_and_nothing_of_ours_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLS_TOKEN", f"{SECRET}-of-ours")
    monkeypatch.setenv("OTHER_SECRET", "not-for-them")
    port = free_port()
    by_env = {"env": "TOOLS_TOKEN"}
    policy = (
        AGENTS
        + by_stdio(env={"GIVEN": "plain", "FROM_OURS": by_env})
        + by_http(port, headers={"X-Key": by_env, "Authorization": f"Bearer {SECRET}"})
        + by_stdio("poor", env={"X": {"env": "NO_SUCH_VARIABLE"}})
    )
    with http_server(port):
        async with front(tmp_path, policy) as gate:
            await gate.until_listed("std.add")
            await gate.until_listed("web.add")
            environment = (await gate.call("std.environment")).json()
            assert (environment["GIVEN"], environment["FROM_OURS"]) == (digest("plain"), digest(f"{SECRET}-of-ours"))
            assert set(environment) - {"LC_CTYPE"} <= {"PATH", "HOME", "LANG", "GIVEN", "FROM_OURS"}
            headers = (await gate.call("web.headers")).json()
            assert headers["x-key"] == digest(f"{SECRET}-of-ours")
            assert headers["authorization"] == digest(f"Bearer {SECRET}")
            assert not {digest(gate.token), digest(f"Bearer {gate.token}")} & set(headers.values())
            for name in ("std", "web"):
                betrayed = await gate.mcp(f"{name}.betray")
                assert error_of(betrayed)["code"] == "E_INTERNAL"
                assert SECRET not in str(betrayed)
            assert (await gate.call("poor.add", a=1)).status_code == 503
            assert await gate.spent_micros() == 4 * PRICE


def test_log_has_no_secret_and_every_call_its_line(tmp_path: Path) -> None:
    """By the command line, as an operator runs it; the log is the whole of what the process writes."""
    (tmp_path / "policy.toml").write_text(
        AGENTS
        + by_stdio(env={"GIVEN": SECRET})
        + by_http(free_port(), headers={"Authorization": f"Bearer {SECRET}"})
        + by_stdio("bad", command=["/nonexistent/prog", SECRET])
    )
    program = f"""
import logging, trio
from pathlib import Path
from gateway.observe.log_output import LogSettings, log_to
from tests.gateway.calls.upstreams.site import front
log_to(LogSettings())
async def main():
    async with front(Path({str(tmp_path)!r}), Path({str(tmp_path / "policy.toml")!r}).read_text()) as gate:
        await gate.until_listed("std.add")
        assert (await gate.call("std.add", a=1)).status_code == 200
        assert (await gate.call("std.{SECRET}")).status_code == 404
        assert (await gate.call("std.fail", text="{SECRET}")).status_code == 500
        assert (await gate.call("std.crash")).status_code == 503
        await gate.until_listed("std.add")
trio.run(main)
"""
    environment = {**os.environ, "HELIOGRAPH_LOG_FORMAT": "json"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment, check=False
    )
    written = done.stdout + done.stderr
    assert done.returncode == 0, written
    assert SECRET not in written
    assert "dying words" not in written
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    calls = [line for line in lines if line["event"] == "tool_call"]
    assert [(line["tool"], line["node_id"], line["decision"], line["code"]) for line in calls] == [
        ("std.add", None, "answered", None),
        (None, None, "refused", "E_MANIFEST_NOT_FOUND"),
        ("std.fail", None, "answered", None),
        ("std.crash", None, "refused", "E_NODE_OFFLINE"),
    ]
    assert {line["upstream"] for line in lines if line["event"] == "upstream_down"} == {"std", "web", "bad"}


async def test_server_of_the_handshake_era_works_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.gateway.calls.upstreams.old_server"]
    async with front(tmp_path, AGENTS + by_stdio("old", command=command)) as gate:
        await gate.until_listed("old.first")
        assert (await gate.call("old.first")).json() == {"content": [{"type": "text", "text": "hello"}]}
        await gate.until_listed("old.second")
        failed = await gate.mcp("old.second")
        assert error_of(failed)["code"] == "E_INTERNAL"
        assert "hunter2" not in str(failed)
        assert (await gate.call("old.second")).json()["message"] == "The server behind this tool failed."
        assert await gate.spent_micros() == 3 * PRICE


async def test_as_many_calls_as_may_be_under_way(tmp_path: Path) -> None:
    async with front(tmp_path, AGENTS + by_stdio(), upstreams__calls_max=2) as gate:
        await gate.until_listed("std.add")
        statuses: list[int] = []

        async def ask() -> None:
            statuses.append((await gate.call("std.slow", seconds=1)).status_code)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(ask)
        assert sorted(statuses) == [200, 200, 429, 429]
        assert await gate.spent_micros() == 2 * PRICE


def test_call_that_a_killed_gateway_leaves_behind_is_charged_at_the_next_start(tmp_path: Path) -> None:
    program = f"""
import os, signal, trio
from pathlib import Path
from tests.gateway.calls.upstreams.server import digest
from tests.gateway.calls.upstreams.site import AGENTS, by_stdio, children, front
async def main():
    async with front(Path({str(tmp_path)!r}), AGENTS + by_stdio()) as gate, trio.open_nursery() as nursery:
        await gate.until_listed("std.add")
        print(*children(), flush=True)
        nursery.start_soon(lambda: gate.call("std.slow", seconds=30))
        await trio.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
trio.run(main)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -9, done.stderr
    (child,) = [int(line) for line in done.stdout.splitlines() if line.isdigit()]

    async def spent() -> None:
        async with front(tmp_path, AGENTS) as gate:
            assert await gate.spent_micros() == PRICE

    trio.run(spent)
    for _ in range(100):  # its input has ended, and so does it
        if not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.1)
    raise AssertionError("the child outlives its gateway")


async def test_call_that_finds_nobody_listening_costs_nothing(tmp_path: Path) -> None:
    port = free_port()
    async with front(tmp_path, AGENTS + by_http(port)) as gate:
        with http_server(port):
            await gate.until_listed("web.add")
        lost = await gate.call("web.add", a=1)
        assert (lost.status_code, lost.json()["message"]) == (503, "The server behind this tool is not connected.")
        assert await gate.spent_micros() == 0


async def test_http_upstream_that_hangs_is_bounded_and_connected_anew(tmp_path: Path) -> None:
    port = free_port()
    with http_server(port):
        async with front(tmp_path, AGENTS + by_http(port, call_timeout="1s"), upstreams__list_s_max=0.5) as gate:
            await gate.until_listed("web.add")
            assert (await gate.call("web.freeze", seconds=4)).status_code == 504
            assert (await gate.call(gate.site.echo, message="hi")).status_code == 200
            await gate.until_gone("web.add")
            assert (await gate.call("web.add", a=1)).status_code == 503
            await gate.until_listed("web.add")
            assert (await gate.call("web.add", a=1)).status_code == 200
            assert await gate.spent_micros() == 3 * PRICE
