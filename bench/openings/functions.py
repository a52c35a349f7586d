"""How many functions run for an opening, and where: counts, which no neighbour on the machine disturbs.

    python -m bench.openings.functions [--streams 2000] [--before 883e0bfd]

A gateway in a process of its own runs under cProfile while streams are opened, and with it the gateway of another
commit. Functions of Python are counted, not those in C. What runs in the log's writer thread is not in it.
"""

import argparse
import os
import pstats
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.fanout import servers
from bench.fanout.clients import Clients, compiled
from bench.fanout.rounds import WARM_STREAMS
from bench.openings.tree import BEFORE, checked_out

PARTS = {
    "gateway/net/": "door: accept, read, parse, adopt",
    "gateway/identity/": "token, scopes",
    "gateway/api/": "body",
    "gateway/streams/": "from request to stream",
    "gateway/calls/audit": "audit line",
    "gateway/observe/": "audit line",
    "gateway/calls/": "admission and payment",
    "gateway/governance/": "admission and payment",
    "actors/ledger/": "admission and payment",
    "actors/bus/": "admission and payment",
    "schemas/": "admission and payment",
    "actors/log/": "log",
    "actors/stream/": "stream",
    "actors/supervision/": "supervision",
    "gateway/main/": "clock, ids",
    "trio/": "trio: tasks, waits, cancel scopes",
}
ELSE = "Python's library"
PROFILE_S = 0.2  # for a signal to be heard


def serve(fifo: str, profile: str) -> None:
    """A gateway that counts from SIGUSR1 to SIGUSR2."""
    import cProfile

    from bench.fanout import ours

    counted = cProfile.Profile()

    def end(*_: object) -> None:
        counted.disable()
        counted.dump_stats(profile)

    signal.signal(signal.SIGUSR1, lambda *_: counted.enable())
    signal.signal(signal.SIGUSR2, end)
    ours.main(fifo)


def counts(root: Path, folder: Path, program: Path, streams: int) -> Counter[str]:
    """Calls of functions for an opening, by part."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        fifo, profile = Path(made) / "fifo", Path(made) / "profile"
        os.mkfifo(fifo)
        command = [sys.executable, "-m", "bench.openings.functions", "--serve", str(fifo), str(profile)]
        process = subprocess.Popen(
            command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        port, request = process.stdout.readline().split()
        server = servers.Server("ours", process.pid, int(port), bytes.fromhex(request), process, ("fifo", fifo))
        clients = Clients(program, Path(made), server)
        try:
            clients.open(WARM_STREAMS)
            process.send_signal(signal.SIGUSR1)
            time.sleep(PROFILE_S)
            clients.open(streams)
            process.send_signal(signal.SIGUSR2)
            while not profile.exists() or not profile.stat().st_size:
                time.sleep(PROFILE_S)
            time.sleep(PROFILE_S)
            return by_part(profile, root, streams)
        finally:
            server.end()
            clients.end()


def by_part(profile: Path, root: Path, streams: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for (file, _, _), (_, calls, *_) in pstats.Stats(str(profile)).stats.items():  # type: ignore[attr-defined]
        if file != "~":
            found[part_of(file.removeprefix(f"{root}/").rpartition("site-packages/")[2])] += calls
    return Counter({part: round(calls / streams) for part, calls in found.items()})


def part_of(file: str) -> str:
    if file.startswith("<attrs"):  # of trio's classes
        return PARTS["trio/"]
    return next((part for begin, part in PARTS.items() if file.startswith(begin)), ELSE)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=2_000)
    parser.add_argument("--before", default=BEFORE, help="the commit beside which this tree is counted")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        program = compiled(folder, "load")
        then = counts(checked_out(options.before, folder / "before"), folder, program, options.streams)
        now = counts(servers.ROOT, folder, program, options.streams)
    print(f"{'functions of Python an opening':<36}{'before':>8}{'now':>8}")
    for part, calls in now.most_common():
        print(f"{part:<36}{then[part]:>8}{calls:>8}")
    print(f"{'in all':<36}{then.total():>8}{now.total():>8}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
