"""What the console costs a gateway with 20,000 nodes: a request of the fleet's page, a live page, and calls beside ten.

    python -m bench.console [--quick] [--nodes 20000] [--rounds 12] [--seconds 3]

The server is `heliograph serve` on core 0 as in production. All nodes are enrolled with names and tags; all but 200
are connected by one process that speaks for them (as in `bench.reconnect`, and as many as there may be files), and send
heartbeats. 200 are the agent that runs on real devices: they answer calls, and to 100 of them a stream each is open, a
frame every second. That goes on in all measurements, with the console and without: its cost is measured and taken off.

Three numbers, each with its goal:
- *a request*: the server's CPU time for `POST /console/api/fleet`, for several kinds of page; the dearest counts: under
  5 ms. A text to look for is another one each time, so that nobody has asked for it before;
- *a live page*: the share of a core that one console takes which is open and live, with the hundred nodes that send
  most in its window, so that every row of it changes: under 1 %. Rounds without it and with it alternate;
- *beside ten*: calls a CPU-second of the server while ten consoles are open and live (five alike, five each with an
  order of its own), to those without, in rounds that alternate: at least 0.97.
"""

import argparse
import http.client
import json
import os
import resource
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from ulid import ULID

from bench.calls import (
    LIVE_S_MAX,
    LOAD_CORE,
    SERVE,
    SERVER_CORE,
    TENANT,
    Gateway,
    Target,
    calls_to,
    child,
    compiled_load,
    load,
    until,
    write_calls,
)
from bench.reconnect import FILES_SPARE, framed
from bench.unlimited_policy import unlimited_policy
from gateway.console.live import AWAKE_S

NODES, QUICK_NODES = 20_000, 2_000
AGENTS, STREAMS, CONSOLES, CALLERS = 200, 100, 10, 16
REQUEST_MS_MAX, SHARE_MAX, RATIO_MIN = 5.0, 0.01, 0.97
REQUESTS = 60  # of each kind
SETTLE_S = 2.0
ECHO_RPS = 50
ROUNDS, SECONDS = 12, 3.0
RESULTS = Path(__file__).parent / "results" / "console.json"

BUSIEST = {"sort": "frames_per_s", "descending": True, "limit": 100}
KINDS: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "by name": lambda _: {},
    "by state, live ones": lambda _: {"sort": "state", "state": "live"},
    "by since, from the end": lambda _: {"sort": "since", "descending": True},
    "by last call": lambda _: {"sort": "last_call", "descending": True},
    "by frames/s": lambda _: BUSIEST,
    "by drops": lambda _: {"sort": "drops", "descending": True},
    "far behind": lambda number: {"offset": 100 * number},
    "500 rows": lambda _: {"limit": 500},
    "a text": lambda number: {"text": f"-{number:02d}"},
    "two tags": lambda number: {"tags": [f"site=s{number % 50}", "rack=r1"], "tenant": TENANT},
}
ORDERS = ("state", "since", "left", "last_call", "node_id")


# ---- the load --------------------------------------------------------------------------------------------------------


def be_nodes(folder: Path, address: str) -> None:
    """Every identity in the folder as a node that can be called and listened to, in this process."""
    import trio

    from actors.device.agent import Agent
    from actors.device.device import Device
    from actors.device.file_journal import FileJournal
    from actors.device.handlers import ECHO_CAPABILITY, METRICS_CAPABILITY, standard_handlers
    from actors.device.identity import DeviceIdentity, hw_fingerprint, manifest_signer
    from actors.device.journal import Record
    from actors.device.mock_sampler import MockSampler
    from actors.device.websocket import WebSocketDialer
    from gateway.commands.node_run import wall_ms
    from schemas.projection import project

    class JournalInMemory(FileJournal):
        async def append(self, records: Sequence[Record]) -> None:
            self.append_sync(records)
            await trio.lowlevel.checkpoint()

    echo = {**ECHO_CAPABILITY, "constraints": {**ECHO_CAPABILITY["constraints"], "rate_limit_rps": ECHO_RPS}}
    capabilities = [echo, METRICS_CAPABILITY]

    def device(identity: DeviceIdentity, number: int) -> Device:
        tools = {tool.name: tool for tool in project({"node_id": identity.node_id, "capabilities": capabilities})}
        handlers = standard_handlers(identity.node_id, MockSampler(number, wall_ms()), wall_ms)
        sign = manifest_signer(identity, hw_fingerprint(f"bench machine {number}", None), capabilities)
        return Device(node_id=identity.node_id, token=identity.token, tools=tools, handlers=handlers, sign=sign)

    homes = sorted(folder.iterdir())

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number, home in enumerate(homes):
                dial = WebSocketDialer(nursery, f"ws://{address}/devices/connect")
                agent = Agent(
                    device(DeviceIdentity.load(home), number),
                    journal=JournalInMemory(home),
                    connect=dial,
                    wall_ms=wall_ms,
                    rng=Random(),
                )
                nursery.start_soon(agent.run)

    trio.run(main)


