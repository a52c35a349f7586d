"""Machines that stop at any step of an upload, disks that fail at one, and disks that are full."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.project.projects import Published
from actors.project.settings import ProjectSettings
from actors.space.key_files import Disk
from schemas.echo.errors import EchoError
from tests.actors.log.shelves import bounded
from tests.actors.log.test_disk_full import Tmpfs, tmpfs
from tests.actors.project.depot import Depot, Process, sha256
from tests.actors.space.faulty_disks import Crash, CrashingDisk, FailingDisk

OLD, NEW = b"old" * 100, b"new" * 100
STEPS_MAX = 50


async def _replace(here: Process, project: str) -> None:
    await here.put(project, "a", [NEW[:100], NEW[100:]])


async def _add_the_same(here: Process, project: str) -> None:
    await here.put(project, "b", OLD)


async def _delete(here: Process, project: str) -> None:
    await here.objects.delete(project, "a")


@pytest.mark.parametrize("change", [_replace, _add_the_same, _delete])
@bounded
async def test_machine_that_stops_at_any_step_has_the_old_file_or_the_new_one_and_no_more(
    tmp_path: Path, change: Callable[[Process, str], object]
) -> None:
    for nth in range(1, STEPS_MAX):
        depot = Depot(tmp_path / f"{nth}", ProjectSettings(upload_buffer_bytes_max=100))
        here = await depot.start()
        project = await here.project()
        await here.put(project, "a", OLD)
        disk = CrashingDisk(10**9)
        here = await depot.start(disk)
        disk.steps, disk.nth = 0, nth
        try:
            await change(here, project)  # type: ignore[misc]
            crashed = disk.steps >= nth
        except Crash:
            crashed = True
        again = await depot.start()
        assert again.missing == 0
        assert again.read(project, "a") in (OLD, NEW, None if change is _delete else OLD)
        assert again.read(project, "b") in (None, OLD)
        assert depot.files() == set(again.projects.hashes_in_use())
        if not crashed:
            assert nth > 1
            return
    raise AssertionError("it takes more steps than there can be")


@pytest.mark.parametrize("step", ["write", "sync", "rename", "sync_folder"])
@bounded
async def test_disk_that_fails_at_a_step_is_not_ready_and_nothing_is_left(tmp_path: Path, step: str) -> None:
    depot, disk = Depot(tmp_path / "data"), RenamingDisk("")
    here = await depot.start(disk)
    project = await here.project()
    await here.put(project, "a", OLD)
    disk.failing = step
    assert await here.put(project, "a", NEW) is EchoError.STORAGE_NOT_READY
    assert await here.put(project, "b", [NEW] * 1000) is EchoError.STORAGE_NOT_READY
    assert (here.read(project, "a"), here.read(project, "b")) == (OLD, None)
    assert depot.files() == {sha256(OLD)}
    disk.failing = None
    assert isinstance(await here.put(project, "a", NEW), Published)
    assert depot.files() == {sha256(NEW)}


class RenamingDisk(FailingDisk):
    def rename(self, old: Path, new: Path) -> None:
        self._check("rename")
        super().rename(old, new)


@bounded
async def test_what_the_disk_does_not_let_go_of_goes_later(tmp_path: Path) -> None:
    depot, disk = Depot(tmp_path / "data"), FailingDisk("unlink")
    disk.failing = None
    here = await depot.start(disk)
    project = await here.project()
    for path, content in (("a", b"1"), ("b", b"2")):
        await here.put(project, path, content)
    disk.failing = "unlink"
    assert await here.objects.delete(project, "a") is None
    assert isinstance(await here.put(project, "b", b"3"), Published)
    async with here.begin(project, "c") as coming:
        await coming.append(bytes(300_000))
    assert depot.files() == {sha256(b"1"), sha256(b"2"), sha256(b"3"), "incoming/3"}
    disk.failing = None
    await here.blobs.sweep()
    assert depot.files() == {sha256(b"3"), "incoming/3"}
    await depot.start()
    assert depot.files() == {sha256(b"3")}


class FullDisk(Disk):
    room_bytes = 10**9

    def write(self, descriptor: int, data: bytes) -> None:
        super().write(descriptor, data[: self.room_bytes])
        self.room_bytes = max(0, self.room_bytes - len(data))
        if not self.room_bytes:
            raise OSError(errno.ENOSPC, "no room")


@bounded
async def test_full_disk_is_not_ready_reads_go_on_and_nothing_is_left(tmp_path: Path) -> None:
    with tmpfs(tmp_path) as mounted:  # where mounting is not permitted, a disk that says so
        ballast, disk = Tmpfs(tmp_path), FullDisk()
        depot = Depot(tmp_path / "data", ProjectSettings(upload_buffer_bytes_max=1000))
        here = await depot.start(disk)
        project = await here.project()
        await here.put(project, "a", OLD)
        if mounted:
            ballast.fill()
        else:
            disk.room_bytes = 2500
        assert await here.put(project, "a", [bytes(500)] * 1000) is EchoError.STORAGE_NOT_READY
        assert (here.read(project, "a"), depot.files()) == (OLD, {sha256(OLD)})
        if mounted:
            ballast.make_room()
        disk.room_bytes = 10**9
        assert isinstance(await here.put(project, "a", [bytes(500)] * 1000), Published)
        assert depot.files() == {sha256(bytes(500_000))}


@bounded
async def test_log_that_takes_nothing_leaves_no_content(tmp_path: Path) -> None:
    depot = Depot(tmp_path / "data")
    here = await depot.start()
    project = await here.project()
    await here.put(project, "a", OLD)
    depot.estate.disk.is_full = True
    assert await here.put(project, "a", NEW) is EchoError.STORAGE_NOT_READY
    assert await here.objects.delete(project, "a") is EchoError.STORAGE_NOT_READY
    assert (here.read(project, "a"), depot.files()) == (OLD, {sha256(OLD)})
