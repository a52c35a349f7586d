"""What every bucket does, held against the one in memory and the one on JetStream."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Protocol

import msgspec
import pytest
import trio

from actors.engine.kv import Change, Current, Entry, Gone, Kv, NotPut
from actors.engine.memory_kv import MemoryBucket, MemoryKv
from actors.log.store import UnreadableError
from gateway.engine.connection import Connection
from gateway.engine.jetstream_rules import API
from gateway.engine.link import Message
from gateway.engine.nats_kv import NatsKv
from gateway.engine.nats_runs import Names
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.objects import Objects
from gateway.engine.objects_rules import LIVE, MANIFESTS, bucket_config
from gateway.engine.server_run import ServerRun
from gateway.engine.settings import EngineSettings

TEST_S_MAX = 30.0
_prefixes = count()


class World(Protocol):
    async def process(self) -> Kv:
        """The bucket as one more process sees it."""

    def cut_off(self, kv: Kv) -> None:
        """This process reaches the engine no more."""


class MemoryWorld:
    def __init__(self) -> None:
        self.bucket = MemoryBucket()

    async def process(self) -> Kv:
        await trio.lowlevel.checkpoint()
        return MemoryKv(self.bucket)

    def cut_off(self, kv: Kv) -> None:
        assert isinstance(kv, MemoryKv)
        kv.is_reachable = False


class NatsWorld:
    def __init__(self, server: ServerRun, stack: AsyncExitStack) -> None:
        self.server = server
        self.stack = stack
        self.names = Names(f"k{next(_prefixes)}")
        self.settings = EngineSettings(
            replicas=1,
            log_bytes_max=2**20,
            bucket_bytes_max=2**20,
            sync_is_always=True,
            append_patience_s=0.3,
            attempt_s_max=0.2,
            read_s_max=0.2,
        )
        self.links: dict[int, Connection] = {}

    async def process(self) -> Kv:
        settings = ConnectionSettings((self.server.url,), token=self.server.token, redial_s=0.01)
        link = await self.stack.enter_async_context(await Connection.open(settings))
        patient = msgspec.structs.replace(self.settings, append_patience_s=10.0, read_s_max=2.0)
        await Objects(link, self.names, patient).prepare()
        kv = NatsKv(link, self.names, LIVE, self.settings)
        self.links[id(kv)] = link
        return kv

    def cut_off(self, kv: Kv) -> None:
        del kv  # all of them are
        self.server.pause()


@pytest.fixture(params=["memory", "nats"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    if request.param == "memory":
        yield MemoryWorld()
        return
    server = ServerRun(tmp_path, 2**36)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        await server.start()
        yield NatsWorld(server, stack)
        server.go_on()


class Watcher:
    """What one has heard."""

    def __init__(self) -> None:
        self.heard: list[Change] = []
        self._news = trio.Event()

    def __call__(self, change: Change) -> None:
        self.heard.append(change)
        self._news.set()

    async def until(self, happened: Callable[[list[Change]], bool]) -> list[Change]:
        while not happened(self.heard):
            await self._news.wait()
            self._news = trio.Event()
        return self.heard


async def test_what_is_put_is_there_for_everybody(world: World) -> None:
    with trio.fail_after(TEST_S_MAX):
        one, other = await world.process(), await world.process()
        assert await other.get("proc.a") is None
        revision = await one.put("proc.a", b"1")
        assert isinstance(revision, int)
        assert await other.get("proc.a") == Entry("proc.a", b"1", revision)
        later = await other.put("proc.a", b"2")
        assert isinstance(later, int)
        assert later > revision
        assert await one.get("proc.a") == Entry("proc.a", b"2", later)


async def test_whoever_expects_another_revision_changes_nothing(world: World) -> None:
    with trio.fail_after(TEST_S_MAX):
        one, other = await world.process(), await world.process()
        first = await one.put("node.x", b"1", expected=0)
        assert isinstance(first, int)
        assert await other.put("node.x", b"2", expected=0) is NotPut.MOVED
        second = await other.put("node.x", b"2", expected=first)
        assert isinstance(second, int)
        assert await one.put("node.x", b"3", expected=first) is NotPut.MOVED
        assert await one.delete("node.x", expected=first) is NotPut.MOVED
        assert await one.put("node.y", b"1", expected=second) is NotPut.MOVED
        assert await one.get("node.x") == Entry("node.x", b"2", second)


async def test_of_many_that_create_a_key_one_does(world: World) -> None:
    with trio.fail_after(TEST_S_MAX):
        processes = [await world.process() for _ in range(3)]
        answers: list[int | NotPut] = []

        async def create(kv: Kv, data: bytes) -> None:
            answers.append(await kv.put("janitor", data, expected=0))

        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(create, processes[number % 3], b"%d" % number)
        assert sum(isinstance(answer, int) for answer in answers) == 1
        assert answers.count(NotPut.MOVED) == 11


async def test_a_deleted_key_is_not_there_and_can_be_created_again(world: World) -> None:
    with trio.fail_after(TEST_S_MAX):
        kv = await world.process()
        first = await kv.put("a", b"1")
        assert isinstance(first, int)
        assert await kv.delete("a", expected=first) is None
        assert await kv.get("a") is None
        assert await kv.put("a", b"stale", expected=first) is NotPut.MOVED
        again = await kv.put("a", b"2", expected=0)
        assert isinstance(again, int)
        assert again > first
        assert await kv.get("a") == Entry("a", b"2", again)
        assert await kv.delete("a") is None
        assert await kv.delete("a") is None
        assert await kv.delete("never-there") is None


async def test_a_value_with_an_end_ends_and_one_that_is_put_again_does_not(world: World) -> None:
    watcher = Watcher()
    with trio.fail_after(TEST_S_MAX):
        kv = await world.process()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kv.watch, watcher)
            await watcher.until(lambda heard: Current() in heard)
            await kv.put("proc.short", b"1", ttl_s=1.0)
            await kv.put("proc.kept", b"1", ttl_s=1.0)
            kept = await kv.put("proc.kept", b"2", ttl_s=20.0)
            await watcher.until(lambda heard: any(isinstance(change, Gone) for change in heard))
            nursery.cancel_scope.cancel()
        assert [change.key for change in watcher.heard if isinstance(change, Gone)] == ["proc.short"]
        assert await kv.get("proc.short") is None
        assert await kv.get("proc.kept") == Entry("proc.kept", b"2", kept)  # type: ignore[arg-type]
        assert isinstance(await kv.put("proc.short", b"back", expected=0, ttl_s=1.0), int)


async def test_a_watcher_hears_of_what_is_there_and_then_of_changes(world: World) -> None:
    watcher = Watcher()
    with trio.fail_after(TEST_S_MAX):
        kv, other = await world.process(), await world.process()
        await other.put("gone", b"")
        await other.delete("gone")
        first = await other.put("a", b"1")
        second = await other.put("b.c", b"2")
        assert isinstance(first, int)
        assert isinstance(second, int)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kv.watch, watcher)
            heard = list(await watcher.until(lambda heard: Current() in heard))
            assert heard == [Entry("a", b"1", first), Entry("b.c", b"2", second), Current()]
            third = await other.put("a", b"3")
            assert isinstance(third, int)
            await watcher.until(lambda heard: len(heard) > 3)
            await other.delete("b.c")
            await watcher.until(lambda heard: len(heard) > 4)
            nursery.cancel_scope.cancel()
        assert watcher.heard[3] == Entry("a", b"3", third)
        gone = watcher.heard[4]
        assert isinstance(gone, Gone)
        assert (gone.key, gone.revision > third) == ("b.c", True)


async def test_many_keys_are_told_once_each(world: World) -> None:
    watcher = Watcher()
    with trio.fail_after(TEST_S_MAX):
        kv = await world.process()
        for number in range(300):
            await kv.put(f"node.{number}", b"x" * 1_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kv.watch, watcher)
            await watcher.until(lambda heard: Current() in heard)
            nursery.cancel_scope.cancel()
    keys = [change.key for change in watcher.heard if isinstance(change, Entry)]
    assert sorted(keys) == sorted(f"node.{number}" for number in range(300))


async def test_a_process_that_is_cut_off_is_told_so(world: World) -> None:
    with trio.fail_after(TEST_S_MAX):
        kv = await world.process()
        await kv.put("a", b"1")
        world.cut_off(kv)
        assert await kv.put("a", b"2") is NotPut.UNREACHABLE
        assert await kv.delete("a") is NotPut.UNREACHABLE
        with pytest.raises(UnreadableError, match=r"^unreachable$"):
            await kv.get("a")


@pytest.mark.parametrize("key", ["", ".", "a.", ".a", "a..b", "a b", "a*", "a>", "a\r\nPUB", "☃"])
async def test_what_is_no_key_is_nobodys(world: World, key: str) -> None:
    kv = await world.process()
    for asked in (kv.get(key), kv.put(key, b""), kv.delete(key)):
        with pytest.raises(ValueError, match="not a key"):
            await asked


async def test_a_value_does_not_end_sooner_than_engines_count(world: World) -> None:
    kv = await world.process()
    with pytest.raises(ValueError, match="so soon"):
        await kv.put("a", b"", ttl_s=0.5)


async def test_a_watcher_comes_back_with_what_it_missed(tmp_path: Path) -> None:
    """On JetStream alone: a server that is killed, after which a bucket in memory is empty and counts anew."""
    server = ServerRun(tmp_path, 2**36)
    watcher = Watcher()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        await server.start()
        world = NatsWorld(server, stack)
        with trio.fail_after(TEST_S_MAX):
            kv = await world.process()
            before = await kv.put("a", b"1")
            await kv.put("b", b"1")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kv.watch, watcher)
                await watcher.until(lambda heard: Current() in heard)
                server.kill()
                await server.start()
                revision = await (await world.process()).put("a", b"2")
                assert isinstance(revision, int)
                await watcher.until(lambda heard: Entry("a", b"2", revision) in heard)
                await watcher.until(lambda heard: any(isinstance(each, Gone) and each.key == "b" for each in heard))
                nursery.cancel_scope.cancel()
    assert revision == before


async def test_what_a_deleted_key_leaves_goes(tmp_path: Path) -> None:
    """On JetStream alone, where a marker takes room."""
    server = ServerRun(tmp_path, 2**36)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        await server.start()
        world = NatsWorld(server, stack)
        with trio.fail_after(TEST_S_MAX):
            link = world.links[id(await world.process())]
            config = bucket_config(world.names, world.settings, LIVE)
            stream = config["name"]
            config["subject_delete_marker_ttl"] = 10**9  # what ends leaves a marker, too, and this one ends at once
            await link.request(f"{API}STREAM.UPDATE.{stream}", msgspec.json.encode(config), timeout_s=TEST_S_MAX)
            kv = NatsKv(link, world.names, LIVE, world.settings, deleted_s=1)
            first = await kv.put("a", b"1")
            assert isinstance(first, int)
            assert await kv.delete("a") is None
            while await messages_in(link, stream):  # noqa: ASYNC110  # the server says nothing of it
                await trio.sleep(0.05)
            assert await kv.get("a") is None
            assert await kv.put("a", b"stale", expected=first) is NotPut.MOVED
            assert isinstance(await kv.put("a", b"2", expected=0), int)


async def test_a_key_is_deleted_where_messages_have_no_end(tmp_path: Path) -> None:
    server = ServerRun(tmp_path, 2**36)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        await server.start()
        world = NatsWorld(server, stack)
        with trio.fail_after(TEST_S_MAX):
            link = world.links[id(await world.process())]
            kv = NatsKv(link, world.names, MANIFESTS, world.settings)
            await kv.put("a", b"1")
            assert await kv.delete("a") is None
            assert await kv.get("a") is None


async def messages_in(link: Connection, stream: str) -> int:
    answer = await link.request(f"{API}STREAM.INFO.{stream}", timeout_s=TEST_S_MAX)
    assert isinstance(answer, Message)
    messages: int = msgspec.json.decode(answer.data)["state"]["messages"]
    return messages
