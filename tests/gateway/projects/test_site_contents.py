"""Contents at hand: read once, bounded, and no descriptor kept for long."""

import os
from pathlib import Path

import pytest
import trio
import trio.testing

from actors.project.blob_files import BlobFiles
from actors.project.site import SiteObject
from actors.space.key_files import Disk
from actors.supervision.supervisor import Supervisor
from gateway.net.file_sending import UnreadableFileError
from gateway.projects import site_contents
from gateway.projects.site_contents import DESCRIPTOR_IDLE_S, DESCRIPTORS_MAX, SiteContents
from tests.gateway.projects.published import Published


@pytest.fixture
def published(tmp_path: Path) -> Published:
    return Published(BlobFiles(tmp_path / "sites", Disk()))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def many(published: Published, count: int, size: int = 100) -> list[SiteObject]:
    return [published.publish("a", f"{number}", f"{number}".encode().ljust(size)) for number in range(count)]


async def test_small_content_is_read_once_and_then_known(published: Published) -> None:
    contents, file = SiteContents(published), published.publish("a", "x", b"hello")
    assert contents.known(file.sha256) is None
    assert await contents.read(file) == b"hello"
    assert contents.known(file.sha256) == b"hello"
    assert await contents.read(file) == b"hello"
    assert published.opened == [file.sha256] * 2


async def test_small_contents_beyond_the_bound_go_by_when_they_were_asked_for(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_contents, "KEPT_BYTES_MAX", 3 * (100 + 256))
    contents, files = SiteContents(published), many(published, 4)
    for file in files[:3]:
        await contents.read(file)
    assert contents.known(files[0].sha256) is not None
    await contents.read(files[3])
    assert [contents.known(file.sha256) is not None for file in files] == [True, False, True, True]


async def test_content_that_is_not_as_long_as_it_was_is_none(published: Published) -> None:
    contents, file = SiteContents(published), published.publish("a", "x", b"hello")
    before = descriptors()
    for wrong in (b"hell", b"hello!", b""):
        published.files.path(file.sha256).write_bytes(wrong)
        with pytest.raises(UnreadableFileError):
            await contents.read(file)
        with pytest.raises(UnreadableFileError):
            await contents.take(file)
    published.files.remove(file.sha256)
    with pytest.raises(FileNotFoundError):
        await contents.read(file)
    with pytest.raises(FileNotFoundError):
        await contents.take(file)
    assert contents.known(file.sha256) is None
    assert descriptors() == before


async def test_open_content_is_shared_and_stays_good_when_it_is_deleted(published: Published) -> None:
    contents, file = SiteContents(published), published.publish("a", "x", b"hello")
    first = await contents.take(file)
    published.unpublish("a", "x")
    second = await contents.take(file)
    assert first is second
    contents.give_back(first)
    assert os.pread(second.descriptor, 9, 0) == b"hello"
    contents.give_back(second)
    contents.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(second.descriptor)


async def test_two_that_open_the_same_content_at_once_share_one_descriptor(published: Published) -> None:
    contents, file = SiteContents(published), published.publish("a", "x", b"hello")
    before, taken = descriptors(), []

    async def take() -> None:
        taken.append(await contents.take(file))

    async with trio.open_nursery() as nursery:
        for _ in range(9):
            nursery.start_soon(take)
    assert len(taken) == 9
    assert len({id(one) for one in taken}) == 1
    assert descriptors() == before + 1
    for one in taken:
        contents.give_back(one)
    contents.close()
    assert descriptors() == before


async def test_descriptors_that_nobody_uses_are_bounded_and_those_in_use_are_kept(published: Published) -> None:
    contents, files = SiteContents(published), many(published, DESCRIPTORS_MAX + 5)
    before = descriptors()
    in_use = [await contents.take(file) for file in files]
    assert descriptors() == before + len(files)
    for one in in_use[1:]:
        contents.give_back(one)
    assert descriptors() == before + DESCRIPTORS_MAX
    assert os.pread(in_use[0].descriptor, 1, 0) == b"0"
    contents.close()
    assert descriptors() == before + 1
    contents.give_back(in_use[0])
    assert descriptors() == before


async def test_descriptor_that_nobody_uses_is_closed_soon(
    published: Published, autojump_clock: trio.testing.MockClock
) -> None:
    before = descriptors()
    contents, file = SiteContents(published), published.publish("a", "x", b"hello")
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor()
        await nursery.start(supervisor.run)
        contents.start(supervisor)
        with_none = descriptors()
        used, idle = await contents.take(file), await contents.take(published.publish("a", "y", b"other"))
        contents.give_back(idle)
        assert descriptors() == with_none + 2
        await trio.sleep(2 * DESCRIPTOR_IDLE_S + 1)
        assert descriptors() == with_none + 1
        contents.give_back(used)
        supervisor.request_stop()
    assert descriptors() == before
