"""Uploads by way of a bucket: awaited, fetched once, published by one append, removed; and what goes wrong there."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import OpenItem, Part
from actors.node.moment import Moment
from actors.project.pending_rules import (
    GIVE_UP_MS,
    REMOVE_AGAIN_MS,
    RETRY_MS,
    Step,
    Turns,
    is_awaited,
    is_tried,
    next_look_ms,
    next_removal_ms,
    next_step,
)
from actors.project.pending_uploads import PendingUpload, PendingUploads
from actors.project.settings import ProjectSettings
from gateway.projects.bucket_uploads import BucketUploads
from gateway.projects.origin_client import Take
from gateway.projects.s3_bucket import Unseen
from gateway.projects.s3_settings import S3Settings
from schemas.echo.errors import EchoError
from tests.actors.project.depot import Depot, Process, sha256
from tests.actors.project.estate import START_MS

LIFE_S = 900
ENDS_MS = START_MS + 1000 * LIFE_S


def s3(**changes: Any) -> S3Settings:
    given: dict[str, Any] = {
        "endpoint": "http://127.0.0.1:1",
        "bucket": "a-bucket",
        "access_key": "a",
        "secret_key": "s",
    }
    return S3Settings(**{**given, "look_s": 0.001, **changes})


@dataclass
class Shelf:
    """A bucket in memory, as good or bad as a test likes."""

    objects: dict[str, bytes] = field(default_factory=dict)
    is_away: bool = False
    keeps_all: bool = False  # and removes nothing
    breaks_off: bool = False
    claims: int | None = None  # how large everything is, to a HEAD
    fetched: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    looks: int = 0
    at_once: int = 0
    at_once_most: int = 0
    on_fetch: Callable[[], None] = lambda: None

    def presigned_put(self, key: str, content_type: str, size: int, now_s: int, life_s: int) -> str:
        return f"http://bucket/{key}?{content_type}&{size}&{now_s}&{life_s}"

    async def is_ready(self) -> bool:
        await trio.lowlevel.checkpoint()
        return not self.is_away

    async def size(self, key: str) -> int | Unseen:
        self.looks += 1
        self.at_once += 1
        self.at_once_most = max(self.at_once, self.at_once_most)
        await trio.lowlevel.checkpoint()
        self.at_once -= 1
        if self.is_away:
            return Unseen.UNKNOWN
        content = self.objects.get(key)
        return Unseen.MISSING if content is None else len(content) if self.claims is None else self.claims

    async def fetch(self, key: str, take: Take) -> EchoError | bool:
        self.fetched.append(key)
        self.on_fetch()
        content = self.objects[key]
        for at in range(0, len(content), 10):
            if self.breaks_off:
                return False
            fault = await take(content[at : at + 10])
            if fault is not None:
                return fault
        return True

    async def remove(self, key: str) -> bool:
        await trio.lowlevel.checkpoint()
        self.removed.append(key)
        if not self.keeps_all and not self.is_away:
            self.objects.pop(key, None)
        return not self.keeps_all and not self.is_away


@dataclass
class Quay:
    """Where uploads arrive. `start` is a process; leaving it is its end."""

    depot: Depot
    shelf: Shelf = field(default_factory=Shelf)
    settings: S3Settings = field(default_factory=s3)

    @property
    def now_ms(self) -> int:
        return self.depot.estate.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self.depot.estate.now_ms = now_ms

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait, while time goes by slowly."""
        while not condition():
            self.now_ms += 1
            await trio.sleep(0.001)

    @asynccontextmanager
    async def start(self) -> AsyncIterator[tuple[Process, BucketUploads, PendingUploads]]:
        here = await self.depot.start()
        pending = PendingUploads(MemoryStore(self.depot.estate.disk), self.settings.pending_max)
        await pending.load()
        ids = iter(f"{len(self.depot.estate.disk.streams):02}{number:024}" for number in range(10**6))
        uploads = BucketUploads(
            self.shelf,
            pending,
            here.projects,
            here.objects,
            self.settings,
            LIFE_S,
            lambda: next(ids),
            lambda: Moment(trio.current_time(), self.now_ms),
        )
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(uploads.run)
                yield here, uploads, pending
                nursery.cancel_scope.cancel()


