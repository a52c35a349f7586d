"""What governance costs: CPU time of the pipeline outside the log, and of a whole call with and without it.

    python -m bench.governance [--starts 16] [--rounds 8] [--seconds 0.5]

First in one process: policy, ledger, rate, scans of 1 KB of clean arguments and result, and the hold, over and over,
with the log left out. Then end to end, as `bench.calls` does it with 64 callers: the gateway beside the same gateway
without governance, calls a CPU-second of each. The two are compared round by round, and the median of those ratios
counts: on a shared machine the seconds differ more from each other than the two gateways do. Both are started several
times, in turns, because how a process lies in memory makes it a few hundredths faster or slower for good.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import trio

from actors.bus.local_directory import LocalDirectory
from actors.ledger.ledgers import Ledgers, command_key
from actors.log.memory_store import MemoryStore
from bench.calls import (
    LOAD_CORE,
    RESULTS,
    Target,
    calls_to,
    child,
    compiled_load,
    live_nodes,
    load,
    running_gateway,
    temporary_folder,
    until,
    write_calls,
)
from gateway.calls.admission import Admission, Admitted
from gateway.governance.governor import Governor
from gateway.governance.policy.policy import Policy, Side
from gateway.governance.policy.text import parse
from gateway.identity.tokens import Principal, Scope, TokenClass
from gateway.main.clock import now

BARE_US_MAX, SCANNED_US_MAX, RATIO_MIN = 60.0, 150.0, 0.9
CALLERS, NODES = 64, 200
TOOL = "sysecho.01hzx9k3m4p7q8r9s0t1v2w3xy.echo.invoke"
AGENT = Principal(
    "agent_6f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6",
    "acme",
    TokenClass.AGENT_RUNTIME,
    frozenset({Scope.READ_ONLY}),
    "01HZXC0000000000000000J000",
    0,
    2**53,
)
POLICY = """
[[agents]]
agent = "agent_00000000-*"
tools = []

[[agents]]
agent = "*"
tools = ["sys.**", "sysecho.*.*.*"]
budget = 1000000
rates = [{ tools = ["**"], calls = 1000000, per = "1s" }]
"""


def clean(size: int) -> dict[str, Any]:
    """About so many bytes of what devices and agents say to each other."""
    words, r = (
        [
            "pump",
            "seven",
            "reports",
            "a",
            "steady",
            "level",
            "in",
            "tank",
            "north",
            "after",
            "the",
            "valve",
            "was",
            "closed",
            "by",
            "hand",
        ],
        Random(1),
    )
    text = ""
    while len(text) < size:
        text += r.choice(words) + " "
    return {"message": text[:size]}


class Anything:
    """A tool that everybody may call, with whatever arguments."""

    name = TOOL

    def denied(self, *_: object) -> None:
        return None

    def unready(self, *_: object) -> None:
        return None

    def flaw(self, *_: object) -> None:
        return None

    def takes(self, *_: object) -> bool:
        return True


async def pipeline_us(value: dict[str, Any], *, scan: bool, times: int = 4000) -> float:
    policy, ledgers, target = parse(POLICY), Ledgers(MemoryStore()), Anything()
    assert isinstance(policy, Policy)
    governor = Governor(lambda: policy, ledgers)
    admission = Admission(LocalDirectory(MemoryStore()), now, governor)
    ledger = await ledgers.of(AGENT.tenant, AGENT.sub)
    if not scan:
        governor.inspect = lambda _, __, passed, *___, **____: passed  # type: ignore[method-assign]
    began_s = time.process_time()
    for number in range(times):
        admitted = admission.admit_now(AGENT, target, value, now())
        assert isinstance(admitted, Admitted), admitted
        assert admitted.hold("node", str(number)) is None
        assert admitted.rules is not None
        assert governor.inspect(admitted.rules, Side.RESULT, value, bool) is value
        ledger.drop(command_key("node", str(number)))
    return (time.process_time() - began_s) / times * 1e6


@contextmanager
def running(module: str) -> Iterator[tuple[Path, Target]]:
    """A gateway with its nodes, and the calls to it."""
    with temporary_folder(RESULTS.parent) as folder, temporary_folder(Path("/dev/shm")) as homes:
        print(f"  {module} with {NODES} nodes ...", file=sys.stderr, flush=True)
        with (
            running_gateway(folder, homes, NODES, [module, "serve"]) as gateway,
            child(LOAD_CORE, "bench.calls", "--role", "nodes", str(homes), gateway.devices) as nodes,
        ):
            until(lambda: live_nodes(gateway) == NODES, nodes, "the nodes")
            yield compiled_load(folder), Target(gateway, write_calls(folder / "calls", calls_to(gateway)))


def whole_calls(starts: int, rounds: int, seconds: float) -> list[tuple[float, float]]:
    """Calls a CPU-second, governed and not, round by round."""
    pairs: list[tuple[float, float]] = []
    for number in range(1, starts + 1):
        print(f"  start {number} of {starts} ...", file=sys.stderr, flush=True)
        pairs += calls_of_one_start(rounds, seconds, governed_first=bool(number % 2))
    return pairs


def calls_of_one_start(rounds: int, seconds: float, *, governed_first: bool) -> list[tuple[float, float]]:
    """Who begins a round alternates, and by the start, who is started first."""
    pairs: list[tuple[float, float]] = []
    modules = (
        ("gateway.commands.cli", "bench.ungoverned") if governed_first else ("bench.ungoverned", "gateway.commands.cli")
    )
    with running(modules[0]) as first, running(modules[1]) as second:
        governed, ungoverned = (first, second) if governed_first else (second, first)
        for number in range(rounds + 1):
            print(f"  round {number} of {rounds} ...", file=sys.stderr, flush=True)
            order = (governed, ungoverned) if number % 2 else (ungoverned, governed)
            rates = [load(program, target, CALLERS, seconds).per_cpu_s for program, target in order]
            pairs.append((rates[0], rates[1]) if number % 2 else (rates[1], rates[0]))
    return pairs[1:]  # the first was to warm up


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--starts", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.5)
    arguments = parser.parse_args()
    one_kb = clean(1024)
    bare_us = min(trio.run(lambda: pipeline_us(one_kb, scan=False)) for _ in range(5))
    scanned_us = min(trio.run(lambda: pipeline_us(one_kb, scan=True)) for _ in range(5))
    pairs = whole_calls(arguments.starts, arguments.rounds, arguments.seconds)
    governed, ungoverned = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    ratios = [one / other for one, other in pairs]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    print(f"pipeline without scans     {bare_us:7.1f} us a call   (at most {BARE_US_MAX:g})")
    print(f"with scans of 1 KB twice   {scanned_us:7.1f} us a call   (at most {SCANNED_US_MAX:g})")
    print(
        f"whole calls, {CALLERS} callers    {governed:7.0f} a CPU-second, {ungoverned:.0f} without governance (medians)"
    )
    print(
        f"ratio, round by round      {ratio:7.2f}             (at least {RATIO_MIN:g}; quartiles {low:.2f}, {high:.2f})"
    )
    met = bare_us < BARE_US_MAX and scanned_us < SCANNED_US_MAX and ratio >= RATIO_MIN
    result = {"bare_us": bare_us, "scanned_us": scanned_us, "rounds": pairs, "ratio": ratio, "met": met}
    (RESULTS.parent / "governance.json").write_text(json.dumps(result, indent=2) + "\n")
    print("met" if met else "NOT MET")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
