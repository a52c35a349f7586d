"""A machine that does not exist: its load drifts like a live one's, and the same seed drifts the same way.

Each quantity is a mean-reverting walk in steps of one second, so what is read depends on the seed and on the time that
is passed in, not on how often anybody asks. Load averages follow the CPU the way a kernel's do.
"""

import math
from random import Random

import trio

from actors.device.sampler import Disk, Reading

STEP_MS = 1000
STEPS_MAX = 3600
"""A longer gap between two readings is not walked in full: by then a walk has forgotten where it was."""

_GIB = 2**30
_LOAD_MINUTES = (1, 5, 15)


class _Walk:
    """x moves toward its mean by `pull` of the distance each step, and by chance. Held within [low, high]."""

    def __init__(self, rng: Random, mean: float, pull: float, noise: float, low: float, high: float) -> None:
        self._rng = rng
        self._mean, self._pull, self._noise = mean, pull, noise
        self._low, self._high = low, high
        self.value = mean

    def step(self) -> None:
        moved = self.value + self._pull * (self._mean - self.value) + self._rng.gauss(0.0, self._noise)
        self.value = min(self._high, max(self._low, moved))


class MockSampler:
    """Boots some hours before `started_ms`. Times passed to `read` are not expected to go back; one that does reads as
    the latest before it."""

    def __init__(self, seed: int, started_ms: int) -> None:
        rng = Random(seed)
        cores = rng.choice((2, 4, 8, 16))
        self._mem_total_bytes = rng.choice((2, 4, 8, 16, 32)) * _GIB
        self._disk_total_bytes = rng.choice((32, 64, 128, 512)) * _GIB
        self._booted_ms = started_ms - rng.randrange(3_600_000, 30 * 86_400_000)
        self._next_step_ms = started_ms + STEP_MS
        self._cpu_pct = _Walk(rng, rng.uniform(8.0, 45.0), 0.04, 2.5, 0.5, 99.0)
        self._core_offsets = [_Walk(rng, 0.0, 0.2, 4.0, -30.0, 30.0) for _ in range(cores)]
        self._mem_used = _Walk(rng, rng.uniform(0.25, 0.7), 0.01, 0.002, 0.05, 0.97)
        self._disk_used = _Walk(rng, rng.uniform(0.1, 0.8), 0.001, 0.00005, 0.01, 0.99)
        self._load = [self._demand()] * len(_LOAD_MINUTES)

    async def read(self, ts_ms: int) -> Reading:
        await trio.lowlevel.checkpoint()
        return self.read_sync(ts_ms)

    def read_sync(self, ts_ms: int) -> Reading:
        missed = (ts_ms - self._next_step_ms) // STEP_MS - STEPS_MAX
        self._next_step_ms += STEP_MS * max(0, missed)
        while self._next_step_ms <= ts_ms:
            self._next_step_ms += STEP_MS
            self._step()
        mem_used_bytes = int(self._mem_total_bytes * self._mem_used.value)
        disk_used = self._disk_used.value
        one, five, fifteen = (round(load, 2) for load in self._load)
        return Reading(
            uptime_s=max(0, ts_ms - self._booted_ms) // 1000,
            per_core_pct=tuple(self._core_pct(offset) for offset in self._core_offsets),
            mem_total_bytes=self._mem_total_bytes,
            mem_available_bytes=self._mem_total_bytes - mem_used_bytes,
            mem_used_bytes=mem_used_bytes,
            swap_total_bytes=0,
            swap_used_bytes=0,
            load=(one, five, fifteen),
            disks=(
                Disk(
                    mount="/",
                    fs_type="ext4",
                    total_bytes=self._disk_total_bytes,
                    available_bytes=int(self._disk_total_bytes * (1.0 - disk_used)),
                    used_pct=round(100.0 * disk_used, 1),
                ),
            ),
        )

    def _step(self) -> None:
        for walk in (self._cpu_pct, *self._core_offsets, self._mem_used, self._disk_used):
            walk.step()
        for index, minutes in enumerate(_LOAD_MINUTES):
            self._load[index] += (self._demand() - self._load[index]) * (1.0 - math.exp(-1.0 / (60 * minutes)))

    def _demand(self) -> float:
        return self._cpu_pct.value / 100.0 * len(self._core_offsets)

    def _core_pct(self, offset: _Walk) -> float:
        return round(min(100.0, max(0.0, self._cpu_pct.value + offset.value)), 1)
