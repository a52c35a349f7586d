"""Who is where, in order, and who is told; and manifests that outlast the process."""

import pytest
import structlog
import trio
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.directory import NodeRecord, Presence
from actors.bus.local_directory import LocalDirectory
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import Appended, AppendRefused, OpenItem, Part, RefusalReason, answered
from schemas.canonical import digest
from schemas.closes import NodeClose
from schemas.labels import UNLABELLED, Labels
from schemas.manifest import Accepted, NodeIdentity
from schemas.projection import project
from tests.schemas.examples import ECHO_CAPABILITY, METRICS_CAPABILITY

WALL_MS = 1_790_000_000_000


def manifest(node_id: str, *capabilities: object) -> Accepted:
    document = {
        "node_id": node_id,
        "capabilities": list(capabilities or (ECHO_CAPABILITY,)),
        "issued_at_ms": WALL_MS,
        "expires_at_ms": WALL_MS + 1000,
    }
    return Accepted(document, digest(document), project(document))


async def announce(directory: LocalDirectory, node: NodeIdentity, *capabilities: object) -> object:
    accepted = manifest(node.node_id, *capabilities)
    return await answered(lambda then: directory.announce(node, accepted, WALL_MS, then))


async def live(directory: LocalDirectory, node_id: str, tenant: str = "acme", epoch: int = 1) -> NodeIdentity:
    node = NodeIdentity(node_id, tenant)
    await announce(directory, node)
    directory.came(node, epoch, WALL_MS)
    return node


@pytest.fixture
def directory() -> LocalDirectory:
    return LocalDirectory(MemoryStore())


async def test_ids_are_sorted_and_of_one_tenant(directory: LocalDirectory) -> None:
    for node_id, tenant in (("c", "acme"), ("a", "acme"), ("b", "other")):
        await live(directory, node_id, tenant)
    await announce(directory, NodeIdentity("d", "acme"))
    assert list(directory.live_ids("acme")) == ["a", "c"]
    assert list(directory.ids("acme")) == ["a", "c", "d"]
    assert list(directory.live_ids("other")) == ["b"]
    assert list(directory.ids("nobody")) == list(directory.live_ids("nobody")) == []
    assert list(directory.ids()) == ["a", "b", "c", "d"]
    assert directory.live_count == 3


async def test_a_newer_session_is_not_unlisted_by_the_end_of_the_older_one(directory: LocalDirectory) -> None:
    node = await live(directory, "a", epoch=1)
    directory.came(node, 2, WALL_MS)
    directory.went(node, 1, NodeClose.SUPERSEDED, WALL_MS)
    assert list(directory.live_ids("acme")) == ["a"]
    directory.went(node, 2, NodeClose.TIMEOUT, WALL_MS + 7)
    directory.went(node, 2, NodeClose.NORMAL, WALL_MS + 8)
    assert list(directory.live_ids("acme")) == []
    record = directory.find("a")
    assert record is not None
    assert (record.live, record.epoch, record.since_ms, record.left) == (False, 2, WALL_MS + 7, NodeClose.TIMEOUT)


async def test_listeners_of_the_tenant_are_told_until_they_stop(directory: LocalDirectory) -> None:
    told: list[str] = []
    stop = directory.listen("acme", lambda: told.append("acme"))
    directory.listen("other", lambda: told.append("other"))
    node = await live(directory, "a")
    directory.went(node, 1, NodeClose.NORMAL, WALL_MS)
    directory.went(node, 1, NodeClose.NORMAL, WALL_MS)
    assert told == ["acme", "acme"]
    stop()
    stop()
    directory.came(node, 2, WALL_MS)
    assert told == ["acme", "acme"]


async def test_followers_get_the_record_of_whoever_comes_or_goes(directory: LocalDirectory) -> None:
    news: list[NodeRecord] = []
    directory.follow(news.append)
    node = await live(directory, "a", epoch=4)
    await announce(directory, node, METRICS_CAPABILITY)
    directory.went(node, 4, NodeClose.TIMEOUT, WALL_MS)
    assert [(record.live, record.epoch, record.left) for record in news] == [
        (True, 4, None),
        (False, 4, NodeClose.TIMEOUT),
    ]


async def test_a_live_node_that_announces_other_tools_is_told_of_and_one_that_repeats_itself_is_not(
    directory: LocalDirectory,
) -> None:
    told: list[None] = []
    node = await live(directory, "a")
    directory.listen("acme", lambda: told.append(None))
    await announce(directory, node)
    assert not told
    await announce(directory, node, METRICS_CAPABILITY)
    assert len(told) == 1
    record = directory.find("a")
    assert record is not None
    assert record.live
    assert {tool.target.kind for tool in record.tools} == {"system.metrics"}


async def test_manifest_is_listed_when_it_is_durable_though_nobody_waits_for_that(directory: LocalDirectory) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await announce(directory, NodeIdentity("a", "acme"))
    assert directory.find("a") is None
    await trio.testing.wait_all_tasks_blocked()
    assert directory.find("a") is not None


