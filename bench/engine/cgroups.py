"""Processes that get a share of one core and no more, by the kernel's control groups (version 1 or 2, as root).

Every group of a run is in one folder that has the run's process id in its name, so that a later run can remove what a
killed one left behind.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PERIOD_US = 20_000  # short, so that processes that wait for each other do not wait for each other's next period
SHARES = 32_768  # of ordinary processes' 1,024: others on the machine delay what is measured less
EMPTY_S_MAX = 5.0  # for the processes of a group to be gone; then its folder stays, and the next run removes it
_PREFIX = "heliograph-bench-"
_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


class NoGroupsError(Exception):
    """This machine lets us make none; the text says why."""


@dataclass(frozen=True, slots=True)
class Group:
    """One share of a core."""

    folder: Path
    is_v2: bool

    def take(self, pid: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(pid))

    @property
    def prefix(self) -> list[str]:
        """Of the command of a process that begins in it."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs")]

    def limit(self, share: float | None) -> None:
        """To so much of one core; None: no limit."""
        if self.is_v2:
            quota = "max" if share is None else str(round(share * PERIOD_US))
            (self.folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.folder / "cpu.cfs_quota_us").write_text(str(-1 if share is None else round(share * PERIOD_US)))

    def periods(self) -> tuple[int, int]:
        """How many there were in which it ran, and how many of these it ran out of time in."""
        said = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        return int(said["nr_periods"]), int(said["nr_throttled"])

    def remove(self) -> None:
        """With whatever still runs in it."""
        give_up_s = time.monotonic() + EMPTY_S_MAX
        while pids := (self.folder / "cgroup.procs").read_text().split():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            if time.monotonic() > give_up_s:
                return
            time.sleep(0.02)
        self.folder.rmdir()


@dataclass(frozen=True, slots=True)
class Groups:
    """All of a run."""

    folder: Path
    is_v2: bool

    def make(self, name: str) -> Group:
        folder = self.folder / name
        folder.mkdir()
        return Group(folder, self.is_v2)


@contextlib.contextmanager
def groups(v1: Path = _V1, v2: Path = _V2) -> Iterator[Groups]:
    """Raises NoGroupsError. At the end they are gone, and whatever ran in them."""
    is_v2 = not (v1 / "cpu.cfs_quota_us").exists()
    root = v2 if is_v2 else v1
    _remove_leftovers(root, is_v2)
    folder = root / f"{_PREFIX}{os.getpid()}"
    try:
        if is_v2:
            (root / "cgroup.subtree_control").write_text("+cpu")
        folder.mkdir()
        if is_v2:
            (folder / "cgroup.subtree_control").write_text("+cpu")
            (folder / "cpu.weight").write_text(str(round(100 * SHARES / 1024)))
        else:
            (folder / "cpu.shares").write_text(str(SHARES))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise NoGroupsError(f"no control groups with a limit of processor time at {root}: {error.strerror}") from error
    try:
        yield Groups(folder, is_v2)
    finally:
        _remove_tree(folder, is_v2)


def _remove_leftovers(root: Path, is_v2: bool) -> None:
    for folder in root.glob(f"{_PREFIX}*"):
        if not Path("/proc", folder.name.removeprefix(_PREFIX)).exists():
            _remove_tree(folder, is_v2)


def _remove_tree(folder: Path, is_v2: bool) -> None:
    for each in folder.iterdir():
        if each.is_dir():
            Group(each, is_v2).remove()
    with contextlib.suppress(OSError):  # one that is not empty: see EMPTY_S_MAX
        folder.rmdir()
