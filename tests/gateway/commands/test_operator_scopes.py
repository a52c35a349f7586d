"""What the command line asks for: the scopes that a command needs and no others; and which scopes it will not mint."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from gateway.commands.cli import main
from gateway.identity.tokens import OperatorScope, Principal, TokenClass
from gateway.main.data_folder import DataFolder
from tests.gateway.commands.fake_gateway import (
    AGENT,
    ECHO,
    JTI,
    NOW_MS,
    Asked,
    FakeGateway,
    Reply,
    fake_gateway,
    reply,
    running_on,
)
from tests.schemas.examples import NODE_ID

MINT = ["token", "mint", "--tenant", "acme"]
MINT_OPERATOR = [*MINT, "--class", "operator", "--sub", "ada"]


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HELIOGRAPH_DATA", "HELIOGRAPH_TOKEN", "HELIOGRAPH_OPERATOR_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with DataFolder.hold(tmp_path / "data", NOW_MS):
        return tmp_path / "data"


@pytest.fixture
def gateway(folder: Path) -> Iterator[FakeGateway]:
    with fake_gateway(reply) as server, running_on(folder, server):
        yield server


def run(words: list[str], *more: str) -> int:
    return main([*words, *more, "--data", "data"])


def claims(asked: Asked) -> dict[str, Any]:
    token = (asked.authorization or "").removeprefix("Bearer ")
    claimed: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return claimed


@pytest.mark.parametrize(
    ("command", "scopes"),
    [
        (["nodes"], "fleet:read"),
        (["log", NODE_ID], "fleet:read"),
        (["ledger", AGENT], "spend:read"),
        (["node", "enroll", "--tenant", "acme", "--out", "enrolled"], "fleet:write"),
        (MINT, "tokens:mint"),
        ([*MINT, "--class", "device_runtime", "--sub", NODE_ID], "fleet:write tokens:mint"),
        ([*MINT_OPERATOR, "--scope", "spend:read"], "spend:read tokens:mint"),
        (["token", "revoke", JTI], "tokens:mint"),
        (["backup"], "fleet:read fleet:write policy:write spend:read tokens:mint"),
        (["call", ECHO, "{}"], "fleet:read tokens:mint"),
        (["watch", NODE_ID], "fleet:read tokens:mint"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value[:2]),
)
def test_token_that_a_command_makes_has_the_scopes_that_it_needs_and_no_others(
    gateway: FakeGateway, command: list[str], scopes: str
) -> None:
    gateway.replies = lambda asked: Reply({}, 403) if asked.path == "/admin/enroll" else reply(asked)
    run(command)
    asked = [asked for asked in gateway.asked if asked.path.startswith("/admin/")]
    assert {claims(one)["scope"] for one in asked} == {scopes}


def test_operator_token_is_asked_for_with_one_that_outlives_it(gateway: FakeGateway) -> None:
    assert run(MINT_OPERATOR, "--scope", "fleet:read", "--life", "30d") == 0
    (asked,) = gateway.asked
    assert claims(asked)["exp"] - claims(asked)["iat"] > asked.body["life_s"] == 30 * 24 * 3600


def test_want_of_a_scope_is_told_with_the_scope_to_ask_for(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs = "This route needs the scope fleet:read."
    refusal = {"code": "E_SAFETY_DENIED", "message": needs, "suggested_fix": "Ask an operator for it."}
    gateway.replies = lambda _: Reply(refusal, 403)
    monkeypatch.setenv("HELIOGRAPH_OPERATOR_TOKEN", "of-our-issuer")
    assert run(["nodes"]) == 2
    assert capsys.readouterr().err == f"heliograph: {needs} Ask an operator for it.\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (MINT_OPERATOR, "fleet:read, fleet:write, policy:write, spend:read, tokens:mint"),
        ([*MINT_OPERATOR, "--scope", "tools:call:read_only"], "fleet:read, fleet:write"),
        ([*MINT_OPERATOR, "--scope", "fleet:read", "--scope", "device:connect"], "fleet:read, fleet:write"),
        ([*MINT, "--scope", "fleet:read"], "device:connect, tools"),
        (
            [*MINT, "--class", "device_runtime", "--sub", NODE_ID, "--scope", "tokens:mint"],
            "device:connect, tools",
        ),
    ],
)
@pytest.mark.parametrize("runs", [True, False])
def test_scopes_that_a_class_does_not_take_are_refused_with_those_that_it_does(
    request: pytest.FixtureRequest,
    folder: Path,
    words: list[str],
    offered: str,
    runs: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gateway = request.getfixturevalue("gateway") if runs else None
    assert run(words) == 2
    assert offered in capsys.readouterr().err
    assert gateway is None or gateway.asked == []


def test_whoever_has_a_stopped_gateways_folder_mints_operators_with_any_scope(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scopes = [word for scope in OperatorScope for word in ("--scope", scope)]
    assert run(MINT_OPERATOR, *scopes, "--life", "365d") == 0
    token = capsys.readouterr().out.strip()
    made = jwt.decode(token, options={"verify_signature": False})
    with DataFolder.hold(folder, NOW_MS, make=False) as held:
        principal = held.verifier.verify(token, TokenClass.OPERATOR, made["iat"] * 1000)
    assert isinstance(principal, Principal)
    assert principal.scopes == frozenset(OperatorScope)
