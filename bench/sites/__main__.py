"""Files of a site a CPU-second, small and large, beside nginx with the same files in the same run; and memory.

    python -m bench.sites [--quick] [--rounds 7] [--seconds 2] [--connections 16]

Each server runs in a process of its own on core 0: a whole gateway with one site, to which the files were uploaded, and
nginx with one worker, `sendfile` and no access log (`servers.py`). On core 1 a C program (`load.c`) holds keep-alive
connections that each ask for a file of 4 KiB, or of 1 MiB, again when they have all of it. Rounds alternate between the
servers; medians count, and a ratio is the median of those of the rounds.

Rates *a CPU-second* of the server process decide, as in `bench.door`; rates by the clock are printed beside. Then the
memory of ours: how much it has grown after files of 25 MiB, and with as many connections again that have asked for such
a file and read none of it. Both are the same few megabytes whatever the size of a file.
"""

import argparse
import contextlib
import hashlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from bench.sites.servers import HOST, LOAD_CORE, ROOT, SIZES, Server, missing, serve_ours, serving, write_files

RESULTS = ROOT / "bench" / "results" / "sites.json"
SERVERS = ("ours", "nginx")
RATIO_MIN = {"small.bin": 0.25, "large.bin": 0.6}
GROWN_BYTES_MAX = 8 * 1024 * 1024
WHAT = {"grown_bytes": "after files of 25 MiB", "with_stalled_bytes": "with 64 that read nothing"}
WARM_UP_S = 0.5
STALLED = 64


@dataclass(frozen=True)
class Round:
    per_cpu_s: float
    per_s: float
    server_share: float
    load_share: float


def compiled(folder: Path) -> Path:
    program = folder / "load"
    source = Path(__file__).parent / "load.c"
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-o", program, source], check=True)
    return program


def command(program: Path, server: Server, connections: int, seconds: float, name: str) -> list[str]:
    return [*f"taskset -c {LOAD_CORE} {program} {server.port} {connections} {seconds} {HOST} /{name}".split()]


def load(program: Path, server: Server, connections: int, seconds: float, name: str) -> Round:
    before_s = server.cpu_s()
    called = command(program, server, connections, seconds, name)
    said = subprocess.run(called, check=True, capture_output=True, text=True).stdout.split()
    server_s = server.cpu_s() - before_s
    done, elapsed_s, load_s = int(said[0]), float(said[1]), float(said[2])
    assert int(said[3]) == SIZES[name]
    return Round(done / server_s, done / elapsed_s, server_s / elapsed_s, load_s / elapsed_s)


@contextlib.contextmanager
def stalled(program: Path, server: Server, count: int, name: str) -> Iterator[None]:
    """Connections that have asked and read nothing."""
    called = command(program, server, count, -1, name)
    with subprocess.Popen(called, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stalled\n"
        yield
        process.communicate("")


def check(server: Server, files: Path) -> None:
    """It serves the very bytes."""
    for name in SIZES:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", f"/{name}", headers={"Host": HOST})
        got = hashlib.sha256(connection.getresponse().read()).digest()
        assert got == hashlib.sha256((files / name).read_bytes()).digest(), (server.name, name)
        connection.close()


def say(text: str) -> None:
    print(f"[load {os.getloadavg()[0]:.1f}] {text}", file=sys.stderr, flush=True)


def measure(rounds: int, seconds: float, connections: int, folder: Path) -> dict[str, object]:
    program, files = compiled(folder), folder / "files"
    files.mkdir()
    folder.chmod(0o755)
    write_files(files)
    found: dict[str, dict[str, list[Round]]] = {name: {server: [] for server in SERVERS} for name in RATIO_MIN}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(serving(name, files, folder / name)) for name in SERVERS}
        for server in servers.values():
            check(server, files)
        for name, by_server in found.items():
            for server in servers.values():
                load(program, server, connections, WARM_UP_S, name)
            for _ in range(rounds):
                for server in servers.values():
                    by_server[server.name].append(load(program, server, connections, seconds, name))
            say(f"{name}: {rounds} rounds")
        ours = servers["ours"]
        before = ours.rss_bytes()
        load(program, ours, connections, seconds, "huge.bin")
        grown = ours.rss_bytes() - before
        with stalled(program, ours, STALLED, "huge.bin"):
            load(program, ours, 1, WARM_UP_S, "small.bin")  # so those before it have been answered as far as they read
            with_stalled = ours.rss_bytes() - before
    return {"rates": found, "rss_bytes": before, "grown_bytes": grown, "with_stalled_bytes": with_stalled}


def median(rounds: list[Round]) -> Round:
    return Round(*(statistics.median(column) for column in zip(*map(astuple, rounds), strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rounds of half a second")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--serve", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_ours(options.serve)
        return 0
    if lacking := missing():
        print("\n".join(lacking), file=sys.stderr)
        return 2
    rounds = options.rounds or (2 if options.quick else 7)
    seconds = options.seconds or (0.5 if options.quick else 2.0)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(rounds, seconds, options.connections, Path(folder))
    return judge(found, options.connections)


def judge(found: dict[str, object], connections: int) -> int:
    rates = found["rates"]
    assert isinstance(rates, dict)
    print(f"{'file':<11}{'server':<8}{'per CPU-s':>11}{'lowest':>9}{'highest':>9}{'per s':>9}{'server':>8}{'load':>6}")
    ratios: dict[str, float] = {}
    for name, by_server in rates.items():
        for server, rounds in by_server.items():
            typical, each = median(rounds), [one.per_cpu_s for one in rounds]
            print(
                f"{name:<11}{server:<8}{typical.per_cpu_s:>11,.0f}{min(each):>9,.0f}{max(each):>9,.0f}"
                f"{typical.per_s:>9,.0f}{typical.server_share:>8.0%}{typical.load_share:>6.0%}"
            )
        pairs = zip(by_server["ours"], by_server["nginx"], strict=True)
        ratios[name] = statistics.median(ours.per_cpu_s / nginx.per_cpu_s for ours, nginx in pairs)
    met = {name: ratios[name] >= least for name, least in RATIO_MIN.items()}
    for name, least in RATIO_MIN.items():
        print(f"{name}: {ratios[name]:.2f} x nginx (expected >= {least:g}): {'met' if met[name] else 'NOT MET'}")
    for what in WHAT:
        grown = found[what]
        assert isinstance(grown, int)
        met[what] = grown <= GROWN_BYTES_MAX
        said = "met" if met[what] else "NOT MET"
        print(f"memory, {WHAT[what]}: {grown / 1024:,.0f} KiB more (expected <= {GROWN_BYTES_MAX // 1024:,}): {said}")
    result = {
        "connections": connections,
        "rounds": {
            name: {server: [asdict(one) for one in all_] for server, all_ in by.items()} for name, by in rates.items()
        },
        "ratios": ratios,
        "memory": {key: value for key, value in found.items() if key != "rates"},
        "met": all(met.values()),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
