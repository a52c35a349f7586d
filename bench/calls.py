"""Tool calls a CPU-second: `system.echo` through the gateway to a node and back, beside the MCP SDK's own echo server.

    python -m bench.calls [--rounds 5] [--seconds 2] [--nodes 200]

Ours is `heliograph serve` as in production: its log durable on a disk, its audit line for every call, 200 nodes (the
agent that also runs on real devices, their journals on tmpfs) that announce the 50 calls a second which the schema
allows an echo. Each call is checked, made durable, sent to a node, executed, checked, made durable again, answered.
The peer is the official MCP Python SDK on uvicorn (uvloop, httptools) with an echo tool that answers by itself: no
token, no log, nowhere to go. Four forms of it are called:
- *EchoServer*, the one that the SDK's documentation shows: its high-level server, which checks arguments by type hints;
- *low-level*, its least: a handler that gets the protocol's own objects, with no schema check;
each *stateless* (2025-06-18, with the SDK's settings `stateless_http` and `json_response`) and *2026-07-28* (one
self-contained POST). The goal counts as met when it is against all four.

Each server runs on one core; on the other run the nodes and the load, a C program (compiled here) with keep-alive
connections that each send the next request when they have the whole answer. Any answer that is not a 200 with the right
echo in it ends the run. Rounds alternate between the servers; a ratio is the median of those of the rounds.

*Calls a CPU-second* of the server process decide, all its threads counted: by the clock, the nodes on the load's core
are what our calls wait for.
"""

import argparse
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil
from ulid import ULID

from bench.unlimited_policy import unlimited_policy

CALLERS = (1, 16, 64)
DECIDING = (16, 64)
RATIO_MIN = 1.5
SERVER_CORE, LOAD_CORE = 0, 1
WARM_UP_S = 1.0
LIVE_S_MAX = 60.0
SERVE = ("gateway.commands.cli", "serve")
TENANT = "bench"
ECHO_RPS = 50  # the most that the manifest schema lets an echo announce
OURS = "heliograph"
ECHO_SERVER, LOW_LEVEL = "EchoServer", "low-level"
STATELESS, MODERN = "stateless", "2026-07-28"
PEERS = {f"{server}, {era}": (server, era) for server in (ECHO_SERVER, LOW_LEVEL) for era in (STATELESS, MODERN)}
ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results" / "calls.json"


# ---- the servers ---------------------------------------------------------------------------------------------------


def serve_peer(server: str, port: int) -> None:
    import logging

    import uvicorn

    made = echo_server() if server == ECHO_SERVER else low_level_server()
    app = made.streamable_http_app(json_response=True, stateless_http=True)
    logging.disable(logging.WARNING)  # the high-level one says something for each stateless call: not what is measured
    uvicorn.run(
        app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", access_log=False, log_level="warning"
    )


def echo_server() -> Any:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("EchoServer")

    @server.tool(description="A simple echo tool")
    def echo(message: str) -> str:
        return message

    return server


def low_level_server() -> Any:
    from mcp import types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel.server import Server

    schema = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
    echo = types.Tool(name="echo", description="Says it back.", input_schema=schema)

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[echo])

    async def call_tool(_: ServerRequestContext[Any], call: types.CallToolRequestParams) -> types.CallToolResult:
        assert call.name == "echo"
        assert call.arguments is not None
        return types.CallToolResult(content=[types.TextContent(type="text", text=call.arguments["message"])])

    return Server(
        "echo",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema={"echo": schema}.get,  # without it, each modern call lists the tools first
    )


