"""Lists of nodes in pages: what an agent sees of its tenant, and an operator of all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from actors.bus.directory import NodeRecord
from actors.bus.local_directory import LocalDirectory
from actors.node.fleet import Fleet
from actors.stream.streams import Streams
from actors.supervision.supervisor import Supervisor
from gateway.main.data_folder import DataFolder
from schemas.manifest import NodeIdentity
from tests.actors.bus.test_directory import announce
from tests.actors.node.harness import Gateway
from tests.gateway.api.client import Client, token
from tests.gateway.api.operators import Operator
from tests.gateway.api.test_app import refused

WALL_MS = 1_790_000_000_000
MANY = 1100  # of one tenant; as many again of another


def node_id(number: int) -> str:
    return f"{number:026d}"


class Counted(LocalDirectory):
    """Counts the records that are looked at."""

    looks = 0

    def find(self, node_id: str) -> NodeRecord | None:
        self.looks += 1
        return super().find(node_id)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFolder]:
    with DataFolder.hold(Path(tmp_path_factory.mktemp("data")), WALL_MS) as held:
        yield held


async def fleet_of(many: int = MANY) -> tuple[Fleet, Counted]:
    services = Gateway().services
    directory = Counted(services.store)
    for number in range(2 * many):
        await announce(directory, NodeIdentity(node_id(number), ("acme", "globex")[number % 2]))
    object.__setattr__(services, "directory", directory)
    return Fleet(Supervisor(), services), directory


async def walk(ask: Any, path: str, what: str, limit: int | None) -> list[list[str]]:
    """The ids of each page."""
    pages: list[list[str]] = []
    cursor = ""
    while True:
        asked = "&".join([*([] if limit is None else [f"limit={limit}"]), *([cursor] if cursor else [])])
        page = (await ask(f"{path}?{asked}")).json
        pages.append([node["node_id"] for node in page[what]])
        if "nextCursor" not in page:
            return pages
        cursor = f"cursor={page['nextCursor']}"


async def test_devices_are_listed_in_pages_that_cost_what_they_show(autojump_clock: MockClock) -> None:
    fleet, directory = await fleet_of()
    client, agent = Client(fleet, Streams(Supervisor(), fleet)), token()

    async def ask(path: str) -> Any:
        return await client.get(path, agent)

    mine = [node_id(number) for number in range(0, 2 * MANY, 2)]
    for limit, sizes in ((None, [200] * 5 + [100]), (500, [500, 500, 100]), (10**8, [1000, 100]), (1100, [1000, 100])):
        pages = await walk(ask, "/devices", "devices", limit)
        assert [len(page) for page in pages] == sizes
        assert [one for page in pages for one in page] == mine
    directory.looks = 0
    assert len((await client.get(f"/devices?limit=3&cursor={node_id(1000)}", agent)).json["devices"]) == 3
    assert directory.looks == 3


async def test_cursor_of_another_tenant_is_a_place_and_tells_nothing(autojump_clock: MockClock) -> None:
    fleet, _ = await fleet_of(5)
    client, agent = Client(fleet, Streams(Supervisor(), fleet)), token()
    mine, theirs, nobodys = node_id(2), node_id(3), node_id(3)[:-1] + "z"
    answers = [await client.get(f"/devices?cursor={cursor}", agent) for cursor in (mine, theirs, nobodys)]
    assert {answer.status for answer in answers} == {200}
    assert answers[0].json == answers[1].json
    assert answers[2].json == {"devices": []}


async def test_nodes_are_listed_in_pages_for_operators(autojump_clock: MockClock, folder: DataFolder) -> None:
    fleet, directory = await fleet_of()
    operator = Operator(folder, fleet)

    async def ask(path: str) -> Any:
        return await operator.ask("GET", path)

    everyone = [node_id(number) for number in range(2 * MANY)]
    for limit, size in ((None, 200), (150, 150), (10**8, 200)):
        pages = await walk(ask, "/admin/nodes", "nodes", limit)
        assert {len(page) for page in pages[:-1]} == {size}
        assert [one for page in pages for one in page] == everyone
    directory.looks = 0
    await ask("/admin/nodes?limit=7")
    assert directory.looks == 8  # one more says whether there is another page


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=-1", "cursor=nonsense", "cursor=%00"])
async def test_cursor_or_limit_that_is_none_is_400(autojump_clock: MockClock, folder: DataFolder, query: str) -> None:
    fleet, _ = await fleet_of(1)
    client = Client(fleet, Streams(Supervisor(), fleet))
    assert refused(await client.get(f"/devices?{query}", token())) == (400, "E_MANIFEST_INVALID")
    assert refused(await Operator(folder, fleet).ask("GET", f"/admin/nodes?{query}")) == (400, "E_MANIFEST_INVALID")
