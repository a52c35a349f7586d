"""What operators do to a node that is enrolled, on the wire: named by its id or its name, and every way to be refused.

Enrolling has a file of its own (`test_admin_enroll.py`), as has the list (`test_node_list.py`).
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.log.store import OpenItem, Part
from actors.register.register import Register
from actors.register.register_rules import Trouble
from actors.supervision.supervisor import Supervisor
from gateway.identity.tokens import Principal, TokenClass
from gateway.main.data_folder import DataFolder
from schemas.certificates import Leaf
from schemas.closes import NodeClose
from schemas.contract import contract
from tests.actors.node.harness import FakeConnection, ScriptedNode, now, proved, until
from tests.gateway.api.operators import Operator
from tests.gateway.api.registered import Site
from tests.gateway.api.test_admin_actions import acted
from tests.schemas.examples import NODE_ID

WALL_MS = 1_790_000_000_000
PUMP, VALVE, OTHER_PUMP, OLD, NOBODY = (f"01hzx3k8q2v7n4t9r6w5y1c0b{letter}" for letter in "abcde")
MORE: dict[str, dict[str, Any]] = {
    "rename": {"name": "new"},
    "tag": {"set": {"row": "2"}},
    "renew": {},
    "revoke": {},
    "forget": {},
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    with DataFolder.hold(tmp_path, WALL_MS) as held:
        yield held


@pytest.fixture
async def site(folder: DataFolder, nursery: trio.Nursery) -> AsyncIterator[Site]:
    """Two tenants have a pump-7; acme has a valve too, and a revoked node that was called old."""
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    site = Site(folder, supervisor)
    await site.enrolled(node_id=PUMP, name="pump-7", tags={"site": "lab"})
    await site.enrolled("globex", node_id=OTHER_PUMP, name="pump-7")
    await site.enrolled(node_id=VALVE, name="valve")
    await site.enrolled(node_id=OLD, name="old")
    await site.post("/admin/node/revoke", {"node": OLD})
    yield site
    supervisor.request_stop()


async def node(site: Site, node_id: str) -> dict[str, Any]:
    (found,) = [one for one in await site.nodes() if one["node_id"] == node_id]
    return found


async def done(site: Site, action: str, body: dict[str, Any]) -> tuple[Any, Any]:
    """What is answered, and the target in the line of the audit. No secret is in that line."""
    response, line = await acted(site.operator, f"/admin/node/{action}", body)
    assert response.status == 200, response.body
    assert (line["action"], line["decision"], line["code"]) == (f"node_{action}", "answered", None)
    secrets = [response.json.get(secret) for secret in ("key", "certificate", "token")]
    assert [secret for secret in secrets if secret is not None and secret in str(line)] == []
    return response.json, line["target"]


# ---- what is done ---------------------------------------------------------------------------------------------------

VALVES = [{"node": VALVE}, {"node": "valve"}, {"node": VALVE, "tenant": "acme"}, {"node": "valve", "tenant": "acme"}]


@pytest.mark.parametrize("by", VALVES)
async def test_a_node_is_renamed_and_loses_its_name(autojump_clock: MockClock, site: Site, by: dict[str, str]) -> None:
    said = {"node_id": VALVE, "tenant": "acme", "name": "valve-2"}
    assert await done(site, "rename", by | {"name": "valve-2"}) == (said, said)
    assert (await node(site, VALVE))["name"] == "valve-2"
    assert (await done(site, "rename", {"node": "valve-2", "name": None}))[0]["name"] is None
    assert (await node(site, VALVE))["name"] is None
    assert (await site.post("/admin/node/revoke", {"node": "valve"})).status == 404
    await site.enrolled(name="valve")  # it is free again


@pytest.mark.parametrize("by", VALVES)
async def test_tags_are_set_replaced_and_removed(autojump_clock: MockClock, site: Site, by: dict[str, str]) -> None:
    said = {"node_id": VALVE, "tenant": "acme", "tags": {"site": "lab", "row": "1"}}
    assert await done(site, "tag", by | {"set": {"site": "lab", "row": "1"}}) == (said, said)
    answer, _ = await done(site, "tag", by | {"set": {"row": "2"}, "remove": ["site", "never-had"]})
    assert answer["tags"] == {"row": "2"}
    found = await node(site, VALVE)
    assert (found["tags"], found["name"]) == ({"row": "2"}, "valve")


@pytest.mark.parametrize("by", VALVES)
async def test_a_renewal_is_a_second_identity_beside_the_first(
    autojump_clock: MockClock, site: Site, by: dict[str, str]
) -> None:
    (before,) = site.folder.certificates.leafs_of(VALVE)
    made, target = await done(site, "renew", by)
    assert set(made) == {"node_id", "tenant", "name", "tags", "key", "certificate", "token", "token_id"}
    assert (made["node_id"], made["tenant"], made["name"]) == (VALVE, "acme", "valve")
    assert target == {"node_id": VALVE, "tenant": "acme", "name": "valve", "jti": made["token_id"]}
    principal = site.folder.verifier.verify(made["token"], TokenClass.DEVICE_RUNTIME, now().wall_ms)
    assert isinstance(principal, Principal)
    assert (principal.sub, principal.jti) == (VALVE, made["token_id"])
    kids = {before.kid, Leaf.from_der(bytes.fromhex(made["certificate"])).kid}
    assert {leaf.kid for leaf in site.folder.certificates.leafs_of(VALVE)} == kids
    assert kids <= site.leaf_files()


@pytest.mark.parametrize("by", VALVES)
async def test_a_node_is_revoked_and_then_forgotten(autojump_clock: MockClock, site: Site, by: dict[str, str]) -> None:
    target = {"node_id": VALVE, "tenant": "acme"}
    for _ in range(2):  # once more is no mistake
        assert await done(site, "revoke", by) == ({"revoked": VALVE}, target)
    found = await node(site, VALVE)
    assert (found["state"], found["name"], found["revoked_at_ms"]) == ("revoked", "valve", now().wall_ms)
    assert await done(site, "forget", by) == ({"forgotten": VALVE, "erased": True}, target)
    assert VALVE not in [one["node_id"] for one in await site.nodes()]
    assert site.folder.certificates.leafs_of(VALVE) == ()
    (last,) = site.disk.streams[f"register/{VALVE}"].events  # what operators did to it is gone
    assert b"NodeErased" in last.data
    assert "valve" not in str(site.disk.streams)
    for text in (VALVE, "valve"):
        assert (await site.post("/admin/node/forget", {"node": text})).status == 404


async def test_of_nodes_with_one_name_the_tenant_tells_which(autojump_clock: MockClock, site: Site) -> None:
    answer, target = await done(site, "revoke", {"node": "pump-7", "tenant": "globex"})
    assert (answer["revoked"], target["tenant"]) == (OTHER_PUMP, "globex")
    assert (await node(site, PUMP))["state"] == "enrolled"
    await done(site, "forget", {"node": "pump-7", "tenant": "globex"})
    assert (await done(site, "rename", {"node": "pump-7", "name": "pump-8"}))[0]["node_id"] == PUMP  # the only one now


async def test_a_revoked_node_is_disconnected_with_4403_and_has_no_tools_any_more(
    autojump_clock: MockClock, site: Site
) -> None:
    await site.enrolled(node_id=NODE_ID)
    scripted = ScriptedNode.started_by(site.fleet)
    await scripted.go_live()
    assert (await node(site, NODE_ID))["state"] == "live"
    await done(site, "revoke", {"node": NODE_ID})
    assert scripted.connection.closed is NodeClose.FORBIDDEN
    found = await node(site, NODE_ID)
    assert (found["state"], found["live"], found["tools"]) == ("revoked", False, [])
    assert found["left"] == {"code": 4403, "reason": "forbidden"}
    assert site.fleet.services.directory.find(NODE_ID) is None
    await until(lambda: NODE_ID not in site.fleet.nodes)
    assert (await done(site, "forget", {"node": NODE_ID}))[0]["erased"] is True
    assert NODE_ID not in str(site.disk.streams.get("manifests"))
    assert f"node/{NODE_ID}" not in site.disk.streams


class Lingering(FakeConnection):
    """Its peer is long in hearing that it is over."""

    async def run(self) -> None:
        await trio.sleep_forever()


async def test_a_node_whose_connection_is_still_being_closed_is_forgotten_and_not_erased_yet(
    autojump_clock: MockClock, site: Site
) -> None:
    await site.enrolled(node_id=NODE_ID)
    site.fleet.start_session(proved(), Lingering(), lambda _: None)
    await trio.testing.wait_all_tasks_blocked()
    await done(site, "revoke", {"node": NODE_ID})
    assert NODE_ID in site.fleet.nodes
    assert (await done(site, "forget", {"node": NODE_ID}))[0] == {"forgotten": NODE_ID, "erased": False}
    assert NODE_ID not in [one["node_id"] for one in await site.nodes()]


# ---- what is refused ------------------------------------------------------------------------------------------------

UNKNOWN = [
    {"node": NOBODY},
    {"node": "nobody"},
    {"node": "Not A Name"},
    {"node": ""},
    {"node": VALVE, "tenant": "globex"},
    {"node": "valve", "tenant": "globex"},
]
REFUSALS: list[tuple[str, dict[str, Any], Trouble]] = [
    *((action, node | MORE[action], Trouble.UNKNOWN_NODE) for action in MORE for node in UNKNOWN),
    *((action, {"node": "pump-7"} | MORE[action], Trouble.AMBIGUOUS_NAME) for action in MORE),
    *(
        ("rename", {"node": VALVE, "name": name}, Trouble.BAD_NAME)
        for name in ("", "Valve", "-valve", "v" * 64, NOBODY)
    ),
    ("tag", {"node": VALVE, "set": {"Site": "lab"}}, Trouble.BAD_TAG),
    ("tag", {"node": VALVE, "set": {"site": "two words"}}, Trouble.BAD_TAG),
    ("tag", {"node": PUMP, "set": {f"k{n}": "v" for n in range(16)}}, Trouble.BAD_TAG),  # it has one already
    ("rename", {"node": VALVE, "name": "pump-7"}, Trouble.NAME_TAKEN),
    ("rename", {"node": VALVE, "name": "old"}, Trouble.NAME_TAKEN),  # that one is revoked, and not forgotten
    ("renew", {"node": OLD}, Trouble.REVOKED),
    ("renew", {"node": "old"}, Trouble.REVOKED),
    ("forget", {"node": VALVE}, Trouble.NOT_REVOKED),
    ("forget", {"node": "valve"}, Trouble.NOT_REVOKED),
]
STATUS = {"E_MANIFEST_NOT_FOUND": 404, "E_MANIFEST_INVALID": 400, "E_INTERNAL": 500}


async def refused(site: Site, action: str, body: Any, reason: str, code: str) -> None:
    before = site.kept(), await site.nodes()
    response, line = await acted(site.operator, f"/admin/node/{action}", body)
    assert contract("error@1.2.0").is_valid(response.json)
    assert (response.status, response.json["code"]) == (STATUS[code], code)
    assert (line["action"], line["decision"]) == (f"node_{action}", "refused")
    assert (line["reason"], line["code"], line["target"]) == (reason, code, None)
    assert (site.kept(), await site.nodes()) == before


@pytest.mark.parametrize(("action", "body", "trouble"), REFUSALS)
async def test_a_refusal_says_why_and_changes_nothing(
    autojump_clock: MockClock, site: Site, action: str, body: dict[str, Any], trouble: Trouble
) -> None:
    code = "E_MANIFEST_NOT_FOUND" if trouble is Trouble.UNKNOWN_NODE else "E_MANIFEST_INVALID"
    await refused(site, action, body, trouble, code)


@pytest.mark.parametrize("action", list(MORE))
async def test_what_the_log_does_not_take_has_not_happened(autojump_clock: MockClock, site: Site, action: str) -> None:
    body = {"node": OLD if action == "forget" else VALVE, **MORE[action]}
    site.disk.is_full = True
    await refused(site, action, body, "not_written", "E_INTERNAL")
    site.disk.is_full = False
    await done(site, action, body)


async def test_a_session_goes_on_if_the_log_does_not_take_the_revocation(autojump_clock: MockClock, site: Site) -> None:
    await site.enrolled(node_id=NODE_ID)
    scripted = ScriptedNode.started_by(site.fleet)
    await scripted.go_live()
    site.disk.is_full = True
    await refused(site, "revoke", {"node": NODE_ID}, "not_written", "E_INTERNAL")
    assert scripted.connection.closed is None


async def test_a_node_that_the_register_cannot_read_can_be_revoked_and_nothing_else(
    autojump_clock: MockClock, site: Site
) -> None:
    services = site.fleet.services
    await services.store.append(Part("register", 0, 1, opened=(OpenItem(VALVE, b"damaged"),)))
    register = Register(services.store, services.directory)  # as after a restart
    await register.load()
    site.operator = Operator(site.folder, site.fleet, register=register)
    for action in ("rename", "tag", "renew"):
        await refused(site, action, {"node": VALVE, **MORE[action]}, "unreadable", "E_MANIFEST_INVALID")
    await refused(site, "forget", {"node": VALVE}, "not_revoked", "E_MANIFEST_INVALID")
    await done(site, "revoke", {"node": VALVE})
    assert (await node(site, VALVE))["state"] == "revoked"
    assert (await done(site, "forget", {"node": VALVE}))[0]["erased"] is True


@pytest.mark.parametrize(
    ("action", "body"),
    [
        *((action, MORE[action]) for action in MORE),  # of no node
        *((action, {"node": VALVE, "color": "red"} | MORE[action]) for action in MORE),
        *((action, {"node": 5} | MORE[action]) for action in MORE),
        ("rename", {"node": VALVE}),  # to nothing is said as null
        ("rename", {"node": VALVE, "name": 5}),
        ("tag", {"node": VALVE, "set": ["a=b"]}),
        ("tag", {"node": VALVE, "remove": "a"}),
    ],
)
async def test_a_body_of_another_shape_is_refused(
    autojump_clock: MockClock, site: Site, action: str, body: dict[str, Any]
) -> None:
    await refused(site, action, body, "malformed", "E_MANIFEST_INVALID")


async def test_no_refusal_repeats_what_was_sent(autojump_clock: MockClock, site: Site) -> None:
    for action in MORE:
        response, line = await acted(site.operator, f"/admin/node/{action}", {"node": "MARK"} | MORE[action])
        assert "MARK" not in response.body.decode() + str(line)
    labels: dict[str, dict[str, Any]] = {"rename": {"name": "MARK"}, "tag": {"set": {"MARK": "x"}}}
    for action, body in labels.items():
        response, line = await acted(site.operator, f"/admin/node/{action}", {"node": VALVE, **body})
        assert "MARK" not in response.body.decode() + str(line)