@pytest.fixture
def quay(tmp_path: Path) -> Quay:
    return Quay(Depot(tmp_path / "data", ProjectSettings(object_bytes_max=1000, site_bytes_max=1500)))


async def presigned(uploads: BucketUploads, project_id: str, path: str = "a", size: int = 25) -> str:
    """The key under which it is to be put."""
    answer = await uploads.presign(project_id, path, "text/x-test", size)
    assert not isinstance(answer, EchoError), answer
    return answer["url"].removeprefix("http://bucket/").partition("?")[0]


async def test_upload_is_published_when_it_is_there_and_leaves_the_bucket(quay: Quay) -> None:
    async with quay.start() as (here, uploads, pending):
        project = await here.project()
        answer = await uploads.presign(project, "a/b", "text/x-test", 25)
        assert not isinstance(answer, EchoError)
        key = answer["url"].removeprefix("http://bucket/").partition("?")[0]
        assert key.startswith(f"{project}/")
        assert answer == {
            "method": "PUT",
            "url": f"http://bucket/{key}?text/x-test&25&{START_MS // 1000}&{LIFE_S}",
            "headers": {"Content-Type": "text/x-test"},
            "path": "a/b",
            "expires_at": "2026-09-21T14:28:20.000Z",
        }
        quay.now_ms += 2000
        await quay.until(lambda: quay.shelf.looks > 3)
        assert here.read(project, "a/b") is None
        quay.shelf.objects[key] = bytes(25)
        await quay.until(lambda: not quay.shelf.objects)
        assert here.read(project, "a/b") == bytes(25)
        found = here.projects.get(project)
        assert found is not None
        assert found.objects["a/b"].content_type == "text/x-test"
        assert quay.shelf.fetched == [key]
        # Put there again while the URL is good, it is not published again, and gone after its end.
        quay.shelf.objects[key] = b"x" * 25
        quay.now_ms = ENDS_MS + REMOVE_AGAIN_MS
        await quay.until(lambda: len(pending) == 0)
        assert (quay.shelf.objects, quay.shelf.fetched) == ({}, [key])
        assert here.read(project, "a/b") == bytes(25)
    async with quay.start() as (_, _, pending):
        assert len(pending) == 0


async def test_upload_is_awaited_across_a_restart(quay: Quay) -> None:
    async with quay.start() as (here, uploads, _):
        project = await here.project()
        key = await presigned(uploads, project)
    quay.shelf.objects[key] = bytes(25)
    async with quay.start() as (here, _, pending):
        await quay.until(lambda: not quay.shelf.objects)
        assert here.read(project, "a") == bytes(25)
        assert [one.is_settled for one in pending] == [True]
    # Settled with its event, in one append: a process that ended before it was removed publishes nothing twice.
    quay.shelf.objects[key] = b"x" * 25
    async with quay.start() as (here, _, pending):
        await trio.sleep(0.02)  # some rounds of its tasks
        assert quay.shelf.fetched == [key]
        quay.now_ms = ENDS_MS + REMOVE_AGAIN_MS
        await quay.until(lambda: len(pending) == 0)
        assert quay.shelf.objects == {}
        assert here.read(project, "a") == bytes(25)


async def test_upload_that_never_comes_is_awaited_until_its_url_ends(quay: Quay) -> None:
    async with quay.start() as (here, uploads, pending):
        project = await here.project()
        key = await presigned(uploads, project)
        quay.now_ms = ENDS_MS - 500
        looks = quay.shelf.looks
        await quay.until(lambda: quay.shelf.looks > looks + 2)
        assert [one.is_settled for one in pending] == [False]
        quay.now_ms = ENDS_MS
        await quay.until(lambda: [one.is_settled for one in pending] == [True])
        await quay.until(lambda: quay.shelf.removed == [key])
        quay.shelf.objects[key] = bytes(25)  # too late
        quay.now_ms = ENDS_MS + REMOVE_AGAIN_MS
        await quay.until(lambda: len(pending) == 0)
        assert (quay.shelf.objects, quay.shelf.fetched, here.read(project, "a")) == ({}, [], None)


