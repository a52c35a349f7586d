"""The gateway that is soaked, in a process of its own: as in production, but for limits that one address would meet.

It prints where it is, then a sample every few seconds: what only the process itself can know.
"""

import json
import os
import resource
import threading
import time
from pathlib import Path

import trio

from gateway.main.server import running
from gateway.main.settings import load
from gateway.observe.log_output import LogSettings, log_to

BEAT_S = 0.01
LIMITS = {
    "door.connections_per_address_max": 20_000,
    "echo.sockets_per_address_max": 2_000,
    "echo.upgrades_burst": 100_000,
    "echo.rest_burst": 100_000,
    "echo.creations_burst": 100_000,
    "echo.disk_free_min": 0.0,
    "audit.bytes_max": 4 * 1024**2,  # so that its files are removed in turn within the hour
    "audit.file_bytes_max": 512 * 1024,
}


async def serve(folder: Path, sample_s: float) -> None:
    log_to(LogSettings(format="json"))
    flags = {"data": str(folder / "disk" / "data"), "http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"}
    flags["governance.policy"] = str(folder / "policy.toml")
    async with (
        running(load(None, {}, flags | {"echo.enabled": True} | LIMITS)) as gateway,
        trio.open_nursery() as tasks,
    ):
        print(json.dumps({"http": gateway.http, "devices": gateway.device_address}), flush=True)
        stalls = Stalls()
        tasks.start_soon(stalls.watch)
        while True:
            await trio.sleep(sample_s)
            print(json.dumps(sample() | {"stall_ms": stalls.longest_ms()}), flush=True)


class Stalls:
    def __init__(self) -> None:
        self._ms = 0.0

    async def watch(self) -> None:
        while True:
            began_s = time.monotonic()
            await trio.sleep(BEAT_S)
            self._ms = max(self._ms, (time.monotonic() - began_s - BEAT_S) * 1000)

    def longest_ms(self) -> float:
        """Since the last time."""
        longest, self._ms = self._ms, 0.0
        return longest


def sample() -> dict[str, float]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss_mib": pages * resource.getpagesize() / 2**20,
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "threads": threading.active_count(),
        "cpu_s": time.process_time(),
    }
