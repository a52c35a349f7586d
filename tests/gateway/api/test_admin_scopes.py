"""Which operator may use which of the operators' routes: each takes one scope, and nothing else opens it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import structlog
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from trio.testing import MockClock

from actors.node.fleet import Fleet
from actors.supervision.supervisor import Supervisor
from gateway.identity.tokens import OperatorScope, TokenClass, key_id
from gateway.main.data_folder import DataFolder
from tests.actors.node.harness import Gateway, now
from tests.gateway.api.client import AGENT, new_id
from tests.gateway.api.operators import MINT, Operator
from tests.schemas.examples import NODE_ID

SINCE_MS = 1_790_000_000_000
MINT_OPERATOR = MINT | {"token_class": "operator", "sub": "bob", "tenant": "operators"}
NAMES = {"/admin/log/{}": NODE_ID, "/admin/ledger/{}": AGENT}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    with DataFolder.hold(tmp_path, SINCE_MS) as held:
        yield held


@pytest.fixture
async def fleet(nursery: trio.Nursery) -> AsyncIterator[Fleet]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    yield Fleet(supervisor, Gateway().services)
    supervisor.request_stop()


def without_scopes(folder: DataFolder, iat: int, **claims: Any) -> str:
    """As gateways minted them before operators had scopes: nothing here would today."""
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex((folder.path / "token.key").read_text().strip()))
    claimed = {
        "iss": "heliograph", "aud": "heliograph", "sub": "ada", "tenant": "operators", "token_class": "operator",
        "jti": new_id(), "iat": iat, "exp": now().wall_ms // 1000 + 3600,
    }  # fmt: skip
    return jwt.encode(claimed | claims, key, algorithm="EdDSA", headers={"kid": key_id(key.public_key())})


@pytest.mark.parametrize("scope", list(OperatorScope))
async def test_every_route_opens_to_its_scope_and_to_no_other(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet, scope: OperatorScope
) -> None:
    operator = Operator(folder, fleet, [scope])
    routes = {path: route for routes in operator.admin.operator_routes for path, route in routes.items()}
    assert len(routes) >= 6
    for path, route in routes.items():
        assert route.scope is not None, f"{path} says no scope: nobody could be kept out of it"
        asked = path.replace("{}", NAMES.get(path, NODE_ID))
        with structlog.testing.capture_logs() as lines:
            response = await operator.ask(route.method, asked, b"{")
        acted = [(line["decision"], line["reason"]) for line in lines if line["event"] == "operator_action"]
        if route.scope is scope:
            # 404: it is let in, and this gateway has no ledger to show.
            assert response.status in ((200, 404) if route.method == "GET" else (400,)), path
            assert acted == ([] if route.method == "GET" else [("refused", "malformed")])
        else:
            assert (response.status, response.json["code"]) == (403, "E_SAFETY_DENIED"), path
            challenge = f'Bearer realm="heliograph", error="insufficient_scope", scope="{route.scope}"'
            assert response.headers["www-authenticate"] == challenge
            assert f"the scope {route.scope}." in response.json["suggested_fix"]
            assert acted == ([] if route.method == "GET" else [("refused", "scope")])


async def test_any_operator_learns_which_routes_there_are_not(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet
) -> None:
    operator = Operator(folder, fleet, [OperatorScope.POLICY_WRITE])
    assert (await operator.ask("GET", "/admin/nope")).status == 404
    assert (await operator.ask("GET", "/admin/mint")).status == 405


@pytest.mark.parametrize("claims", [{}, {"scope": ""}])
async def test_token_without_scopes_opens_everything_if_it_is_old_and_nothing_if_it_is_new(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet, claims: dict[str, str]
) -> None:
    operator = Operator(folder, fleet)
    for path in ("/admin/nodes", f"/admin/log/{NODE_ID}"):
        for iat, status in ((SINCE_MS // 1000, 200), (SINCE_MS // 1000 + 1, 403)):
            token = without_scopes(folder, iat, **claims)
            assert (await operator.ask("GET", path, token=token)).status == status


async def test_old_token_mints_operators_with_every_scope(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet
) -> None:
    token = without_scopes(folder, SINCE_MS // 1000)
    minting = MINT_OPERATOR | {"scopes": list(OperatorScope)}
    assert (await Operator(folder, fleet).ask("POST", "/admin/mint", minting, token=token)).status == 200


@pytest.mark.parametrize("token_class", [TokenClass.AGENT_RUNTIME, TokenClass.DEVICE_RUNTIME])
async def test_operators_scopes_in_another_token_open_nothing(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet, token_class: TokenClass
) -> None:
    sub = AGENT if token_class is TokenClass.AGENT_RUNTIME else NODE_ID
    claims = {"token_class": token_class, "sub": sub, "scope": " ".join(OperatorScope)}
    token = without_scopes(folder, now().wall_ms // 1000, **claims)
    operator = Operator(folder, fleet)
    assert (await operator.ask("GET", "/admin/nodes", token=token)).status == 401


async def test_agents_scopes_in_an_operators_token_open_nothing(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet
) -> None:
    token = without_scopes(folder, 0, scope="tools:call:read_only")
    assert (await Operator(folder, fleet).ask("GET", "/admin/nodes", token=token)).status == 403


@pytest.mark.parametrize(
    ("has", "changes", "status", "reason"),
    [
        (["tokens:mint"], {"scopes": ["fleet:read"]}, 403, "escalation"),
        (["tokens:mint", "fleet:read"], {"scopes": ["fleet:read", "policy:write"]}, 403, "escalation"),
        (["tokens:mint", "fleet:read"], {"scopes": ["fleet:read"], "life_s": 3601}, 403, "outlives"),
        (["tokens:mint"], {"token_class": "device_runtime", "sub": NODE_ID}, 403, "escalation"),
        (["tokens:mint"], {"scopes": []}, 400, "scopes"),
        (["tokens:mint"], {"scopes": ["tools:call:read_only"]}, 400, "scopes"),
        (["tokens:mint"], {"token_class": "agent_runtime", "sub": AGENT, "scopes": ["tokens:mint"]}, 400, "scopes"),
        (["fleet:read"], {"scopes": ["fleet:read"]}, 403, "scope"),
    ],
)
async def test_nobody_mints_more_than_they_have_and_the_attempt_leaves_its_line(
    autojump_clock: MockClock,
    folder: DataFolder,
    fleet: Fleet,
    has: list[str],
    changes: dict[str, Any],
    status: int,
    reason: str,
) -> None:
    operator = Operator(folder, fleet, [OperatorScope(scope) for scope in has])
    with structlog.testing.capture_logs() as lines:
        response = await operator.ask("POST", "/admin/mint", MINT_OPERATOR | changes)
    assert response.status == status
    assert "token" not in response.json
    (line,) = [line for line in lines if line["event"] == "operator_action"]
    assert (line["action"], line["decision"], line["reason"]) == ("mint", "refused", reason)
    assert line["code"] == ("E_SAFETY_DENIED" if status == 403 else "E_MANIFEST_INVALID")


async def test_minted_operator_has_what_was_asked_and_may_live_as_long_as_its_minter(
    autojump_clock: MockClock, folder: DataFolder, fleet: Fleet
) -> None:
    operator = Operator(folder, fleet, [OperatorScope.TOKENS_MINT, OperatorScope.FLEET_READ])
    made = await operator.ask("POST", "/admin/mint", MINT_OPERATOR | {"scopes": ["fleet:read"], "life_s": 3600})
    assert made.status == 200
    assert (await operator.ask("GET", "/admin/nodes", token=made.json["token"])).status == 200
    assert (await operator.ask("POST", "/admin/mint", MINT, token=made.json["token"])).status == 403
