"""Documentation that lies is worse than none: links resolve, examples run, tables are complete."""

import contextlib
import http.server
import json
import math
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from actors.member.settings import MemberSettings
from actors.node.settings import NodeSettings
from actors.stream.settings import StreamSettings
from gateway.backup.settings import BackupSettings
from gateway.calls.upstreams.settings import UpstreamSettings
from gateway.commands.cli import main
from gateway.console.settings import ConsoleSettings
from gateway.devices.listener import ListenerSettings
from gateway.devices.node_socket import SocketSettings
from gateway.governance.denials import SAID
from gateway.governance.policy.policy import KINDS, PII, AgentRules, Policy, Side
from gateway.governance.policy.text import parse
from gateway.governance.settings import GovernanceSettings
from gateway.identity.oauth.settings import OAuthSettings
from gateway.identity.settings import AccessSettings
from gateway.identity.tokens import TokenFault
from gateway.main.engine_settings import EngineSettings
from gateway.mcp import errors as mcp_errors
from gateway.mcp.errors import RpcError
from gateway.mcp.settings import McpSettings
from gateway.mcp.views import FLEET, NAMED, VIEWS
from gateway.net.http1.settings import DoorSettings
from gateway.observe.audit.settings import AuditSettings
from gateway.observe.log_output import LogSettings
from gateway.observe.tracing import OtelSettings
from gateway.projects.s3_settings import S3Settings
from gateway.projects.settings import ProjectsSettings
from gateway.push.settings import PushSettings
from gateway.spaces.settings import EchoSettings
from schemas.closes import Return, StreamClose
from schemas.errors import Code
from schemas.projection import ToolName, parse_tool_name, project
from schemas.registry import REGISTRY
from schemas.sse import PING, close_event, metric_event
from tests.actors.stream.test_rules import OPENED_S, Client
from tests.conformance.report import NOT_APPLICABLE, client_table
from tests.gateway.api.exposition import Exposition, read
from tests.gateway.api.live import live_gateway, request
from tests.schemas.examples import MANIFEST, NODE_ID

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if "node_modules" not in page.parts
)
IN_PYTHON = [
    ROOT / "docs" / "tutorial" / "from-capability-to-tool.md"
]  # of the library; test_docs_spaces.py has a program


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page.read_text())
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert broken == []


