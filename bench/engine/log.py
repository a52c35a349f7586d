"""How fast the log on JetStream is: `python -m bench.engine.log [--quick] [--replicas 3]`.

Durable appends a second with 1, 64 and 512 callers, beside a bare loop that publishes messages of the same size and
number on the same connection, with the same expectations, and does nothing else: no queue, no heads, no tasks. Both run
in turns, so that a noisy machine disturbs both. The servers are children on this machine and sync every write, three of
them with `--replicas 3`, so they share its processors and its disk with what is measured.

An append is half the life of a command, as in `bench.log`.
"""

import argparse
import json
import platform
import statistics
import tempfile
import time
from pathlib import Path

import msgspec
import trio
from ulid import ULID

from actors.log.store import Appended, OpenItem, Part
from actors.node.history import CommandAcked, encode
from bench.log import NOW_MS, command_id, opening_events
from gateway.engine.asking import ask_all
from gateway.engine.connection import Connection
from gateway.engine.jetstream_rules import EXPECTED_SEQ, Verdict, judge
from gateway.engine.nats_runs import Names
from gateway.engine.nats_store import NatsStore
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.objects import Objects
from gateway.engine.server_run import ServerRun
from gateway.engine.settings import EngineSettings
from gateway.engine.unit_rules import Outgoing, in_stream
from tests.gateway.engine.cluster import three_servers

RESULTS = Path(__file__).parent.parent / "results" / "engine-log.json"
CALLERS = (1, 64, 512)
RUN_BYTES = 420  # of a message of ours, headers apart
NAMES = Names("hg")


class Speed(msgspec.Struct):
    """One measurement of both, in the same round."""

    callers: int
    ours_per_s: float
    bare_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float  # of this process, an append

    @property
    def ratio(self) -> float:
        return self.ours_per_s / self.bare_per_s


async def run_ours(store: NatsStore, callers: int, seconds: float) -> tuple[float, list[float], float]:
    """Appends a second through the store, how long each took, and processor time an append."""
    took_s: list[float] = []
    life = str(ULID())

    async def call(caller: int) -> None:
        stream, version, number = f"{life}/{caller}", 0, 0
        while time.perf_counter() < end_s:
            msg_id = command_id(caller, number)
            events = opening_events(msg_id)
            opened = Part(stream, version, NOW_MS, events, opened=(OpenItem(msg_id, events[0]),))
            closed = Part(stream, version + 2, NOW_MS, (encode(CommandAcked(NOW_MS, msg_id)),), closed=(msg_id,))
            for part in (opened, closed):
                began_s = time.perf_counter()
                answer = await store.append(part)
                took_s.append(time.perf_counter() - began_s)
                assert isinstance(answer, Appended), answer
            version += 3
            number += 1

    start_s, cpu_s = time.perf_counter(), time.process_time()
    end_s = start_s + seconds
    async with trio.open_nursery() as nursery:
        for caller in range(callers):
            nursery.start_soon(call, caller)
    elapsed_s = time.perf_counter() - start_s
    return len(took_s) / elapsed_s, took_s, (time.process_time() - cpu_s) / len(took_s)


async def run_bare(link: Connection, callers: int, seconds: float) -> float:
    """Appends a second of a loop that publishes as many messages at once: one by itself, more as an atomic batch."""
    life, data = str(ULID()), bytes(RUN_BYTES)
    heads = [0] * callers
    appends = 0
    start_s = time.perf_counter()
    while time.perf_counter() < start_s + seconds:
        messages = [
            Outgoing(NAMES.runs_of(f"{life}/{caller}"), data, {EXPECTED_SEQ: str(seq)})
            for caller, seq in enumerate(heads)
        ]
        *others, last = in_stream(messages, NAMES.log, str(ULID()))
        for message in others:
            link.publish(*message)
        [answer] = await ask_all(link, [last], 10.0)
        judged = judge(answer, NAMES.log)
        assert judged.verdict is Verdict.LANDED, answer
        heads = [judged.seq - callers + 1 + caller for caller in range(callers)]
        appends += callers
    return appends / (time.perf_counter() - start_s)


async def measure(servers: list[ServerRun], replicas: int, rounds: int, seconds: float) -> dict[int, list[Speed]]:
    speeds: dict[int, list[Speed]] = {callers: [] for callers in CALLERS}
    for server in servers:
        await server.start()
    settings = ConnectionSettings(tuple(server.url for server in servers), token=servers[0].token)
    async with await Connection.open(settings) as link:
        engine = EngineSettings(replicas=replicas, log_bytes_max=2**33, sync_is_always=True)
        log_id = await Objects(link, NAMES, engine).prepare()
        async with NatsStore(link, NAMES, log_id, time.time, engine=engine) as store:
            for number in range(rounds):
                for callers in CALLERS:
                    bare_per_s = await run_bare(link, callers, seconds)
                    ours_per_s, took_s, cpu_s = await run_ours(store, callers, seconds)
                    cuts = statistics.quantiles(took_s, n=100)
                    speed = Speed(callers, ours_per_s, bare_per_s, cuts[49] * 1e3, cuts[98] * 1e3, cpu_s * 1e6)
                    speeds[callers].append(speed)
                    print(f"  round {number + 1}/{rounds}, {callers:>4} callers: {ours_per_s:>8,.0f}/s", flush=True)
    for server in servers:
        await server.stop()
    return speeds


def table(speeds: dict[int, list[Speed]]) -> list[dict[str, float]]:
    """The medians."""
    names = ("ours_per_s", "bare_per_s", "ratio", "p50_ms", "p99_ms", "cpu_us")
    return [
        {"callers": callers, **{name: statistics.median(getattr(one, name) for one in measured) for name in names}}
        for callers, measured in speeds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.engine.log", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs; numbers mean little")
    parser.add_argument("--replicas", type=int, choices=(1, 3), default=1)
    arguments = parser.parse_args()
    rounds, seconds = (1, 0.5) if arguments.quick else (5, 2.0)
    with tempfile.TemporaryDirectory() as name:
        servers = [ServerRun(Path(name), 2**36)] if arguments.replicas == 1 else three_servers(Path(name))
        speeds = trio.run(measure, servers, arguments.replicas, rounds, seconds)

    rows = table(speeds)
    print(f"\ndurable appends a second, {arguments.replicas} replica(s) (median of rounds)")
    print(f"{'callers':>8} {'ours':>9} {'bare':>9} {'ratio':>6} {'p50 ms':>8} {'p99 ms':>8} {'µs CPU':>7}")
    for row in rows:
        print(
            f"{row['callers']:>8,} {row['ours_per_s']:>9,.0f} {row['bare_per_s']:>9,.0f} {row['ratio']:>6.2f} "
            f"{row['p50_ms']:>8.2f} {row['p99_ms']:>8.2f} {row['cpu_us']:>7.0f}"
        )
    RESULTS.parent.mkdir(exist_ok=True)
    result = {
        "quick": arguments.quick,
        "replicas": arguments.replicas,
        "machine": platform.platform(),
        "appends": rows,
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
