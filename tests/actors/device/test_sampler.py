"""Metrics in the published shapes, from this machine and from one that does not exist."""

from itertools import chain, combinations, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import actors.device.sampler as sampler_module
from actors.device.handlers import standard_handlers
from actors.device.mock_sampler import STEPS_MAX, MockSampler
from actors.device.sampler import PsutilSampler, Reading, Sampler, metrics_frame, metrics_sample
from schemas.contract import contract
from tests.actors.device.node import ECHO, SNAPSHOT, SUBSCRIBE, T0_MS
from tests.schemas.examples import FRAME, NODE_ID

GROUPS = ("cpu", "mem", "load", "uptime", "disk")
SUBSETS = list(chain.from_iterable(combinations(GROUPS, size) for size in range(len(GROUPS) + 1)))
SAMPLERS: list[Sampler] = [PsutilSampler(), MockSampler(1, T0_MS)]
SAMPLE = contract("system.metrics.sample@1.0.0")
A_FRAME = contract("system.metrics.subscribe.frame@1.0.0")

each_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)


# ---- the published shapes --------------------------------------------------------------------------------------------


@each_sampler
@pytest.mark.parametrize("include", SUBSETS, ids=lambda include: "+".join(include) or "none")
async def test_a_snapshot_has_the_groups_asked_for_and_fits_its_schema(
    sampler: Sampler, include: tuple[str, ...]
) -> None:
    snapshot = standard_handlers(NODE_ID, sampler, lambda: T0_MS)[SNAPSHOT]
    sample = await snapshot({"include": list(include)})
    assert SAMPLE.first_flaw(sample) is None
    assert set(sample) == {"ts_ms", "node_id", "uptime_s"} | (set(include) - {"uptime"})
    assert (sample["ts_ms"], sample["node_id"]) == (T0_MS, NODE_ID)


@each_sampler
async def test_a_snapshot_has_everything_by_default(sampler: Sampler) -> None:
    sample = await standard_handlers(NODE_ID, sampler, lambda: T0_MS)[SNAPSHOT]({})
    assert set(sample) == {"ts_ms", "node_id", "uptime_s", "cpu", "mem", "load", "disk"}


@each_sampler
async def test_a_frame_fits_its_schema_and_has_its_keys_in_order(sampler: Sampler) -> None:
    frame = await standard_handlers(NODE_ID, sampler, lambda: T0_MS)[SUBSCRIBE]({})
    assert A_FRAME.first_flaw(frame) is None
    assert list(frame) == list(FRAME)


@each_sampler
async def test_frame_and_sample_of_one_reading_agree(sampler: Sampler) -> None:
    reading = await sampler.read(T0_MS)
    sample: Any = metrics_sample(NODE_ID, T0_MS, reading, GROUPS)
    frame = metrics_frame(NODE_ID, T0_MS, reading)
    assert frame["cpu_pct"] == sample["cpu"]["usage_pct"]
    assert frame["mem_bytes"] == sample["mem"]["used_bytes"]
    assert frame["mem_total_bytes"] == sample["mem"]["total_bytes"]
    assert [frame["load_1m"], frame["load_5m"], frame["load_15m"]] == list(sample["load"].values())
    assert sample["cpu"]["cores"] == len(sample["cpu"]["per_core_pct"])


async def test_echo_returns_the_message_with_the_time_it_came_in() -> None:
    echo = standard_handlers(NODE_ID, MockSampler(1, T0_MS), lambda: T0_MS)[ECHO]
    result = await echo({"message": "hello"})
    assert result == {"message": "hello", "received_at_ms": T0_MS, "node_id": NODE_ID}
    assert contract("system.echo.invoke.output@1.0.0").is_valid(result)


def test_a_machine_without_disks_is_not_full() -> None:
    reading = Reading(1, (50.0, 0.0), 2, 1, 1, 0, 0, (0.0, 0.0, 0.0), ())
    assert metrics_frame(NODE_ID, T0_MS, reading)["disk_pct"] == 0.0
    assert A_FRAME.is_valid(metrics_frame(NODE_ID, T0_MS, reading))


# ---- this machine ----------------------------------------------------------------------------------------------------


class Times(SimpleNamespace):
    def _asdict(self) -> dict[str, float]:
        return dict(vars(self))


def busy(seconds: float, of: float) -> Times:
    return Times(user=seconds, nice=0.0, idle=of - seconds, iowait=0.0, guest=seconds, guest_nice=0.0)


def test_cpu_usage_is_over_the_time_since_the_reading_before(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter(
        [
            [busy(10, of=100), busy(20, of=100)],  # since boot
            [busy(11, of=102), busy(22, of=102)],  # two seconds later: half busy, and fully
            [busy(11, of=102.1), busy(22, of=102.1)],  # too soon to tell
            [busy(11, of=104), busy(22, of=104), busy(1, of=2)],  # a core was added
        ]
    )
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: next(readings))  # noqa: ARG005
    sampler = PsutilSampler()
    assert [sampler.read_sync(T0_MS).per_core_pct for _ in range(4)] == [
        (10.0, 20.0),
        (50.0, 100.0),
        (50.0, 100.0),
        (10.6, 21.2, 50.0),
    ]