def _anchors(page: Path) -> set[str]:
    """Those that GitHub makes of headings; a second heading of the same words is not linked to."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", found) for found in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_into_a_page_finds_its_heading(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text())
    broken = [
        f"{target}#{anchor}"
        for target, anchor in links
        if anchor not in _anchors(page.parent / target if target else page)
    ]
    assert broken == []


@pytest.mark.parametrize("page", IN_PYTHON, ids=lambda page: page.name)
def test_python_of_a_tutorial_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)
    assert capsys.readouterr().out.startswith("None\nDenied(")


def test_schema_reference_lists_every_published_id_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "schemas.md").read_text()
    assert re.findall(r"^\| `([^`]+@[^`]+)` \|", page, re.MULTILINE) == [schema.id for schema in REGISTRY]


SETTINGS_OF = {
    "node": NodeSettings,
    "listener": ListenerSettings,
    "listener.sockets": SocketSettings,
    "mcp": McpSettings,
    "stream": StreamSettings,
    "door": DoorSettings,
    "access": AccessSettings,
    "oauth": OAuthSettings,
    "members": MemberSettings,
    "governance": GovernanceSettings,
    "upstreams": UpstreamSettings,
    "echo": EchoSettings,
    "echo.s3": S3Settings,
    "push": PushSettings,
    "projects": ProjectsSettings,
    "audit": AuditSettings,
    "console": ConsoleSettings,
    "backup": BackupSettings,
    "log": LogSettings,
    "otel": OtelSettings,
    "engine": EngineSettings,
}


@pytest.mark.parametrize("section", SETTINGS_OF)
def test_settings_reference_lists_every_setting_with_its_default(section: str) -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    table = page.partition(f"`[{section}]`")[2].partition("\n## ")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.MULTILINE))
    expected: dict[str, Any] = {field.name: field.default for field in fields(SETTINGS_OF[section])}
    for elsewhere in ("sockets", "trusted_proxies"):
        expected.pop(elsewhere, None)
    required = [name for name, default in expected.items() if default is MISSING]
    assert [name for name in required if f"`{name}`" not in table] == []
    for name in required:
        del expected[name]
    assert {name: eval(default) for name, default in listed.items()} == expected


POLICIES = [
    (page.name, number, block)
    for page in (
        ROOT / "docs" / "reference" / "policy.md",
        ROOT / "docs" / "how-to" / "policy-cookbook.md",
        ROOT / "docs" / "how-to" / "put-an-mcp-server-behind-the-gateway.md",
    )
    for number, block in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL))
    if "[[agents]]" in block
]


@pytest.mark.parametrize("block", [block for *_, block in POLICIES], ids=[f"{name}-{n}" for name, n, _ in POLICIES])
def test_policy_of_a_page_can_be_loaded(block: str) -> None:
    assert isinstance(parse(block), Policy)


def test_policy_pages_have_their_examples() -> None:
    assert Counter(name for name, *_ in POLICIES) == {
        "policy.md": 4,
        "policy-cookbook.md": 10,
        "put-an-mcp-server-behind-the-gateway.md": 2,
    }


def test_policy_reference_lists_every_default_of_personal_data() -> None:
    page = (ROOT / "docs" / "reference" / "policy.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (\w+) \| (\w+) \|$", page, re.MULTILINE)
    assert {kind: (arguments, result) for kind, arguments, result in rows} == {
        kind: (PII[Side.ARGUMENTS][kind], PII[Side.RESULT][kind]) for kind in KINDS
    }


def test_longest_example_of_the_policy_reference_is_of_every_key() -> None:
    policy = parse(max((block for name, _, block in POLICIES if name == "policy.md"), key=len))
    assert isinstance(policy, Policy)
    rules, plain = policy.entries[0].rules, AgentRules(())
    names = ("nodes", "budget_micros", "budget_period_s", "price_micros", "prices", "rates", "pii")
    assert [name for name in names if getattr(rules, name) == getattr(plain, name)] == []
    assert policy.national_ids


def test_explanation_in_the_policy_reference_is_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "reference" / "policy.md").read_text()
    ((command, shown),) = re.findall(r"```console\n\$ heliograph (.*?)\n(.*?)```", page, re.DOTALL)
    (tmp_path / "policy.toml").write_text(POLICIES[0][2])
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 0
    assert capsys.readouterr().out == shown


def test_access_reference_names_every_error_code() -> None:
    page = (ROOT / "docs" / "reference" / "access.md").read_text()
    assert [code for code in Code if code.value not in page] == []


def test_settings_reference_names_every_reason_for_which_a_token_is_refused() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert [fault for fault in TokenFault if f"`{fault}`" not in page] == []


def test_access_reference_lists_every_route() -> None:
    """As the modules of `gateway/api` write them, and the two of each view of MCP."""
    page = (ROOT / "docs" / "reference" / "access.md").read_text()
    table = page.partition("## Routes")[2].partition("\n- ")[0]
    modules = sorted((ROOT / "gateway" / "api").glob("*.py"))
    route = re.compile(
        r'"(/[^"]+)": (?:\((?:"GET"|"POST"|ANY, self\._(?:healthz|keys|serve))'
        r"|[\w.]*actions\.(?:action|look|removal|download)\()"
    )
    routes = {found for module in modules for found in route.findall(module.read_text())}
    assert len(routes) > 15
    listed = {re.sub(r"\{\w+\}", "{}", path) for path in re.findall(r"`(?:GET |POST |DELETE )?(/[^`?]+)", table)}
    assert listed == routes | {path for view in VIEWS for path in (view.path, view.metadata_path)}


# ---- metrics --------------------------------------------------------------------------------------------------------

DASHBOARD = ROOT / "docs" / "dashboards" / "heliograph.json"


async def _exposed(folder: Path) -> Exposition:
    async with live_gateway(folder, **{"http.metrics_open": True}) as here, here.client() as client:
        page = await client.ask(request("GET", "/metrics"))
    assert page is not None
    return read(page.body.decode())


async def test_metrics_reference_lists_every_metric_with_its_type_and_labels(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+_\w+)` \| (counter|gauge|histogram) \| ([^|]*)\|", page, re.MULTILINE)
    exposed = await _exposed(tmp_path)
    labels: dict[str, set[str]] = {name: set() for name in exposed.kinds}
    for name, inside in exposed.values:
        family = name if name in labels else re.sub(r"_(bucket|sum|count)$", "", name)
        labels[family] |= {label for label, _ in inside} - {"le"}
    assert [(name, kind, set(re.findall(r"`(\w+)`", listed))) for name, kind, listed in rows] == [
        (name, kind, labels[name]) for name, kind in exposed.kinds.items()
    ]
    for name, inside in exposed.values:
        if not name.startswith("heliograph_build"):
            assert [value for label, value in inside if label not in ("le", "code") and f"`{value}`" not in page] == []


async def test_dashboard_and_alerts_ask_only_for_what_there_is(tmp_path: Path) -> None:
    exposed = await _exposed(tmp_path)
    series = {name for name, _ in exposed.values}
    board = json.loads(DASHBOARD.read_text())
    assert board["schemaVersion"] >= 39
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "job", "instance"]
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    how_to = (ROOT / "docs" / "how-to" / "watch-a-gateway.md").read_text()
    asked += re.findall(r"^\| `([^`]+)` \|", how_to, re.MULTILINE)
    asked += [variable["definition"] for variable in board["templating"]["list"][1:]]
    used = {name for text in asked for name in re.findall(r"\b(?:heliograph|process)_\w+", text)}
    assert used - series == set()
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert set(exposed.kinds) - shown == set()  # nothing is counted that nobody sees
    for text in asked:
        for label, value in re.findall(r'(door|decision|code|reason|answer|outcome|operation|of|error)="(\w+)"', text):
            assert any((label, value) in inside for _, inside in exposed.values), text


# ---- MCP ------------------------------------------------------------------------------------------------------------


def test_mcp_reference_names_every_error_of_ours() -> None:
    page = (ROOT / "docs" / "reference" / "mcp.md").read_text()
    listed = set(re.findall(r"^\| (-\d+) \| `(\w+)` \|", page, re.MULTILINE))
    made: list[RpcError] = [
        mcp_errors.tool_not_found(),
        mcp_errors.resource_not_found("metrics://x"),
        mcp_errors.bad_cursor(),
        mcp_errors.not_authorized(None),
        mcp_errors.too_many_listeners(),
    ]
    governed = {(str(said.rpc_code), reason.value) for reason, said in SAID.items()}
    ours = {(str(error.code), error.data["code"]) for error in made}
    assert listed == ours | governed | {("-32602", "SESSION_NEEDED")}


def test_what_an_agent_sees_is_what_the_gateway_says() -> None:
    page = (ROOT / "docs" / "explanation" / "what-an-agent-sees.md").read_text()
    quoted = " ".join(re.findall(r"^> (.*)$", page, re.MULTILINE))
    assert NAMED.instructions in quoted
    assert FLEET.instructions in quoted
    (name,) = re.findall(r'^  "name": "(.*)"', page, re.MULTILINE)
    (description,) = re.findall(r'"description": "(.*)"', page)
    target = parse_tool_name(name)
    assert isinstance(target, ToolName)
    (tool,) = [tool for tool in project({**MANIFEST, "node_id": target.node_id}) if tool.name == name]
    assert (tool.description, tool.annotations["readOnlyHint"]) == (description, True)


# ---- which close comes first ----------------------------------------------------------------------------------------


def _stalled(interval_s: float, first_s: float, healthy_frames: int) -> tuple[int, float]:
    """How the rules close a stream whose client acknowledges that many frames and then nothing; seconds since then."""
    client, frames, stalled_s = Client(), 0, math.inf
    while client.rules.closed is None:
        due_s = OPENED_S + first_s + frames * interval_s
        if client.now_s < stalled_s:
            client.reads_all()
        if client.rules.next_deadline_s() <= due_s:
            client.now_s = client.rules.next_deadline_s()
            client.tick()
            continue
        client.now_s = due_s
        if frames == healthy_frames:
            stalled_s = due_s
        client.offer()
        frames += 1
    return client.rules.closed.value.code, client.now_s - stalled_s


def test_table_of_which_close_comes_first_is_what_the_rules_do() -> None:
    page = (ROOT / "docs" / "explanation" / "backpressure.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \| ([^|]+) s \|", page, re.MULTILINE)
    assert len(rows) == 9
    for interval_ms, codes, after in rows:
        interval_s = int(interval_ms) / 1000
        ends = [_stalled(interval_s, part / 100 * interval_s, frames) for part in range(100) for frames in range(6)]
        assert {str(code) for code, _ in ends} == set(codes.split(" or "))
        earliest, latest = f"{min(s for _, s in ends):.0f}", f"{max(s for _, s in ends):.0f}"
        assert after == (earliest if latest == earliest else f"{earliest} to {latest}"), interval_ms


# ---- the programs that consume a stream -----------------------------------------------------------------------------

CONSUMERS = (ROOT / "docs" / "how-to" / "consume-a-stream.md").read_text()
TOOL = f"sys.{NODE_ID}.metrics.subscribe"
FRAME = {
    "ts_ms": 1745300000000, "node_id": NODE_ID, "cpu_pct": 12.4, "mem_bytes": 1, "mem_total_bytes": 2, "disk_pct": 31.2,
    "load_1m": 0.42, "load_5m": 0.39, "load_15m": 0.35,
}  # fmt: skip
Answer = tuple[int, bytes]  # status and body; a stream's with 200


class ScriptedGateway(http.server.ThreadingHTTPServer):
    """Answers one request after the other with what the script says, and remembers what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Scripted)
        self.script: list[Answer] = []
        self.asked: list[tuple[str, int]] = []  # token, interval_ms
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Scripted(http.server.BaseHTTPRequestHandler):
    server: ScriptedGateway

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert (self.path, request["tool"], self.headers["Accept"]) == ("/mcp/tools/call", TOOL, "text/event-stream")
        token = self.headers["Authorization"].removeprefix("Bearer ")
        self.server.asked.append((token, request["arguments"]["interval_ms"]))
        status, body = self.server.script.pop(0)
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "7")
        self.end_headers()
        with contextlib.suppress(OSError):  # the client may have seen enough
            for part in (body[:50], body[50:]):  # an event may come in pieces
                self.wfile.write(part)
            if body.endswith(b"\n\n") and b"event: close" not in body:
                self.rfile.read(1)  # a stream that is not over stays open until the client hangs up

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    with ScriptedGateway() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_python_consumer_comes_back_by_its_table(gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", CONSUMERS, re.DOTALL)
    program: dict[str, Any] = {"__name__": "follow"}
    exec(compile(block, "follow.py", "exec"), program)
    for close in StreamClose:
        slower = close.value.come_back is Return.WITH_LONGER_INTERVAL
        assert program["AFTER"][close.value.code].slower is slower

    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    tokens = iter(["first", "second"])
    frame = metric_event(FRAME)
    gateway.script = [
        (200, frame + PING + frame + close_event(StreamClose.BACKPRESSURE)),
        (200, frame + close_event(StreamClose.NORMAL)),
        (401, b"{}"),
        (429, b"{}"),
        (200, frame + frame[:-1]),  # breaks off
        (200, b"event: other\ndata: {}\n\n" + frame),
        (403, b"{}"),
    ]
    frames = program["follow"](gateway.url, TOOL, 1000, lambda: next(tokens))
    taken: list[dict[str, Any]] = []
    with pytest.raises(SystemExit, match="403"):
        taken.extend(frames)
    assert taken == [FRAME] * 4
    assert gateway.asked == [
        ("first", 1000), ("first", 2000), ("first", 2000), ("second", 2000), ("second", 2000), ("second", 2000),
        ("second", 2000),
    ]  # fmt: skip
    bounds = [(0, 2), (0, 4), (0, 8), (7, 7 + 16), (0, 32), (0, 60)]
    assert all(least <= pause <= most for pause, (least, most) in zip(pauses, bounds, strict=True))


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")
def test_browser_consumer_reads_closes_and_refusals_and_can_be_stopped(
    gateway: ScriptedGateway, tmp_path: Path
) -> None:
    listen, _ = re.findall(r"```js\n(.*?)```", CONSUMERS, re.DOTALL)
    (tmp_path / "listen.mjs").write_text(listen)
    (tmp_path / "try.mjs").write_text("""
        import { listen } from "./listen.mjs";
        const [url, tool] = process.argv.slice(2);
        const told = [];
        for (let turn = 0; turn < 5; turn++) {
          const stop = new AbortController();
          const onFrame = (frame) => { told.push(frame.cpu_pct); if (turn === 4) stop.abort(); };
          try {
            told.push(await listen({ url, tool, intervalMs: 1000, token: "t", onFrame, signal: stop.signal }));
          } catch (error) {
            told.push(error.status ?? error.name);
          }
        }
        console.log(JSON.stringify(told));
    """)
    frame = metric_event(FRAME)
    gateway.script = [
        (200, frame + PING + close_event(StreamClose.DEVICE_OFFLINE)),
        (200, frame + frame[:-1]),
        (401, b'{"code": "E_SAFETY_DENIED", "message": "no"}'),
        (200, b"event: other\ndata: {}\n\n" + frame),
        (200, frame),
    ]
    command = ["node", str(tmp_path / "try.mjs"), gateway.url, TOOL]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 0, ran.stderr
    offline = {"code": 4503, "reason": "device_offline"}
    assert json.loads(ran.stdout) == [12.4, offline, 12.4, None, 401, "Error", 12.4, "AbortError"]


def test_conformance_page_is_of_the_pinned_suite_and_has_no_failure() -> None:
    """That it is what the suite finds, only `make conformance` can say."""
    page = (ROOT / "docs" / "reference" / "mcp-conformance.md").read_text()
    pinned = json.loads((ROOT / "tests" / "conformance" / "package.json").read_text())["dependencies"]
    assert all(f"`{name}` {version}" in page for name, version in pinned.items())
    assert "FAIL" not in page
    assert [name for name in NOT_APPLICABLE if f"| `{name}` |" not in page] == []
    assert client_table() in page, "the clients and views that are run are others than the page has"


def test_conformance_lock_file_names_no_registry() -> None:
    lock = json.loads((ROOT / "tests" / "conformance" / "package-lock.json").read_text())
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []
