"""A disk that fails while the log is being written: a failed sync, a torn write, no room, in a process of its own.

A small library is built and preloaded into that process (`faults.c`); what the process told its callers is then held
against what is found when the log is opened again.
"""

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing as closing_after
from pathlib import Path

import pytest

from actors.log.sqlite_store import SqliteStore
from actors.log.store import Appended
from tests.actors.log.shelves import bounded, part

SYNC, WRITE = 1, 2
TORN_THEN_ERROR, TORN_THEN_DEATH = -1, -2
ROOT = Path(__file__).parents[3]


class Told:
    """What the child said, by first word."""

    def __init__(self, output: str, returncode: int) -> None:
        self.returncode = returncode
        self.lines = [line.split(" ", 2) for line in output.splitlines()]

    def all(self, word: str) -> list[list[str]]:
        return [line[1:] for line in self.lines if line[0] == word]

    def versions(self) -> dict[str, int]:
        """The highest version of each stream that was acknowledged."""
        versions: dict[str, int] = {}
        for stream, version in self.all("acked"):
            versions[stream] = int(version)
        return versions


def run_child(
    faults: Path, path: Path, before: int, suffix: str, *fault: int, wal_bytes_max: int | None = None
) -> Told:
    arguments = [str(path), str(before), suffix, *map(str, fault)]
    if wal_bytes_max is not None:
        arguments.append(str(wal_bytes_max))
    child = subprocess.run(
        [sys.executable, "-m", "tests.actors.log.fault_child", *arguments],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(faults)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode in (0, 9), child.stderr
    return Told(child.stdout, child.returncode)


async def check_reopened(path: Path, told: Told) -> None:
    """Everything acknowledged is there, nothing is damaged, and the log goes on."""
    async with await SqliteStore.open(path) as store:
        for stream in ("a", "b", "c", "later"):
            loaded = await store.load(stream)
            acked = told.versions().get(stream, 0)
            assert acked <= loaded.version <= acked + 1  # at most what was in flight on top
            assert [event.version for event in loaded.events] == list(range(1, loaded.version + 1))
            assert await store.append(part(stream, loaded.version, "on")) == Appended((loaded.version + 1,))
    with closing_after(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@bounded
async def test_after_a_commit_whose_sync_failed_every_waiter_is_told_that_the_store_has_failed(
    tmp_path: Path, faults: Path
) -> None:
    told = run_child(faults, tmp_path / "log.db", 3, "-wal", SYNC, 1, errno.EIO)
    assert told.versions() == {"a": 3}
    assert sorted(stream for stream, _ in told.all("failed")) == ["a", "b", "c", "later"]
    assert all("SQLITE_IOERR_FSYNC at commit" in reason for _, reason in told.all("failed"))
    assert told.all("readable") == [["3"]]
    assert len(told.all("watched")) == 1
    await check_reopened(tmp_path / "log.db", told)


@bounded
async def test_a_failed_store_leaves_its_write_ahead_file_for_the_next_process(tmp_path: Path, faults: Path) -> None:
    told = run_child(faults, tmp_path / "log.db", 3, "-wal", SYNC, 1, errno.EIO)
    (size,) = told.all("wal")[0]
    assert int(size) > 0


@bounded
async def test_a_checkpoint_whose_sync_failed_fails_the_store_and_loses_nothing(tmp_path: Path, faults: Path) -> None:
    told = run_child(faults, tmp_path / "log.db", 3, ".db", SYNC, 1, errno.EIO, wal_bytes_max=1)
    # The sync fails in a checkpoint after the commit, which therefore stands.
    assert "a" in told.versions()
    assert any("in a checkpoint" in reason for _, reason in told.all("failed"))
    (size,) = told.all("wal")[0]
    assert int(size) > 0
    await check_reopened(tmp_path / "log.db", told)


@bounded
async def test_a_last_checkpoint_whose_sync_failed_is_told_by_close(tmp_path: Path, faults: Path) -> None:
    told = run_child(faults, tmp_path / "log.db", 3, ".db", SYNC, 1, errno.EIO)
    assert told.versions() == {"a": 4, "b": 1, "c": 1, "later": 1}
    assert len(told.all("unclosed")) == 1
    (size,) = told.all("wal")[0]
    assert int(size) > 0
    await check_reopened(tmp_path / "log.db", told)


@pytest.mark.parametrize("nth", [1, 2, 3, 4, 7, 10])
@bounded
async def test_a_torn_write_that_ends_the_process_loses_nothing_acknowledged(
    tmp_path: Path, faults: Path, nth: int
) -> None:
    told = run_child(faults, tmp_path / "log.db", 3, "-wal", WRITE, nth, TORN_THEN_DEATH)
    assert told.returncode == 9
    assert told.versions()["a"] >= 3
    await check_reopened(tmp_path / "log.db", told)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@bounded
async def test_a_torn_write_that_fails_the_commit_fails_the_store(tmp_path: Path, faults: Path, nth: int) -> None:
    told = run_child(faults, tmp_path / "log.db", 3, "-wal", WRITE, nth, TORN_THEN_ERROR)
    # The three that were in flight may have been two batches, and the first of them may have gone through.
    assert told.versions()["a"] >= 3
    assert len(told.all("failed")) + len(told.all("acked")) == 3 + 4
    assert "later" in [stream for stream, _ in told.all("failed")]
    assert all("at commit" in reason for _, reason in told.all("failed"))
    await check_reopened(tmp_path / "log.db", told)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@bounded
async def test_a_write_without_room_is_refused_and_the_store_goes_on(tmp_path: Path, faults: Path, nth: int) -> None:
    told = run_child(faults, tmp_path / "log.db", 3, "-wal", WRITE, nth, errno.ENOSPC)
    assert {reason for _, reason in told.all("refused")} == {"disk_full"}
    assert told.all("failed") == told.all("watched") == told.all("unclosed") == []
    assert told.versions()["later"] == 1
    await check_reopened(tmp_path / "log.db", told)