def test_times_that_go_back_are_held_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([[busy(50, of=100)], [busy(40, of=102)], [busy(40, of=90)]])
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: next(readings))  # noqa: ARG005
    sampler = PsutilSampler()
    assert [sampler.read_sync(T0_MS).cpu_pct for _ in range(3)] == [50.0, 0.0, 0.0]


def test_a_core_that_has_not_run_yet_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [busy(0, of=0)])  # noqa: ARG005
    assert PsutilSampler().read_sync(T0_MS).cpu_pct == 0.0


def test_uptime_is_counted_from_boot_and_never_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "boot_time", lambda: T0_MS / 1000 - 90.5)
    assert PsutilSampler().read_sync(T0_MS).uptime_s == 90
    assert PsutilSampler().read_sync(T0_MS - 100_000).uptime_s == 0


def mounts(*entries: tuple[str, str]) -> list[Any]:
    return [SimpleNamespace(mountpoint=mount, fstype=fs_type) for mount, fs_type in entries]


def test_the_root_comes_first_and_what_cannot_be_listed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bound_file = tmp_path / "hosts"
    bound_file.touch()
    listed = mounts((str(tmp_path), "x" * 40), (str(bound_file), "ext4"), ("/" + "m" * 300, "ext4"), ("/", "ext4"))
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: listed)  # noqa: A006, ARG005
    root, other = PsutilSampler().read_sync(T0_MS).disks
    assert (root.mount, root.fs_type) == ("/", "ext4")
    assert (other.mount, other.fs_type) == (str(tmp_path), "x" * 32)


def test_a_disk_that_is_gone_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_mount: str) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(psutil, "disk_usage", gone)
    assert PsutilSampler().read_sync(T0_MS).disks == ()


def test_where_psutil_lists_no_root_proc_knows_its_file_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: [])  # noqa: A006, ARG005
    (root,) = PsutilSampler().read_sync(T0_MS).disks
    assert root.mount == "/"
    proc = tmp_path / "mounts"
    proc.write_text("proc /proc proc rw 0 0\n\noverlay / overlay rw 0 0\n")
    assert sampler_module._root_fs_type(proc) == "overlay"  # noqa: SLF001
    assert sampler_module._root_fs_type(tmp_path / "none") == "unknown"  # noqa: SLF001


# ---- a machine that does not exist -----------------------------------------------------------------------------------


def walk(seed: int, seconds: list[int]) -> list[Reading]:
    sampler = MockSampler(seed, T0_MS)
    return [sampler.read_sync(T0_MS + second * 1000) for second in seconds]


def test_the_same_seed_reads_the_same_at_the_same_time_however_often_it_is_asked() -> None:
    often = walk(7, list(range(601)))
    seldom = walk(7, [0, 300, 600])
    assert [often[0], often[300], often[600]] == seldom


def test_another_seed_is_another_machine() -> None:
    assert walk(7, [60]) != walk(8, [60])


@pytest.mark.parametrize("seed", range(20))
def test_every_reading_fits_the_schemas(seed: int) -> None:
    for number, reading in enumerate(walk(seed, list(range(0, 3600, 30)))):
        ts_ms = T0_MS + number
        assert SAMPLE.first_flaw(metrics_sample(NODE_ID, ts_ms, reading, GROUPS)) is None
        assert A_FRAME.first_flaw(metrics_frame(NODE_ID, ts_ms, reading)) is None


def test_load_drifts_like_a_live_machines() -> None:
    readings = walk(3, list(range(3600)))
    cpu = [reading.cpu_pct for reading in readings]
    steps = [abs(after - before) for before, after in pairwise(cpu)]
    assert max(cpu) - min(cpu) > 10, "it moves"
    assert max(steps) < 25, "without jumps"
    one, fifteen = ([reading.load[index] for reading in readings] for index in (0, 2))
    assert max(one) - min(one) > 2 * (max(fifteen) - min(fifteen)), "a longer average is calmer"
    half = len(cpu) // 2
    assert abs(sum(cpu[:half]) / half - sum(cpu[half:]) / half) < 10, "and keeps coming back to its mean"


def test_a_clock_that_goes_back_reads_the_latest() -> None:
    sampler = MockSampler(3, T0_MS)
    latest = sampler.read_sync(T0_MS + 60_000)
    assert sampler.read_sync(T0_MS + 30_000).per_core_pct == latest.per_core_pct


def test_a_gap_of_years_is_not_walked_in_full() -> None:
    sampler = MockSampler(3, T0_MS)
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    sampler._step = count  # type: ignore[method-assign]  # noqa: SLF001
    sampler.read_sync(T0_MS + 10 * 365 * 86_400_000)
    assert STEPS_MAX <= steps <= STEPS_MAX + 1