def be_nodes(folder: Path, address: str) -> None:
    """Every identity in the folder as a node of its own, in this process."""
    import trio

    from actors.device.agent import Agent
    from actors.device.device import Device
    from actors.device.file_journal import FileJournal
    from actors.device.handlers import ECHO_CAPABILITY, standard_handlers
    from actors.device.identity import DeviceIdentity, hw_fingerprint, manifest_signer
    from actors.device.journal import Record
    from actors.device.mock_sampler import MockSampler
    from actors.device.websocket import WebSocketDialer
    from gateway.commands.node_run import wall_ms
    from schemas.projection import project

    class JournalInMemory(FileJournal):
        """In a file on tmpfs, where nothing waits for a disk: a thread for each write would only slow the load."""

        async def append(self, records: Sequence[Record]) -> None:
            self.append_sync(records)
            await trio.lowlevel.checkpoint()

    capability = {**ECHO_CAPABILITY, "constraints": {**ECHO_CAPABILITY["constraints"], "rate_limit_rps": ECHO_RPS}}

    def echo_device(identity: DeviceIdentity, number: int) -> Device:
        tools = {tool.name: tool for tool in project({"node_id": identity.node_id, "capabilities": [capability]})}
        handlers = standard_handlers(identity.node_id, MockSampler(number, wall_ms()), wall_ms)
        fingerprint = hw_fingerprint(f"bench machine {number}", None)
        return Device(
            node_id=identity.node_id,
            token=identity.token,
            tools=tools,
            handlers={name: handlers[name] for name in tools},
            sign=manifest_signer(identity, fingerprint, [capability]),
        )

    homes = sorted(folder.iterdir())

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number, home in enumerate(homes):
                device = echo_device(DeviceIdentity.load(home), number)
                dial = WebSocketDialer(nursery, f"ws://{address}/devices/connect")
                agent = Agent(device, journal=JournalInMemory(home), connect=dial, wall_ms=wall_ms, rng=Random())
                nursery.start_soon(agent.run)

    trio.run(main)


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[bytes]
    port: int


@dataclass(frozen=True)
class Gateway(Server):
    devices: str
    token: str
    node_ids: list[str]


