"""What every directory does: that of one process, and that of one among several, in memory and on JetStream."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
import structlog
import trio

from actors.bus.directory import HERE, NodeRecord, OwnersDirectory
from actors.bus.local_directory import LocalDirectory
from actors.engine.engine_directory import EngineDirectory
from actors.engine.heartbeat import Me
from actors.engine.kv import Kv
from actors.engine.memory_kv import MemoryBucket, MemoryKv
from actors.engine.presence_rules import NodeEntry, Standing, is_witness
from actors.engine.settings import PresenceSettings
from actors.log.memory_store import MemoryStore
from actors.log.store import Appended, AppendRefused, Conflict, RefusalReason, answered
from gateway.engine.connection import Connection
from gateway.engine.nats_kv import NatsKv
from gateway.engine.nats_runs import Names
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.objects import Objects
from gateway.engine.objects_rules import LIVE, MANIFESTS
from gateway.engine.server_run import ServerRun
from gateway.engine.settings import EngineSettings
from schemas.canonical import digest
from schemas.closes import NodeClose
from schemas.labels import Labels
from schemas.manifest import Accepted, NodeIdentity
from schemas.projection import project
from tests.schemas.examples import ECHO_CAPABILITY, METRICS_CAPABILITY

WALL_MS = 1_790_000_000_000
TEST_S_MAX = 60.0
NODE = NodeIdentity("0" * 25 + "a", "acme")
OTHER = NodeIdentity("0" * 25 + "b", "acme")


def manifest(node: NodeIdentity, capability: object = ECHO_CAPABILITY, issued_at_ms: int = WALL_MS) -> Accepted:
    document = {
        "node_id": node.node_id,
        "capabilities": [capability],
        "issued_at_ms": issued_at_ms,
        "expires_at_ms": WALL_MS + 1_000_000,
    }
    return Accepted(document, digest(document), project(document))


async def announce(directory: OwnersDirectory, node: NodeIdentity, accepted: Accepted | None = None) -> object:
    told = manifest(node) if accepted is None else accepted
    return await answered(lambda then: directory.announce(node, told, WALL_MS, then))


async def until(holds: Callable[[], bool]) -> None:
    """Bounded by whoever calls."""
    while not holds():  # noqa: ASYNC110 (a directory in another process: there is no event to wait for)
        await trio.sleep(0.01)


def shown(directory: OwnersDirectory, node: NodeIdentity) -> NodeRecord:
    record = directory.find(node.node_id)
    assert record is not None
    return record


class Several:
    """Processes that share two buckets in memory."""

    def __init__(self, nursery: trio.Nursery, settings: PresenceSettings | None = None) -> None:
        self.nursery = nursery
        self.settings = PresenceSettings() if settings is None else settings
        self.live, self.manifests = MemoryBucket(), MemoryBucket()

    async def process(self, name: str) -> tuple[EngineDirectory, MemoryKv, trio.CancelScope]:
        live, manifests = MemoryKv(self.live), MemoryKv(self.manifests)
        directory, scope = await run(self.nursery, name, live, manifests, self.settings)
        return directory, live, scope


async def run(
    nursery: trio.Nursery, name: str, live: Kv, manifests: Kv, settings: PresenceSettings
) -> tuple[EngineDirectory, trio.CancelScope]:
    wall_ms = lambda: WALL_MS + int(trio.current_time() * 1000) % 10**9  # noqa: E731
    directory = EngineDirectory(live, manifests, Me(name, "host", "unix:x", wall_ms), settings)
    scope = trio.CancelScope()

    async def live_on() -> None:
        with scope:
            await directory.run()

    nursery.start_soon(live_on)
    await directory.load()
    return directory, scope


@pytest.fixture(params=["local", "memory", "nats"])
async def directories(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[OwnersDirectory]]:
    """The owner's, and that of whoever reads."""
    if request.param == "local":
        local = LocalDirectory(MemoryStore())
        yield [local, local]
        return
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        if request.param == "memory":
            several = Several(nursery)
            yield [(await several.process(name))[0] for name in ("P", "Q")]
        else:
            server = ServerRun(tmp_path, 2**36)
            stack.push_async_callback(server.stop)
            await server.start()
            found: list[OwnersDirectory] = []
            names = Names("dir")
            settings = EngineSettings(replicas=1, log_bytes_max=2**20, bucket_bytes_max=2**20, sync_is_always=True)
            for name in ("P", "Q"):
                dial = ConnectionSettings((server.url,), token=server.token, redial_s=0.01)
                link = await stack.enter_async_context(await Connection.open(dial))
                await Objects(link, names, settings).prepare()
                live, manifests = (NatsKv(link, names, bucket, settings) for bucket in (LIVE, MANIFESTS))
                found.append((await run(nursery, name, live, manifests, PresenceSettings()))[0])
            yield found
        nursery.cancel_scope.cancel()


