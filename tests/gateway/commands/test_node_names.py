"""A node's name where a command takes a node: asked for at the gateway that runs, as an operator or as an agent."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.commands.cli import main
from tests.gateway.commands.fake_gateway import FOLLOW, Asked, FakeGateway, Reply, fake_gateway, node, reply, running_on
from tests.schemas.examples import NODE_ID

OTHER_ID = "01hzx9k3m4p7q8r9s0t1v2w000"
EVENT = {"version": 1, "event": "session_opened@1"}
NOT_FOUND = {"code": "E_MANIFEST_NOT_FOUND", "message": "No node has this name.", "suggested_fix": "Look around."}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HELIOGRAPH_DATA", "HELIOGRAPH_TOKEN", "HELIOGRAPH_OPERATOR_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def gateway_with(path: Path, *named: dict[str, Any]) -> Iterator[FakeGateway]:
    """These have the name that is asked for."""

    def answer(asked: Asked) -> Reply:
        if asked.path == "/admin/nodes" and "name" in asked.query:
            return Reply({"nodes": list(named)})
        if asked.path == f"/admin/log/{NODE_ID}":
            return Reply({"events": [EVENT] if asked.query["after"] == ["0"] else []})
        return reply(asked)

    with fake_gateway(answer) as server, running_on(path, server):
        yield server


def test_log_of_a_name_is_that_of_the_node_that_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gateway_with(tmp_path / "data", node()) as gateway:
        assert main(["log", "pump-7", "--data", str(tmp_path / "data")]) == 0
    assert (gateway.asked[0].path, gateway.asked[0].query) == ("/admin/nodes", {"name": ["pump-7"]})
    assert {asked.path for asked in gateway.asked[1:]} == {f"/admin/log/{NODE_ID}"}
    assert json.loads(capsys.readouterr().out) == EVENT


def test_watch_of_a_name_follows_the_node_that_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gateway_with(tmp_path / "data", node()) as gateway:
        assert main(["watch", "pump-7", "--data", str(tmp_path / "data")]) == 0
    assert (gateway.asked[0].path, gateway.asked[0].query) == ("/admin/nodes", {"name": ["pump-7"]})
    (minted,) = [asked.body for asked in gateway.asked if asked.path == "/admin/mint"]
    assert (minted["tenant"], minted["scopes"]) == ("acme", ["tools:call:read_only"])
    assert gateway.asked[-1].body == {"tool": FOLLOW, "arguments": {"interval_ms": 1000}}
    assert gateway.asked[-1].authorization == "Bearer a.minted.token"
    assert "1000 normal" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["log", "watch"])
@pytest.mark.parametrize(
    ("named", "told"),
    [([node(), node(OTHER_ID, "globex")], "nodes of several tenants have that name"), ([], "no node has that name")],
)
def test_a_name_of_several_nodes_or_of_none_is_told_and_nothing_else_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, named: list[dict[str, Any]], told: str
) -> None:
    with gateway_with(tmp_path / "data", *named) as gateway:
        assert main([command, "pump-7", "--data", str(tmp_path / "data")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err
    assert "heliograph nodes" in err
    assert [asked.path for asked in gateway.asked] == ["/admin/nodes"]


@pytest.mark.parametrize("command", ["log", "watch"])
def test_an_id_is_not_asked_for(tmp_path: Path, command: str) -> None:
    with gateway_with(tmp_path / "data") as gateway:
        assert main([command, NODE_ID, "--data", str(tmp_path / "data")]) == 0
    assert not [asked for asked in gateway.asked if "name" in asked.query]


# ---- as an agent ----------------------------------------------------------------------------------------------------


def to_agents(found: Reply) -> Callable[[Asked], Reply]:
    def answer(asked: Asked) -> Reply:
        is_look = asked.path == "/mcp/tools/call" and asked.body["tool"] == "fleet_node"
        return found if is_look else reply(asked)

    return answer


def watch_as_agent(gateway: FakeGateway, name: str = "pump-7") -> int:
    return main(["watch", name, "--url", f"http://{gateway.address}", "--token", "mine"])


def test_with_an_agents_token_the_gateway_is_asked_as_that_agent() -> None:
    with fake_gateway(to_agents(Reply({"node_id": NODE_ID, "name": "pump-7"}))) as gateway:
        assert watch_as_agent(gateway) == 0
    assert [(asked.path, asked.authorization) for asked in gateway.asked] == [("/mcp/tools/call", "Bearer mine")] * 2
    assert [asked.body for asked in gateway.asked] == [
        {"tool": "fleet_node", "arguments": {"node": "pump-7"}},
        {"tool": FOLLOW, "arguments": {"interval_ms": 1000}},
    ]


def test_a_name_that_the_agent_may_not_see_is_told_as_the_gateway_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_gateway(to_agents(Reply(NOT_FOUND, 404))) as gateway:
        assert watch_as_agent(gateway) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "No node has this name. Look around." in err
    assert len(gateway.asked) == 1


def test_what_is_neither_an_id_nor_a_name_is_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_gateway() as gateway:
        assert watch_as_agent(gateway, "Not A Name") == 2
    assert "heliograph nodes" in capsys.readouterr().err
    assert gateway.asked == []
