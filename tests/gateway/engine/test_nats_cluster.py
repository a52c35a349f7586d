"""The log on three servers, the leader of which is killed or stopped under load."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import trio

from actors.log.store import Appended
from gateway.engine.jetstream_rules import API
from gateway.engine.link import Message
from gateway.engine.server_run import ServerRun
from tests.actors.log.shelves import NatsShelf, ShelvedNatsStore, part
from tests.gateway.engine.cluster import three_servers

WRITERS = 24  # enough for batches
TEST_S_MAX = 120.0


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[ServerRun]]:
    cluster = three_servers(tmp_path)
    for server in cluster:
        await server.start()
    yield cluster
    for server in cluster:
        await server.stop()


async def leader_of(store: ShelvedNatsStore, shelf: NatsShelf) -> int:
    """The number of the server that leads the log."""
    while True:
        answer = await store.link.request(f"{API}STREAM.INFO.{shelf.names.log}", timeout_s=1)
        if isinstance(answer, Message):
            leader = msgspec.json.decode(answer.data).get("cluster", {}).get("leader")
            if leader:
                return int(leader.rpartition("-")[2])
        await trio.sleep(0.05)


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
async def test_what_was_acknowledged_survives_its_leader_and_is_there_once(
    servers: list[ServerRun], is_killed: bool
) -> None:
    shelf = NatsShelf(*servers)
    shelf.engine = msgspec.structs.replace(shelf.engine, replicas=3, append_patience_s=60.0)
    with trio.fail_after(TEST_S_MAX):
        async with await shelf.open() as store:
            acknowledged = [0] * WRITERS
            is_over = False

            async def write(writer: int) -> None:
                while not is_over:
                    version = acknowledged[writer]
                    paid = (("ledger", b"%d" % writer),) if writer < 3 else ()
                    answer = await store.append(part(f"s{writer}", version, f"{version}"), blind_events=paid)
                    assert answer == Appended((version + 1,))
                    acknowledged[writer] += 1

            async def more(number: int) -> None:
                before = sum(acknowledged)
                while sum(acknowledged) < before + number:  # noqa: ASYNC110
                    await trio.sleep(0.01)

            async with trio.open_nursery() as nursery:
                for writer in range(WRITERS):
                    nursery.start_soon(write, writer)
                await more(10 * WRITERS)
                leader = servers[await leader_of(store, shelf)]
                leader.kill() if is_killed else leader.pause()
                await more(10 * WRITERS)
                await leader.start() if is_killed else leader.go_on()
                await more(10 * WRITERS)
                is_over = True
            for writer in range(WRITERS):
                events = await store.read(f"s{writer}")
                assert [event.data for event in events] == [b"%d" % version for version in range(acknowledged[writer])]
            paid = [event.data for event in await store.read("ledger")]
            assert [paid.count(b"%d" % writer) for writer in range(3)] == acknowledged[:3]