async def test_a_node_that_comes_and_goes_is_seen_by_owner_and_readers(directories: list[OwnersDirectory]) -> None:
    owner, reader = directories
    told: list[str] = []
    reader.listen("acme", lambda: told.append("acme"))
    with trio.fail_after(TEST_S_MAX):
        assert await announce(owner, NODE) == Appended((0,))
        assert shown(owner, NODE).live is False
        owner.came(NODE, 3, WALL_MS, "agent 1")
        assert list(owner.live_ids("acme")) == [NODE.node_id]
        await until(lambda: reader.live_count == 1)
        record = shown(reader, NODE)
        assert (record.epoch, record.since_ms, record.left, record.agent) == (3, WALL_MS, None, "agent 1")
        assert record.tools == manifest(NODE).tools
        owner.went(NODE, 2, NodeClose.TIMEOUT, WALL_MS + 1)
        assert owner.live_count == 1
        owner.went(NODE, 3, NodeClose.TIMEOUT, WALL_MS + 5)
        assert owner.live_count == 0
        await until(lambda: reader.live_count == 0)
        record = shown(reader, NODE)
        assert (record.live, record.epoch, record.since_ms, record.left) == (False, 3, WALL_MS + 5, NodeClose.TIMEOUT)
        owner.came(NODE, 4, WALL_MS + 6)
        await until(lambda: shown(reader, NODE).epoch == 4)
    assert len(told) >= 3


async def test_other_tools_of_a_live_node_are_news_to_readers(directories: list[OwnersDirectory]) -> None:
    owner, reader = directories
    with trio.fail_after(TEST_S_MAX):
        await announce(owner, NODE)
        owner.came(NODE, 1, WALL_MS)
        await until(lambda: reader.live_count == 1)
        told: list[None] = []
        reader.listen("acme", lambda: told.append(None))
        other = manifest(NODE, METRICS_CAPABILITY, WALL_MS + 1)
        assert isinstance(await announce(owner, NODE, other), Appended)
        await until(lambda: shown(reader, NODE).tools == other.tools)
    assert len(told) == 1


async def test_a_forgotten_node_is_nowhere_and_can_come_again(directories: list[OwnersDirectory]) -> None:
    owner, reader = directories
    with trio.fail_after(TEST_S_MAX):
        await announce(owner, NODE)
        owner.came(NODE, 1, WALL_MS)
        await until(lambda: reader.live_count == 1)
        owner.went(NODE, 1, NodeClose.FORBIDDEN, WALL_MS)
        await until(lambda: reader.live_count == 0)
        assert await owner.forget(NODE.node_id, WALL_MS)
        await until(lambda: reader.find(NODE.node_id) is None)
        assert (owner.find(NODE.node_id), list(owner.ids())) == (None, [])
        await announce(owner, NODE, manifest(NODE, issued_at_ms=WALL_MS - 5))
        await until(lambda: reader.find(NODE.node_id) is not None)
        assert not shown(reader, NODE).live


async def test_labels_are_as_the_register_tells_them(directories: list[OwnersDirectory]) -> None:
    owner, _ = directories
    owner.label(NODE, Labels("attic"))
    with trio.fail_after(TEST_S_MAX):
        await announce(owner, NODE)
    assert (owner.named("acme", "attic"), shown(owner, NODE).labels.name) == (NODE.node_id, "attic")


# ---- several processes, in memory: time is ours ---------------------------------------------------------------------