async def test_manifest_that_the_log_refuses_is_not_listed() -> None:
    disk = MemoryDisk(is_full=True)
    directory = LocalDirectory(MemoryStore(disk))
    assert await announce(directory, NodeIdentity("a", "acme")) == AppendRefused(RefusalReason.DISK_FULL)
    assert directory.find("a") is None


async def test_manifests_outlast_the_process_and_their_nodes_are_away() -> None:
    disk = MemoryDisk()
    before = LocalDirectory(MemoryStore(disk))
    await live(before, "a")
    after = LocalDirectory(MemoryStore(disk))
    await after.load()
    record, known = after.find("a"), before.find("a")
    assert record is not None
    assert known is not None
    assert record.accepted == known.accepted
    assert (record.live, record.since_ms, record.left) == (False, None, None)


async def test_node_that_was_enrolled_with_another_tenant_is_listed_there_alone(directory: LocalDirectory) -> None:
    await live(directory, "a", "acme")
    assert await announce(directory, NodeIdentity("a", "other")) == Appended((0,))
    assert (list(directory.ids("acme")), list(directory.live_ids("acme"))) == ([], [])
    assert list(directory.ids("other")) == list(directory.ids()) == ["a"]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans())))
def test_live_ids_are_those_that_came_and_did_not_go(steps: list[tuple[str, bool]]) -> None:
    async def main() -> None:
        directory, alive = LocalDirectory(MemoryStore()), dict[str, NodeIdentity]()
        for name, comes in steps:
            if comes:
                alive[name] = await live(directory, name)
            elif name in alive:
                directory.went(alive.pop(name), 1, NodeClose.NORMAL, WALL_MS)
        assert list(directory.live_ids("acme")) == sorted(alive)

    trio.run(main)


async def test_manifest_that_this_version_cannot_read_is_that_nodes_trouble() -> None:
    store = MemoryStore()
    newer = b'{"tenant":"acme","manifest":{"capabilities":[{"kind":"sys.new"}]}}'
    items = [OpenItem("a", newer), OpenItem("b", b"not json")]
    await store.append(Part("manifests", 0, 1, opened=tuple(items)))
    await live(LocalDirectory(store), "c")
    directory = LocalDirectory(store)
    with structlog.testing.capture_logs() as lines:
        await directory.load()
    assert list(directory.ids()) == ["c"]
    assert [(line["event"], line["node_id"]) for line in lines] == [
        ("manifest_unreadable", "a"),
        ("manifest_unreadable", "b"),
    ]


PUMP, VALVE = NodeIdentity("a", "acme"), NodeIdentity("b", "acme")


async def test_labels_are_found_by_name_and_tag_and_shown_with_the_record(directory: LocalDirectory) -> None:
    labels = Labels("pump-7", {"site": "lab", "row": "2"})
    directory.label(PUMP, labels)  # before it has ever announced itself
    assert directory.named("acme", "pump-7") == "a"
    assert directory.labels_of("a") == labels
    await live(directory, "a")
    assert found(directory, "a").labels == labels
    directory.label(VALVE, Labels(None, {"site": "lab"}))
    assert list(directory.tagged("acme", "site=lab")) == ["a", "b"]
    assert list(directory.tagged("acme", "row=2")) == ["a"]
    assert list(directory.names("acme")) == ["pump-7"]
    for nobody in (directory.tagged("other", "site=lab"), directory.names("other"), directory.tagged("acme", "site=x")):
        assert list(nobody) == []
    assert directory.named("other", "pump-7") is None


async def test_labels_outlast_a_session_and_a_new_manifest(directory: LocalDirectory) -> None:
    directory.label(PUMP, Labels("pump-7"))
    node = await live(directory, "a")
    directory.went(node, 1, NodeClose.NORMAL, WALL_MS)
    await announce(directory, node, METRICS_CAPABILITY)
    assert found(directory, "a").labels.name == "pump-7"


async def test_what_a_node_was_called_before_finds_it_no_more(directory: LocalDirectory) -> None:
    directory.label(PUMP, Labels("pump-7", {"site": "lab"}))
    before = directory.labels_revision
    directory.label(PUMP, Labels("pump-8", {"site": "roof"}))
    assert directory.labels_revision > before
    assert directory.named("acme", "pump-7") is None
    assert directory.named("acme", "pump-8") == "a"
    assert list(directory.tagged("acme", "site=lab")) == []
    directory.label(PUMP, UNLABELLED)
    assert (directory.named("acme", "pump-8"), list(directory.names("acme"))) == (None, [])
    assert directory.labels_of("a") == UNLABELLED


async def test_a_new_name_of_a_live_node_is_news(directory: LocalDirectory) -> None:
    heard = []
    directory.listen("acme", lambda: heard.append(1))
    directory.label(PUMP, Labels("pump-7"))
    assert heard == []
    await live(directory, "a")
    heard.clear()
    directory.label(PUMP, Labels("pump-7"))
    assert heard == []
    directory.label(PUMP, Labels("pump-8"))
    assert heard == [1]


