"""The log on a real server that is stopped, continued, killed, full and exchanged: everything acknowledged is there,
once."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import trio

from actors.log.store import (
    Appended,
    AppendRefused,
    Conflict,
    OpenItem,
    Part,
    Recorded,
    RefusalReason,
    StoreFailedError,
)
from gateway.engine.jetstream_rules import API
from gateway.engine.link import Message
from gateway.engine.nats_reads import Reads
from gateway.engine.server_run import ServerRun
from tests.actors.log.shelves import NatsShelf, ShelvedNatsStore, bounded, part


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerRun]:
    """One to be stopped and killed."""
    run = ServerRun(tmp_path, 2**36)
    await run.start()
    yield run
    await run.stop()


@pytest.fixture
def shelf(server: ServerRun) -> NatsShelf:
    made = NatsShelf(server)
    made.engine = msgspec.structs.replace(made.engine, attempt_s_max=0.1, read_s_max=0.1)
    return made


async def runs_of(store: ShelvedNatsStore, shelf: NatsShelf, stream: str) -> int:
    return len(await Reads(store.link, shelf.names, shelf.engine).runs_from(stream, 1))


async def until_unknown(store: ShelvedNatsStore, number: int = 1) -> None:
    while store.unknown_outcomes < number:  # noqa: ASYNC110
        await trio.sleep(0.005)


# ── two gateways ──────────────────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_of_two_owners_the_stale_one_writes_nothing(shelf: NatsShelf) -> None:
    async with await shelf.open() as stale, await shelf.open() as owner:
        await stale.append(part("a", 0, "x"))
        assert (await owner.load("a")).version == 1
        assert await owner.append(part("a", 1, "session 2")) == Appended((2,))
        assert await stale.append(part("a", 1, "late")) == Conflict("a", 2)
        assert await stale.append(part("a", 1, "later"), part("b", 0, "z")) == Conflict("a", 2)
        assert [event.data for event in await owner.read("a")] == [b"x", b"session 2"]
        assert (await owner.load("b")).version == 0
        assert stale.log_id == owner.log_id


@bounded
async def test_many_writers_of_two_gateways_without_expected_versions_lose_nothing(shelf: NatsShelf) -> None:
    async with await shelf.open() as one, await shelf.open() as other:

        async def write(store: ShelvedNatsStore, name: str) -> None:
            for number in range(5):
                blind = Part("shared", None, 0, (f"{name} {number}".encode(),))
                assert isinstance(await store.append(blind), Appended)

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(write, one, f"one/{number}")
                nursery.start_soon(write, other, f"other/{number}")
        events = await one.read("shared")
        assert [event.version for event in events] == list(range(1, 41))
        assert len({event.data for event in events}) == 40


@bounded
async def test_of_a_batch_only_the_append_that_conflicts_is_refused(shelf: NatsShelf) -> None:
    async with await shelf.open() as store, await shelf.open() as other:
        names = [f"s{number:02}" for number in range(40)]
        answers: list[object] = []
        for name in names:
            await store.append(part(name, 0, "x"))
        await other.append(part("s23", 1, "theirs"))
        for name in names:
            store.submit((part(name, 1, "y"),), answers.append)
        while len(answers) < len(names):  # noqa: ASYNC110
            await trio.sleep(0.001)
        assert answers == [Conflict("s23", 2) if name == "s23" else Appended((2,)) for name in names]
        assert [(await store.load(name)).version for name in names] == [2] * 40


# ── servers that come and go ──────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_a_server_that_is_stopped_during_an_append_has_it_once_when_it_goes_on(
    server: ServerRun, shelf: NatsShelf
) -> None:
    async with await shelf.open() as store:
        for name in "abc":
            await store.append(part(name, 0, "x"))
        answers: list[object] = []
        server.pause()
        store.submit((part("a", 1, "y"),), answers.append)
        store.submit((part("b", 1, "y", snapshot="s"), part("c", 1, "y")), answers.append)
        await until_unknown(store, 4)
        assert answers == []
        server.go_on()
        assert await store.append(part("a", 2, "z")) == Appended((3,))
        assert answers == [Appended((2,)), Appended((2, 2))]
        assert [event.data for event in await store.read("a")] == [b"x", b"y", b"z"]
        assert [await runs_of(store, shelf, name) for name in "abc"] == [3, 2, 2]


@bounded
async def test_a_server_that_is_killed_under_load_loses_and_doubles_nothing(
    server: ServerRun, shelf: NatsShelf
) -> None:
    writers = 24  # enough for batches
    async with await shelf.open() as store:
        acknowledged = [0] * writers
        is_over = False

        async def write(writer: int) -> None:
            stream = f"s{writer}"
            while not is_over:
                version = acknowledged[writer]
                one = part(stream, version, f"{version}", snapshot="s" if version % 7 == 3 else None)
                answer = await store.append(one, blind_events=(("ledger", b"%d" % writer),) if writer < 3 else ())
                assert answer == Appended((version + 1,))
                acknowledged[writer] += 1

        async with trio.open_nursery() as nursery:
            for writer in range(writers):
                nursery.start_soon(write, writer)
            for _ in range(3):
                before = sum(acknowledged)
                while sum(acknowledged) < before + 10 * writers:  # noqa: ASYNC110
                    await trio.sleep(0.005)
                server.kill()
                await server.start()
            is_over = True
        for writer in range(writers):
            events = await store.read(f"s{writer}")
            assert [event.data for event in events] == [b"%d" % version for version in range(acknowledged[writer])]
        paid = [event.data for event in await store.read("ledger")]
        assert [paid.count(b"%d" % writer) for writer in range(3)] == acknowledged[:3]


@bounded
async def test_after_a_restart_of_the_server_everything_is_there(server: ServerRun, shelf: NatsShelf) -> None:
    async with await shelf.open() as store:
        await store.append(Part("a", 0, 7, (b"x", b"y"), (OpenItem("k", b"d"),), snapshot=b"s"))
        await store.append(part("a", 2, "z"))
        before = await store.load("a")
    server.kill()
    await server.start()
    async with await shelf.open() as store:
        assert await store.load("a") == before
        assert await store.open_streams() == ("a",)
        assert await store.append(part("a", 3, "w")) == Appended((4,))


@bounded
async def test_a_server_that_does_not_come_back_is_unreachable_and_reads_are_too(
    server: ServerRun, shelf: NatsShelf
) -> None:
    shelf.engine = msgspec.structs.replace(shelf.engine, append_patience_s=0.2)
    async with await shelf.open() as store:
        await store.append(part("a", 0, "x"))
        await server.stop()
        while store.link.state.value != "down":  # noqa: ASYNC110
            await trio.sleep(0.005)
        assert await store.append(part("a", 1, "y")) == AppendRefused(RefusalReason.UNREACHABLE)
        await server.start()
        while await store.append(part("a", 1, "y")) != Appended((2,)):  # noqa: ASYNC110
            await trio.sleep(0.005)
        assert len(await store.read("a")) == 2


# ── a log that is not as it was ───────────────────────────────────────────────────────────────────────────────────────


async def js_api(store: ShelvedNatsStore, subject: str, request: object = None) -> None:
    data = b"" if request is None else msgspec.json.encode(request)
    answer = await store.link.request(API + subject, data, timeout_s=10)
    assert isinstance(answer, Message)
    assert b'"error"' not in answer.data


@bounded
async def test_a_log_that_is_deleted_stops_the_store(shelf: NatsShelf) -> None:
    shelf.engine = msgspec.structs.replace(shelf.engine, append_patience_s=0.2)
    store = await shelf.open()
    await store.append(part("a", 0, "x"))
    await js_api(store, f"STREAM.DELETE.{shelf.names.log}")
    with pytest.raises(StoreFailedError, match="gone"):
        await store.append(part("a", 1, "y"))
    with pytest.raises(StoreFailedError, match="gone"):
        await store.watch()
    await store.close()


@bounded
async def test_another_stream_at_its_subjects_stops_the_store(shelf: NatsShelf) -> None:
    store = await shelf.open()
    await store.append(part("a", 0, "x"))
    await js_api(store, f"STREAM.DELETE.{shelf.names.log}")
    other = {"name": "OTHER", "subjects": [shelf.names.log_subjects], "storage": "memory", "allow_atomic": True}
    await js_api(store, "STREAM.CREATE.OTHER", other)
    with pytest.raises(StoreFailedError, match="not our log"):
        await store.append(part("a", 1, "y"))
    await store.close()


@bounded
async def test_a_full_log_refuses_appends_and_goes_on_when_there_is_room(shelf: NatsShelf) -> None:
    shelf.engine = msgspec.structs.replace(shelf.engine, log_bytes_max=100_000)
    async with await shelf.open() as store:
        version = 0
        while isinstance(answer := await store.append(part("a", version, "x" * 20_000)), Appended):
            version = answer.version
        assert answer == AppendRefused(RefusalReason.DISK_FULL)
        batch = (part("b", 0, "y" * 20_000), part("c", 0, "y" * 20_000))
        assert await store.append(*batch) == AppendRefused(RefusalReason.DISK_FULL)
        assert len(await store.read("a")) == version
        assert (await store.load("b")).version == 0
        assert await store.append(part("a", version, snapshot="s")) == Appended((version,))
        assert (await store.compact(1)).removed == version
        assert await store.append(*batch) == Appended((1, 1))


# ── what goes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_compaction_purges_runs_and_never_the_last(shelf: NatsShelf) -> None:
    async with await shelf.open() as store:
        for version in range(10):
            await store.append(part("a", version, f"{version}"))
        await store.append(part("a", 10, "last", snapshot="s"))
        assert (await store.compact(1)).removed == 11
        assert await runs_of(store, shelf, "a") == 1
        assert await store.read("a") == ()
    async with await shelf.open() as store:
        assert (await store.load("a")).version == 11
        assert await store.append(part("a", 10, "stale")) == Conflict("a", 11)
        assert await store.append(part("a", 11, "next")) == Appended((12,))
        assert await store.read("a") == (Recorded(12, 0, b"next"),)


@bounded
async def test_a_forgotten_stream_leaves_a_tombstone_and_nothing_to_be_read(shelf: NatsShelf) -> None:
    async with await shelf.open() as stale, await shelf.open() as store:
        await stale.append(part("a", 0, "secret", snapshot="secret"))
        assert await store.forget("a") is None
        reads = Reads(store.link, shelf.names, shelf.engine)
        snapshot, last = await reads.ends("a")
        assert snapshot is not None
        assert last is not None
        assert snapshot.is_tombstone
        assert last.is_tombstone
        assert (snapshot.data, last.data) == (b"", b"")
        assert await runs_of(store, shelf, "a") == 1
        assert await stale.append(part("a", 1, "late")) == Conflict("a", 0)
        shelf_now_s = shelf.now_s() + 2 * shelf.engine.tombstone_s
        store._now_s = lambda: shelf_now_s  # noqa: SLF001  # a day later
        await store.compact(0)
        assert await reads.ends("a") == (None, None)
        assert await store.append(part("a", 0, "new")) == Appended((1,))


@bounded
async def test_a_long_history_is_read_in_pages(shelf: NatsShelf) -> None:
    async with await shelf.open() as store:
        for version in range(600):
            store.submit((part("a", version, f"{version}"),), lambda _: None)
            if version % 2:
                await store.append(part("b", version // 2, "x" * 20_000 if version < 200 else "x"))
        loaded = await store.load("a")
        assert [int(event.data) for event in loaded.events] == list(range(600))
        assert await runs_of(store, shelf, "a") == 256
        assert [event.version for event in await store.read("a", after=590)] == list(range(591, 601))
        assert len((await store.load("b")).events) == 300
