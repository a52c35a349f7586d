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
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from bench.console.load import be_nodes, read_feeds
from bench.console.measure import RESULTS, measure

NODES, QUICK_NODES = 20_000, 2_000
REQUEST_MS_MAX, SHARE_MAX, RATIO_MIN = 5.0, 0.01, 0.97
ROUNDS, SECONDS = 12, 3.0


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
