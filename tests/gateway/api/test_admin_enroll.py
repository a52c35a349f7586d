"""Enrolling one node or many, on the wire: what is answered, what is refused, and that a refusal leaves nothing."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.supervision.supervisor import Supervisor
from gateway.api.admin_nodes import ENROLMENT_BYTES_MAX, ENROLMENT_NODES_MAX
from gateway.identity.tokens import Principal, TokenClass
from gateway.main.data_folder import DataFolder
from schemas.certificates import Leaf
from schemas.labels import TAGS_MAX
from tests.actors.node.harness import now
from tests.gateway.api.registered import Site
from tests.gateway.api.test_admin_actions import acted

WALL_MS = 1_790_000_000_000
PUMP, VALVE, LAMP = (f"01hzx3k8q2v7n4t9r6w5y1c0b{letter}" for letter in "abc")
MANY = "/admin/enroll_many"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    with DataFolder.hold(tmp_path, WALL_MS) as held:
        yield held


@pytest.fixture
async def site(folder: DataFolder, nursery: trio.Nursery) -> AsyncIterator[Site]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    yield Site(folder, supervisor)
    supervisor.request_stop()


async def refused(site: Site, path: str, body: Any, reason: str, status: int = 400) -> str:
    """The message. It changed nothing, and its line in the audit says why."""
    before = site.kept()
    response, line = await acted(site.operator, path, body)
    code = "E_INTERNAL" if status == 500 else "E_MANIFEST_INVALID"
    assert (response.status, response.json["code"]) == (status, code)
    assert (line["decision"], line["reason"], line["code"], line["target"]) == ("refused", reason, code, None)
    assert site.kept() == before
    return str(response.json["message"])


# ---- one ------------------------------------------------------------------------------------------------------------


async def test_a_node_is_enrolled_with_its_name_and_tags_and_an_identity_that_works(
    autojump_clock: MockClock, site: Site
) -> None:
    body = {"tenant": "acme", "node_id": PUMP, "name": "pump-7", "tags": {"site": "lab"}}
    response, line = await acted(site.operator, "/admin/enroll", body)
    made = response.json
    assert set(made) == {"node_id", "tenant", "name", "tags", "key", "certificate", "token", "token_id"}
    assert {key: made[key] for key in body} == body
    principal = site.folder.verifier.verify(made["token"], TokenClass.DEVICE_RUNTIME, now().wall_ms)
    assert isinstance(principal, Principal)
    assert (principal.sub, principal.tenant, principal.jti) == (PUMP, "acme", made["token_id"])
    leaf = Leaf.from_der(bytes.fromhex(made["certificate"]))
    assert (leaf.node_id, leaf.tenant, site.leaf_files()) == (PUMP, "acme", {leaf.kid})
    (node,) = await site.nodes()
    assert (node["node_id"], node["name"], node["tags"], node["state"]) == (PUMP, "pump-7", {"site": "lab"}, "enrolled")
    assert (line["action"], line["decision"], line["reason"]) == ("enroll", "answered", None)
    assert line["target"] == {"node_id": PUMP, "tenant": "acme", "name": "pump-7", "jti": made["token_id"]}
    assert [secret for secret in ("key", "certificate", "token") if made[secret] in str(line)] == []


async def test_without_an_id_each_node_gets_one_of_its_own(autojump_clock: MockClock, site: Site) -> None:
    made = [await site.enrolled() for _ in range(3)]
    assert len({one["node_id"] for one in made}) == 3
    assert {(one["name"], str(one["tags"])) for one in made} == {(None, "{}")}


async def test_enrolled_again_a_node_keeps_its_labels_where_nothing_is_said_of_them(
    autojump_clock: MockClock, site: Site
) -> None:
    first = await site.enrolled(node_id=PUMP, name="pump-7", tags={"site": "lab"})
    again = await site.enrolled(node_id=PUMP, tags={"row": "2"})
    assert (again["name"], again["tags"]) == ("pump-7", {"row": "2"})
    assert (again["key"], again["token_id"]) != (first["key"], first["token_id"])
    assert len(site.leaf_files()) == 2


async def test_a_name_is_unique_in_its_tenant_only(autojump_clock: MockClock, site: Site) -> None:
    await site.enrolled(name="pump-7")
    await site.enrolled("globex", name="pump-7")
    await refused(site, "/admin/enroll", {"tenant": "acme", "name": "pump-7"}, "name_taken")


@pytest.mark.parametrize("name", ["", "Pump", "-pump", "pump-", "pump_7", "p" * 64, PUMP, "p\u00fcmp"])
async def test_a_bad_name_is_refused(autojump_clock: MockClock, site: Site, name: str) -> None:
    message = await refused(site, "/admin/enroll", {"tenant": "acme", "name": name}, "bad_name")
    assert not name or name not in message
    await refused(site, MANY, {"nodes": [{"tenant": "acme", "name": name}]}, "bad_name")


@pytest.mark.parametrize(
    "tags",
    [
        {"": "x"},
        {"Site": "x"},
        {"_site": "x"},
        {"s" * 64: "x"},
        {"site": ""},
        {"site": "a b"},
        {"site": "x=y"},
        {"site": "v" * 64},
        {f"k{n}": "v" for n in range(TAGS_MAX + 1)},
    ],
)
async def test_bad_tags_are_refused(autojump_clock: MockClock, site: Site, tags: dict[str, str]) -> None:
    await refused(site, "/admin/enroll", {"tenant": "acme", "tags": tags}, "bad_tag")


async def test_longest_names_and_most_tags_are_taken(autojump_clock: MockClock, site: Site) -> None:
    tags = {f"k{n}" + "k" * 60: "V" * 63 for n in range(TAGS_MAX - 1)} | {"0_-": "A.z_0-"}
    made = await site.enrolled(name="p" * 63, tags=tags)
    assert (made["name"], made["tags"]) == ("p" * 63, tags)


async def test_an_id_of_another_tenant_or_of_a_revoked_node_is_refused(autojump_clock: MockClock, site: Site) -> None:
    await site.enrolled(node_id=PUMP)
    await refused(site, "/admin/enroll", {"tenant": "globex", "node_id": PUMP}, "other_tenant")
    await site.post("/admin/node/revoke", {"node": PUMP})
    await refused(site, "/admin/enroll", {"tenant": "acme", "node_id": PUMP}, "revoked")
    await site.post("/admin/node/forget", {"node": PUMP})
    await refused(site, "/admin/enroll", {"tenant": "acme", "node_id": PUMP}, "revoked")  # for good


async def test_a_full_disk_enrolls_nobody(autojump_clock: MockClock, site: Site) -> None:
    site.disk.is_full = True
    await refused(site, "/admin/enroll", {"tenant": "acme", "node_id": PUMP}, "not_written", 500)
    await refused(site, MANY, {"nodes": [{"tenant": "acme"}] * 3}, "not_written", 500)
    site.disk.is_full = False
    await site.enrolled(node_id=PUMP)


# ---- many -----------------------------------------------------------------------------------------------------------


async def test_many_are_enrolled_in_their_order_with_one_line_that_names_them_all(
    autojump_clock: MockClock, site: Site
) -> None:
    wanted = [{"tenant": "acme", "name": f"n{n}", "tags": {"row": str(n)}} for n in range(5)] + [{"tenant": "globex"}]
    response, line = await acted(site.operator, MANY, {"nodes": wanted})
    made = response.json["nodes"]
    assert [(one["tenant"], one["name"]) for one in made] == [(one["tenant"], one.get("name")) for one in wanted]
    assert {one["node_id"] for one in made} == {node["node_id"] for node in await site.nodes()}
    assert (line["action"], line["decision"]) == ("enroll_many", "answered")
    for one, target in zip(made, line["target"]["nodes"], strict=True):
        named = {} if one["name"] is None else {"name": one["name"]}
        assert target == {"node_id": one["node_id"], "tenant": one["tenant"], "jti": one["token_id"], **named}
        assert [secret for secret in ("key", "certificate", "token") if one[secret] in str(line)] == []


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"tenant": "acme", "name": "Pump"}, "bad_name"),
        ({"tenant": "acme", "tags": {"site": ""}}, "bad_tag"),
        ({"tenant": "acme", "name": "taken"}, "name_taken"),
        ({"tenant": "acme", "name": "first"}, "twice"),
        ({"tenant": "acme", "node_id": VALVE}, "twice"),
        ({"tenant": "globex", "node_id": VALVE}, "twice"),
        ({"tenant": "globex", "node_id": PUMP}, "other_tenant"),
        ({"tenant": "acme", "node_id": LAMP}, "revoked"),
        ({"tenant": "acme", "node_id": "MARK"}, "claims"),
        ({"tenant": ""}, "claims"),
    ],
)
async def test_of_many_none_is_enrolled_if_one_is_refused_and_the_refusal_names_it(
    autojump_clock: MockClock, site: Site, bad: dict[str, Any], reason: str
) -> None:
    await site.enrolled(node_id=PUMP, name="taken")
    await site.enrolled(node_id=LAMP)
    await site.post("/admin/node/revoke", {"node": LAMP})
    good = [{"tenant": "acme", "name": "first"}, {"tenant": "acme", "node_id": VALVE}]
    message = await refused(site, MANY, {"nodes": [*good, bad, {"tenant": "acme"}]}, reason)
    assert message.startswith("Node 3 of the list: ")
    assert "MARK" not in message


@pytest.mark.parametrize(
    "body",
    [
        {"nodes": []},
        {},
        {"nodes": {}},
        {"nodes": [{"name": "no-tenant"}]},
        {"nodes": [{"tenant": "acme", "color": "red"}]},
        {"nodes": [{"tenant": "acme"}], "tenant": "acme"},
        {"nodes": [{"tenant": "acme", "tags": ["site=lab"]}]},
        {"nodes": [{"tenant": "acme", "tags": {"site": 5}}]},
        {"nodes": [{"tenant": "acme"}] * (ENROLMENT_NODES_MAX + 1)},
    ],
)
async def test_a_list_of_another_shape_or_length_is_refused(autojump_clock: MockClock, site: Site, body: Any) -> None:
    await refused(site, MANY, body, "malformed")


async def test_as_many_as_the_limit_says_are_enrolled_at_once(
    autojump_clock: MockClock, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.folder, "keep", lambda _: None)  # a thousand files are others' business
    response = await site.post(MANY, {"nodes": [{"tenant": "acme"}] * ENROLMENT_NODES_MAX})
    assert (response.status, len(response.json["nodes"])) == (200, 1000)


async def test_a_list_may_have_a_mebibyte_and_no_byte_more(autojump_clock: MockClock, site: Site) -> None:
    body = json.dumps({"nodes": [{"tenant": "acme", "name": "pump-7"}]}).encode().ljust(ENROLMENT_BYTES_MAX)
    assert ENROLMENT_BYTES_MAX == 1 << 20
    await refused(site, MANY, body + b" ", "too_large", 413)
    await refused(site, "/admin/enroll", body, "too_large", 413)  # others may have less
    assert (await site.post(MANY, body)).status == 200
    assert [node["name"] for node in await site.nodes()] == ["pump-7"]
