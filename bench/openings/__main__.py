"""Telemetry streams opened a second, and 10,000 of them that come back after their node's restart.

    python -m bench.openings [--quick] [--rounds 5] [--streams 2000] [--before 883e0bfd]

*Openings*: a server in a fresh process on core 0 (this gateway, the gateway of another commit, nginx with nchan), and
on core 1 the C program of `bench.fanout`, which opens streams, 64 at a time, each on a connection of its own. Opening
one of ours is a POST with a token: authenticated, authorized, paid for durably, audited. Opening one of nchan is a GET
that asks nobody. Rounds alternate between the servers, and medians count; openings a CPU-second of the server decide.

*The return*: 10,000 streams of one node, which goes away, so that all of them end, and comes back. Then all clients
dial at once (as many as the door takes waiting), and a caller goes on calling another node, one call after the other.
What counts is how long it takes from the node's return until the last stream is open, and the slowest of the calls.
The nodes are in the gateway's process, on its core.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from bench.fanout import servers
from bench.fanout.clients import LOAD_CORE, Clients, compiled
from bench.fanout.rounds import WARM_STREAMS
from bench.openings.tree import BEFORE, checked_out

T = TypeVar("T")
OURS, THEN, NCHAN = "this tree", "before", "nchan"
RATIO_MIN = 2.0  # of the commit before
RETURN_STREAMS, RETURN_S_MAX, CALL_S_MAX = 10_000, 4.0, 5.0
AT_ONCE = 1_000  # dialled and not open yet, as all come back
CALL_EVERY_S = 0.12  # an announced capability takes ten a second
RESULTS = servers.ROOT / "bench" / "results" / "openings.json"


def say(text: str) -> None:
    print(f"[load {os.getloadavg()[0]:.1f}] {text}", file=sys.stderr, flush=True)


def cpu_s(pid: int) -> float:
    return time.clock_gettime(~pid << 3 | 2)  # the CPU clock of another process, as clock_getcpuclockid(3) names it


# ---- openings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Openings:
    per_cpu_s: float
    per_s: float


def measure_openings(name: str, root: Path, folder: Path, program: Path, streams: int) -> Openings:
    with tempfile.TemporaryDirectory(dir=folder) as made:
        server = servers.start(NCHAN if name == NCHAN else "ours", Path(made), program, root)
        clients = Clients(program, Path(made), server)
        try:
            clients.open(WARM_STREAMS)
            time.sleep(0.3)  # what the warm-up left to do
            began_s = cpu_s(server.pid)
            took_s = clients.open(streams)
            time.sleep(0.3)  # what an opening leaves to be written afterwards is its own
            return Openings(streams / (cpu_s(server.pid) - began_s), streams / took_s)
        finally:
            server.end()
            clients.end()


# ---- the return ----------------------------------------------------------------------------------------------------


class Caller:
    """One call after the other, in a thread, until it is stopped; how long each took."""

    def __init__(self, port: int, token: str, node_id: str) -> None:
        self._port = port
        self._body = json.dumps({"tool": f"sys.{node_id}.metrics.snapshot", "arguments": {}})
        self._head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._over = threading.Event()
        self.took_s: list[float] = []
        self.refused = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        while not self._over.wait(CALL_EVERY_S):
            began_s = time.monotonic()
            connection.request("POST", "/mcp/tools/call", self._body, self._head)
            answer = connection.getresponse()
            answer.read()
            self.took_s.append(time.monotonic() - began_s)
            self.refused += answer.status != 200
        connection.close()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


@dataclass(frozen=True)
class Return:
    took_s: float
    per_cpu_s: float
    calls: int
    refused: int
    p50_call_s: float
    slowest_call_s: float


def measure_return(root: Path, folder: Path, program: Path, streams: int) -> Return:
    command = ["taskset", "-c", str(servers.SERVER_CORE), sys.executable, "-m", "bench.openings", "--serve"]
    process = subprocess.Popen(
        command,
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("FANOUT_DEBUG") else subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with tempfile.TemporaryDirectory(dir=folder) as made:
        try:
            port, request, token, node_id = process.stdout.readline().split()
            fifo = Path(made) / "fifo"
            fifo.write_bytes(b"")  # nobody publishes
            server = servers.Server("ours", process.pid, int(port), bytes.fromhex(request), process, ("fifo", fifo))
            clients = Clients(program, Path(made), server)
            clients.open(streams)

            def tell(order: str) -> None:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(order + "\n")
                process.stdin.flush()
                assert process.stdout.readline().strip() == order

            tell("away")
            clients.await_ends()
            os.sched_setaffinity(0, {LOAD_CORE})
            caller = Caller(int(port), token, node_id)
            tell("back")
            began_s = cpu_s(process.pid)
            took_s = clients.open(streams, at_once=AT_ONCE)
            used_s = cpu_s(process.pid) - began_s
            caller.stop()
            clients.end()
            calls = caller.took_s
            return Return(took_s, streams / used_s, len(calls), caller.refused, statistics.median(calls), max(calls))
        finally:
            os.sched_setaffinity(0, {servers.SERVER_CORE, LOAD_CORE})
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


# ---- the run -------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rounds")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--streams", type=int, default=2_000)
    parser.add_argument("--before", default=BEFORE, help="the commit beside which this tree is measured")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        from bench.openings import ours

        ours.main()
        return 0
    if lacking := servers.missing():
        raise SystemExit("\n".join(["bench.openings needs:", *lacking]))
    return measure(options.rounds or (2 if options.quick else 5), options.streams, options.before)


def measure(rounds: int, streams: int, before: str) -> int:
    openings: dict[str, list[Openings]] = {OURS: [], THEN: [], NCHAN: []}
    returns: dict[str, list[Return]] = {OURS: [], THEN: []}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        program = compiled(folder, "load")
        roots = {OURS: servers.ROOT, THEN: checked_out(before, folder / "before"), NCHAN: servers.ROOT}
        for number in range(1, rounds + 1):
            for name, of in openings.items():
                of.append(measure_openings(name, roots[name], folder, program, streams))
                rate = f"{of[-1].per_cpu_s:,.0f} a CPU-second, {of[-1].per_s:,.0f} a second"
                say(f"round {number} of {rounds}: {name}: {rate}")
            for name, those in returns.items():
                those.append(measure_return(roots[name], folder, program, RETURN_STREAMS))
                say(f"round {number} of {rounds}: {name}: {RETURN_STREAMS:,} back: {those[-1]}")
    return report(openings, returns)


def report(openings: dict[str, list[Openings]], returns: dict[str, list[Return]]) -> int:
    def over(name: str) -> float:
        return statistics.median(
            one.per_cpu_s / other.per_cpu_s for one, other in zip(openings[OURS], openings[name], strict=True)
        )

    ratios = {name: over(name) for name in (THEN, NCHAN)}
    print(f"{'opened':<12}{'a CPU-second':>14}{'a second':>12}{'ours to it':>12}")
    for name, of in openings.items():
        per_cpu_s, per_s = median(of, lambda one: one.per_cpu_s), median(of, lambda one: one.per_s)
        print(f"{name:<12}{per_cpu_s:>14,.0f}{per_s:>12,.0f}" + (f"{ratios[name]:>12.2f}" if name in ratios else ""))
    print(
        f"{RETURN_STREAMS:,} back{'':<4}{'s':>6}{'a CPU-second':>14}{'call p50 ms':>13}{'slowest ms':>12}{'refused':>9}"
    )
    for name, those in returns.items():
        print(
            f"{name:<15}{median(those, lambda one: one.took_s):>6.2f}{median(those, lambda one: one.per_cpu_s):>14,.0f}"
            f"{1000 * median(those, lambda one: one.p50_call_s):>13.0f}"
            f"{1000 * max(one.slowest_call_s for one in those):>12.0f}{sum(one.refused for one in those):>9}"
        )
    ours = returns[OURS]
    is_fast = ratios[THEN] >= RATIO_MIN
    is_back = median(ours, lambda one: one.took_s) <= RETURN_S_MAX
    is_on_time = all(one.slowest_call_s <= CALL_S_MAX and not one.refused for one in ours)
    print(f"expected: {RATIO_MIN:g} times the commit before: {told(is_fast)}")
    print(f"expected: {RETURN_STREAMS:,} back within {RETURN_S_MAX:g} s: {told(is_back)}")
    print(f"expected: no call past its deadline meanwhile: {told(is_on_time)}")
    RESULTS.parent.mkdir(exist_ok=True)
    result = {
        "ratios": ratios,
        "openings": {name: [asdict(one) for one in of] for name, of in openings.items()},
        "returns": {name: [asdict(one) for one in those] for name, those in returns.items()},
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if is_fast and is_back and is_on_time else 1


def median(those: list[T], of: Callable[[T], float]) -> float:
    return statistics.median(map(of, those))


def told(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"


if __name__ == "__main__":
    sys.exit(main())