async def test_upload_that_came_at_the_last_moment_is_published(quay: Quay) -> None:
    async with quay.start() as (here, uploads, _):
        project = await here.project()
        key = await presigned(uploads, project)
        quay.shelf.objects[key] = bytes(25)
        quay.now_ms = ENDS_MS + 5000  # nobody has looked since
        await quay.until(lambda: here.read(project, "a") == bytes(25))


@pytest.mark.parametrize(("claims", "content"), [(None, bytes(24)), (None, bytes(26)), (24, bytes(25)), (0, b"")])
async def test_object_of_another_size_is_not_published(quay: Quay, claims: int | None, content: bytes) -> None:
    async with quay.start() as (here, uploads, pending):
        project = await here.project()
        key = await presigned(uploads, project)
        quay.shelf.claims, quay.shelf.objects[key] = claims, content
        quay.now_ms += 2000
        await quay.until(lambda: quay.shelf.removed == [key])
        assert [one.is_settled for one in pending] == [True]
        assert (here.read(project, "a"), quay.shelf.objects) == (None, {})
        assert (here.blobs.bytes, len(here.objects), quay.depot.files()) == (0, 0, set())


async def test_object_that_is_longer_than_the_bucket_says_is_not_published(quay: Quay) -> None:
    async with quay.start() as (here, uploads, _):
        project = await here.project()
        key = await presigned(uploads, project)
        quay.shelf.claims, quay.shelf.objects[key] = 25, bytes(900)
        quay.now_ms += 2000
        await quay.until(lambda: quay.shelf.removed == [key])
        assert (here.read(project, "a"), here.blobs.bytes, len(here.objects)) == (None, 0, 0)


async def test_object_that_does_not_fit_is_refused_and_gone(quay: Quay) -> None:
    async with quay.start() as (here, uploads, _):
        project = await here.project()
        await here.put(project, "old", bytes(800))
        key = await presigned(uploads, project, "new", 800)
        quay.shelf.objects[key] = bytes(800)
        quay.now_ms += 2000
        await quay.until(lambda: quay.shelf.removed == [key])
        assert (here.read(project, "new"), quay.shelf.objects) == (None, {})
        assert quay.depot.files() == {sha256(bytes(800))}


async def test_fetch_that_breaks_off_is_made_again(quay: Quay) -> None:
    async with quay.start() as (here, uploads, _):
        project = await here.project()
        key = await presigned(uploads, project)
        quay.shelf.objects[key], quay.shelf.breaks_off = bytes(25), True
        quay.now_ms += 2000
        await quay.until(lambda: quay.shelf.fetched == [key] and len(here.objects) == 0)
        assert quay.depot.files() == set()
        quay.shelf.breaks_off = False
        quay.now_ms += RETRY_MS
        await quay.until(lambda: here.read(project, "a") == bytes(25))


async def test_full_disk_is_waited_for_even_beyond_the_end_of_the_url(quay: Quay) -> None:
    async with quay.start() as (here, uploads, pending):
        project = await here.project()
        key = await presigned(uploads, project)
        quay.shelf.objects[key] = bytes(25)
        quay.depot.disk_fault = EchoError.STORAGE_NOT_READY
        quay.now_ms += 2000
        await quay.until(lambda: quay.shelf.looks > 0)
        quay.now_ms = ENDS_MS + 1000
        looks = quay.shelf.looks
        await quay.until(lambda: quay.shelf.looks > looks)
        assert (quay.shelf.fetched, [one.is_settled for one in pending]) == ([], [False])
        quay.depot.disk_fault = None
        quay.now_ms += RETRY_MS
        await quay.until(lambda: here.read(project, "a") == bytes(25))


