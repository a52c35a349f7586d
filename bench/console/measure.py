"""The three numbers, round by round: requests, a live page, and calls beside ten."""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.calls import TENANT, Gateway, Target, calls_to, compiled_load, load, write_calls
from bench.console.fleet import CONSOLES, whole_fleet
from bench.console.load import Readers
from bench.console.note import note
from bench.console.operator import Operator
from gateway.console.live import AWAKE_S

CALLERS = 16
REQUESTS = 60  # of each kind
SETTLE_S = 2.0
RESULTS = Path(__file__).parent.parent / "results" / "console.json"

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
    told = {name: statistics.median(times) for name, times in found.items()}
    note(f"... the dearest {max(told.values()):.2f} ms")
    return told


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
    note(f"... {statistics.median(with_one - without for without, with_one in found):.2%} of a core")
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
