"""A full disk over HTTP: writes are 503 `storage_not_ready`, reads go on, nothing is left half-written, and it ends.

The disk is the one of `tests/actors/space/test_disk_full.py`: a small tmpfs where one may be mounted, and a database
and files that may not grow. Spaces look at the free room before they write (`disk_free_min`); here that is off, so that
it is the disk itself that refuses.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from actors.log.memory_store import MemoryStore
from actors.space.spaces import EchoSpaces
from schemas.ulids import Mint
from tests.actors.space.driver import World
from tests.actors.space.test_disk_full import SmallDisk, small_disk
from tests.gateway.spaces.site import PLENTY, Answer, Site, site
from tests.gateway.spaces.test_files import form, upload, uploaded

__all__ = ["small_disk"]  # the fixture
BIG = 200_000
ATTEMPTS_MAX = 40  # some writes fit into what the disk has set aside already
FULL = (503, "storage_not_ready")


class WorldOnDisk(World):
    def __init__(self, disk: SmallDisk) -> None:
        super().__init__(PLENTY)
        self.disk = disk

    @asynccontextmanager
    async def process(self) -> AsyncIterator[EchoSpaces]:
        mint = Mint(self.random)
        async with await self.disk.open() as store:
            log = MemoryStore(self.log_disk)
            spaces = EchoSpaces(store, log, self.settings, self.now, self.random, lambda: mint.mint(self.now_ms))
            self.before_load(spaces)
            await spaces.load()
            yield spaces


async def put_big(here: Site, token: str, key: str) -> Answer:
    return await here.put(token, key, "x" * BIG)


async def until_full(here: Site, token: str) -> set[str]:
    """Write values until one is refused; the keys of those that were not."""
    written: set[str] = set()
    for number in range(ATTEMPTS_MAX):
        answer = await put_big(here, token, f"big{number}")
        if answer.status != 201:
            assert answer.error == FULL
            assert answer.headers["access-control-allow-origin"] == "*"
            return written
        written.add(f"big{number}")
    raise AssertionError("the disk is not full")


async def listed(here: Site, token: str) -> tuple[set[str], list[str]]:
    keys = (await here.ask("GET", f"/api/s/{token}/kv")).json["keys"]
    files = (await here.ask("GET", f"/api/s/{token}/files")).json["files"]
    return {info["key"] for info in keys}, [file["file_id"] for file in files]


async def test_a_full_disk_refuses_writes_and_nothing_else_and_recovers(small_disk: SmallDisk) -> None:
    with trio.fail_after(60):
        async with site(PLENTY, WorldOnDisk(small_disk)) as here:
            made = await here.make()
            token = made["token"]
            assert (await here.put(token, "k", "before")).status == 201
            file = await uploaded(here, token, b"content")
            path = f"/api/s/{token}/files/{file['file_id']}"
            small_disk.fill()
            written = {"k", *await until_full(here, token)}
            # Whole or in pieces, begun before or after: nothing of a file that did not fit.
            assert (await upload(here, token, form(b"x" * 5_000_000))).error == FULL
            assert (await upload(here, token, [form(b"x" * 5_000_000)[:4_000_000], b"gone"])).error == FULL
            small_disk.fill()  # with the room, too, that what was written by half has left
            assert (await here.ask("POST", "/spaces", accept="application/json")).error == FULL
            # Reads go on.
            assert (await here.ask("GET", f"/api/s/{token}/kv/k")).json["value"] == "before"
            assert (await here.ask("GET", path)).body == b"content"
            assert (await here.ask("GET", path, range="bytes=1-2")).body == b"on"
            assert await listed(here, token) == (written, [file["file_id"]])
            assert [name for name in small_disk.shelf.files() if name.endswith(".part")] == []
            assert len(small_disk.shelf.files()) == 2  # a key and a file
            small_disk.make_room()
            assert (await put_big(here, token, "k")).status == 200
            after = await uploaded(here, token, b"x" * 500_000)
            second = await here.make()
            assert (await here.put(second["token"], "k")).status == 201
            left = await listed(here, token)
            assert left == (written, [file["file_id"], after["file_id"]])
        async with site(PLENTY, here.world) as here:  # and so it is after a restart
            assert await listed(here, token) == left
            assert json.loads((await here.ask("GET", f"/api/s/{token}/kv/k")).body)["value"] == "x" * BIG
            assert (await here.ask("DELETE", f"/api/s/{token}", authorization=f"Bearer {made['claim']}")).status == 204
