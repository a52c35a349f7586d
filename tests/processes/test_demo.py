"""The demo and the command line as a newcomer meets them: real processes, HTTP, and nothing left behind."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

PATIENCE_S = 60
MARK = "MARK-7f3a-never-written"


class Demo:
    """`heliograph demo` in its own folder. Unless it may look for Node on the PATH, all of its nodes are in Python."""

    def __init__(self, folder: Path, nodes: int = 2, *, path: str = "") -> None:
        self.data = folder / "data"
        self.output = folder / "output"
        ready = folder / "ready.json"
        command = ["demo", "--nodes", str(nodes), "--data", str(self.data), "--ready-file", str(ready)]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gateway.commands.cli", *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": path},
            )
        deadline = time.monotonic() + PATIENCE_S
        while "Ctrl-C stops everything." not in self.output.read_text():  # said last, after the file is written
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline
        self.ready: dict[str, Any] = json.loads(ready.read_text())
        self.echo = f"sysecho.{self.ready['nodes'][0]}.echo.invoke"

    def http(self, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            self.ready["http"] + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"authorization": f"Bearer {token or self.ready['agent_token']}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gateway.commands.cli", *arguments, "--data", str(self.data)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env={name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")},
        )

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_S)

    def written(self) -> bytes:
        """Every byte of every file that it has made, its output too."""
        files = [path for path in [*self.data.rglob("*"), self.output] if path.is_file()]
        return b"".join(path.read_bytes() for path in files)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    one = Demo(tmp_path_factory.mktemp("demo"))
    yield one
    if one.process.poll() is None:
        one.process.kill()
        one.process.wait(PATIENCE_S)


def test_tools_answer_over_http(demo: Demo) -> None:
    status, tools = demo.http("/mcp/tools")
    assert (status, len(tools["tools"])) == (200, 6)
    status, result = demo.http("/mcp/tools/call", {"tool": demo.echo, "arguments": {"message": "hello"}})
    assert (status, result["message"], result["node_id"]) == (200, "hello", demo.ready["nodes"][0])
    status, error = demo.http("/mcp/tools/call", {"tool": demo.echo, "arguments": {}})
    assert (status, error["code"]) == (400, "E_MANIFEST_INVALID")
    assert demo.http("/readyz")[0] == 200


def test_ready_made_lines_name_the_gateway_and_a_token(demo: Demo) -> None:
    told = demo.output.read_text()
    assert demo.ready["http"] in told
    assert demo.ready["agent_token"] in told
    assert "2 nodes are live" in told
    assert f"nodes --data {demo.data}" in told
    assert f"passkey. Then give the client this address, and no token:\n\n  {demo.ready['http']}/mcp/fleet\n" in told


def test_link_to_the_console_is_printed_and_signs_in_once(demo: Demo) -> None:
    link: str = demo.ready["console"]
    assert re.fullmatch(r"http://localhost:\d+/console#k=[A-Za-z0-9_-]{43}", link)
    assert f"heliograph console --data {demo.data}\n\n  {link}\n" in demo.output.read_text()
    origin, _, secret = link.partition("/console#k=")
    request = urllib.request.Request(
        f"{demo.ready['http']}/console/api/session",
        data=json.dumps({"link": secret}).encode(),
        headers={"origin": origin, "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        assert json.load(response)["operator"]["sub"] == "demo"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=PATIENCE_S)
    made = json.loads(demo.command("console", "--json").stdout)
    assert made["url"].startswith(f"{origin}/console#k=")


def _room(demo: Demo) -> str:
    link: str = demo.ready["space"]
    return link.replace("http://localhost", "ws://127.0.0.1").replace("/s/", "/ws/s/")


def test_its_space_is_a_link_to_a_room_in_which_a_node_talks(demo: Demo) -> None:
    link = demo.ready["space"]
    assert re.fullmatch(r"http://localhost:\d+/s/es_[A-Za-z0-9_-]{43}", link)
    assert f"  {link}\n" in demo.output.read_text()
    with connect(_room(demo), proxy=None) as room:
        assert json.loads(room.recv(PATIENCE_S))["type"] == "welcome"
        heard = [json.loads(room.recv(PATIENCE_S)) for _ in range(3)]
    messages = [frame for frame in heard if frame["type"] == "msg"]
    assert messages
    for frame in messages:
        assert frame["uid"] == "node-pump-2"
        assert frame["data"].keys() == {"capability", "metric", "value", "unit", "at"}
        assert 0 <= frame["data"]["value"] <= 100


def test_its_board_is_a_site_on_a_hostname_of_its_own_with_the_fleet_in_its_room(demo: Demo) -> None:
    site = demo.ready["site"]
    assert site["url"] == demo.ready["http"].replace("127.0.0.1", "board.localhost")
    assert f"  {site['url']}\n" in demo.output.read_text()
    assert demo.ready["api_bearer_token"] not in demo.output.read_text()
    headers = {"host": site["url"].removeprefix("http://")}
    request = urllib.request.Request(f"{demo.ready['http']}/room.json", headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        room = json.load(response)
    assert room["websocket_url"] == f"{room['base'].replace('http', 'ws')}/ws/s/{room['token']}"
    with connect(room["websocket_url"].replace("localhost", "127.0.0.1"), proxy=None) as joined:
        frames = (json.loads(joined.recv(PATIENCE_S)) for _ in range(8))
        said = [frame["data"] for frame in frames if frame["type"] == "msg"]
    assert {one["node"] for one in said} == {"pump-1", "pump-2"}
    assert {(one["site"], 0 < one["mem_pct"] < 100) for one in said} == {("lab", True)}


def test_demo_agent_has_a_larger_budget_than_others_by_a_policy(demo: Demo) -> None:
    claims = jwt.decode(demo.ready["agent_token"], options={"verify_signature": False})
    for agent, budget in ((claims["sub"], "$1000.00 in all"), (f"agent_{uuid.uuid4()}", "$10.00 in all")):
        told = demo.command("policy", "explain", agent, demo.echo).stdout
        assert budget in told


ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs" / "tutorial" / "first-call.md").read_text()


def test_commands_of_the_tutorial_show_what_it_says(tmp_path: Path) -> None:
    """In a demo of their own, whose history begins with them. Ids, times and numbers differ; words and shape do not."""
    steps = _steps(TUTORIAL)
    assert len(steps) == 16
    one = Demo(tmp_path, nodes=5)
    try:
        for command, shown in steps:
            _shows(one, command, shown)
    finally:
        assert one.stop() == 0


def test_what_the_tutorials_show_of_the_demo_is_what_it_prints(demo: Demo) -> None:
    """At the addresses that `make demo` gives it; the tutorial's has five nodes."""
    (line,) = re.findall(r"^\t\$\(BIN\)/(heliograph demo .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert line == "heliograph demo --http 127.0.0.1:8420 --devices 127.0.0.1:8421"
    room = (ROOT / "docs" / "tutorial" / "a-room-for-two-agents-and-a-person.md").read_text()
    printed = [re.sub(r":\d+", ":#", line) for line in demo.output.read_text().splitlines()]
    for page in (TUTORIAL, room):
        (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
        for expected in shown.replace("5 nodes", "2 nodes").splitlines():
            start = re.sub(r":\d+", ":#", expected).partition("es_")[0]
            assert [line for line in printed if line.startswith(start)], expected
    for name in re.findall(r"^([A-Z]+)=", TUTORIAL, re.MULTILINE):
        assert [line for line in printed if line.startswith(f"  {name}=")], name


def test_readme_names_three_commands_and_shows_what_the_call_prints(demo: Demo) -> None:
    assert re.findall(r"^make (\w+)$", README, re.MULTILINE) == ["demo", "test"]
    ((command, shown),) = _steps(README)
    _shows(demo, command, shown)


def _steps(page: str) -> list[tuple[str, str]]:
    return re.findall(r"```console\n\$ (.*?)\n(.*?)```", page, re.DOTALL)


def _shows(demo: Demo, command: str, shown: str) -> None:
    """As it stands there, but for the address and where the program is."""
    real = command.replace("http://127.0.0.1:8420", demo.ready["http"])
    real = real.replace(".venv/bin/heliograph", f"{sys.executable} -m gateway.commands.cli")
    variables = {"TOKEN": demo.ready["agent_token"], "DATA": str(demo.data)}
    done = subprocess.run(
        ["bash", "-c", real],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, env={**os.environ, **variables},
    )  # fmt: skip
    assert _words(done.stdout) == _words(shown), done.stderr


def _words(output: str) -> list[str]:
    """Its lines without ids and numbers."""
    return [
        re.sub(r"[0-9a-zA-Z]{26}|[0-9a-f]{8}-[-0-9a-f]{27}|[0-9]+([.][0-9]+)?", "#", line)
        for line in output.splitlines()
    ]


def test_operator_commands_reach_the_running_gateway(demo: Demo, tmp_path: Path) -> None:
    nodes = json.loads(demo.command("nodes", "--json").stdout)
    assert {node["node_id"] for node in nodes} == set(demo.ready["nodes"])
    assert all(node["live"] for node in nodes)
    assert demo.command("nodes").stdout.count(" live ") == 2

    called = demo.command("call", demo.echo, '{"message": "from the command line"}')
    assert (called.returncode, json.loads(called.stdout)["message"]) == (0, "from the command line")
    refused = demo.command("call", demo.echo, "{}")
    assert (refused.returncode, json.loads(refused.stderr)["code"]) == (1, "E_MANIFEST_INVALID")

    history = [json.loads(line) for line in demo.command("log", demo.ready["nodes"][0]).stdout.splitlines()]
    assert {"session_opened@1", "command_queued@1", "command_sent@1", "command_acked@1"} <= {
        e["event"] for e in history
    }

    enrolled = demo.command("node", "enroll", "--tenant", "demo", "--out", str(tmp_path / "node"))
    assert enrolled.returncode == 0, enrolled.stderr
    assert {path.name for path in (tmp_path / "node").iterdir()} == {"node.key", "node.crt", "token"}


def test_ledger_shows_what_an_agent_has_spent(demo: Demo) -> None:
    claims = demo.ready["agent_token"].split(".")[1]
    agent = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"]
    assert demo.http("/mcp/tools/call", {"tool": demo.echo, "arguments": {"message": "hi"}})[0] == 200
    (before,) = json.loads(demo.command("ledger", agent, "--json").stdout)
    assert demo.http("/mcp/tools/call", {"tool": demo.echo, "arguments": {"message": "hi"}})[0] == 200
    (after,) = json.loads(demo.command("ledger", agent, "--json").stdout)
    assert (after["tenant"], after["used_micros"] - before["used_micros"]) == ("demo", 15_000)
    assert [line["event"] for line in after["history"][-2:]] == ["reserved", "charged"]
    told = demo.command("ledger", agent).stdout
    assert f"({after['used_micros']} micro-dollars)" in told
    unknown = demo.command("ledger", f"agent_{uuid.uuid4()}")
    assert (unknown.returncode, unknown.stdout) == (1, "this agent has spent nothing yet\n")
    assert demo.command("ledger", "somebody").returncode == 2


def test_revoked_token_is_refused_at_once(demo: Demo) -> None:
    minted = json.loads(demo.command("token", "mint", "--tenant", "demo", "--json").stdout)
    assert demo.http("/mcp/tools", token=minted["token"])[0] == 200
    assert demo.command("token", "revoke", minted["jti"]).returncode == 0
    assert demo.http("/mcp/tools", token=minted["token"])[0] == 401


def test_what_was_said_is_soon_on_no_disk(demo: Demo) -> None:
    status, _ = demo.http("/mcp/tools/call", {"tool": demo.echo, "arguments": {"message": MARK}})
    assert status == 200
    demo.http("/mcp/tools/call", {"tool": f"{MARK}.a.b.c", "arguments": {"message": MARK}})
    demo.http("/mcp/tools", token=MARK)
    deadline = time.monotonic() + PATIENCE_S
    while MARK.encode() in demo.written():
        assert time.monotonic() < deadline, "it is still there"


def test_address_that_is_taken_is_named_with_what_to_do(demo: Demo) -> None:
    taken = demo.ready["http"].removeprefix("http://")
    second = subprocess.run(
        [sys.executable, "-m", "gateway.commands.cli", "demo", "--http", taken],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert second.returncode == 2
    assert f"cannot listen on {taken}" in second.stderr
    assert "--http" in second.stderr
    assert "Traceback" not in second.stderr


def test_stopped_gateway_is_operated_on_directly_and_a_held_folder_is_refused(tmp_path: Path) -> None:
    one = Demo(tmp_path)
    second = subprocess.run(
        [sys.executable, "-m", "gateway.commands.cli", "serve", "--data", str(one.data), "--http", "127.0.0.1:0",
         "--devices", "127.0.0.1:0"],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (second.returncode, "in use" in second.stderr) == (2, True)
    watch = subprocess.Popen(
        [sys.executable, "-m", "gateway.commands.cli", "watch", one.ready["nodes"][0], "--json",
         "--data", str(one.data)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watch.stdout is not None
    assert json.loads(watch.stdout.readline())["node_id"] == one.ready["nodes"][0]
    assert one.stop() == 0
    _, told = watch.communicate(timeout=PATIENCE_S)
    assert (watch.returncode, told.startswith("closed, 1000 normal: ")) == (0, True), "shutdown says 1000"
    nodes = json.loads(one.command("nodes", "--json").stdout)
    assert [node["live"] for node in nodes] == [False, False]
    assert "command" not in one.command("log", nodes[0]["node_id"]).stdout
    assert one.command("token", "mint", "--tenant", "demo").stdout.count(".") == 2
    assert "no gateway runs" in one.command("call", one.echo, "{}").stderr


def test_node_of_another_process_dials_in_and_answers(demo: Demo, tmp_path: Path) -> None:
    folder = tmp_path / "node"
    demo.command("node", "enroll", "--tenant", "demo", "--out", str(folder))
    node = subprocess.Popen(
        [sys.executable, "-m", "gateway.commands.cli", "node", "run", str(folder), "--gateway", demo.ready["devices"]],
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        tool = None
        while tool is None:
            assert time.monotonic() < deadline
            others = [t["name"] for t in demo.http("/mcp/tools")[1]["tools"] if t["name"].endswith("snapshot")]
            tool = next((name for name in others if name.split(".")[1] not in demo.ready["nodes"]), None)
        status, sample = demo.http("/mcp/tools/call", {"tool": tool, "arguments": {}})
        assert status == 200
        assert sample["mem"]["total_bytes"] > 0
        node.send_signal(signal.SIGTERM)
        assert node.wait(PATIENCE_S) == 0
    finally:
        node.kill()
        node.wait(PATIENCE_S)


def test_ctrl_c_stops_everything_and_exits_0(demo: Demo) -> None:
    with connect(_room(demo), proxy=None) as room:
        assert demo.stop() == 0
        with pytest.raises(ConnectionClosed) as closed:
            list(room)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4410, "the next demo makes another space"
    assert "Traceback" not in demo.output.read_text()
    assert not (demo.data / "running.json").exists()


def test_a_folder_that_is_used_again_has_the_same_nodes_but_for_those_that_were_revoked(tmp_path: Path) -> None:
    one = Demo(tmp_path)
    first, second = one.ready["nodes"]
    revoked = one.command("node", "revoke", "pump-2")
    assert second in revoked.stdout
    assert one.stop() == 0
    (tmp_path / "ready.json").unlink()
    again = Demo(tmp_path)
    assert again.command("nodes").stdout.count("revoked") == 1
    assert again.stop() == 0
    assert again.ready["nodes"] == [first]
    assert "4403" not in again.output.read_text()  # the other was not even started, and nobody waited for it
