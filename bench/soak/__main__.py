"""A gateway under everything at once, for hours: is it at the end as it was?

    python -m bench.soak [--hours 1] [--nodes 40] [--streams 300] [--callers 8] [--rooms 4] [--seed 1]

One process is the gateway, on core 0; this one is everybody else, on core 1: nodes that come and go, callers, streams
(one in ten is never read), rooms, a policy that is written anew. In the middle the disk is full for a minute, where a
disk of its own can be made (a tmpfs, by root). Memory, descriptors, tasks, threads, sizes of files, latencies and the
longest stall of the event loop are sampled; at the end each is flat within its bound (`verdict.py`), or it is named and
the exit code is 1. Samples and counts go to bench/results/soak-SEED.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import trio

from bench.soak.load import POLICY, Load, made
from bench.soak.verdict import BOUNDS, judge

RESULTS = Path(__file__).parent.parent / "results"
DISK_MIB = 2048
FULL_S_MAX = 60.0
SAMPLES = 120  # in a run, at least one in ten seconds
END_S_MAX = 20.0


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """At `folder`; whether it is one of its own."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "soak", str(folder)]
    is_own = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield is_own
    finally:
        if is_own:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def sizes(data: Path) -> dict[str, float]:
    found = {path: path.stat().st_size for path in data.rglob("*") if path.is_file()}
    audit = sum(size for path, size in found.items() if "audit" in path.relative_to(data).parts[0])
    return {"audit_mib": audit / 2**20, "data_mib": sum(found.values()) / 2**20}


class Soak:
    def __init__(self, options: argparse.Namespace, folder: Path, *, has_disk: bool) -> None:
        self.options, self.folder, self.has_disk = options, folder, has_disk
        self.samples: list[dict[str, float]] = []
        self.sample_s = min(10.0, options.hours * 3600 / SAMPLES)
        self.log_at: tuple[float, int] | None = None

    async def run(self) -> Load:
        options, rng = self.options, Random(self.options.seed)
        data = self.folder / "disk" / "data"
        who = made(data, options.nodes, options.callers + 1)
        policy = self.folder / "policy.toml"
        policy.write_text(POLICY.format(budget=1_000_000))
        command = [sys.executable, "-m", "bench.soak", "--serve", str(self.folder), "--sample-s", str(self.sample_s)]
        with (self.folder / "gateway.log").open("wb") as logged:
            gateway = await trio.lowlevel.open_process(
                ["taskset", "-c", "0", *command], stdout=subprocess.PIPE, stderr=logged
            )
        assert gateway.stdout is not None
        lines = _lines(gateway.stdout)
        where = json.loads(await anext(lines))
        load = Load(where["http"], where["devices"], who, policy, rng)
        try:
            with trio.move_on_after(options.hours * 3600):
                async with trio.open_nursery() as nursery:
                    for identity in who.identities:
                        nursery.start_soon(load.node, identity)
                    for token in who.tokens[1:]:
                        nursery.start_soon(load.caller, token)
                    for _ in range(options.streams):
                        nursery.start_soon(load.stream, who.tokens[0])
                    for _ in range(options.rooms):
                        nursery.start_soon(load.room)
                    nursery.start_soon(load.policies)
                    nursery.start_soon(self.fill_disk, load)
                    async for line in lines:
                        self.sampled(json.loads(line), load, data)
                    raise SystemExit(f"the gateway ended:\n{(self.folder / 'gateway.log').read_text()[-2000:]}")
        finally:
            with trio.CancelScope(shield=True):
                gateway.terminate()
                with trio.move_on_after(END_S_MAX):
                    await gateway.wait()
                if gateway.returncode is None:
                    gateway.kill()
                    raise SystemExit(f"the gateway did not stop within {END_S_MAX:g} s")
        return load

    def sampled(self, sample: dict[str, float], load: Load, data: Path) -> None:
        took_ms, load.took_ms = sorted(load.took_ms), []
        if not took_ms:
            return  # the disk is full: nothing is answered
        sample["call_p50_ms"] = statistics.median(took_ms)
        sample["call_p99_ms"] = took_ms[int(len(took_ms) * 0.99)]
        sample |= sizes(data)
        calls = load.counts["calls answered 200"]
        size = (data / "log.sqlite").stat().st_size
        sample["log_bytes_a_call"] = size / calls
        self.samples.append(sample)
        shown = ", ".join(f"{name} {value:,.1f}" for name, value in sample.items())
        print(f"[{time.strftime('%H:%M:%S')}] {shown}", file=sys.stderr, flush=True)

    async def fill_disk(self, load: Load) -> None:
        """For a minute, in the middle."""
        await trio.sleep(self.options.hours * 1800)
        if not self.has_disk:
            print("no disk of its own (that takes root): it is never full in this run", file=sys.stderr)
            return
        ballast = self.folder / "disk" / "ballast"
        try:
            with ballast.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(bytes(2**20)):
                    await trio.lowlevel.checkpoint()
            load.counts["full disks"] += 1
            await trio.sleep(min(FULL_S_MAX, self.options.hours * 360))
        finally:
            ballast.unlink(missing_ok=True)


async def _lines(stream: trio.abc.ReceiveStream):  # type: ignore[no-untyped-def]
    data = b""
    async for piece in stream:
        data += piece
        while b"\n" in data:
            line, _, data = data.partition(b"\n")
            yield line


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--rooms", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sample-s", type=float, default=10.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        from bench.soak.gateway import serve

        trio.run(serve, options.serve, options.sample_s)
        return 0
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as made_folder, small_disk(Path(made_folder) / "disk") as has_disk:
        soak = Soak(options, Path(made_folder), has_disk=has_disk)
        load = trio.run(soak.run)
    judged = judge(soak.samples)
    RESULTS.mkdir(exist_ok=True)
    kept = {"seed": options.seed, "hours": options.hours, "counts": load.counts, "samples": soak.samples}
    (RESULTS / f"soak-{options.seed}.json").write_text(json.dumps(kept, indent=1) + "\n")
    print(f"{options.hours:g} h, seed {options.seed}")
    for what, count in sorted(load.counts.items()):
        print(f"  {what:32} {count:>12,}")
    for each in judged:
        print(f"  {each.figure:32} {each.early:>12,.1f} {each.late:>12,.1f}  {'flat' if each.is_flat else 'GREW'}")
    assert len(judged) == len(BOUNDS)
    return 0 if all(each.is_flat for each in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
