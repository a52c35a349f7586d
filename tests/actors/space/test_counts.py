"""What happens to spaces and in rooms is counted where it happens, and the log says what becomes of a space."""

import re
from pathlib import Path

import structlog
from trio.testing import MockClock

from actors.space.counts import Operation
from actors.space.events import Ending
from actors.space.space_files import FileComing, SpaceFiles
from actors.space.space_values import SpaceValues
from schemas.echo.closes import RoomClose
from schemas.echo.errors import EchoError
from schemas.echo.frames import Ping, Send
from schemas.echo.kv import KvWrite
from tests.actors.space.driver import World, opened
from tests.actors.space.party import Party
from tests.actors.space.test_room import HI, house

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "spaces.md").read_text()
LINES = set(re.findall(r"^\| `(spaces?_\w+)` \|", PAGE, re.MULTILINE))


async def test_a_life_is_counted_and_each_step_of_it_is_one_line_with_nothing_but_the_id_and_the_reason() -> None:
    with structlog.testing.capture_logs() as logged:
        async with (world := World()).process() as spaces:
            first, second, third = [await opened(spaces, ttl_s) for ttl_s in (60, None, None)]
            assert await spaces.delete(second.space.space_id, second.claim) is None
            assert await spaces.close(third.space.space_id, Ending.CLOSED) is None
            world.now_ms += 60_000
            await spaces.end_what_is_over()
            assert spaces.counts.opened == 3
            assert spaces.counts.ended == {
                Ending.EXPIRED: 1, Ending.DELETED: 1, Ending.CLOSED: 1, Ending.BOOKED: 0,
            }  # fmt: skip
            assert (spaces.unerased, spaces.counts.erase_failures) == (0, 0)
    by_space = {
        made.space.space_id: [line for line in logged if line.get("space_id") == made.space.space_id]
        for made in (first, second, third)
    }
    assert sum(map(len, by_space.values())) == len(logged)
    for space_id, reason in zip(by_space, ("expired", "deleted", "closed"), strict=True):
        start, end, erased = by_space[space_id]
        assert start == {"event": "space_opened", "space_id": space_id, "log_level": "info"}
        assert end == {"event": "space_ended", "space_id": space_id, "reason": reason, "log_level": "info"}
        assert erased == {"event": "space_erased", "space_id": space_id, "log_level": "info"}
    assert {line["event"] for line in logged} <= LINES


async def test_a_space_that_expired_while_nobody_ran_is_counted_and_told_by_the_next_start() -> None:
    world = World()
    async with world.process() as spaces:
        made = await opened(spaces, 60)
    world.now_ms += 60_000
    with structlog.testing.capture_logs() as logged:
        async with world.process() as spaces:
            assert spaces.counts.ended[Ending.EXPIRED] == 1
    assert [(line["event"], line["space_id"]) for line in logged] == [
        ("space_ended", made.space.space_id),
        ("space_erased", made.space.space_id),
    ]


async def test_a_disk_that_does_not_erase_is_counted_each_time_and_told_once() -> None:
    with structlog.testing.capture_logs() as logged:
        async with (world := World()).process() as spaces:
            made = await opened(spaces)
            world.log_disk.is_full = True
            assert await spaces.close(made.space.space_id, Ending.CLOSED) is EchoError.STORAGE_NOT_READY
            for wait_ms in (1_000, 2_000):
                world.now_ms += wait_ms
                await spaces.end_what_is_over()
            assert (spaces.unerased, spaces.counts.erase_failures) == (1, 3)
            world.log_disk.is_full = False
            world.now_ms += 4_000
            await spaces.end_what_is_over()
            assert (spaces.unerased, spaces.counts.erase_failures) == (0, 3)
    events = [line["event"] for line in logged]
    assert events == ["space_opened", "space_ended", "spaces_not_erased", "space_erased"]
    assert set(events) <= LINES


async def test_live_spaces_are_listed_in_the_order_of_their_ids() -> None:
    async with (world := World()).process() as spaces:
        made = []
        for ttl_s in (60, 120, 180):
            made.append((await opened(spaces, ttl_s)).space)
            world.now_ms += 1
        world.now_ms += 60_000  # the first is over, and nobody has swept
        assert spaces.live_behind("", 10) == made[1:]
        assert spaces.live_behind("", 1) == made[1:2]
        assert spaces.live_behind(made[1].space_id, 10) == made[2:]
        assert spaces.live_behind(made[2].space_id, 10) == []


async def test_what_is_done_with_values_and_files_is_counted_and_what_is_refused_is_not() -> None:
    async with World().process() as spaces:
        made = await opened(spaces)
        values, files = SpaceValues(spaces), SpaceFiles(spaces, lambda: "01jd" + "f" * 22)
        for _ in range(3):
            await values.put(made.space, made.token, "k", KvWrite(b"v"))
        await values.put(made.space, made.token, "no key", KvWrite(b"v"))
        for key in ("k", "k", "other"):
            await values.get(made.space, key)
        assert await values.delete(made.space, "k") is None
        assert await values.delete(made.space, "k") is EchoError.KEY_NOT_FOUND
        coming = await files.begin(made.space, "a", "text/plain")
        assert isinstance(coming, FileComing)
        async with coming:
            assert await coming.append(b"content") is None
            stored = await coming.finish()
        assert not isinstance(stored, EchoError)
        assert await files.delete(made.space, stored.file_id) is None
        assert await files.delete(made.space, stored.file_id) is EchoError.FILE_NOT_FOUND
        assert spaces.counts.operations == {
            Operation.KV_READ: 2, Operation.KV_WRITE: 3, Operation.KV_DELETE: 1, Operation.FILE_UPLOAD: 1,
            Operation.FILE_DELETE: 1,
        }  # fmt: skip


def test_messages_deliveries_and_refused_frames_of_a_room_are_counted() -> None:
    party = Party()
    a, *_ = [party.open(uid) for uid in ("ada", "bob", "eve")]
    party.say(a, Send(data=b"1"))
    party.say(a, Send(data=b"1", tuid="bob"))
    party.say(a, Send(data=b"1", tuid="nobody"))
    counts = party.room.counts
    assert (counts.messages, counts.deliveries) == (3, 3)
    for _ in range(200):
        party.say(a, Ping())
    assert counts.frames_refused["rate_limited"] > 0
    assert sum(counts.frames_refused.values()) == counts.frames_refused["rate_limited"]
    assert (counts.messages, counts.deliveries) == (3, 3)


async def test_every_connection_ends_in_exactly_one_count(autojump_clock: MockClock) -> None:
    async with house() as here:
        room, _ = here.join("clean")
        for key in ("lost", "dropped", "slow", "stays"):
            here.join(key)
        assert (here.rooms.connections, here.rooms.connections_of(here.space.space_id)) == (5, 5)
        assert here.rooms.connections_of("01jd" + "a" * 22) == 0
        room.left("clean", is_clean=True)
        room.left("lost", is_clean=False)
        room.drop("dropped", RoomClose.TOO_LARGE)
        room.left("dropped", is_clean=False)  # as a socket may say that the room has closed already
        room.drop("slow", RoomClose.SLOW)
        room.receive("stays", [(HI, True)])
        counts = here.rooms.counts
        assert (counts.lost, here.rooms.connections) == (1, 1)
        here.rooms.end(here.space.space_id)
        wanted = (RoomClose.NORMAL, RoomClose.TOO_LARGE, RoomClose.SLOW, RoomClose.GONE)
        assert counts.closes == {close: int(close in wanted) for close in RoomClose}
