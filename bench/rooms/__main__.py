"""Messages a CPU-second in rooms of 10, 100 and 256, and values read and written, beside peers in the same run.

    python -m bench.rooms [--quick] [--rounds 5] [--seconds 2] [--only ours,broadcast]

Each server runs in a process of its own on core 0: the door with echo spaces (`ours.py`); a room of `websockets` that
calls its `broadcast()`, under asyncio; a room of Starlette under uvicorn with uvloop, by the WebSocket implementation
that uvicorn has today and by its older one (`peers.py`). On core 1 a C program (`load.c`) holds 5,000 connections in
rooms of one size, says a line of 150 bytes in each room, and counts what arrives. The members of a room speak by turns.
- *One*: somebody speaks when everybody has what was said last. A delivery is then a write() of its own.
- *8 together*: eight of a room speak at once, and eight others when everybody has what they said.
- *Half*: at half the rate that this server reached with *one*, for the latencies.
- *Joins*: upgrades with their first frame, 64 under way, with presence off: the peers announce nobody.
- *Bytes a connection*: how much the server's resident memory grew by those idle connections.

Then values: GET and POST of 100 bytes with 16 keep-alive connections (the load of `bench.calls`), through our store,
which seals each of them and commits them in groups, beside a bare handler with SQLite under uvicorn.

Rates *a CPU-second* of the server process decide, all its threads counted, as in `bench.door`; rates by the clock are
printed beside. Rounds alternate between the servers; medians count, and a ratio is the median of those of the rounds.
The rates that an address, a connection and a room may use are lifted in ours, for the load is one address.
"""

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import trio

from bench.rooms.clients import ROOT, Clients, compiled, serving
from bench.rooms.values import VALUE_SERVERS, measure_values
from bench.rooms.verdict import ROOM_SERVERS, RoomRound, ValueRound, judge

RESULTS = ROOT / "bench" / "results" / "rooms.json"
SIZES = (10, 100, 256)
CONNECTIONS = 5_000
WARM_CONNECTIONS = 250  # opened first and not counted: code, caches and pools are in place
WARM_UP_S = 0.5
SPEAKERS = 8


def say(text: str) -> None:
    print(f"[load {os.getloadavg()[0]:.1f}] {text}", file=sys.stderr, flush=True)


def measure_room(name: str, size: int, seconds: float, program: Path, folder: Path) -> RoomRound:
    rooms = round(CONNECTIONS / size)
    with tempfile.TemporaryDirectory() as made, serving(name, rooms, folder) as server:
        clients = Clients(program, Path(made), server)
        try:
            warm = WARM_CONNECTIONS // size * size or size
            clients.open(warm, size)
            clients.run(WARM_UP_S)
            before = server.rss_bytes()
            opened = clients.open(rooms * size - warm, size)
            bytes_each = (server.rss_bytes() - before) / opened.count
            clients.run(WARM_UP_S)
            one = clients.run(seconds)
            together = clients.run(seconds, speakers=SPEAKERS)
            hz = one.per_s / 2 / (size - 1)
            clients.run(WARM_UP_S, hz)
            half = clients.run(seconds, hz)
        finally:
            clients.end()
    return RoomRound(name, size, one, together, half, opened.count / opened.server_s, bytes_each)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rounds of one second")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--only", default=",".join((*ROOM_SERVERS, *VALUE_SERVERS)), help="servers, comma-separated")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="of rooms, comma-separated")
    parser.add_argument("--serve", nargs=3, metavar=("SERVER", "ROOMS", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return 0
    rounds = options.rounds or (2 if options.quick else 5)
    seconds = options.seconds or (1.0 if options.quick else 2.0)
    names, sizes = options.only.split(","), [int(size) for size in options.sizes.split(",")]
    RESULTS.parent.mkdir(exist_ok=True)
    verdict = judge(*measure(names, sizes, rounds, seconds))
    RESULTS.write_text(json.dumps(asdict(verdict), indent=2) + "\n")
    print(verdict.table)
    return 0 if verdict.met else 1


def measure(
    names: list[str], sizes: list[int], rounds: int, seconds: float
) -> tuple[list[RoomRound], list[ValueRound]]:
    of_rooms: list[RoomRound] = []
    of_values: list[ValueRound] = []
    # What servers keep is beside the code, because /tmp may be memory.
    with tempfile.TemporaryDirectory() as made:
        program = compiled(Path(__file__).parent / "load.c", Path(made))
        http_program = compiled(ROOT / "bench" / "calls_load.c", Path(made))
        for number in range(1, rounds + 1):
            for size in sizes:
                for name in [name for name in ROOM_SERVERS if name in names]:
                    of_rooms.append(measure_room(name, size, seconds, program, RESULTS.parent))
                    say(f"round {number} of {rounds}: {of_rooms[-1].brief}")
            for name in [name for name in VALUE_SERVERS if name in names]:
                of_values.append(measure_values(name, seconds, http_program, RESULTS.parent))
                say(f"round {number} of {rounds}: {of_values[-1].brief}")
    return of_rooms, of_values


def serve(name: str, rooms: str, folder: str) -> None:
    from bench.rooms import ours, peers

    match name:
        case "ours":
            trio.run(ours.serve, int(rooms), Path(folder))
        case "broadcast":
            peers.serve_broadcast(int(rooms))
        case "starlette":
            peers.serve_starlette(int(rooms), "auto")
        case "starlette_older":
            peers.serve_starlette(int(rooms), "websockets")
        case "sqlite":
            peers.serve_values(Path(folder))


if __name__ == "__main__":
    sys.exit(main())