async def test_a_process_that_dies_takes_its_nodes_with_it_when_its_entry_ends(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        several = Several(nursery)
        p, _, dies = await several.process("P")
        q, _, _ = await several.process("Q")
        await announce(p, NODE)
        p.came(NODE, 1, WALL_MS)
        await trio.sleep(60)
        assert (q.live_count, set(q.processes)) == (1, {"P", "Q"})
        dies.cancel()
        await trio.sleep(several.settings.dead_s + 1)
        record = shown(q, NODE)
        assert (record.live, record.left, record.owner, set(q.processes)) == (False, None, "P", {"Q"})
        superseded: list[object] = []
        q.on_superseded = lambda *told: superseded.append(told)
        await announce(q, NODE, manifest(NODE, issued_at_ms=WALL_MS + 1))
        q.came(NODE, 2, WALL_MS)
        await trio.sleep(1)
        assert (shown(q, NODE).live, shown(q, NODE).epoch, superseded) == (True, 2, [])
        nursery.cancel_scope.cancel()


async def test_what_nodes_did_is_one_process_s_to_write_down_whoever_died(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        several = Several(nursery)
        p, _, dies = await several.process("P")
        q, _, _ = await several.process("Q")
        await announce(p, NODE)
        written: list[tuple[str, bool]] = []

        def follow(directory: EngineDirectory, me: str) -> None:
            def news(record: NodeRecord) -> None:
                owner = me if record.owner == HERE else record.owner
                if is_witness(me, owner, directory.processes, live=record.live):
                    written.append((me, record.live))

            directory.follow(news)

        follow(p, "P")
        follow(q, "Q")
        follow((await several.process("R"))[0], "R")
        p.came(NODE, 1, WALL_MS)
        await trio.sleep(5)
        assert written == [("P", True)]
        dies.cancel()
        await trio.sleep(several.settings.dead_s + 1)
        assert written == [("P", True), ("Q", False)]
        nursery.cancel_scope.cancel()


async def test_a_stale_owner_that_goes_on_overwrites_nothing_and_is_told(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        several = Several(nursery)
        p, p_kv, _ = await several.process("P")
        q, _, _ = await several.process("Q")
        superseded: list[tuple[str, int]] = []
        p.on_superseded = lambda node_id, epoch: superseded.append((node_id, epoch))
        await announce(p, NODE)
        p.came(NODE, 1, WALL_MS)
        await trio.sleep(5)
        p_kv.is_reachable, p_kv.lag_s = False, 100.0
        await trio.sleep(20)
        assert (q.live_count, p.live_count, p.standing(), q.standing()) == (0, 1, Standing.LOST, Standing.READY)
        q.came(NODE, 2, WALL_MS)
        await trio.sleep(1)
        assert not superseded
        p_kv.is_reachable = True
        await trio.sleep(3)  # it learns that before its watcher tells it anything
        assert superseded == [(NODE.node_id, 2)]
        p.went(NODE, 1, NodeClose.SUPERSEDED, WALL_MS)
        await trio.sleep(200)
        for directory in (p, q):
            assert (shown(directory, NODE).live, shown(directory, NODE).epoch) == (True, 2)
        assert (shown(p, NODE).owner, p.standing(), superseded) == ("Q", Standing.READY, [(NODE.node_id, 2)])
        nursery.cancel_scope.cancel()


async def test_a_watcher_that_falls_behind_is_found_out_and_begun_anew(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        several = Several(nursery)
        p, _, dies = await several.process("P")
        q, q_kv, _ = await several.process("Q")
        for node in (NODE, OTHER):
            await announce(p, node)
            p.came(node, 1, WALL_MS)
        await trio.sleep(1)
        q_kv.lag_s = 1_000.0
        await trio.sleep(3)
        assert await MemoryKv(several.live).delete("node." + OTHER.node_id) is None
        dies.cancel()
        standings = set()
        for _ in range(30):
            await trio.sleep(1)
            standings.add(q.standing())
        assert standings == {Standing.READY, Standing.STALE}
        assert (q.live_count, set(q.processes)) == (0, {"Q"})  # also what the new watcher did not name
        nursery.cancel_scope.cancel()


async def test_when_a_process_dies_the_janitor_says_so_once_for_everybody(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        several = Several(nursery)
        p, p_kv, _ = await several.process("P")
        q, _, _ = await several.process("Q")
        superseded: list[object] = []
        p.on_superseded = lambda *told: superseded.append(told)
        await announce(p, NODE)
        p.came(NODE, 1, WALL_MS)
        await trio.sleep(1)
        await q.settle_lost()
        await trio.sleep(1)
        assert q.live_count == 1  # nothing is lost
        p_kv.is_reachable, p_kv.lag_s = False, 1_000.0
        await trio.sleep(20)
        await q.settle_lost()
        await trio.sleep(5)
        r, _, _ = await several.process("R")
        records = [shown(each, NODE) for each in (q, r)]
        assert records[0] == records[1]
        assert not records[0].live
        assert records[0].since_ms != WALL_MS
        p_kv.is_reachable, p_kv.lag_s = True, 0.0  # it was only stopped, and nobody else has the node
        await trio.sleep(30)
        assert [each.live_count for each in (p, q, r)] == [1, 1, 1]
        assert (shown(q, NODE).since_ms, superseded) == (WALL_MS, [])
        nursery.cancel_scope.cancel()


async def test_entries_that_were_lost_are_put_again(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        several = Several(nursery)
        p, kv, _ = await several.process("P")
        q, _, _ = await several.process("Q")
        for node in (NODE, OTHER):
            await announce(p, node)
            p.came(node, 1, WALL_MS)
        p.went(OTHER, 1, NodeClose.NORMAL, WALL_MS)
        await trio.sleep(1)
        for key in ("proc.P", "node." + NODE.node_id, "node." + OTHER.node_id):
            await kv.delete(key)
        await trio.sleep(1)
        assert list(q.live_ids("acme")) == [NODE.node_id]
        assert await kv.get("node." + OTHER.node_id) is None  # that it left is no longer news
        nursery.cancel_scope.cancel()


async def test_bytes_that_nobody_can_read_are_that_entrys_trouble_and_said_once(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        several = Several(nursery)
        p, kv, _ = await several.process("P")
        await announce(p, NODE)
        with structlog.testing.capture_logs() as lines:
            for data in (b"\xff", b"{}", b"[" * 5_000):
                for key in ("node." + NODE.node_id, "proc.X", "mcp.session", "janitor"):
                    await kv.put(key, data)
                await MemoryKv(several.manifests).put(OTHER.node_id, data)
                await trio.sleep(1)
            stranger = msgspec.json.encode({"tenant": "acme", "manifest": manifest(NODE).manifest})
            await MemoryKv(several.manifests).put(OTHER.node_id, stranger)
            await trio.sleep(1)
        said = [line["key"] for line in lines if line["event"] == "entry_unreadable"]
        assert sorted(said) == sorted(["node." + NODE.node_id, "proc.X", "manifests/" + OTHER.node_id])
        p.came(NODE, 1, WALL_MS)  # its owner mends it
        await announce(p, OTHER)
        await trio.sleep(1)
        q, _, _ = await several.process("Q")
        assert (list(q.live_ids("acme")), q.find(OTHER.node_id) is not None) == ([NODE.node_id], True)
        nursery.cancel_scope.cancel()


async def test_an_older_manifest_is_refused_and_a_lagging_watcher_brings_none_back(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        several = Several(nursery)
        p, _, _ = await several.process("P")
        lagging = MemoryKv(several.manifests)
        lagging.lag_s = 5.0
        q, _ = await run(nursery, "Q", MemoryKv(several.live), lagging, several.settings)
        newer = manifest(NODE, METRICS_CAPABILITY, WALL_MS + 9)
        await announce(p, NODE)
        assert isinstance(await announce(q, NODE, newer), Appended)  # has not heard of the first yet
        assert isinstance(await announce(p, NODE, manifest(NODE, issued_at_ms=WALL_MS + 1)), Conflict)
        for _ in range(20):
            await trio.sleep(1)
            assert shown(q, NODE).accepted == newer
        assert shown(p, NODE).accepted == newer
        nursery.cancel_scope.cancel()


async def test_a_manifest_that_nobody_takes_is_refused(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        several = Several(nursery, PresenceSettings(announces_max=1))
        p, _, _ = await several.process("P")
        several.manifests.is_full = True
        assert await announce(p, NODE) == AppendRefused(RefusalReason.DISK_FULL)
        assert p.find(NODE.node_id) is None
        p.announce(NODE, manifest(NODE), WALL_MS, lambda _: None)
        refused = p.announce(OTHER, manifest(OTHER), WALL_MS, lambda _: None)
        assert refused == AppendRefused(RefusalReason.OVERLOADED)
        nursery.cancel_scope.cancel()


async def test_an_entry_of_another_tenant_makes_nobody_live(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        several = Several(nursery)
        p, kv, _ = await several.process("P")
        await announce(p, NODE)
        await kv.put("node." + NODE.node_id, msgspec.json.encode(NodeEntry("other", 1, "P", WALL_MS)))
        await trio.sleep(1)
        assert p.live_count == 0
        nursery.cancel_scope.cancel()