def read_feeds(port: int) -> None:
    """Open what each line of standard input has (requests in JSON), read it all, until the next line."""
    waiting, open_feeds = select.poll(), dict[int, socket.socket]()
    waiting.register(sys.stdin, select.POLLIN)
    while True:
        for fd, _ in waiting.poll():
            if fd != sys.stdin.fileno():
                if not open_feeds[fd].recv(1 << 20):
                    raise SystemExit("a feed ended")
                continue
            line = sys.stdin.readline()
            if not line:
                return
            for feed in open_feeds.values():
                waiting.unregister(feed)
                feed.close()
            open_feeds.clear()
            for request in json.loads(line):
                feed = socket.create_connection(("127.0.0.1", port))
                feed.sendall(request.encode())
                head = feed.recv(4096)
                if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
                    raise SystemExit(f"no feed: {head!r}")
                open_feeds[feed.fileno()] = feed
                waiting.register(feed, select.POLLIN)
            print(len(open_feeds), flush=True)
            break  # what else was readable may have been closed


class Readers:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def open(self, requests: Sequence[str]) -> None:
        """These and no others."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(requests).encode() + b"\n")
        self._process.stdin.flush()
        if self._process.stdout.readline().strip() != str(len(requests)).encode():
            raise SystemExit("the readers did not go on")


@contextmanager
def readers(port: int) -> Iterator[Readers]:
    more = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with child(LOAD_CORE, "bench.console", "--role", "feeds", str(port), **more) as process:
        yield Readers(process)


# ---- the operator ----------------------------------------------------------------------------------------------------


class Operator:
    """With a token, and signed in to the console."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self._token = token
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=LIVE_S_MAX)
        link = self.admin("/admin/console/link", {})["url"]
        self.origin, _, secret = link.partition("/console#k=")
        self.cookie = ""
        response = self._post("/console/api/session", {"link": secret}, self._headers())
        self.cookie = response.headers["set-cookie"].partition(";")[0]

    def admin(self, path: str, body: Any) -> Any:
        return json.loads(self._post(path, body, {"Authorization": f"Bearer {self._token}"}).body)

    def live_nodes(self) -> int:
        """Without a look at the fleet's table."""
        self._http.close()  # many nodes take longer to dial in than a gateway waits for the next request
        self._http.request("GET", "/metrics", headers={"Authorization": f"Bearer {self._token}"})
        lines = self._http.getresponse().read().decode().splitlines()
        return next(int(float(line.split()[-1])) for line in lines if line.startswith("heliograph_nodes "))

    def fleet(self, query: dict[str, Any]) -> Any:
        return json.loads(self._post("/console/api/fleet", query, self._headers()).body)

    def _headers(self) -> dict[str, str]:
        return {"Origin": self.origin, "Cookie": self.cookie, "Content-Type": "application/json"}

    def _post(self, path: str, body: Any, headers: dict[str, str]) -> Any:
        self._http.request("POST", path, json.dumps(body), headers)
        response = self._http.getresponse()
        response.body = response.read()  # type: ignore[attr-defined]
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {response.body!r}")  # type: ignore[attr-defined]
        return response

    def live(self, fleet: dict[str, Any]) -> str:
        """The request of a live page."""
        return _request("/console/api/live", {"fleet": fleet}, self._headers())