async def test_log_that_takes_nothing_publishes_nothing_and_loses_nothing(quay: Quay) -> None:
    async with quay.start() as (here, uploads, _):
        project = await here.project()
        key = await presigned(uploads, project)
        quay.shelf.objects[key] = bytes(25)
        quay.depot.estate.disk.is_full = True
        assert await uploads.presign(project, "b", "text/plain", 1) is EchoError.STORAGE_NOT_READY
        quay.now_ms += 2000
        await quay.until(lambda: quay.shelf.fetched == [key] and len(here.objects) == 0)
        assert (here.read(project, "a"), quay.depot.files()) == (None, set())
        quay.depot.estate.disk.is_full = False
        quay.now_ms += RETRY_MS
        await quay.until(lambda: here.read(project, "a") == bytes(25))


async def test_bucket_that_is_away_is_told_and_waited_for(quay: Quay) -> None:
    async with quay.start() as (here, uploads, pending):
        project = await here.project()
        key = await presigned(uploads, project)
        quay.shelf.objects[key], quay.shelf.is_away = bytes(25), True
        assert await uploads.presign(project, "b", "text/plain", 1) is EchoError.STORAGE_NOT_READY
        quay.now_ms = ENDS_MS + 1000
        await quay.until(lambda: quay.shelf.looks > 0)
        assert [one.is_settled for one in pending] == [False]  # it may be there
        quay.shelf.is_away = False
        quay.now_ms += RETRY_MS
        await quay.until(lambda: here.read(project, "a") == bytes(25))


async def test_bucket_that_stays_away_is_given_up_on(quay: Quay) -> None:
    async with quay.start() as (here, uploads, pending):
        project = await here.project()
        await presigned(uploads, project)
        quay.shelf.is_away = True
        quay.now_ms = ENDS_MS + GIVE_UP_MS
        await quay.until(lambda: [one.is_settled for one in pending] == [True])
        quay.now_ms += REMOVE_AGAIN_MS
        await quay.until(lambda: len(pending) == 0)


async def test_bucket_that_removes_nothing_is_asked_again_and_given_up_on(quay: Quay) -> None:
    async with quay.start() as (here, uploads, pending):
        project = await here.project()
        key = await presigned(uploads, project)
        quay.shelf.objects[key], quay.shelf.keeps_all = bytes(25), True
        quay.now_ms += 2000
        await quay.until(lambda: len(quay.shelf.removed) == 1)
        for count in (2, 3):
            quay.now_ms = ENDS_MS + count * REMOVE_AGAIN_MS
            await quay.until(lambda count=count: len(quay.shelf.removed) == count)  # type: ignore[misc]
        assert len(pending) == 1
        quay.now_ms = ENDS_MS + GIVE_UP_MS
        await quay.until(lambda: len(pending) == 0)
        assert quay.shelf.fetched == [key]


async def test_upload_of_a_project_that_is_deleted_meanwhile_leaves_nothing_anywhere(quay: Quay) -> None:
    async with quay.start() as (here, uploads, _):
        project = await here.project()
        before, during = await presigned(uploads, project, "before"), await presigned(uploads, project, "during")
        quay.shelf.objects[during] = bytes(25)
        deleted = trio.Event()

        async def delete() -> None:
            assert await here.projects.delete(project) is None
            quay.shelf.objects[before] = bytes(25)
            deleted.set()

        async with trio.open_nursery() as nursery:
            quay.shelf.on_fetch = lambda: nursery.start_soon(delete)
            quay.now_ms += 2000
            await deleted.wait()
        quay.now_ms += 4000
        await quay.until(lambda: sorted(quay.shelf.removed) == sorted([before, during]))
        await here.blobs.sweep()  # whichever came first
        assert (quay.shelf.objects, quay.depot.files(), here.blobs.bytes) == ({}, set(), 0)


