"""The numbers behind `system.metrics`: a port, the shapes they are published in, and the sampler of a real machine.

A sampler only reads; `metrics_sample` (RFC-0001 §5.4) and `metrics_frame` (RFC-0009 §5.1) give a reading its shape. So
a mock device (`mock_sampler`) cannot differ from a real one in anything but its numbers.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import psutil
import trio

from schemas.registry import REGISTRY

_SAMPLE = REGISTRY["system.metrics.sample@1.0.0"].document["properties"]
_DISKS_MAX: int = _SAMPLE["disk"]["maxItems"]
_MOUNT_CHARS_MAX: int = _SAMPLE["disk"]["items"]["properties"]["mount"]["maxLength"]
_FS_TYPE_CHARS_MAX: int = _SAMPLE["disk"]["items"]["properties"]["fs_type"]["maxLength"]

SAMPLING_THREADS_MAX = 2
"""A disk that hangs keeps its thread; further readings then wait, and their handlers run into their deadline."""

USAGE_SPAN_S_MIN = 0.25
"""CPU times come in steps of 10 ms; over less than this a percentage is mostly noise, so the last one is repeated."""


@dataclass(frozen=True, slots=True)
class Disk:
    mount: str
    fs_type: str
    total_bytes: int
    available_bytes: int
    used_pct: float


@dataclass(frozen=True, slots=True)
class Reading:
    uptime_s: int
    per_core_pct: tuple[float, ...]
    mem_total_bytes: int
    mem_available_bytes: int
    mem_used_bytes: int
    swap_total_bytes: int
    swap_used_bytes: int
    load: tuple[float, float, float]
    disks: tuple[Disk, ...]  # the one that holds the root first

    @property
    def cpu_pct(self) -> float:
        return round(sum(self.per_core_pct) / len(self.per_core_pct), 1)


class Sampler(Protocol):
    async def read(self, ts_ms: int) -> Reading:
        """The machine as it is at this wall-clock time."""


def metrics_sample(node_id: str, ts_ms: int, reading: Reading, include: Collection[str]) -> dict[str, Any]:
    """A MetricsSample with the groups of `include`. The schema requires `uptime_s`, so it is always there."""
    one, five, fifteen = reading.load
    groups: dict[str, Any] = {
        "cpu": {
            "cores": len(reading.per_core_pct),
            "usage_pct": reading.cpu_pct,
            "per_core_pct": list(reading.per_core_pct),
        },
        "mem": {
            "total_bytes": reading.mem_total_bytes,
            "available_bytes": reading.mem_available_bytes,
            "used_bytes": reading.mem_used_bytes,
            "swap_total_bytes": reading.swap_total_bytes,
            "swap_used_bytes": reading.swap_used_bytes,
        },
        "load": {"one": one, "five": five, "fifteen": fifteen},
        "disk": [
            {
                "mount": disk.mount,
                "fs_type": disk.fs_type,
                "total_bytes": disk.total_bytes,
                "available_bytes": disk.available_bytes,
            }
            for disk in reading.disks
        ],
    }
    sample: dict[str, Any] = {"ts_ms": ts_ms, "node_id": node_id, "uptime_s": reading.uptime_s}
    return sample | {name: group for name, group in groups.items() if name in include}


def metrics_frame(node_id: str, ts_ms: int, reading: Reading) -> dict[str, Any]:
    one, five, fifteen = reading.load
    return {
        "ts_ms": ts_ms,
        "node_id": node_id,
        "cpu_pct": reading.cpu_pct,
        "mem_bytes": reading.mem_used_bytes,
        "mem_total_bytes": reading.mem_total_bytes,
        "disk_pct": reading.disks[0].used_pct if reading.disks else 0.0,
        "load_1m": one,
        "load_5m": five,
        "load_15m": fifteen,
    }


class PsutilSampler:
    """This machine, by psutil; `/proc` only for the root's file system where psutil lists none (in some containers).

    CPU usage is over the time since the reading before, as long as that is not too short to tell; the first one is over
    the time since boot. (psutil's own `cpu_percent` keeps its last reading per thread, and ours come from any thread.)
    """

    def __init__(self) -> None:
        self._threads = trio.CapacityLimiter(SAMPLING_THREADS_MAX)
        self._lock = Lock()
        self._busy_and_total: list[tuple[float, float]] = []
        self._per_core_pct: tuple[float, ...] = ()

    async def read(self, ts_ms: int) -> Reading:
        return await trio.to_thread.run_sync(self.read_sync, ts_ms, abandon_on_cancel=True, limiter=self._threads)

    def read_sync(self, ts_ms: int) -> Reading:
        memory = psutil.virtual_memory()
        swap = psutil.swap_memory()
        return Reading(
            uptime_s=max(0, int(ts_ms / 1000 - psutil.boot_time())),
            per_core_pct=self._usage([_busy_and_total(times) for times in psutil.cpu_times(percpu=True)]),
            mem_total_bytes=memory.total,
            mem_available_bytes=memory.available,
            mem_used_bytes=memory.used,
            swap_total_bytes=swap.total,
            swap_used_bytes=swap.used,
            load=psutil.getloadavg(),
            disks=tuple(_disks()),
        )

    def _usage(self, cores: list[tuple[float, float]]) -> tuple[float, ...]:
        with self._lock:
            if len(cores) != len(self._busy_and_total):  # the first reading, or a core came or went
                self._busy_and_total = [(0.0, 0.0)] * len(cores)
            spans = [total - total0 for (_, total), (_, total0) in zip(cores, self._busy_and_total, strict=True)]
            if max(spans) >= USAGE_SPAN_S_MIN or not self._per_core_pct:
                self._per_core_pct = tuple(
                    _percent(busy - busy0, span)
                    for (busy, _), (busy0, _), span in zip(cores, self._busy_and_total, spans, strict=True)
                )
                self._busy_and_total = cores
            return self._per_core_pct


def _busy_and_total(times: Any) -> tuple[float, float]:
    spent: dict[str, float] = times._asdict()
    # Linux counts a guest's time in `user` and `nice` too.
    total = sum(seconds for name, seconds in spent.items() if name not in ("guest", "guest_nice"))
    return total - spent["idle"] - spent.get("iowait", 0.0), total


def _percent(part: float, whole: float) -> float:
    return round(min(100.0, max(0.0, 100.0 * part / whole)), 1) if whole > 0 else 0.0


def _disks() -> Iterator[Disk]:
    mounts = [(part.mountpoint, part.fstype) for part in psutil.disk_partitions(all=False)]
    if all(mount != "/" for mount, _ in mounts):
        mounts.append(("/", _root_fs_type()))
    for mount, fs_type in sorted(mounts, key=lambda entry: entry[0] != "/")[:_DISKS_MAX]:
        # A single file bound into a container is listed as a mount too.
        if len(mount) > _MOUNT_CHARS_MAX or not Path(mount).is_dir():
            continue
        try:
            usage = psutil.disk_usage(mount)
        except OSError:  # unmounted since, or not ours to look at
            continue
        yield Disk(mount, fs_type[:_FS_TYPE_CHARS_MAX], usage.total, usage.free, min(100.0, usage.percent))


def _root_fs_type(mounts: Path = Path("/proc/mounts")) -> str:
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return "unknown"
    return next((fields[2] for line in lines if (fields := line.split())[1:2] == ["/"]), "unknown")