async def test_presence_and_when_a_node_was_last_seen(directory: LocalDirectory) -> None:
    node = NodeIdentity("a", "acme")
    await announce(directory, node)
    record = found(directory, "a")
    assert (record.presence(WALL_MS), record.last_seen_ms(WALL_MS + 500)) == (Presence.AWAY, WALL_MS)
    directory.came(node, 1, WALL_MS + 1, "heliograph/1.0")
    record = found(directory, "a")
    assert (record.presence(WALL_MS + 9), record.last_seen_ms(WALL_MS + 9)) == (Presence.LIVE, WALL_MS + 9)
    assert record.presence(WALL_MS + 1000) is Presence.EXPIRED
    assert record.agent == "heliograph/1.0"
    directory.went(node, 1, NodeClose.NORMAL, WALL_MS + 20)
    assert found(directory, "a").last_seen_ms(WALL_MS + 99) == WALL_MS + 20


@pytest.mark.parametrize("labels", [UNLABELLED, Labels("pump-7", {"site": "lab"})])
async def test_equal_labels_change_nothing(directory: LocalDirectory, labels: Labels) -> None:
    await live(directory, "a")
    directory.label(PUMP, labels)
    heard: list[None] = []
    directory.listen("acme", lambda: heard.append(None))
    before, record = directory.labels_revision, found(directory, "a")
    directory.label(PUMP, Labels(labels.name, dict(labels.tags)))
    assert directory.labels_revision == before
    assert found(directory, "a") is record
    assert heard == []


# ---- forgetting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("was_live", [True, False])
async def test_a_forgotten_node_is_in_no_list_and_its_tenant_is_told(was_live: bool) -> None:
    disk = MemoryDisk()
    directory, heard = LocalDirectory(MemoryStore(disk)), list[str]()
    node = await live(directory, "a")
    await live(directory, "b")
    if not was_live:
        directory.went(node, 1, NodeClose.FORBIDDEN, WALL_MS)
    for tenant in ("acme", "other"):
        directory.listen(tenant, lambda tenant=tenant: heard.append(tenant))  # type: ignore[misc]
    assert await directory.forget("a", WALL_MS) is True
    assert heard == ["acme"]
    assert directory.find("a") is None
    for ids in (directory.ids(), directory.ids("acme"), directory.live_ids("acme")):
        assert list(ids) == ["b"]
    assert directory.live_count == 1
    directory.went(node, 1, NodeClose.NORMAL, WALL_MS)  # the end of its session comes after
    assert directory.live_count == 1
    after = LocalDirectory(MemoryStore(disk))
    await after.load()
    assert list(after.ids()) == ["b"]


async def test_forgetting_whom_nobody_knows_succeeds_and_is_no_news(directory: LocalDirectory) -> None:
    heard: list[None] = []
    await live(directory, "b")
    directory.listen("acme", lambda: heard.append(None))
    assert await directory.forget("a", WALL_MS) is True
    assert heard == []
    assert list(directory.ids()) == ["b"]


async def test_a_node_stays_listed_if_the_log_does_not_take_that_it_is_forgotten() -> None:
    disk, heard = MemoryDisk(), list[None]()
    directory = LocalDirectory(MemoryStore(disk))
    await live(directory, "a")
    directory.listen("acme", lambda: heard.append(None))
    disk.is_full = True
    assert await directory.forget("a", WALL_MS) is False
    assert (list(directory.live_ids("acme")), list(directory.ids()), heard) == (["a"], ["a"], [])
    disk.is_full = False
    assert await directory.forget("a", WALL_MS) is True
    assert list(directory.ids()) == []


async def test_watchers_are_told_which_node_is_another_whatever_it_is(directory: LocalDirectory) -> None:
    told: list[str] = []
    stop = directory.watch(told.append)

    def news() -> list[str]:
        said = list(told)
        told.clear()
        return said

    node = await live(directory, "a")
    assert set(news()) == {"a"}
    await announce(directory, node, METRICS_CAPABILITY)
    assert news() == ["a"]
    directory.label(node, Labels("pump"))
    assert news() == ["a"]
    directory.label(node, Labels("pump"))  # as it was
    assert news() == []
    directory.went(node, 1, NodeClose.NORMAL, WALL_MS)
    directory.went(node, 1, NodeClose.NORMAL, WALL_MS)
    assert news() == ["a"]
    await directory.forget("a", WALL_MS)
    assert news() == ["a"]
    await live(directory, "b", "another tenant")
    assert set(news()) == {"b"}
    stop()
    stop()
    await live(directory, "c")
    assert news() == []


def found(directory: LocalDirectory, node_id: str) -> NodeRecord:
    record = directory.find(node_id)
    assert record is not None
    return record