def _request(path: str, body: Any, headers: Mapping[str, str]) -> str:
    data = json.dumps(body)
    fields = {"Host": "bench", **headers, "Content-Length": str(len(data))}
    return "\r\n".join([f"POST {path} HTTP/1.0", *(f"{name}: {value}" for name, value in fields.items()), "", data])


def stream_of(gateway: Gateway, node_id: str) -> str:
    body = {"tool": f"sys.{node_id}.metrics.subscribe", "arguments": {"interval_ms": 1000}}
    headers = {"Authorization": f"Bearer {gateway.token}", "Accept": "text/event-stream"}
    return _request("/mcp/tools/call", body, headers)


# ---- the fleet -------------------------------------------------------------------------------------------------------


@contextmanager
def running_gateway(folder: Path) -> Iterator[tuple[Gateway, Operator]]:
    """Nobody is enrolled."""
    from gateway.commands.node_run import wall_ms
    from gateway.identity.tokens import OperatorScope, Scope, TokenClass
    from gateway.main.data_folder import DataFolder

    data = folder / "data"
    with DataFolder.hold(data, wall_ms()) as made:
        agent, life_s = f"agent_{uuid.uuid4()}", 24 * 3600
        token = made.mint(TokenClass.AGENT_RUNTIME, agent, TENANT, [Scope.READ_ONLY], life_s, str(ULID()), wall_ms())
        scopes = list(OperatorScope)
        operator = made.mint(TokenClass.OPERATOR, "bench", "operators", scopes, life_s, str(ULID()), wall_ms())
    flags = ["--data", str(data), "--http", "127.0.0.1:0", "--devices", "127.0.0.1:0", "--log", "json"]
    settings = {
        "HELIOGRAPH_LISTENER_STRANGERS_PER_ADDRESS_MAX": str(AGENTS),
        "HELIOGRAPH_GOVERNANCE_POLICY": unlimited_policy(folder),
        "HELIOGRAPH_CONSOLE_LIVE_PER_SESSION_MAX": str(CONSOLES),
    }
    note_file = data / "running.json"
    with (folder / "gateway.log").open("wb") as lines:
        more = {"stdout": subprocess.DEVNULL, "stderr": lines, "env": os.environ | settings}
        with child(SERVER_CORE, *SERVE, *flags, **more) as process:
            until(lambda: note_file.exists() and note_file.read_text().endswith("\n"), process, "the gateway")
            where = json.loads(note_file.read_text())
            port = int(where["http"].rpartition(":")[2])
            yield Gateway(process, port, where["devices"], token, []), Operator(port, operator)