async def test_looks_are_a_few_at_a_time_and_uploads_have_a_limit(quay: Quay) -> None:
    quay.settings = s3(looks_max=3, pending_max=20)
    async with quay.start() as (here, uploads, _):
        project = await here.project()
        keys = [await presigned(uploads, project, f"{number}") for number in range(20)]
        assert await uploads.presign(project, "x", "text/plain", 1) is EchoError.OVERLOADED
        quay.now_ms += 2000
        await quay.until(lambda: quay.shelf.looks >= 40)
        assert quay.shelf.at_once_most == 3
        quay.shelf.objects.update(dict.fromkeys(keys, bytes(25)))
        quay.now_ms += 2000
        await quay.until(lambda: not quay.shelf.objects)
        found = here.projects.get(project)
        assert found is not None
        assert len(found.objects) == 20


async def test_pending_upload_that_cannot_be_read_is_left_as_it_is(quay: Quay) -> None:
    async with quay.start() as (here, uploads, _):
        project = await here.project()
        await presigned(uploads, project, "a")
        await presigned(uploads, project, "b")
    items = quay.depot.estate.disk.streams["project_uploads"].open_items
    since, item = items[min(items)]
    items[min(items)] = (since, type(item)(item.key, b"{"))
    async with quay.start() as (_, _, pending):
        assert [one.path for one in pending] == ["b"]


async def test_form_in_which_pending_uploads_lie_in_the_log_is_read_for_ever() -> None:
    """Written by a gateway of version 0.1.0: this line is never changed, a new form gets one of its own."""
    written = (
        b'{"upload_id":"01jd0000000000000000000001","project_id":"01jd0000000000000000000000","path":"a/b.html",'
        b'"content_type":"text/html; charset=utf-8","size":5,"ends_at_ms":1790000900000,"is_settled":false}'
    )
    upload = PendingUpload(
        "01jd0000000000000000000001", "01jd0000000000000000000000", "a/b.html", "text/html; charset=utf-8", 5, ENDS_MS
    )
    store = MemoryStore(MemoryDisk())
    await store.append(Part("project_uploads", None, START_MS, opened=(OpenItem(upload.upload_id, written),)))
    pending = PendingUploads(store, 10)
    await pending.load()
    assert list(pending) == [upload]
    assert pending.settled(upload, START_MS).opened[0].data == written.replace(b"false", b"true")


# ---- rules -----------------------------------------------------------------------------------------------------------


def test_what_is_next_follows_from_what_is_settled_and_when_its_url_ends() -> None:
    assert next_step(False, 100, 50) is Step.LOOK
    assert next_step(False, 100, 10**12) is Step.LOOK
    assert next_step(True, 100, 50) is Step.REMOVE
    assert next_step(True, 100, 100 + GIVE_UP_MS - 1) is Step.REMOVE
    assert next_step(True, 100, 100 + GIVE_UP_MS) is Step.FORGET
    assert (is_awaited(100, 99), is_awaited(100, 100)) == (True, False)
    assert (is_tried(100, 100 + GIVE_UP_MS - 1), is_tried(100, 100 + GIVE_UP_MS)) == (True, False)


def test_looks_come_at_their_pace_and_once_more_at_the_very_end() -> None:
    assert next_look_ms(10_000, 1_000, 2_000) == 3_000
    assert next_look_ms(10_000, 9_000, 2_000) == 10_000
    assert next_look_ms(10_000, 10_500, 2_000) == 10_500
    assert next_removal_ms(10_000, 1_000) == 10_000 + REMOVE_AGAIN_MS
    assert next_removal_ms(10_000, 50_000) == 50_000 + REMOVE_AGAIN_MS


def test_turns_come_in_the_order_of_their_times() -> None:
    turns = Turns()
    assert (turns.take(10**9), turns.next_ms) == (None, None)
    for upload_id, at_ms in (("a", 3), ("b", 1), ("c", 2)):
        turns.put(upload_id, at_ms)
    assert turns.next_ms == 1
    assert [turns.take(2), turns.take(2), turns.take(2)] == ["b", "c", None]
    assert (turns.next_ms, len(turns)) == (3, 1)


def test_key_of_an_upload_names_its_project_and_nothing_else_of_it() -> None:
    assert PendingUpload("u", "p", "secret/path", "text/plain", 1, 2).key == "p/u"
