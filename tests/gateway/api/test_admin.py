"""The operator's routes: who may use them, and what they do to a running gateway."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.node.fleet import Fleet
from actors.supervision.supervisor import Supervisor
from gateway.identity.tokens import Principal, Scope, TokenClass, TokenFault
from gateway.main.data_folder import DataFolder
from schemas.closes import NodeClose
from schemas.contract import contract
from tests.actors.node.harness import TOKEN_ID, Gateway, ScriptedNode, now, until
from tests.gateway.api.client import AGENT, new_id
from tests.gateway.api.operators import MINT, Operator
from tests.schemas.examples import NODE_ID

WALL_MS = 1_790_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    with DataFolder.hold(tmp_path, WALL_MS) as held:
        yield held


@pytest.fixture
async def fleet(nursery: trio.Nursery) -> AsyncIterator[Fleet]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    yield Fleet(supervisor, Gateway().services)
    supervisor.request_stop()


@pytest.mark.parametrize("path", ["/admin/nodes", "/admin/mint", "/admin/enroll", "/admin/revoke", "/admin/log/x"])
async def test_nobody_but_an_operator_gets_in(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet, path: str
) -> None:
    operator = Operator(folder, fleet)
    agent = folder.mint(TokenClass.AGENT_RUNTIME, AGENT, "acme", list(Scope), 3600, new_id(), now().wall_ms)
    for token in (agent, "nonsense"):
        assert (await operator.ask("GET", path, token=token)).status == 401


async def test_enrolled_node_is_known_and_its_identity_is_handed_out_once(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet
) -> None:
    made = (await Operator(folder, fleet).ask("POST", "/admin/enroll", {"tenant": "acme", "node_id": NODE_ID})).json
    assert (made["node_id"], made["tenant"]) == (NODE_ID, "acme")
    assert folder.certificates.tenants_of(NODE_ID) == {"acme"}
    assert isinstance(folder.verifier.verify(made["token"], TokenClass.DEVICE_RUNTIME, now().wall_ms), Principal)


async def test_minted_token_is_good_until_it_is_revoked(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet
) -> None:
    operator = Operator(folder, fleet)
    made = (await operator.ask("POST", "/admin/mint", MINT)).json
    assert isinstance(folder.verifier.verify(made["token"], TokenClass.AGENT_RUNTIME, now().wall_ms), Principal)
    assert (await operator.ask("POST", "/admin/revoke", {"jti": made["jti"]})).json == {"revoked": made["jti"]}
    assert folder.verifier.verify(made["token"], TokenClass.AGENT_RUNTIME, now().wall_ms) is TokenFault.REVOKED


async def test_revoking_a_nodes_token_ends_its_session(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet
) -> None:
    node = ScriptedNode.started_by(fleet)
    await Operator(folder, fleet).ask("POST", "/admin/revoke", {"jti": TOKEN_ID})
    assert node.connection.closed is NodeClose.UNAUTHORIZED


async def test_nodes_and_their_history_can_be_read(autojump_clock: MockClock, folder: DataFolder, fleet: Fleet) -> None:
    node = ScriptedNode.started_by(fleet)
    await node.go_live()
    operator = Operator(folder, fleet)
    (listed,) = (await operator.ask("GET", "/admin/nodes")).json["nodes"]
    assert (listed["node_id"], listed["tenant"], listed["live"], len(listed["tools"])) == (NODE_ID, "acme", True, 3)
    events = (await operator.ask("GET", f"/admin/log/{NODE_ID}")).json["events"]
    assert [event["event"] for event in events] == ["session_opened@1", "node_resumed@1"]
    assert (await operator.ask("GET", f"/admin/log/{NODE_ID}?after=1")).json["events"] == events[1:]


async def test_node_that_has_left_tells_since_when_and_why(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet
) -> None:
    node, operator = ScriptedNode.started_by(fleet), Operator(folder, fleet)
    await node.go_live()
    live_ms = now().wall_ms
    (listed,) = (await operator.ask("GET", "/admin/nodes")).json["nodes"]
    assert (listed["since_ms"], listed["left"]) == (live_ms, None)
    await trio.sleep(5)
    node.actor.close(NodeClose.UNAUTHORIZED)
    await until(lambda: len(fleet.nodes) == 0)
    (listed,) = (await operator.ask("GET", "/admin/nodes")).json["nodes"]
    assert listed["since_ms"] >= live_ms + 5000
    assert listed["left"] == {"code": 4401, "reason": "unauthorized"}


WAITS = [
    ("/admin/mint", MINT),
    ("/admin/enroll", {"tenant": "acme", "node_id": NODE_ID}),
    ("/admin/revoke", {"jti": "01HZXC0000000000000000J009"}),
]


@pytest.mark.parametrize(("path", "body"), WAITS)
@pytest.mark.parametrize("ends", ["revoked", "expired"])
async def test_operator_whose_token_ends_while_the_body_comes_changes_nothing(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet, path: str, body: Any, ends: str
) -> None:
    operator = Operator(folder, fleet)

    def end() -> None:
        if ends == "revoked":
            folder.revoke(operator.jti)
        else:
            autojump_clock.jump(3601)

    response = await operator.ask("POST", path, body, before_body=end)
    assert (response.status, response.json["code"]) == (401, "E_SAFETY_DENIED")
    assert response.headers["www-authenticate"] == 'Bearer realm="heliograph"'
    assert not (folder.path / "leafs").exists()
    revoked = folder.path / "revoked"
    assert (revoked.read_text().split() if revoked.exists() else []) == ([operator.jti] if ends == "revoked" else [])


@pytest.mark.parametrize(
    "node_id", ["", "x", NODE_ID.upper(), NODE_ID + "/x", "../manifests", "manifests", "%ED%A0%80", "\u0663" * 26]
)
async def test_history_of_what_is_no_nodes_id_is_404(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet, node_id: str
) -> None:
    assert (await Operator(folder, fleet).ask("GET", f"/admin/log/{node_id}")).status == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/admin/mint", MINT | {"life_s": 10**18}, 400),
        ("POST", "/admin/mint", MINT | {"life_s": 10**400}, 400),
        ("POST", "/admin/enroll", {"tenant": ""}, 400),
        ("POST", "/admin/enroll", {"tenant": "\u00e9"}, 400),
        ("HEAD", "/admin/mint", None, 405),
        ("POST", "/admin/mint", {}, 400),
        ("POST", "/admin/mint", b"{", 400),
        ("POST", "/admin/mint", MINT | {"sub": "x"}, 400),
        ("POST", "/admin/mint", MINT | {"life_s": 0}, 400),
        ("POST", "/admin/mint", MINT | {"scopes": ["root"]}, 400),
        ("POST", "/admin/enroll", {"tenant": "acme", "node_id": "NOT A NODE"}, 400),
        ("POST", "/admin/enroll", {"tenant": "x" * 65}, 400),
        ("POST", "/admin/revoke", {"jti": 5}, 400),
        ("POST", "/admin/revoke", {"jti": "x\ny"}, 400),
        ("GET", "/admin/revoke", None, 405),
        ("GET", "/admin/nope", None, 404),
        ("GET", f"/admin/log/{NODE_ID}?after=x", None, 400),
    ],
)  # fmt: skip
async def test_mistake_is_an_envelope_and_changes_nothing(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet, method: str, path: str, body: Any, status: int
) -> None:
    before = sorted(p.name for p in folder.path.rglob("*"))
    response = await Operator(folder, fleet).ask(method, path, body)
    assert response.status == status
    assert method == "HEAD" or contract("error@1.2.0").is_valid(response.json)
    assert sorted(p.name for p in folder.path.rglob("*")) == before