def enrolled(operator: Operator, nodes: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for first in range(0, nodes, 1000):
        wanted = [
            {
                "tenant": TENANT,
                "name": f"node-{number:05d}",
                "tags": {"site": f"s{number % 50}", "rack": f"r{number % 7}"},
            }
            for number in range(first, min(first + 1000, nodes))
        ]
        made += operator.admin("/admin/enroll_many", {"nodes": wanted})["nodes"]
    return made


def identity_of(one: dict[str, Any]) -> Any:
    from nacl.signing import SigningKey

    from actors.device.identity import DeviceIdentity
    from schemas.certificates import Leaf

    key = SigningKey(bytes.fromhex(one["key"]))
    return DeviceIdentity(key, Leaf.from_der(bytes.fromhex(one["certificate"])), one["token"])


def what_they_say(nodes: Sequence[dict[str, Any]]) -> list[list[bytes]]:
    """Of each: what it sends until it is live."""
    from actors.device.handlers import CAPABILITIES
    from actors.device.identity import hw_fingerprint, manifest_signer
    from gateway.commands.node_run import wall_ms

    said = []
    for number, one in enumerate(nodes):
        sign = manifest_signer(identity_of(one), hw_fingerprint(f"quiet machine {number}", None), CAPABILITIES)
        said.append(
            [
                framed("auth", {"token": one["token"], "node_id": one["node_id"]}),
                framed("announce", dict(sign(wall_ms()).manifest)),
                framed("resume", {"journal_id": "bench", "last_cmd": None, "outcomes": [], "running": []}),
            ]
        )
    return said


@contextmanager
def whole_fleet(folder: Path, homes: Path, nodes: int) -> Iterator[tuple[Gateway, Operator, Readers]]:
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with ExitStack() as stack:
        gateway, operator = stack.enter_context(running_gateway(folder))
        note(f"enrolling {nodes:,} nodes ...")
        made = enrolled(operator, nodes)
        for one in made[:AGENTS]:
            identity_of(one).save(homes / one["node_id"])
            gateway.node_ids.append(one["node_id"])
        room = files_max - FILES_SPARE - 2 * AGENTS - STREAMS if files_max != resource.RLIM_INFINITY else nodes
        quiet = made[AGENTS:][:room]
        said = folder / "said"
        said.write_bytes(msgspec.msgpack.encode(what_they_say(quiet)))
        note(f"connecting {len(quiet):,} of them, and {AGENTS} that work ...")
        device_port = gateway.devices.rpartition(":")[2]
        roles = ("bench.reconnect", "--role", "load", device_port, str(said), str(len(quiet)))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        dialling = stack.enter_context(child(LOAD_CORE, *roles, **pipes))
        dialling.stdin.write(b"arrive\n")  # type: ignore[union-attr]
        dialling.stdin.flush()  # type: ignore[union-attr]
        dialling.stdout.readline()  # type: ignore[union-attr]
        stack.enter_context(child(LOAD_CORE, "bench.console", "--role", "nodes", str(homes), gateway.devices))
        wanted = len(quiet) + AGENTS
        until(lambda: operator.live_nodes() == wanted, gateway.process, "the nodes")
        streams = stack.enter_context(readers(gateway.port))
        streams.open([stream_of(gateway, node_id) for node_id in gateway.node_ids[:STREAMS]])
        yield gateway, operator, stack.enter_context(readers(gateway.port))


# ---- measuring -------------------------------------------------------------------------------------------------------


def cpu_s(pid: int) -> float:
    """Of the process, with threads that have ended: the kernel's own clock of it."""
    return time.clock_gettime((~pid << 3) | 2)


class Meter:
    def __init__(self, gateway: Gateway) -> None:
        self._pid = gateway.process.pid

    def share(self, seconds: float) -> float:
        """Of a core, in so long a time."""
        began_s, used_s = time.monotonic(), cpu_s(self._pid)
        time.sleep(seconds)
        return (cpu_s(self._pid) - used_s) / (time.monotonic() - began_s)

    def request_ms(self, ask: Callable[[int], Any], idle_share: float, requests: int = REQUESTS) -> float:
        began_s, used_s = time.monotonic(), cpu_s(self._pid)
        for number in range(requests):
            ask(number)
        used_s, took_s = cpu_s(self._pid) - used_s, time.monotonic() - began_s
        return max(0.0, used_s - idle_share * took_s) / requests * 1000


def measure(rounds: int, seconds: float, nodes: int) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(dir=RESULTS.parent, prefix="heliograph-console-") as disk,
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="heliograph-console-") as homes,
        whole_fleet(Path(disk), Path(homes), nodes) as (gateway, operator, consoles),
    ):
        meter, program = Meter(gateway), compiled_load(Path(disk))
        target = Target(gateway, write_calls(Path(disk) / "calls", calls_to(gateway)))
        load(program, target, CALLERS, 1.0)
        first_ms = meter.request_ms(lambda _: operator.fleet({}), meter.share(seconds), 1)
        listed = sum(operator.fleet({"limit": 1})["counts"].values())
        return {
            "nodes": listed,
            "first_ms": first_ms,
            "requests": requests_ms(meter, operator, seconds),
            "shares": shares(meter, operator, consoles, rounds, seconds),
            "calls": calls(program, target, operator, consoles, rounds, seconds),
        }


def requests_ms(meter: Meter, operator: Operator, seconds: float) -> dict[str, float]:
    note("requests of the fleet's page ...")
    for kind in KINDS.values():
        operator.fleet(kind(0))
    found: dict[str, list[float]] = {name: [] for name in KINDS}
    for _ in range(3):
        idle = meter.share(seconds)
        for name, kind in KINDS.items():
            found[name].append(meter.request_ms(lambda number, kind=kind: operator.fleet(kind(number)), idle))  # type: ignore[misc]
    return {name: statistics.median(times) for name, times in found.items()}


