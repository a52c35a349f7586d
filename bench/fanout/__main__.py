"""Frames a second from one core to thousands of streams: this gateway beside nchan, sse-starlette, quart-trio and C.

    python -m bench.fanout [--quick] [--tls] [--rounds 5] [--seconds 2] [--only ours,nchan]
                           [--sizes 1000,5000]

Each server runs in a process of its own on core 0: a whole gateway (`ours.py`), nginx with nchan and one worker,
sse-starlette under uvicorn, quart-trio's response generator under hypercorn, and, as the limit, a loop of write() in C.
On core 1 a C program (`load.c`) holds the streams and publishes: it gives every server the same frame with a stamp of
when. *Saturated*, the next frame follows when every stream has read the one before the last. *Half*: at half the rate
that this server has just reached, for the latencies. Rounds alternate between the servers; medians count, and the best
is shown beside them, for on a machine that others use too a round can only lose.

Frames a CPU-second of the server decide, as in `bench.door`, for the same reason; frames a second are printed beside.
*With TLS*, each stream gets ciphertext of its own: this gateway, nchan and hypercorn with certificates, quickly.
*Fairness*: with 5 % of the streams never read, on a small receive buffer, the p99 of the others beside what it is when
all are read. *At 1 Hz*: streams of one cadence that all have each frame within 100 ms, 99 of 100 times.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.fanout import servers
from bench.fanout.rounds import STALLED_SHARE, Bench, Size
from bench.fanout.verdict import Verdict, judge, table

RESULTS = servers.ROOT / "bench" / "results" / "fanout.json"
FAIRNESS_STREAMS = (1_000, 5_000)
FAIRNESS_S, FAIRNESS_ROUNDS_MIN = 4.0, 5


def say(text: str) -> None:
    print(f"[load {os.getloadavg()[0]:.1f}] {text}", file=sys.stderr, flush=True)


def measure_sizes(
    bench: Bench, names: list[str], sizes: list[int], rounds: int, seconds: float
) -> list[dict[str, Any]]:
    found = []
    for number in range(1, rounds + 1):
        for name in names:
            for size in bench.sizes(name, sizes, seconds):
                found.append({"round": number, "server": name, **asdict(size)})
                say(f"round {number} of {rounds}: {brief(name, size)}")
    return found


def brief(name: str, size: Size) -> str:
    return (
        f"{servers.NAMES[name]}, {size.streams} streams: {size.saturated.per_cpu_s:,.0f} frames/CPU-s, "
        f"{size.saturated.per_s:,.0f} /s (server {size.saturated.server_share:.0%}, load "
        f"{size.saturated.load_share:.0%}, lost {size.saturated.lost}, closed {size.saturated.closed}), "
        f"p50/p99 at half {size.half.p50_ms:.1f}/{size.half.p99_ms:.1f} ms, {size.opened_per_s:,.0f} opened/s, "
        f"{size.bytes_a_stream:,.0f} B/stream"
    )


def measure_fairness(bench: Bench, sizes: list[int], rounds: int, rates: dict[int, float]) -> list[dict[str, Any]]:
    found = []
    for number in range(1, rounds + 1):
        for streams in sizes:
            hz, stalled = rates[streams] / 2 / streams, round(STALLED_SHARE * streams)
            pair = {some: bench.with_stalled("ours", streams, hz, FAIRNESS_S, some) for some in (0, stalled)}
            without_ms, with_ms = pair[0].p99_ms, pair[stalled].p99_ms
            found.append({"round": number, "streams": streams, "without_ms": without_ms, "with_ms": with_ms})
            say(f"fairness {number} of {rounds}: {streams} streams, p99 {without_ms:.1f} ms, stalled {with_ms:.1f} ms")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, 1,000 and 5,000 streams only")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", help="servers, comma-separated")
    parser.add_argument("--tls", action="store_true", help="streams over TLS, of those servers that speak it")
    parser.add_argument("--sizes", help="streams, comma-separated")
    parser.add_argument("--pem", help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs=2, metavar=("SERVER", "FIFO"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        name, fifo = options.serve
        serve(name, fifo, options.pem)
        return 0
    if lacking := servers.missing(tls=options.tls):
        raise SystemExit("\n".join(["bench.fanout needs:", *lacking]))
    quick = options.quick or options.tls
    rounds = options.rounds or (2 if quick else 5)
    sizes = [1_000, 5_000] if quick else [1_000, 5_000, 10_000]
    if options.sizes:
        sizes = [int(size) for size in options.sizes.split(",")]
    names = options.only.split(",") if options.only else list(servers.OVER_TLS if options.tls else servers.NAMES)
    verdict = measure(names, sizes, rounds, options.seconds, quick=quick, tls=options.tls)
    results = RESULTS.with_stem("fanout_tls") if options.tls else RESULTS
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps(asdict(verdict), indent=2) + "\n")
    print(table(verdict))
    return 0 if verdict.met else 1


def measure(names: list[str], sizes: list[int], rounds: int, seconds: float, *, quick: bool, tls: bool) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), tls=tls)
        found = measure_sizes(bench, names, sizes, rounds, seconds)
        fairness = []
        if "ours" in names and not tls:
            rates = {size: median_rate(found, "ours", size) for size in sizes}
            fairness = measure_fairness(
                bench, [size for size in FAIRNESS_STREAMS if size in sizes], max(rounds, FAIRNESS_ROUNDS_MIN), rates
            )
        at_one_hz = {}
        for name in [] if quick else names:
            best = max(one["saturated"]["per_s"] for one in found if one["server"] == name)
            at_one_hz[name] = bench.streams_at_one_hz(name, best)
            say(f"{servers.NAMES[name]}: {at_one_hz[name]} streams at one frame a second, p99 under 100 ms")
    return judge(found, fairness, at_one_hz, tls=tls)


def median_rate(found: list[dict[str, Any]], name: str, streams: int) -> float:
    rates: list[float] = [
        one["saturated"]["per_s"] for one in found if (one["server"], one["streams"]) == (name, streams)
    ]
    return statistics.median(rates)


def serve(name: str, fifo: str, pem: str | None) -> None:
    from bench.fanout import ours, peers

    if name == "starlette":
        peers.serve_starlette(fifo)
    else:
        {"ours": ours.main, "quart": peers.serve_quart}[name](fifo, pem)


if __name__ == "__main__":
    sys.exit(main())