@contextmanager
def child(core: int, *command: str, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-m", *command], cwd=ROOT, **more)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(said: Callable[[], bool], process: subprocess.Popen[bytes], what: str) -> None:
    give_up_s = time.monotonic() + LIVE_S_MAX
    while not said():
        if process.poll() is not None or time.monotonic() > give_up_s:
            raise SystemExit(f"{what} did not come up")
        time.sleep(0.05)


def is_up(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running_peer(server: str) -> Iterator[Server]:
    port = free_port()
    with child(SERVER_CORE, "bench.calls", "--role", "peer", server, str(port)) as process:
        until(lambda: is_up(port), process, "the peer")
        yield Server(process, port)


@contextmanager
def running_gateway(folder: Path, homes: Path, nodes: int, serve: Sequence[str] = SERVE) -> Iterator[Gateway]:
    """`serve` is the module that takes the flags of `heliograph serve`, with what comes before them."""
    from gateway.commands.node_run import wall_ms
    from gateway.identity.tokens import Scope, TokenClass
    from gateway.main.data_folder import DataFolder

    data = folder / "data"
    with DataFolder.hold(data, wall_ms()) as made:
        node_ids = [str(ULID()).lower() for _ in range(nodes)]
        for node_id in node_ids:
            made.enroll(node_id, TENANT, str(ULID()), wall_ms()).save(homes / node_id)
        agent = f"agent_{uuid.uuid4()}"
        token = made.mint(TokenClass.AGENT_RUNTIME, agent, TENANT, [Scope.READ_ONLY], 24 * 3600, str(ULID()), wall_ms())
    flags = ["--data", str(data), "--http", "127.0.0.1:0", "--devices", "127.0.0.1:0", "--log", "json"]
    settings = {
        "HELIOGRAPH_LISTENER_STRANGERS_PER_ADDRESS_MAX": str(nodes),
        "HELIOGRAPH_GOVERNANCE_POLICY": unlimited_policy(folder),
    }
    note = data / "running.json"
    with (folder / "gateway.log").open("wb") as lines:
        more = {"stdout": subprocess.DEVNULL, "stderr": lines, "env": os.environ | settings}
        with child(SERVER_CORE, *serve, *flags, **more) as process:
            until(lambda: note.exists() and note.read_text().endswith("\n"), process, "the gateway")
            where = json.loads(note.read_text())
            yield Gateway(process, int(where["http"].rpartition(":")[2]), where["devices"], token, node_ids)


def live_nodes(gateway: Gateway) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{gateway.port}/devices?limit=1000")
    request.add_header("Authorization", f"Bearer {gateway.token}")
    with urllib.request.urlopen(request) as answer:
        return sum(device["live"] for device in json.load(answer)["devices"])


# ---- the calls -----------------------------------------------------------------------------------------------------


def post(path: str, headers: dict[str, str], body: dict[str, Any]) -> bytes:
    data = json.dumps(body, separators=(",", ":")).encode()
    standing = {"Host": "127.0.0.1:8420", "User-Agent": "bench", "Content-Type": "application/json"}
    fields = {**standing, **headers, "Content-Length": str(len(data))}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode() + data


def our_call(node_id: str, token: str, message: str) -> tuple[bytes, bytes]:
    body = {"tool": f"sysecho.{node_id}.echo.invoke", "arguments": {"message": message}}
    headers = {"Accept": "application/json", "Authorization": f"Bearer {token}"}
    return post("/mcp/tools/call", headers, body), f'"message":"{message}"'.encode()


def peer_call(number: int, message: str, *, modern: bool) -> tuple[bytes, bytes]:
    params: dict[str, Any] = {"name": "echo", "arguments": {"message": message}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    if modern:
        version = "2026-07-28"
        headers |= {"MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
        prefix = "io.modelcontextprotocol"
        params["_meta"] = {f"{prefix}/protocolVersion": version, f"{prefix}/clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return post("/mcp", headers, body), f'"text":"{message}"'.encode()


def write_calls(file: Path, calls: list[tuple[bytes, bytes]]) -> Path:
    packed = [struct.pack("II", len(request), len(wanted)) + request + wanted for request, wanted in calls]
    file.write_bytes(b"".join(packed))
    return file


# ---- the load ------------------------------------------------------------------------------------------------------


def compiled_load(folder: Path) -> Path:
    program = folder / "load"
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-o", program, ROOT / "bench" / "calls_load.c"], check=True)
    return program


@dataclass(frozen=True)
class Round:
    per_cpu_s: float
    per_s: float
    p50_ms: float
    p99_ms: float
    server_share: float
    load_share: float


@dataclass(frozen=True)
class Target:
    server: Server
    calls: Path


def load(program: Path, target: Target, callers: int, seconds: float) -> Round:
    arguments = [str(target.server.port), str(callers), str(seconds), str(target.calls)]
    before_s = cpu_s(target.server.process.pid)
    ran = subprocess.run(["taskset", "-c", str(LOAD_CORE), program, *arguments], capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    used_s = cpu_s(target.server.process.pid) - before_s
    done, elapsed_s, load_s, p50_ms, p99_ms = map(float, ran.stdout.split())
    return Round(done / used_s, done / elapsed_s, p50_ms, p99_ms, used_s / elapsed_s, load_s / elapsed_s)


def cpu_s(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system


Measured = dict[int, dict[str, list[Round]]]


def measure(rounds: int, seconds: float, nodes: int) -> Measured:
    found: Measured = {callers: {name: [] for name in (OURS, *PEERS)} for callers in CALLERS}
    # The log beside the code, because /tmp may be memory; the nodes' journals in memory.
    with temporary_folder(RESULTS.parent) as folder, temporary_folder(Path("/dev/shm")) as homes:
        program = compiled_load(folder)
        note(f"starting a gateway, the SDK's servers and {nodes} nodes ...")
        with all_running(folder, homes, nodes) as targets:
            for target in targets.values():
                load(program, target, max(CALLERS), WARM_UP_S)
            for number in range(1, rounds + 1):
                for callers in CALLERS:
                    note(f"round {number} of {rounds}, callers: {callers} ...")
                    for name, target in targets.items():
                        found[callers][name].append(load(program, target, callers, seconds))
    return found


@contextmanager
def temporary_folder(where: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=where, prefix="heliograph-calls-") as made:
        yield Path(made)


@contextmanager
def all_running(folder: Path, homes: Path, nodes: int) -> Iterator[dict[str, Target]]:
    with (
        running_gateway(folder, homes, nodes) as gateway,
        running_peer(ECHO_SERVER) as echo_server,
        running_peer(LOW_LEVEL) as low_level,
        child(LOAD_CORE, "bench.calls", "--role", "nodes", str(homes), gateway.devices) as node_process,
    ):
        until(lambda: live_nodes(gateway) == nodes, node_process, "the nodes")
        servers = {ECHO_SERVER: echo_server, LOW_LEVEL: low_level}
        eras = {era: write_calls(folder / era, peer_calls(nodes, modern=era == MODERN)) for era in (STATELESS, MODERN)}
        yield {
            OURS: Target(gateway, write_calls(folder / "ours", calls_to(gateway))),
            **{name: Target(servers[server], eras[era]) for name, (server, era) in PEERS.items()},
        }


def calls_to(gateway: Gateway) -> list[tuple[bytes, bytes]]:
    return [our_call(node_id, gateway.token, f"hello {number}") for number, node_id in enumerate(gateway.node_ids)]


def peer_calls(count: int, *, modern: bool) -> list[tuple[bytes, bytes]]:
    return [peer_call(number, f"hello {number}", modern=modern) for number in range(count)]


# ---- the run -------------------------------------------------------------------------------------------------------


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def median(rounds: list[Round]) -> Round:
    return Round(*(statistics.median(column) for column in zip(*map(astuple, rounds), strict=True)))


def ratio(ours: list[Round], theirs: list[Round]) -> float:
    """Ours to theirs, round by round: what is slow in one round is slow for both."""
    return statistics.median(one.per_cpu_s / other.per_cpu_s for one, other in zip(ours, theirs, strict=True))


def report(found: Measured) -> bool:
    """Print what was found and keep it; whether it is what was expected."""
    medians = {callers: {name: median(rounds) for name, rounds in of.items()} for callers, of in found.items()}
    ratios = {callers: {name: ratio(of[OURS], of[name]) for name in PEERS} for callers, of in found.items()}
    print(f"{'callers':>7}  {'server':<24}{'per CPU-s':>10}{'lowest':>9}{'highest':>9}", end="")
    print(f"{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}{'server':>8}{'load':>6}{'ours to it':>12}")
    for callers, of in medians.items():
        for name, typical in of.items():
            rates = [one.per_cpu_s for one in found[callers][name]]
            print(
                f"{callers:>7}  {name:<24}{typical.per_cpu_s:>10,.0f}{min(rates):>9,.0f}{max(rates):>9,.0f}"
                f"{typical.per_s:>9,.0f}{typical.p50_ms:>9.2f}{typical.p99_ms:>9.2f}"
                f"{typical.server_share:>8.0%}{typical.load_share:>6.0%}"
                + ("" if name == OURS else f"{ratios[callers][name]:>12.2f}")
            )
    reached = {name: all(ratios[callers][name] >= RATIO_MIN for callers in DECIDING) for name in PEERS}
    met = all(reached.values())
    print(f"expected at {' and '.join(map(str, DECIDING))} callers: at least {RATIO_MIN:g} times", end="")
    print(f" each of the SDK's servers: {'met' if met else 'NOT MET'}")
    for name in PEERS:
        print(f"  {name:<24}{'met' if reached[name] else 'NOT MET'}")
    result = {
        "ratios": ratios,
        "medians": {callers: {name: asdict(one) for name, one in of.items()} for callers, of in medians.items()},
        "rounds": {callers: {n: [asdict(r) for r in rs] for n, rs in of.items()} for callers, of in found.items()},
        "reached": reached,
        "met": met,
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    match options.role:
        case ["peer", server, port]:
            serve_peer(server, int(port))
            return 0
        case ["nodes", folder, address]:
            be_nodes(Path(folder), address)
            return 0
    RESULTS.parent.mkdir(exist_ok=True)
    return 0 if report(measure(options.rounds, options.seconds, options.nodes)) else 1


if __name__ == "__main__":
    sys.exit(main())
