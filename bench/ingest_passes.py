"""What a telemetry frame costs when a pass of the event loop brings one, five or twenty.

    python -m bench.ingest_passes [--rounds 7]

The server of `bench.ingest` and its nodes in one process: so many frames are sent, each by another node, and the event
loop runs until all of them have been taken in. Processor time of the one thread, with what sending takes, which is the
same for all. So no scheduler and no other program decides how many frames a pass finds, as they do in `bench.ingest`.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import trio
from ulid import ULID

from bench import ingest
from gateway.net import gathering_rules

NODES, FRAMES = 40, 2_000
BURSTS = (1, 5, 20)
SETTLE_S = 0.5


def connected(ready: Path) -> list[tuple[ingest.Client, bytes]]:
    """Nodes with an open cadence, each with a frame to send."""
    said = json.loads(ready.read_text())
    nodes = []
    for node in said["nodes"]:
        client = ingest.Client(said["port"])
        cadence = client.open_cadence(node)
        payload = {**ingest.FRAME, "node_id": node["node_id"]}
        frame = {"type": "telemetry", "msg_id": str(ULID()), "in_reply_to": cadence, "payload": payload}
        client.sock.setblocking(False)
        nodes.append((client, ingest.masked(json.dumps(frame, separators=(",", ":")).encode())))
    return nodes


async def run(rounds: int) -> None:
    counters: list[list[int]] = []

    async def keep(counter: list[int]) -> None:
        counters.append(counter)
        await trio.sleep_forever()

    ingest.report = keep
    gathering_rules.GATHER_S = 0.0  # what a pass brings is decided here
    took_us: dict[int, list[float]] = {burst: [] for burst in BURSTS}
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ingest.serve_ours, NODES, ready)
            while not ready.exists():  # noqa: ASYNC110
                await trio.sleep(0.05)
            nodes = await trio.to_thread.run_sync(connected, ready)
            await trio.sleep(SETTLE_S)
            for _ in range(rounds):
                for burst in BURSTS:
                    began_s = time.thread_time()
                    await take_in(nodes, burst, counters[0])
                    took_us[burst].append((time.thread_time() - began_s) / FRAMES * 1e6)
            nursery.cancel_scope.cancel()
    for burst, of in took_us.items():
        print(f"{burst:>3} frames a pass: {statistics.median(of):6.1f} us a frame (lowest {min(of):.1f})")


async def take_in(nodes: list[tuple[ingest.Client, bytes]], burst: int, counter: list[int]) -> None:
    expected = counter[0]
    for number in range(FRAMES // burst):
        for place in range(burst):
            client, frame = nodes[(number * burst + place) % NODES]
            client.sock.send(frame)
        expected += burst
        while counter[0] < expected:
            await trio.lowlevel.checkpoint()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    trio.run(run, parser.parse_args().rounds)


if __name__ == "__main__":
    main()
