"""Several gateways on an engine: what each adds, what the engine costs, and what nodes and streams take of memory.

    python -m bench.engine [--quick] [--rounds 5] [--seconds 3] [--share 0.2]

Everything runs on this machine: one nats-server that syncs every write, fleets of one, two and four gateways on it and
one gateway without it, nodes that answer at once, callers and streams in C. Each gateway may use a fifth of a core, by
the kernel's control groups (which takes root), so that two cores hold four of them with everything around. All fleets
are up all the time, and are loaded one after another:

- *fan-out*: one node's frames to 1,000 streams of each gateway, more of them than a gateway can deliver;
- *local calls*: each gateway is called for nodes of its own, by 64 callers of one agent, each call paid for;
- *remote calls*: the same for nodes of the next gateway;
- *relay*: many nodes of one gateway, each followed by one stream of the other, at a rate that both can take.

A ratio is of one round, for each gateway, by the clock and by the gateways' processor time; medians of rounds count.
NATS has its store in memory here, so that gateways are what is measured, and not the one disk that they would share;
`--store disk` shows that.

Then, without limits: memory and processor time of 2,000 nodes and 10,000 streams (`memory`), and durable appends a
second with one replica and with three, on the disk (`log`). It all ends by itself, in time or with the name of who was
waited for, and ends every process that it began.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trio

from actors.supervision.crash_report import first_leaf
from bench.engine import log, memory
from bench.engine.cgroups import NoGroupsError, groups
from bench.engine.children import BenchError
from bench.engine.fleet import World, are_ready
from bench.engine.scaling import ALONE, GOALS, NODES_EACH, SIZES, Bench, Rounds, medians, ratios
from gateway.engine.server_run import NoServerError, ServerRun
from tests.gateway.engine.cluster import three_servers

RESULTS = Path(__file__).parent.parent / "results" / "engine.json"
GIVE_UP_S_MAX = 3600.0  # for all of it
JETSTREAM_BYTES_MAX = 2**36
PARTS = ("scaling", "memory", "appends")
PREFIX = "heliograph-engine-"


def say(text: str) -> None:
    print(f"[{datetime.now(UTC):%H:%M:%S}, load {os.getloadavg()[0]:.1f}] {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def work_folder(where: Path) -> Iterator[Path]:
    """Gone at the end; one that a killed run left, too."""
    where.mkdir(exist_ok=True)
    for folder in where.glob(f"{PREFIX}*"):
        if not Path("/proc", folder.name.removeprefix(PREFIX)).exists():
            shutil.rmtree(folder, ignore_errors=True)
    made = where / f"{PREFIX}{os.getpid()}"
    made.mkdir()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


async def scaling(folder: Path, store: Path, share: float, rounds: int, seconds: float) -> Rounds:
    server = ServerRun(store, JETSTREAM_BYTES_MAX)
    found: Rounds = []
    with groups() as made, contextlib.ExitStack() as stack:
        load = made.make("load")
        world = World(folder, server, made, load.prefix)
        try:
            await server.start()
            load.take(server.pid)
            say("starting eight gateways ...")
            stack.enter_context(world.fleet(ALONE, 1, NODES_EACH, on_engine=False))
            for name, size in SIZES.items():
                await are_ready(stack.enter_context(world.fleet(name, size, NODES_EACH)).gateways)
            await are_ready(world.fleets[ALONE].gateways)
            async with Bench.ready(world, seconds, say) as bench:
                world.limit(share)
                say("warming up ...")
                await bench.warm_up()
                for number in range(1, rounds + 1):
                    found.append(await bench.round(backwards=number % 2 == 0))
                    say(f"round {number} of {rounds}: {brief(ratios(found[-1:]))}")
        finally:
            await server.stop()
    return found


def brief(found: dict[str, dict[str, float]]) -> str:
    return "; ".join(f"{name} {of['per_s']:.2f}/{of['per_cpu_s']:.2f}" for name, of in found.items())


async def appends(folder: Path, replicas: int, rounds: int, seconds: float) -> list[dict[str, float]]:
    say(f"appends, {replicas} replica(s) ...")
    servers = [ServerRun(folder, JETSTREAM_BYTES_MAX)] if replicas == 1 else three_servers(folder)
    try:
        return log.table(await log.measure(servers, replicas, rounds, seconds))
    finally:
        for server in servers:
            server.kill()


async def measured(options: argparse.Namespace) -> dict[str, Any]:
    """The figures. Raises BenchError."""
    # On a disk, because /tmp may be memory; and in memory, as the parts say.
    with work_folder(RESULTS.parent) as folder, work_folder(Path("/dev/shm")) as memory_folder:
        parts = {part: folder / part for part in ("scaling", "memory", "1", "3")}
        for part in parts.values():
            part.mkdir()
        result: dict[str, Any] = {
            "quick": options.quick,
            "machine": platform.platform(),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "share": options.share,
            "store": options.store,
        }
        if "scaling" in options.only:
            store = parts["scaling"] if options.store == "disk" else memory_folder
            rounds = await scaling(parts["scaling"], store, options.share, options.rounds, options.seconds)
            result |= {
                "ratios": ratios(rounds),
                "medians": medians(rounds),
                "rounds": [
                    {load: {name: asdict(one) for name, one in of.items()} for load, of in each.items()}
                    for each in rounds
                ],
            }
        if "memory" in options.only:
            result["memory"] = await memory.measure(parts["memory"], quick=options.quick, say=say)
        if "appends" in options.only:
            log_rounds, log_s = (1, 0.5) if options.quick else (3, 2.0)
            result["appends"] = {f"R{r}": await appends(parts[str(r)], r, log_rounds, log_s) for r in (1, 3)}
        return result


async def run(options: argparse.Namespace) -> dict[str, Any]:
    with trio.fail_after(GIVE_UP_S_MAX):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_on_signals, nursery.cancel_scope)
            result = await measured(options)
            nursery.cancel_scope.cancel()
            return result
    raise BenchError("interrupted")


async def stop_on_signals(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for number in signals:
            say(f"{signal.Signals(number).name}: ending what was begun ...")
            scope.cancel()


def report(result: dict[str, Any]) -> bool:
    """Whether the goals are met."""
    met = True
    for load, by_fleet in result.get("medians", {}).items():
        for name, one in by_fleet.items():
            print(
                f"{load:<13}{name:>6}{one['per_s']:>10,.0f}/s{one['cpu_us']:>9,.0f} µs CPU"
                f"{one['nats_us']:>8,.1f} µs NATS{one['throttled']:>6.0%} out of time  p50 {one['p50_ms']:.0f} ms"
            )
    for name, of in result.get("ratios", {}).items():
        goal = GOALS.get(name.partition(",")[0]) if ", " in name else None
        verdict = "" if goal is None else f"  goal {goal:g}: {'met' if of['per_s'] >= goal else 'NOT MET'}"
        met = met and not verdict.endswith("NOT MET")
        print(f"{name:<32} by the clock {of['per_s']:.2f}, by processor time {of['per_cpu_s']:.2f}{verdict}")
    for name, value in result.get("memory", {}).items():
        print(f"{name:<48}{value:>14,.1f}")
    for name, rows in result.get("appends", {}).items():
        for row in rows:
            print(
                f"appends {name}, {row['callers']:>4} callers {row['ours_per_s']:>9,.0f}/s  p50 {row['p50_ms']:.1f} ms"
            )
    return met


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it runs")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--share", type=float, default=0.2, help="of a core, for each gateway")
    parser.add_argument("--store", choices=("disk", "memory"), default="memory", help="of the scaling part's NATS")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, comma-separated; the others stay as they are")
    options = parser.parse_args()
    options.only = options.only.split(",")
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.seconds = options.seconds or (1.0 if options.quick else 3.0)
    try:
        result = trio.run(run, options)
    except Exception as error:
        cause = first_leaf(error)
        if not isinstance(cause, BenchError | NoGroupsError | NoServerError | trio.TooSlowError):
            raise
        print(f"bench.engine: {str(cause) or 'it took too long'}", file=sys.stderr)
        return 2
    met = report(result)
    if set(options.only) != set(PARTS) and RESULTS.exists():  # the other parts stay those of the runs before
        result = json.loads(RESULTS.read_text()) | result
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {RESULTS}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
