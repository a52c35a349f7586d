"""How fast the command log is: `python -m bench.log [--quick]`.

Durable appends a second with 1, 100 and 1,000 callers, beside a bare loop that commits the same rows in the same batch
sizes with nothing around it: no queue, no thread, no tasks. Both run in turns, so that a noisy machine disturbs both,
and the ratio is the median over the rounds. Then: how long a stream of 100,000 events takes to be read and folded.

An append is half the life of a command, in turn: queued and sent (two events, an open item), then acked (one event, the
item deleted).
"""

import argparse
import json
import platform
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

import msgspec
import trio

from actors.log.sqlite_files import open_files
from actors.log.sqlite_store import SqliteStore
from actors.log.store import DEFAULT_LIMITS, Appended, OpenItem, Part
from actors.node.command_rules import (
    Decision,
    decide,
)
from actors.node.history import (
    CommandAcked,
    CommandQueued,
    CommandSent,
    NodeState,
    encode,
)
from actors.node.intents import (
    Issue,
    OpenSession,
    Report,
    TakeAck,
    TakeResume,
)
from actors.node.node_stream import part_of, restore, stream_of

RESULTS = Path(__file__).parent / "results" / "log.json"
CALLERS = (1, 100, 1_000)
TARGET_AT_100 = 0.5
NOW_MS = 1_800_000_000_000
TOOL = "mcp.echo.01jd0000000000000000000001.echo"


class Speed(msgspec.Struct):
    """One measurement of both, in the same round."""

    callers: int
    batch: int
    ours_per_s: float
    bare_per_s: float
    p50_ms: float
    p99_ms: float

    @property
    def ratio(self) -> float:
        return self.ours_per_s / self.bare_per_s


def command_id(caller: int, number: int) -> str:
    return f"01MC4CMT00{caller:08d}{number:08d}"


def opening_events(msg_id: str) -> tuple[bytes, bytes]:
    queued = CommandQueued(NOW_MS, msg_id, TOOL, "agent_018f", "acme", NOW_MS + 5_000)
    return encode(queued), encode(CommandSent(NOW_MS, msg_id, 1))


async def run_ours(folder: Path, callers: int, seconds: float) -> tuple[float, list[float]]:
    """Appends a second through the store, and how long each took."""
    took_s: list[float] = []

    async def call(caller: int) -> None:
        stream, version, number = stream_of(f"{caller:026d}"), 0, 0
        while time.perf_counter() < end_s:
            msg_id = command_id(caller, number)
            events = opening_events(msg_id)
            item = OpenItem(msg_id, events[0])
            opened = Part(stream, version, NOW_MS, events, opened=(item,))
            closed = Part(stream, version + 2, NOW_MS, (encode(CommandAcked(NOW_MS, msg_id)),), closed=(msg_id,))
            for part in (opened, closed):
                began_s = time.perf_counter()
                answer = await store.append(part)
                took_s.append(time.perf_counter() - began_s)
                assert isinstance(answer, Appended), answer
            version += 3
            number += 1

    async with await SqliteStore.open(folder / "ours.db") as store:
        start_s = time.perf_counter()
        end_s = start_s + seconds
        async with trio.open_nursery() as nursery:
            for caller in range(callers):
                nursery.start_soon(call, caller)
        elapsed_s = time.perf_counter() - start_s
    return len(took_s) / elapsed_s, took_s


