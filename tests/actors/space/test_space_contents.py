"""Values and files of a space, as the rules admit them and the store keeps them."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from actors.space.kv_rules import ListWish, precondition
from actors.space.settings import SpaceSettings
from actors.space.space_files import FileComing, SpaceFiles
from actors.space.space_values import Put, SpaceValues
from actors.space.spaces import DISK_S, EchoSpaces
from actors.space.store import VALUE_OVERHEAD_BYTES, KeyPage, StoredFile
from schemas.echo.envelope import read_envelope, room_key, unseal
from schemas.echo.errors import EchoError
from schemas.echo.kv import KvEntry, KvWrite
from schemas.ulids import Mint
from tests.actors.space.driver import World, opened

PLENTY = SpaceSettings(disk_free_min=0.0)


def files_of(world: World, spaces: EchoSpaces) -> SpaceFiles:
    mint = Mint(world.random)
    return SpaceFiles(spaces, lambda: mint.mint(world.now_ms))


async def upload(files: SpaceFiles, space: object, content: bytes) -> StoredFile | EchoError:
    coming = await files.begin(space, "n", "text/plain")  # type: ignore[arg-type]
    if not isinstance(coming, FileComing):
        return coming
    async with coming:
        return await coming.append(content) or await coming.finish()


# ---- values ----------------------------------------------------------------------------------------------------------


async def test_a_value_is_written_read_listed_and_deleted() -> None:
    async with World().process() as spaces:
        made, values = await opened(spaces), SpaceValues(spaces)
        put = await values.put(made.space, made.token, "k", KvWrite(b"v"))
        assert isinstance(put, Put)
        assert put.is_new
        assert put.entry.expires_at_ms == made.space.ends_at_ms
        got = await values.get(made.space, "k")
        assert got == KvEntry("k", put.entry.version, put.entry.updated_at_ms, put.entry.expires_at_ms, False, b"v")
        page = await values.list(made.space, ListWish("", None, 10))
        assert isinstance(page, KeyPage)
        assert [info.key for info in page.keys] == ["k"]
        assert await values.delete(made.space, "k") is None
        assert await values.delete(made.space, "k") is EchoError.KEY_NOT_FOUND
        assert await values.get(made.space, "k") is EchoError.KEY_NOT_FOUND


async def test_values_are_there_after_a_restart() -> None:
    world = World()
    async with world.process() as spaces:
        made = await opened(spaces)
        await SpaceValues(spaces).put(made.space, made.token, "k", KvWrite(b"v"))
    async with world.process() as spaces:
        space = spaces.find(made.token)
        assert space is not None
        got = await SpaceValues(spaces).get(space, "k")
        assert isinstance(got, KvEntry)
        assert got.value == b"v"


async def test_a_precondition_that_does_not_hold_is_a_conflict() -> None:
    async with World().process() as spaces:
        made, values = await opened(spaces), SpaceValues(spaces)
        only_new = precondition(None, "*")
        assert not isinstance(only_new, EchoError)
        assert isinstance(await values.put(made.space, made.token, "k", KvWrite(b"1"), only_new), Put)
        assert await values.put(made.space, made.token, "k", KvWrite(b"2"), only_new) is EchoError.VERSION_CONFLICT


async def test_of_two_writers_with_one_version_at_the_same_time_one_has_a_conflict() -> None:
    async with World().process() as spaces:
        made, values = await opened(spaces), SpaceValues(spaces)
        first = await values.put(made.space, made.token, "k", KvWrite(b"0"))
        assert isinstance(first, Put)
        match = precondition(f'"{first.entry.version}"', None)
        assert not isinstance(match, EchoError)
        outcomes: list[Put | EchoError] = []

        async def write(value: bytes) -> None:
            outcomes.append(await values.put(made.space, made.token, "k", KvWrite(value), match))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, b"1")
            nursery.start_soon(write, b"2")
        assert sum(outcome is EchoError.VERSION_CONFLICT for outcome in outcomes) == 1


async def test_an_encrypted_room_takes_envelopes_and_seals_for_those_who_ask() -> None:
    async with World().process() as spaces:
        made, values = await opened(spaces, is_encrypted=True), SpaceValues(spaces)
        assert await values.put(made.space, made.token, "k", KvWrite(b"v")) is EchoError.ENCRYPTION_REQUIRED
        assert await values.put(made.space, made.token, "k", KvWrite(b"\xff")) is EchoError.ENCRYPTION_REQUIRED
        assert await values.put(made.space, made.token, "k", KvWrite(b"....")) is EchoError.INVALID_ENCRYPTION
        assert isinstance(await values.put(made.space, made.token, "k", KvWrite(b"v", wants_sealing=True)), Put)
        got = await values.get(made.space, "k")
        assert isinstance(got, KvEntry)
        assert got.value is not None
        envelope = read_envelope(got.value.decode())
        assert envelope is not None
        assert unseal(room_key(made.token, made.space.space_id), "room#kv/k", envelope) == b"v"
        assert isinstance(await values.put(made.space, made.token, "j", KvWrite(got.value)), Put)
        plain = await opened(spaces)
        asked = KvWrite(b"v", wants_sealing=True)
        assert await values.put(plain.space, plain.token, "k", asked) is EchoError.ENCRYPTION_NOT_ENABLED


async def test_a_full_space_makes_room_of_what_has_expired_before_it_refuses() -> None:
    world = World(replace(PLENTY, keys_max=1))
    async with world.process() as spaces:
        made, values = await opened(spaces), SpaceValues(spaces)
        assert isinstance(await values.put(made.space, made.token, "a", KvWrite(b"", ttl_s=10)), Put)
        assert await values.put(made.space, made.token, "b", KvWrite(b"")) is EchoError.SPACE_FULL
        world.now_ms += 10_000
        assert isinstance(await values.put(made.space, made.token, "b", KvWrite(b"")), Put)


async def test_values_meet_the_count_of_keys_and_their_bytes_whichever_comes_first() -> None:
    async with World(replace(PLENTY, keys_max=3, kv_bytes_max=10, value_bytes_max=6)).process() as spaces:
        made, values = await opened(spaces), SpaceValues(spaces)

        async def put(key: str, size: int) -> Put | EchoError:
            return await values.put(made.space, made.token, key, KvWrite(b"x" * size))

        assert await put("a", 7) is EchoError.PAYLOAD_TOO_LARGE
        for key, size in (("a", 6), ("b", 4), ("c", 0)):
            assert isinstance(await put(key, size), Put)
        assert await put("d", 0) is EchoError.SPACE_FULL
        assert await put("c", 1) is EchoError.SPACE_FULL
        assert await put("a", 7) is EchoError.PAYLOAD_TOO_LARGE
        assert isinstance(await put("a", 5), Put)
        assert isinstance(await put("c", 1), Put)
        assert await values.delete(made.space, "b") is None
        assert isinstance(await put("d", 4), Put)
        assert spaces.store.usage(made.space.space_id).kv_bytes == 10


async def test_expired_values_are_swept_out_of_spaces_that_nobody_has_opened_since_the_start(
    autojump_clock: MockClock,
) -> None:
    world = World(replace(PLENTY, open_spaces_max=1))
    world.follows_trio = True
    async with world.process() as spaces:
        for made in [await opened(spaces) for _ in range(3)]:
            await SpaceValues(spaces).put(made.space, made.token, "k", KvWrite(b"v", ttl_s=30))
            await SpaceValues(spaces).put(made.space, made.token, "l", KvWrite(b"v"))
    async with world.process() as spaces, trio.open_nursery() as nursery:
        nursery.start_soon(spaces.run)
        assert spaces.store.totals().bytes == 6 + 6 * VALUE_OVERHEAD_BYTES
        await trio.sleep(65)
        assert spaces.store.totals().bytes == 3 + 3 * VALUE_OVERHEAD_BYTES
        nursery.cancel_scope.cancel()


async def test_a_sweep_that_takes_long_keeps_no_space_from_ending_on_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.follows_trio = True
    async with world.process() as spaces, trio.open_nursery() as nursery:
        made, swept = await opened(spaces, 70), list[str]()
        await SpaceValues(spaces).put(made.space, made.token, "k", KvWrite(b"v", ttl_s=30))

        async def hangs(space_id: str, _now_ms: int) -> int:
            swept.append(space_id)
            await trio.sleep_forever()
            return 0

        monkeypatch.setattr(spaces.store, "sweep_expired", hangs)
        nursery.start_soon(spaces.run)
        await trio.sleep(70.1)
        assert (swept, world.ended, world.streams) == ([made.space.space_id], [made.space.space_id], [])
        nursery.cancel_scope.cancel()


async def test_a_sweep_takes_no_index_into_memory_and_pushes_none_out() -> None:
    async with (world := World(replace(PLENTY, open_spaces_max=1))).process() as spaces:
        values, (first, second) = SpaceValues(spaces), [await opened(spaces) for _ in range(2)]
        for made in (first, second):
            await values.put(made.space, made.token, "k", KvWrite(b"v", ttl_s=1))
        world.now_ms += 1_000
        await spaces.sweep_values()
        assert spaces.store.usage(second.space.space_id).keys == 0
        with pytest.raises(RuntimeError, match="not open"):
            spaces.store.usage(first.space.space_id)
        assert spaces.store.totals().bytes == 0


async def test_whoever_holds_a_space_that_has_ended_meanwhile_finds_nothing() -> None:
    world = World()
    async with world.process() as spaces:
        made, values, files = await opened(spaces, 60), SpaceValues(spaces), files_of(world, spaces)
        await values.put(made.space, made.token, "k", KvWrite(b"v"))
        stored = await upload(files, made.space, b"content")
        assert isinstance(stored, StoredFile)
        world.now_ms += 60_000
        gone = EchoError.SPACE_NOT_FOUND
        for _ in range(2):
            assert await values.get(made.space, "k") is gone
            assert await values.put(made.space, made.token, "k", KvWrite(b"v")) is gone
            assert await values.delete(made.space, "k") is gone
            assert await values.list(made.space, ListWish("", None, 10)) is gone
            assert await files.list(made.space) is gone
            assert await files.read(made.space, stored.file_id, 0, 10) is None
            assert await upload(files, made.space, b"") is gone
            await spaces.end_what_is_over()


async def test_more_spaces_than_fit_in_memory_are_read_again() -> None:
    async with World(replace(PLENTY, open_spaces_max=2)).process() as spaces:
        values, many = SpaceValues(spaces), [await opened(spaces) for _ in range(5)]
        for _ in range(2):
            for made in many:
                assert isinstance(await values.put(made.space, made.token, "k", KvWrite(b"v")), Put)


@pytest.mark.parametrize(
    "settings", [replace(PLENTY, total_bytes_max=VALUE_OVERHEAD_BYTES + 4), replace(PLENTY, disk_free_min=1.1)]
)
async def test_without_room_on_the_disk_nothing_is_written_and_reads_go_on(settings: SpaceSettings) -> None:
    world = World(replace(settings, disk_free_min=0.0))
    async with world.process() as spaces:
        made, values, files = await opened(spaces), SpaceValues(spaces), files_of(world, spaces)
        await values.put(made.space, made.token, "k", KvWrite(b"four"))
        spaces.settings = settings
        world.now_ms += int(DISK_S * 1000)
        full = EchoError.STORAGE_NOT_READY
        assert await values.put(made.space, made.token, "j", KvWrite(b"v")) is full
        assert await upload(files, made.space, b"x") is full
        assert await spaces.open(made.space.protocol, None, is_encrypted=False) is full
        assert isinstance(await values.get(made.space, "k"), KvEntry)
        assert await values.delete(made.space, "k") is None


async def test_a_store_that_refuses_is_storage_not_ready() -> None:
    async with (world := World()).process() as spaces:
        made, values = await opened(spaces), SpaceValues(spaces)
        world.space_disk.is_full = True
        assert await values.put(made.space, made.token, "k", KvWrite(b"v")) is EchoError.STORAGE_NOT_READY


# ---- files -----------------------------------------------------------------------------------------------------------


async def test_a_file_is_uploaded_read_in_pieces_listed_and_deleted() -> None:
    world = World()
    async with world.process() as spaces:
        made, files = await opened(spaces), files_of(world, spaces)
        stored = await upload(files, made.space, b"content")
        assert isinstance(stored, StoredFile)
        assert await files.find(made.space, stored.file_id) == stored
        assert await files.list(made.space) == (stored,)
        assert await files.read(made.space, stored.file_id, 2, 3) == b"nte"
        assert await files.delete(made.space, stored.file_id) is None
        assert await files.read(made.space, stored.file_id, 0, 3) is None
        for unknown in (stored.file_id, "x", "../../etc"):
            assert await files.find(made.space, unknown) is EchoError.FILE_NOT_FOUND
            assert await files.delete(made.space, unknown) is EchoError.FILE_NOT_FOUND


async def test_a_file_meets_its_limit_the_spaces_total_and_the_count() -> None:
    world = World(replace(PLENTY, file_bytes_max=10, files_bytes_max=15, files_max=2))
    async with world.process() as spaces:
        made, files = await opened(spaces), files_of(world, spaces)
        assert await upload(files, made.space, b"x" * 11) is EchoError.PAYLOAD_TOO_LARGE
        assert isinstance(await upload(files, made.space, b"x" * 10), StoredFile)
        assert await upload(files, made.space, b"x" * 6) is EchoError.SPACE_FULL
        assert isinstance(await upload(files, made.space, b"x" * 5), StoredFile)
        assert await upload(files, made.space, b"") is EchoError.SPACE_FULL


async def test_uploads_at_the_same_time_cannot_pass_the_total_together() -> None:
    world = World(replace(PLENTY, files_bytes_max=15))
    async with world.process() as spaces:
        made, files = await opened(spaces), files_of(world, spaces)
        one, other = await files.begin(made.space, "a", "b"), await files.begin(made.space, "a", "b")
        assert isinstance(one, FileComing)
        assert isinstance(other, FileComing)
        async with one, other:
            assert await one.append(b"x" * 10) is None
            assert await other.append(b"x" * 6) is EchoError.SPACE_FULL


async def test_an_upload_that_breaks_off_leaves_nothing() -> None:
    world = World()
    async with world.process() as spaces:
        made, files = await opened(spaces), files_of(world, spaces)
        coming = await files.begin(made.space, "a", "b")
        assert isinstance(coming, FileComing)
        async with coming:
            await coming.append(b"half")
        assert await files.list(made.space) == ()
        assert spaces.store.usage(made.space.space_id).file_bytes == 0
