"""The operators' list of nodes: how each one is, by which filters it is found, and pages that keep nobody waiting."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from trio.testing import MockClock

from actors.log.store import answered
from actors.node.fleet import Fleet
from actors.register import register_rules
from actors.register.register import Register
from actors.register.register_rules import Act, Enrolment, Refusal
from actors.supervision.supervisor import Supervisor
from gateway.calls.paging import LOOKS_MAX
from gateway.main.data_folder import DataFolder
from schemas.canonical import digest
from schemas.closes import NodeClose
from schemas.manifest import Accepted, NodeIdentity
from schemas.projection import project
from tests.actors.node.harness import Gateway, now
from tests.gateway.api.operators import Operator
from tests.gateway.api.test_app import refused
from tests.gateway.api.test_lists import Counted, node_id
from tests.schemas.examples import ECHO_CAPABILITY

WALL_MS = 1_790_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFolder]:
    with DataFolder.hold(Path(tmp_path_factory.mktemp("data")), WALL_MS) as held:
        yield held


class Nodes:
    """A register and a directory, and what an operator sees of both."""

    def __init__(self, folder: DataFolder) -> None:
        services = Gateway().services
        self.directory = Counted(services.store)
        object.__setattr__(services, "directory", self.directory)
        self.register = Register(services.store, self.directory)
        self.operator = Operator(folder, Fleet(Supervisor(), services), register=self.register)

    async def enroll(self, *enrolments: Enrolment) -> None:
        act = Act("ada", now().wall_ms)
        done = await self.register.record(
            lambda roll: register_rules.enroll(roll, enrolments, lambda _: (), act), act.at_ms
        )
        assert not isinstance(done, Refusal)

    async def announce(self, node: NodeIdentity, life_ms: int = HOUR_MS) -> None:
        manifest = {
            "node_id": node.node_id,
            "capabilities": [ECHO_CAPABILITY],
            "issued_at_ms": now().wall_ms,
            "expires_at_ms": now().wall_ms + life_ms,
        }
        accepted = Accepted(manifest, digest(manifest), project(manifest))
        await answered(lambda then: self.directory.announce(node, accepted, now().wall_ms, then))

    async def do(self, action: str, node: NodeIdentity) -> None:
        assert (await self.operator.ask("POST", f"/admin/node/{action}", {"node": node.node_id})).status == 200

    async def page(self, query: str = "") -> Any:
        response = await self.operator.ask("GET", f"/admin/nodes?{query}")
        assert response.status == 200, response.body
        return response.json

    async def ids(self, query: str = "") -> list[str]:
        """Of all pages."""
        found: list[str] = []
        more = query
        while True:
            page = await self.page(more)
            found += [node["node_id"] for node in page["nodes"]]
            if "nextCursor" not in page:
                return found
            assert page["nextCursor"] == found[-1]
            more = f"{query}&cursor={found[-1]}"


def enrolment(number: int, tenant: str = "acme", name: str | None = None, **tags: str) -> Enrolment:
    return Enrolment(NodeIdentity(node_id(number), tenant), f"kid{number}", f"jti{number}", name, tags)


@pytest.fixture
async def nodes(folder: DataFolder) -> Nodes:
    return Nodes(folder)


# ---- how a node is --------------------------------------------------------------------------------------------------

ENROLLED, LIVE, AWAY, EXPIRED, REVOKED, FORGOTTEN, BEFORE = (NodeIdentity(node_id(n), "acme") for n in range(7))
AGENT = "heliograph/1.0"


@pytest.fixture
async def one_of_each(nodes: Nodes) -> Nodes:
    """Each node is in another state; BEFORE is of a version without a register."""
    await nodes.enroll(*(enrolment(n, name=f"n{n}", site="lab") for n in range(6)))
    for node in (LIVE, AWAY, REVOKED, FORGOTTEN, BEFORE):
        await nodes.announce(node)
    await nodes.announce(EXPIRED, life_ms=1000)
    for node in (LIVE, AWAY, REVOKED, EXPIRED):
        nodes.directory.came(node, 1, now().wall_ms, AGENT)
    await trio.sleep(1)  # now one manifest has expired
    nodes.directory.went(AWAY, 1, NodeClose.TIMEOUT, now().wall_ms)
    for node in (REVOKED, FORGOTTEN):
        await nodes.do("revoke", node)
    await nodes.do("forget", FORGOTTEN)
    await trio.sleep(1)
    return nodes


async def test_each_state_is_told_and_the_forgotten_are_absent(autojump_clock: MockClock, one_of_each: Nodes) -> None:
    listed = (await one_of_each.page())["nodes"]
    assert [(node["node_id"], node["state"]) for node in listed] == [
        (ENROLLED.node_id, "enrolled"),
        (LIVE.node_id, "live"),
        (AWAY.node_id, "away"),
        (EXPIRED.node_id, "expired"),
        (REVOKED.node_id, "revoked"),
        (BEFORE.node_id, "away"),
    ]


async def shown(nodes: Nodes, node: NodeIdentity) -> dict[str, Any]:
    (found,) = [one for one in (await nodes.page())["nodes"] if one["node_id"] == node.node_id]
    return dict(found)


NEVER_SEEN: dict[str, Any] = {
    "live": False, "since_ms": None, "left": None, "last_seen_ms": None, "agent": None, "tools": [],
    "expires_at_ms": None,
}  # fmt: skip


def of(node: NodeIdentity, state: str, **more: Any) -> dict[str, Any]:
    number = int(node.node_id)
    labels = {"name": f"n{number}", "tags": {"site": "lab"}, "enrolled_at_ms": WALL_MS, "revoked_at_ms": None}
    tools = [f"sysecho.{node.node_id}.echo.invoke"]
    return {"node_id": node.node_id, "tenant": "acme", "state": state, "tools": tools, **labels, **more}


async def test_a_node_that_only_the_register_knows_has_never_been_seen(
    autojump_clock: MockClock, one_of_each: Nodes
) -> None:
    assert await shown(one_of_each, ENROLLED) == of(ENROLLED, "enrolled", **NEVER_SEEN)


async def test_a_node_that_only_the_directory_knows_has_no_labels(
    autojump_clock: MockClock, one_of_each: Nodes
) -> None:
    nothing: dict[str, Any] = {"name": None, "tags": {}, "enrolled_at_ms": None, "revoked_at_ms": None}
    session = {"live": False, "since_ms": None, "left": None, "last_seen_ms": WALL_MS, "agent": None}
    assert await shown(one_of_each, BEFORE) == of(BEFORE, "away", **nothing, **session, expires_at_ms=WALL_MS + HOUR_MS)


async def test_a_live_node_is_seen_now_and_one_that_left_was_seen_then(
    autojump_clock: MockClock, one_of_each: Nodes
) -> None:
    here = {"live": True, "since_ms": WALL_MS, "left": None, "last_seen_ms": now().wall_ms, "agent": AGENT}
    assert now().wall_ms == WALL_MS + 2000
    assert await shown(one_of_each, LIVE) == of(LIVE, "live", **here, expires_at_ms=WALL_MS + HOUR_MS)
    assert await shown(one_of_each, EXPIRED) == of(EXPIRED, "expired", **here, expires_at_ms=WALL_MS + 1000)
    left = {"since_ms": WALL_MS + 1000, "last_seen_ms": WALL_MS + 1000, "left": {"code": 4408, "reason": "timeout"}}
    assert await shown(one_of_each, AWAY) == of(
        AWAY, "away", live=False, agent=AGENT, expires_at_ms=WALL_MS + HOUR_MS, **left
    )


async def test_of_a_revoked_node_it_is_told_when_and_nothing_that_it_announced(
    autojump_clock: MockClock, one_of_each: Nodes
) -> None:
    ended = NEVER_SEEN | {"revoked_at_ms": WALL_MS + 1000, "left": {"code": 4403, "reason": "forbidden"}}
    assert await shown(one_of_each, REVOKED) == of(REVOKED, "revoked", **ended)


# ---- filters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state=enrolled", [ENROLLED]),
        ("state=live", [LIVE]),
        ("state=away", [AWAY, BEFORE]),
        ("state=expired", [EXPIRED]),
        ("state=revoked", [REVOKED]),
        ("state=away&tag=site%3Dlab", [AWAY]),
        ("state=&limit=2", [ENROLLED, LIVE, AWAY, EXPIRED, REVOKED, BEFORE]),  # as if it were not there
        ("tenant=globex", []),
        ("tenant=acme&state=away", [AWAY, BEFORE]),
        ("name=n2", [AWAY]),
        ("name=n2&state=live", []),
        ("name=n4", [REVOKED]),  # its name is its own until it is forgotten
        ("name=n5", []),
        ("name=Not%20A%20Name", []),
    ],
)
async def test_a_filter_finds_those_that_are_so(
    autojump_clock: MockClock, one_of_each: Nodes, query: str, found: list[NodeIdentity]
) -> None:
    assert await one_of_each.ids(query) == [node.node_id for node in found]


@pytest.mark.parametrize(
    "query",
    [
        "state=gone",
        "state=LIVE",
        "state=forgotten",
        "tag=site",
        "tag=Site%3Dlab",
        "tag=site%3D",
        "tag=site%3Dlab&tag=x",
        "limit=0&state=live",
        "cursor=x&tag=site%3Dlab",
        "name=%FF",
        "tag=%GG",
    ],
)
async def test_a_filter_that_is_none_is_400(autojump_clock: MockClock, one_of_each: Nodes, query: str) -> None:
    response = await one_of_each.operator.ask("GET", f"/admin/nodes?{query}")
    assert refused(response) == (400, "E_MANIFEST_INVALID")


# ---- many of them ---------------------------------------------------------------------------------------------------

MANY = 3000


class Known(NamedTuple):
    node: NodeIdentity
    name: str | None
    tags: frozenset[str]
    state: str


async def crowd(nodes: Nodes) -> list[Known]:
    """Of two tenants in turn, which use the same names. Every fifth is known to the directory only, of the others
    every third to both."""
    everyone, members = list[Known](), list[Enrolment]()
    for number in range(MANY):
        tenant, tags = ("acme", "globex")[number % 2], {"site": f"s{number % 7}", "row": str(number % 4)}
        one = enrolment(number, tenant, f"n{number // 2}", **tags)
        is_member, is_announced = number % 5 != 0, number % 5 == 0 or number % 3 == 0
        if is_announced:
            await nodes.announce(one.identity)
        state = "away" if is_announced else "enrolled"
        if is_member:
            members.append(one)
            everyone.append(Known(one.identity, one.name, frozenset(f"{k}={v}" for k, v in tags.items()), state))
        else:
            everyone.append(Known(one.identity, None, frozenset(), state))
    await nodes.enroll(*members)
    return everyone


FILTERS: list[tuple[str, Callable[[Known], bool]]] = [
    ("", lambda _: True),
    ("tenant=globex", lambda one: one.node.tenant == "globex"),
    ("state=away", lambda one: one.state == "away"),
    ("tag=site%3Ds3", lambda one: "site=s3" in one.tags),
    ("tag=site%3Ds3&tag=row%3D1", lambda one: one.tags >= {"site=s3", "row=1"}),
    ("tag=site%3Ds3&tag=site%3Ds4", lambda _: False),
    ("name=n701", lambda one: one.name == "n701"),
    ("name=n701&tenant=acme", lambda one: (one.name, one.node.tenant) == ("n701", "acme")),
    (
        "tag=site%3Ds3&tenant=acme&state=enrolled",
        lambda one: "site=s3" in one.tags and (one.node.tenant, one.state) == ("acme", "enrolled"),
    ),
    ("state=revoked", lambda _: False),
]


class Steps(trio.abc.Instrument):
    """How many nodes were looked at in each step of a task."""

    def __init__(self, directory: Counted) -> None:
        self.looks: list[int] = []
        self._directory = directory

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002
        self._directory.looks = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002
        self.looks.append(self._directory.looks)


async def test_pages_are_the_filtered_whole_and_no_step_looks_at_more_than_a_bounded_number(
    autojump_clock: MockClock, nodes: Nodes
) -> None:
    everyone = await crowd(nodes)
    for query, takes in FILTERS:
        expected = [one.node.node_id for one in everyone if takes(one)]
        for limit in (7, 200) if len(expected) < 200 else (150, 1000):
            steps = Steps(nodes.directory)
            trio.lowlevel.add_instrument(steps)
            assert await nodes.ids(f"limit={limit}&{query}") == expected, query
            trio.lowlevel.remove_instrument(steps)
            assert max(steps.looks) <= LOOKS_MAX
            assert sum(steps.looks) >= MANY  # each of them was looked at
    assert sum(any(map(takes, everyone)) for _, takes in FILTERS) == len(FILTERS) - 2  # which are to find nobody


async def test_no_page_has_more_than_is_asked_for_and_only_the_last_has_no_cursor(
    autojump_clock: MockClock, nodes: Nodes
) -> None:
    await nodes.enroll(*(enrolment(n, site=f"s{n % 2}") for n in range(20)))
    for limit in (1, 5, 9, 10, 11):
        page = await nodes.page(f"tag=site%3Ds0&limit={limit}")
        assert len(page["nodes"]) == min(limit, 10)
        assert ("nextCursor" in page) == (limit < 10)


async def test_a_cursor_is_a_place_that_needs_no_node(autojump_clock: MockClock, nodes: Nodes) -> None:
    await nodes.enroll(*(enrolment(n, site=f"s{n % 2}") for n in range(0, 20, 5)))
    assert await nodes.ids(f"cursor={node_id(7)}") == [node_id(10), node_id(15)]
    assert await nodes.ids(f"tag=site%3Ds0&cursor={node_id(3)}") == [node_id(10)]