def run_bare(folder: Path, batch: int, seconds: float) -> float:
    """Appends a second of a loop that does nothing but write the same rows and commit."""
    open_files(folder / "bare.db").close(has_failed=False)  # the same tables
    with closing(sqlite3.connect(folder / "bare.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        pages = DEFAULT_LIMITS.wal_bytes_max // connection.execute("PRAGMA page_size").fetchone()[0]
        connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")  # as often as ours
        appends = number = 0
        start_s = time.perf_counter()
        while time.perf_counter() < start_s + seconds:
            ids = [command_id(stream, number) for stream in range(batch)]
            version = 3 * number
            opened, items, acked = [], [], []
            for stream, msg_id in enumerate(ids):
                first, second = opening_events(msg_id)
                marks = f"[{NOW_MS},{len(first)},{NOW_MS},{len(second)}]"
                opened.append((stream, version + 1, version + 2, marks, first + second))
                items.append((stream, msg_id, version + 1, first))
                third = encode(CommandAcked(NOW_MS, msg_id))
                acked.append((stream, version + 3, version + 3, f"[{NOW_MS},{len(third)}]", third))
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO run VALUES (?,?,?,?,?)", opened)
            connection.executemany("INSERT INTO open_item VALUES (?,?,?,?)", items)
            connection.execute("COMMIT")

            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO run VALUES (?,?,?,?,?)", acked)
            connection.executemany("DELETE FROM open_item WHERE stream = ? AND key = ?", enumerate(ids))
            connection.execute("COMMIT")
            appends += 2 * batch
            number += 1
        return appends / (time.perf_counter() - start_s)


def measure(callers: int, seconds: float, *, ours_first: bool) -> Speed:
    batch = min(callers, DEFAULT_LIMITS.batch_appends_max)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if ours_first:
            ours_per_s, took_s = trio.run(run_ours, folder, callers, seconds)
            bare_per_s = run_bare(folder, batch, seconds)
        else:
            bare_per_s = run_bare(folder, batch, seconds)
            ours_per_s, took_s = trio.run(run_ours, folder, callers, seconds)
    cuts = statistics.quantiles(took_s, n=100)
    return Speed(callers, batch, ours_per_s, bare_per_s, cuts[49] * 1e3, cuts[98] * 1e3)


async def replay(folder: Path, events: int) -> tuple[float, float]:
    """Seconds to rebuild a node from that many events, and from a snapshot instead."""
    node, state = "01jd0000000000000000000001", NodeState()
    first = decide(state, OpenSession("s"), NOW_MS)
    second = decide(first.state, TakeResume("frame", "journal", None), NOW_MS, epoch=1)
    pending, before = [*first.events, *second.events], state
    state = second.state
    async with await SqliteStore.open(folder / "replay.db") as store:
        number = 0
        while state.version + 3 <= events:
            number += 1
            msg_id = command_id(0, number)
            issued = decide(state, Issue(msg_id, TOOL, "agent_018f", "acme", NOW_MS + 5_000), NOW_MS, epoch=1)
            acked = decide(issued.state, TakeAck(Report(msg_id, ok=True)), NOW_MS, epoch=1)
            pending += [*issued.events, *acked.events]
            state = acked.state
            if len(pending) > 3_000 or state.version + 3 > events:
                whole = msgspec.structs.replace(
                    part_of(node, before, Decision(state, tuple(pending)), NOW_MS), snapshot=None
                )
                assert isinstance(await store.append(whole), Appended)
                pending, before = [], state
        start_s = time.perf_counter()
        assert restore(await store.load(stream_of(node))) == state
        folded_s = time.perf_counter() - start_s
        await store.append(part_of(node, state, Decision(state), NOW_MS, snapshot=True))
        start_s = time.perf_counter()
        assert restore(await store.load(stream_of(node))) == state
        return folded_s, time.perf_counter() - start_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.log", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs; numbers mean little")
    quick = parser.parse_args().quick
    rounds, seconds, events = (1, 0.5, 10_000) if quick else (5, 2.0, 100_000)

    speeds: dict[int, list[Speed]] = {callers: [] for callers in CALLERS}
    for number in range(rounds):
        for callers in CALLERS:
            speed = measure(callers, seconds, ours_first=number % 2 == 1)
            speeds[callers].append(speed)
            print(f"  round {number + 1}/{rounds}, {callers:>5,} callers: {speed.ours_per_s:>8,.0f}/s", flush=True)
    print(f"  replaying {events:,} events ...", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folded_s, from_snapshot_s = trio.run(replay, Path(name), events)

    print("\ndurable appends a second (median of rounds)")
    print(f"{'callers':>8} {'batch':>6} {'ours':>9} {'bare SQLite':>12} {'ratio':>6} {'p50 ms':>8} {'p99 ms':>8}")
    table = []
    for callers, measured in speeds.items():
        middle = {
            name: statistics.median(getattr(speed, name) for speed in measured)
            for name in ("ours_per_s", "bare_per_s", "ratio", "p50_ms", "p99_ms")
        }
        table.append({"callers": callers, "batch": measured[0].batch, **middle})
        print(
            f"{callers:>8,} {measured[0].batch:>6,} {middle['ours_per_s']:>9,.0f} {middle['bare_per_s']:>12,.0f} "
            f"{middle['ratio']:>6.2f} {middle['p50_ms']:>8.2f} {middle['p99_ms']:>8.2f}"
        )
    at_100 = next(row["ratio"] for row in table if row["callers"] == 100)
    verdict = "met" if at_100 >= TARGET_AT_100 else "MISSED"
    print(f"\ntarget: at least {TARGET_AT_100} of bare SQLite at 100 callers: {verdict} ({at_100:.2f})")
    print(f"replay: {events:,} events in {folded_s:.2f} s ({events / folded_s:,.0f}/s)", end="; ")
    print(f"from a snapshot instead {from_snapshot_s * 1e3:.1f} ms")

    RESULTS.parent.mkdir(exist_ok=True)
    result = {
        "quick": quick,
        "machine": platform.platform(),
        "sqlite": sqlite3.sqlite_version,
        "appends": table,
        "rounds": {str(callers): msgspec.to_builtins(measured) for callers, measured in speeds.items()},
        "replay": {"events": events, "seconds": folded_s, "from_snapshot_s": from_snapshot_s},
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
