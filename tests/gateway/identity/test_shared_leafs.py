"""Nodes' certificates of several gateways: kept for all, looked up where a watcher is behind, gone when over."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.identity.shared_leafs import SharedLeafs
from gateway.main.data_folder import DataFolder
from schemas.certificates import KnownCertificates, Leaf
from tests.actors.engine.processes import WALL_MS, Several, until

PUMP = "01hzx3k8q2v7n4t9r6w5y1c0ba"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    with DataFolder.hold(tmp_path / "data", WALL_MS) as held:
        yield held


def issued(folder: DataFolder) -> Leaf:
    return folder.issue(PUMP, "acme", Ed25519PrivateKey.generate().public_key(), WALL_MS)


class Two:
    def __init__(self, folder: DataFolder) -> None:
        several = Several()
        self.processes = [several.process(name) for name in "PQ"]
        self.known = [KnownCertificates(folder.certificates.ca) for _ in self.processes]
        self.leafs = [SharedLeafs(p.facts, known) for p, known in zip(self.processes, self.known, strict=True)]

    async def start(self, nursery: trio.Nursery) -> None:
        for process in self.processes:
            await process.start(nursery)


async def test_what_one_keeps_the_other_knows_until_it_is_dropped(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    two, leafs = Two(folder), [issued(folder) for _ in range(40)]
    async with trio.open_nursery() as nursery:
        await two.start(nursery)
        await two.leafs[0].keep(leafs)
        two.leafs[0].learn(leafs)
        await until(lambda: len(two.known[1].leafs_of(PUMP)) == 40, 1.0)
        assert two.known[1].vouches_for(leafs[0], WALL_MS)
        await two.leafs[0].drop(leafs[1:])
        assert two.known[0].leafs_of(PUMP) == (leafs[0],)
        await until(lambda: two.known[1].leafs_of(PUMP) == (leafs[0],), 1.0)
        nursery.cancel_scope.cancel()


async def test_one_that_the_watcher_has_not_told_is_looked_up(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    two, leaf = Two(folder), issued(folder)
    async with trio.open_nursery() as nursery:
        await two.start(nursery)
        two.processes[1].kv.lag_s = 1_000.0
        await two.leafs[0].keep([leaf])
        assert two.known[1].resolve(leaf.kid) is None
        assert await two.leafs[1].find(leaf.kid) == leaf
        assert two.known[1].resolve(leaf.kid) == leaf
        assert await two.leafs[1].find("0" * 64) is None
        assert await two.leafs[1].find("no kid at all") is None
        two.processes[1].kv.is_reachable = False
        assert await two.leafs[1].find("0" * 64) is None
        assert await two.leafs[1].find(leaf.kid) == leaf
        nursery.cancel_scope.cancel()


async def test_what_the_engine_does_not_take_is_not_kept(folder: DataFolder, autojump_clock: trio.abc.Clock) -> None:
    two, leaf = Two(folder), issued(folder)
    two.processes[0].kv.is_reachable = False
    with pytest.raises(OSError, match="certificate") as refused:
        await two.leafs[0].keep([leaf])
    assert refused.value.errno == errno.EHOSTUNREACH
    two.processes[0].kv.is_reachable = True
    two.processes[0].kv.bucket.is_full = True
    with pytest.raises(OSError, match="certificate") as refused:
        await two.leafs[0].keep([leaf])
    assert refused.value.errno == errno.ENOSPC


@pytest.mark.parametrize("data", [b"", b"no certificate"])
async def test_what_is_no_certificate_of_this_id_is_nobodys(
    folder: DataFolder, data: bytes, autojump_clock: trio.abc.Clock
) -> None:
    two, leaf = Two(folder), issued(folder)
    async with trio.open_nursery() as nursery:
        await two.start(nursery)
        with structlog.testing.capture_logs() as lines:
            await two.processes[0].kv.put(f"leaf.{'0' * 64}", data or leaf.der)
            assert await two.leafs[1].find("0" * 64) is None
        assert {line["event"] for line in lines} == {"leaf_unreadable"}
        assert two.known[1].leafs_of(PUMP) == ()
        nursery.cancel_scope.cancel()