def shares(
    meter: Meter, operator: Operator, consoles: Readers, rounds: int, seconds: float
) -> list[tuple[float, float]]:
    """Without a console and with one, round by round."""
    found = []
    note(f"a live page, {rounds} rounds ...")
    for _ in range(rounds):
        consoles.open([])
        time.sleep(AWAKE_S + SETTLE_S)
        without = meter.share(seconds)
        consoles.open([operator.live(BUSIEST)])
        time.sleep(SETTLE_S)
        found.append((without, meter.share(seconds)))
    consoles.open([])
    return found


def calls(
    program: Path, target: Target, operator: Operator, consoles: Readers, rounds: int, seconds: float
) -> list[tuple[float, float]]:
    """Calls a CPU-second without consoles and beside ten, round by round."""
    alike = [operator.live(BUSIEST)] * (CONSOLES - len(ORDERS))
    others = [operator.live({"sort": order, "limit": 100}) for order in ORDERS]
    found: list[float] = []
    note(f"calls beside ten consoles, {rounds} rounds ...")
    for number in range(2 * rounds + 1):
        consoles.open([*alike, *others] if number % 2 else [])
        time.sleep(SETTLE_S if number % 2 else AWAKE_S + SETTLE_S)
        found.append(load(program, target, CALLERS, seconds).per_cpu_s)
    # Others use the machine too: each is held against the one before it and the one after.
    return [((found[at - 1] + found[at + 1]) / 2, found[at]) for at in range(1, len(found), 2)]


def note(text: str) -> None:
    print(f"[load {os.getloadavg()[0]:.1f}] {text}", file=sys.stderr, flush=True)


def report(found: dict[str, Any]) -> bool:
    """Print what was found and keep it; whether it is what was expected."""
    print(f"the fleet's page of {found['nodes']:,} nodes, CPU ms a request:")
    for name, ms in found["requests"].items():
        print(f"  {name:<24}{ms:>6.2f}")
    print(f"  and the first one after a start, which makes the table, in turns: {found['first_ms']:.0f}")
    dearest = max(found["requests"].values())
    share = statistics.median(with_one - without for without, with_one in found["shares"])
    idle = statistics.median(without for without, _ in found["shares"])
    ratio = statistics.median(beside / without for without, beside in found["calls"])
    shares = sorted(with_one - without for without, with_one in found["shares"])
    ratios = sorted(beside / without for without, beside in found["calls"])
    middle = slice(len(ratios) // 4, len(ratios) - len(ratios) // 4)
    print(f"one live page: {share:.2%} of a core, beside {idle:.1%} for the fleet itself", end="")
    print(f" (the middle half of the rounds: {min(shares[middle]):.2%} to {max(shares[middle]):.2%})")
    print(f"calls a CPU-second beside ten consoles, to those without: {ratio:.3f}", end="")
    print(f" (the middle half: {min(ratios[middle]):.3f} to {max(ratios[middle]):.3f})")
    goals = {
        f"a request costs less than {REQUEST_MS_MAX:g} ms": dearest < REQUEST_MS_MAX,
        f"a live page takes less than {SHARE_MAX:.0%} of a core": share < SHARE_MAX,
        f"calls beside ten consoles are at least {RATIO_MIN:g} of those without": ratio >= RATIO_MIN,
    }
    for goal, met in goals.items():
        print(f"expected: {goal}: {'met' if met else 'NOT MET'}")
    RESULTS.write_text(json.dumps({**found, "share": share, "ratio": ratio, "met": goals}, indent=2) + "\n")
    return all(goals.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_NODES:,} nodes, two short rounds")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    match options.role:
        case ["nodes", folder, address]:
            be_nodes(Path(folder), address)
            return 0
        case ["feeds", port]:
            read_feeds(int(port))
            return 0
    RESULTS.parent.mkdir(exist_ok=True)
    rounds, seconds = (2, 2.0) if options.quick else (ROUNDS, SECONDS)
    nodes = options.nodes or (QUICK_NODES if options.quick else NODES)
    return 0 if report(measure(options.rounds or rounds, options.seconds or seconds, nodes)) else 1


if __name__ == "__main__":
    sys.exit(main())
