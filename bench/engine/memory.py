"""What nodes and streams take, in two gateways on an engine without limits: `measure`."""

from collections.abc import Callable
from pathlib import Path

import psutil
import trio

from bench.engine.children import Nodes, Streams, compiled
from bench.engine.fleet import Gateway, World, are_ready, cpu_s, stream_request
from bench.engine.jetstream import JetStream
from gateway.engine.server_run import ServerRun

NODES, STREAMS = 2_000, 10_000
QUICK = 10  # times fewer
WARM_NODES = 100  # first, and not counted: code, caches and pools are in place
WARM_STREAMS = 100
REST_S = 3.0  # for heaps and views to settle
JETSTREAM_BYTES_MAX = 2**36


class Book:
    """What each process has used so far."""

    def __init__(self, gateways: list[Gateway], nats: int) -> None:
        self._pids = {"here": gateways[0].process.pid, "there": gateways[1].process.pid, "nats": nats}
        self._rss = self._cpu = dict.fromkeys(self._pids, 0.0)

    async def page(self) -> tuple[dict[str, float], dict[str, float]]:
        """Bytes and processor microseconds since the last page."""
        await trio.sleep(REST_S)
        rss = {name: float(psutil.Process(pid).memory_info().rss) for name, pid in self._pids.items()}
        cpu = {name: cpu_s(pid) * 1e6 for name, pid in self._pids.items()}
        since = (
            {name: rss[name] - self._rss[name] for name in rss},
            {name: cpu[name] - self._cpu[name] for name in cpu},
        )
        self._rss, self._cpu = rss, cpu
        return since


async def measure(folder: Path, *, quick: bool, say: Callable[[str], None]) -> dict[str, float]:
    """By name: bytes and microseconds for each node and stream. `here` has the node, `there` is another gateway."""
    less = QUICK if quick else 1
    nodes_count, streams_count = NODES // less, STREAMS // less
    server = ServerRun(folder, JETSTREAM_BYTES_MAX)
    world = World(folder, server, None)
    reader = compiled(folder, "streams", Path(__file__).parent / "streams.c")
    try:
        await server.start()
        say(f"memory: enrolling {nodes_count:,} nodes ...")
        with world.fleet("memory", 2, nodes_count + WARM_NODES) as fleet:
            await are_ready(fleet.gateways)
            here, there = fleet.gateways
            del world.openings[there.first :]  # all nodes are with the first
            async with Nodes.running(world.openings, folder / "nodes") as nodes:
                await nodes.dial(0, WARM_NODES)
                book = Book(fleet.gateways, server.pid)
                empty, _ = await book.page()
                say(f"memory: {nodes_count:,} nodes dial ...")
                await nodes.dial(WARM_NODES, len(world.openings))
                joined, joining = await book.page()
                async with JetStream.of(server) as jetstream:
                    kept = await jetstream.kept_bytes(fleet.name)
                found = {
                    "empty gateway, bytes": empty["there"],
                    **{f"a node, bytes {who}": size / nodes_count for who, size in joined.items()},
                    "a node, bytes of buckets": kept / len(world.openings),
                    **{f"a node joins, us {who}": used / nodes_count for who, used in joining.items()},
                }
                for who, gateway in (
                    ("there", there),
                    ("here", here),
                ):  # what streams have left is not used again by nodes
                    say(f"memory: {streams_count:,} streams of a gateway whose nodes are {who} ...")
                    async with Streams.opened(
                        [reader], entries(gateway, here.node_ids[:WARM_STREAMS], 1), folder / "warm"
                    ):
                        await book.page()
                        each = streams_count // nodes_count
                        node_ids = here.node_ids[WARM_NODES:]
                        async with Streams.opened([reader], entries(gateway, node_ids, each), folder / "requests"):
                            grown, opening = await book.page()
                    found |= {f"a stream, node {who}, bytes": grown[who] / streams_count}
                    found |= {f"a stream, node {who}, opens, us": opening[who] / streams_count}
                    if who == "there":
                        found["a cadence for another gateway, bytes here"] = grown["here"] / nodes_count
                return found
    finally:
        await server.stop()


def entries(gateway: Gateway, node_ids: list[str], each: int) -> list[tuple[int, int, bytes]]:
    return [(gateway.http, each, stream_request(node_id, gateway.token)) for node_id in node_ids]
