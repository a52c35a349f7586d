"""Content by hash: written as it comes, had once, there for as long as an object has it, and not a moment longer."""

import os
import random
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from actors.project.blob_store import BLOB_OVERHEAD_BYTES
from actors.project.projects import Projects, Published, state_of
from actors.project.settings import ProjectSettings
from actors.space.key_files import Disk
from schemas.echo.errors import EchoError
from tests.actors.log.shelves import bounded
from tests.actors.project.depot import Depot, Process, sha256

BIG = bytes(range(256)) * 4096


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    return Depot(tmp_path / "data")


class WatchedDisk(Disk):
    """Remembers its steps, and stops at the first of a kind until it is told to go on."""

    def __init__(self, stop_at: str = "") -> None:
        self.steps: list[tuple[str, int | str]] = []
        self.stop_at = stop_at
        self.is_there = trio.Event()
        self.go_on = threading.Event()

    def _note(self, step: str, what: int | str) -> None:
        self.steps.append((step, what))
        if step == self.stop_at:
            self.stop_at = ""
            trio.from_thread.run_sync(self.is_there.set)
            assert self.go_on.wait(30)

    def write(self, descriptor: int, data: bytes) -> None:
        self._note("write", len(data))
        super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._note("sync", Path(f"/proc/self/fd/{descriptor}").readlink().parent.name)
        super().sync(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        self._note("rename", new.name)
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._note("unlink", path.name)
        super().unlink(path)

    def sync_folder(self, folder: Path) -> None:
        self._note("sync_folder", folder.name)
        super().sync_folder(folder)


@bounded
async def test_published_file_is_read_by_its_hash_and_survives_a_restart(depot: Depot) -> None:
    here = await depot.start()
    project = await here.project()
    published = await here.put(project, "a/b.txt", [b"hel", b"", b"lo"], "text/x-hello")
    assert isinstance(published, Published)
    assert (published.is_new, published.object.sha256, published.object.size) == (True, sha256(b"hello"), 5)
    assert published.object.content_type == "text/x-hello"
    for process in (here, await depot.start()):
        assert process.read(project, "a/b.txt") == b"hello"
        assert process.blobs.bytes == 5 + BLOB_OVERHEAD_BYTES
    assert depot.files() == {sha256(b"hello")}
    assert (depot.folder / "sites").stat().st_mode & 0o077 == 0


@bounded
async def test_an_empty_file_is_a_file(depot: Depot) -> None:
    here = await depot.start()
    project = await here.project()
    assert isinstance(await here.put(project, "empty", b""), Published)
    assert here.read(project, "empty") == b""


@bounded
async def test_upload_is_written_as_it_comes_and_named_only_when_it_is_durable(tmp_path: Path) -> None:
    depot, disk = Depot(tmp_path / "data", ProjectSettings(upload_buffer_bytes_max=1000)), WatchedDisk()
    here = await depot.start(disk)
    project = await here.project()
    disk.steps.clear()
    await here.put(project, "x", [bytes(600)] * 20)
    content_hash = sha256(bytes(12_000))
    written = [size for step, size in disk.steps if step == "write"]
    assert (sum(map(int, written)), max(map(int, written))) == (12_000, 600)
    assert disk.steps[-5:] == [
        ("write", 600),
        ("sync", "incoming"),
        ("sync_folder", "sites"),
        ("rename", content_hash),
        ("sync_folder", content_hash[:2]),
    ]
    assert disk.steps.count(("sync", "incoming")) == 1


@bounded
async def test_the_same_content_lies_there_once(depot: Depot) -> None:
    here = await depot.start()
    one, other = await here.project(), await here.project("Other")
    for project, path in ((one, "a"), (one, "b"), (other, "a"), (one, "a")):
        assert isinstance(await here.put(project, path, BIG), Published)
    assert depot.files() == {sha256(BIG)}
    assert here.blobs.bytes == len(BIG) + BLOB_OVERHEAD_BYTES
    assert await here.objects.delete(one, "a") is None
    assert await here.objects.delete(other, "a") is None
    assert here.read(one, "b") == BIG
    assert await here.objects.delete(one, "b") is None
    assert (depot.files(), here.blobs.bytes) == (set(), 0)
    assert await here.objects.delete(one, "b") is EchoError.OBJECT_NOT_FOUND


@bounded
async def test_what_a_new_file_replaces_goes_and_whoever_reads_it_reads_on(depot: Depot) -> None:
    here = await depot.start()
    project = await here.project()
    await here.put(project, "a", b"old")
    with os.fdopen(here.blobs.open(sha256(b"old")), "rb") as reader:
        await here.put(project, "a", b"new")
        assert depot.files() == {sha256(b"new")}
        assert reader.read() == b"old"
    with pytest.raises(FileNotFoundError):
        here.blobs.open(sha256(b"old"))


@pytest.mark.parametrize("name", ["", "..", "../../echo.key", "A" * 64, "a" * 63, "a" * 65, "/etc/passwd", "é" * 64])
@bounded
async def test_nothing_but_a_hash_is_looked_for(depot: Depot, name: str) -> None:
    here = await depot.start()
    with pytest.raises(ValueError, match="SHA-256"):
        here.blobs.open(name)


@bounded
async def test_upload_that_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    depot = Depot(tmp_path / "data", ProjectSettings(upload_buffer_bytes_max=10))
    here = await depot.start()
    project = await here.project()
    async with here.begin(project, "a") as coming:
        assert await coming.append(bytes(100)) is None
        assert depot.files() == {"incoming/0"}
        assert here.blobs.bytes == 100 + BLOB_OVERHEAD_BYTES
    assert (depot.files(), here.blobs.bytes) == (set(), 0)
    with trio.CancelScope() as scope:
        async with here.begin(project, "a") as coming:
            await coming.append(bytes(100))
            scope.cancel()
            await coming.append(bytes(100))
    assert scope.cancelled_caught
    assert (depot.files(), here.blobs.bytes) == (set(), 0)


@bounded
async def test_upload_that_may_not_be_published_after_all_leaves_nothing(depot: Depot) -> None:
    here = await depot.start()
    project = await here.project()
    async with here.begin(project, "a", lambda: EchoError.SIGNATURE_MISMATCH) as coming:
        await coming.append(b"x")
        assert await coming.finish() is EchoError.SIGNATURE_MISMATCH
    assert here.read(project, "a") is None
    assert (depot.files(), here.blobs.bytes) == (set(), 0)


@bounded
async def test_project_that_is_deleted_during_an_upload_is_not_found_and_nothing_is_left(depot: Depot) -> None:
    here = await depot.start()
    for has_come in (False, True):
        project = await here.project()
        async with here.begin(project, "a") as coming:
            await coming.append(b"x")
            if has_come:
                assert await here.projects.delete(project) is None
                assert await coming.finish() is EchoError.PROJECT_NOT_FOUND
            else:
                assert await here.projects.delete(project) is None
                assert await coming.append(b"y") is EchoError.PROJECT_NOT_FOUND
        assert (depot.files(), here.blobs.bytes) == (set(), 0)
    assert here.objects.begin(project, "a", "", 10) is EchoError.PROJECT_NOT_FOUND
    assert await here.objects.delete(project, "a") is EchoError.PROJECT_NOT_FOUND


@bounded
async def test_contents_of_a_deleted_project_go_but_for_those_that_others_have(depot: Depot) -> None:
    here = await depot.start()
    one, other = await here.project(), await here.project("Other")
    for number in range(5):
        await here.put(one, f"{number}", b"%d" % number)
    await here.put(other, "x", b"3")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(here.objects.run)
        await here.projects.delete(one)
        while depot.files() != {sha256(b"3")}:
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert here.read(other, "x") == b"3"


@bounded
async def test_start_removes_what_no_object_has_and_says_what_is_missing(depot: Depot) -> None:
    here = await depot.start()
    project = await here.project()
    await here.put(project, "a", b"a")
    await here.put(project, "b", b"b")
    sites = depot.folder / "sites"
    for shelf in ("00", "01"):
        (sites / shelf).mkdir()
    (sites / "incoming" / "7").write_bytes(b"half")
    (sites / "00" / ("0" * 64)).write_bytes(b"nobody's")
    (sites / "00" / sha256(b"a")).write_bytes(b"in the wrong place")
    (sites / "01" / "x").write_bytes(b"no hash")
    (sites / sha256(b"b")[:2] / sha256(b"b")).unlink()
    again = await depot.start()
    assert (depot.files(), again.missing) == ({sha256(b"a")}, 1)
    with pytest.raises(FileNotFoundError):
        again.blobs.open(sha256(b"b"))
    await again.put(project, "b", b"b")  # and so it is mended
    assert again.read(project, "b") == b"b"


@bounded
async def test_content_that_was_cut_or_removed_by_hand_is_mended_by_the_next_upload_of_it(depot: Depot) -> None:
    here = await depot.start()
    project = await here.project()
    await here.put(project, "a", b"content")
    file = depot.folder / "sites" / sha256(b"content")[:2] / sha256(b"content")
    for spoil in (file.unlink, lambda: file.write_bytes(b"con")):
        spoil()
        assert isinstance(await here.put(project, "b", b"content"), Published)
        assert here.read(project, "a") == b"content"
        assert here.blobs.bytes == 7 + BLOB_OVERHEAD_BYTES
    assert depot.files() == {sha256(b"content")}


@bounded
async def test_while_a_project_cannot_be_read_no_content_is_garbage(depot: Depot) -> None:
    here = await depot.start()
    project, other = await here.project(), await here.project("Other")
    await here.put(project, "a", b"a")
    await here.put(other, "b", b"b")
    depot.estate.disk.unreadable.add(state_of(project))
    again = await depot.start()
    assert again.projects.get(project) is None
    assert await again.objects.delete(other, "b") is None
    await again.blobs.sweep()
    assert depot.files() == {sha256(b"a"), sha256(b"b")}


# ---- at the same moment ----------------------------------------------------------------------------------------------


@bounded
async def test_upload_that_ends_while_its_content_is_being_removed_keeps_its_own(depot: Depot) -> None:
    disk = WatchedDisk()
    here = await depot.start(disk)
    project = await here.project()
    await here.put(project, "a", b"same")
    disk.stop_at = "unlink"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(here.objects.delete, project, "a")
        await disk.is_there.wait()
        disk.steps.clear()
        nursery.start_soon(here.put, project, "b", b"same")
        while ("sync", "incoming") not in disk.steps:
            await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked(0.01)  # the thread has answered by then
        disk.go_on.set()
    assert here.read(project, "b") == b"same"
    assert depot.files() == {sha256(b"same")}
    assert (await depot.start()).read(project, "b") == b"same"


class SlowProjects:
    """Lets a test hold back what is published."""

    def __init__(self, projects: Projects) -> None:
        self.is_there, self.go_on = trio.Event(), trio.Event()
        self._publish = projects.publish
        projects.publish = self.publish  # type: ignore[assignment, method-assign]

    async def publish(self, *arguments: Any) -> Published | EchoError:
        self.is_there.set()
        await self.go_on.wait()
        return await self._publish(*arguments)


@bounded
async def test_content_that_is_about_to_be_published_stays_though_the_last_object_with_it_is_deleted(
    depot: Depot,
) -> None:
    here = await depot.start()
    project = await here.project()
    await here.put(project, "a", b"same")
    slow = SlowProjects(here.projects)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(here.put, project, "b", b"same")
        await slow.is_there.wait()
        assert await here.objects.delete(project, "a") is None
        await here.blobs.sweep()
        slow.go_on.set()
    assert here.read(project, "b") == b"same"
    assert await here.objects.delete(project, "b") is None
    assert depot.files() == set()


@bounded
async def test_cancelled_once_it_has_begun_to_end_an_upload_is_published_all_the_same(depot: Depot) -> None:
    here = await depot.start()
    project = await here.project()
    slow = SlowProjects(here.projects)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(here.put, project, "a", b"x")
        await slow.is_there.wait()
        nursery.cancel_scope.cancel()
        slow.go_on.set()
    assert here.read(project, "a") == b"x"
    assert depot.files() == {sha256(b"x")}


async def _change_at_random(here: Process, projects: list[str], rng: random.Random) -> None:
    for _ in range(12):
        project, path = rng.choice(projects), rng.choice("ab")
        with trio.CancelScope() as scope:
            if rng.random() < 0.3:
                scope.deadline = trio.current_time() + rng.random() * 0.003
            if rng.random() < 0.4:
                await here.objects.delete(project, path)
            else:
                await here.put(project, path, [bytes([rng.randrange(3)]) * 50] * rng.randrange(1, 4))


@pytest.mark.parametrize("seed", range(8))
@bounded
async def test_whatever_comes_and_goes_at_once_there_is_exactly_what_objects_have(tmp_path: Path, seed: int) -> None:
    depot = Depot(tmp_path / "data", ProjectSettings(upload_buffer_bytes_max=60))
    here = await depot.start()
    projects = [await here.project(), await here.project("Other")]
    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(_change_at_random, here, projects, random.Random(f"{seed} {number}"))
    assert depot.files() == set(here.projects.hashes_in_use())
    assert len(here.objects) == 0
    for process in (here, await depot.start()):
        assert process.missing == 0
        for project in projects:
            found = process.projects.get(project)
            assert found is not None
            for one in found.objects.values():
                assert sha256(process.content(one.sha256)) == one.sha256


@bounded
async def test_uploads_at_a_time_have_a_limit(tmp_path: Path) -> None:
    depot = Depot(tmp_path / "data", ProjectSettings(uploads_max=2))
    here = await depot.start()
    project = await here.project()
    async with here.begin(project, "a"), here.begin(project, "b"):
        assert here.objects.begin(project, "c", "", 1) is EchoError.OVERLOADED
        assert len(here.objects) == 2
    assert isinstance(await here.put(project, "c", b""), Published)


@bounded
async def test_without_room_on_the_disk_nothing_begins_and_nothing_goes_on(depot: Depot) -> None:
    here = await depot.start()
    project = await here.project()
    async with here.begin(project, "a") as coming:
        await coming.append(b"x")
        depot.disk_fault = EchoError.STORAGE_NOT_READY
        assert await coming.append(b"y") is EchoError.STORAGE_NOT_READY
    assert here.objects.begin(project, "a", "", 1) is EchoError.STORAGE_NOT_READY
    assert (depot.files(), here.blobs.bytes, len(here.objects)) == (set(), 0, 0)


@bounded
async def test_over_upload_takes_no_more(depot: Depot) -> None:
    here = await depot.start()
    project = await here.project()
    async with here.begin(project, "a") as coming:
        assert isinstance(await coming.finish(), Published)
        for step in (partial(coming.append, b"x"), coming.finish):
            with pytest.raises(RuntimeError, match="over"):
                await step()
