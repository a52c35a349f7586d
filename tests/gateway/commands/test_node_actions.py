"""A node's life by the command line on the folder of a gateway that does not run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.device.identity import DeviceIdentity
from gateway.commands.cli import main
from gateway.main.data_folder import DataFolder

NOW_MS = 1_790_000_000_000


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HELIOGRAPH_DATA", str(tmp_path / "data"))
    with DataFolder.hold(tmp_path / "data", NOW_MS):
        pass
    return lambda *argv: main([*argv])


@pytest.fixture
def nodes(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> Callable[..., list[dict[str, Any]]]:
    def listed(*more: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert run("nodes", "--json", *more) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return found

    return listed


def test_a_whole_life(
    run: Callable[..., int], nodes: Callable[..., list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run("node", "enroll", "--tenant", "acme", "--name", "pump-7", "--tag", "site=lab", "--out", "one", "--json")
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    identity = DeviceIdentity.load(Path("one"))
    assert (told["node_id"], told["name"], told["tags"]) == (identity.node_id, "pump-7", {"site": "lab"})
    assert len(told["token_id"]) == 26
    assert identity.token not in json.dumps(told)
    assert [(node["name"], node["state"]) for node in nodes()] == [("pump-7", "enrolled")]

    assert run("node", "rename", "pump-7", "pump-8") == 0
    assert run("node", "tag", "pump-8", "row=2", "--remove", "site") == 0
    (node,) = nodes("--tag", "row=2", "--state", "enrolled", "--tenant", "acme")
    assert (node["name"], node["tags"]) == ("pump-8", {"row": "2"})
    assert nodes("--tag", "site=lab") == nodes("--state", "live") == nodes("--tenant", "umbra") == []

    assert run("node", "renew", "pump-8", "--out", "two") == 0
    assert DeviceIdentity.load(Path("two")).leaf.kid != identity.leaf.kid
    assert run("node", "forget", "pump-8") == 2
    assert "not revoked" in capsys.readouterr().err
    assert run("node", "revoke", "pump-8") == 0
    assert [node["state"] for node in nodes()] == ["revoked"]
    assert run("node", "renew", "pump-8", "--out", "three") == 2
    assert not Path("three").exists()
    assert run("node", "forget", "pump-8") == 0
    assert nodes() == []
    assert list(Path("data/leafs").iterdir()) == []
    assert run("node", "enroll", "--tenant", "acme", "--node-id", identity.node_id, "--out", "four") == 2
    assert "revoked" in capsys.readouterr().err


def test_many_from_a_file_all_or_none(
    run: Callable[..., int], nodes: Callable[..., list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("some.csv").write_text("﻿name,tags\npump-1,site=lab\npump-2,\n")
    assert run("node", "enroll", "--tenant", "acme", "--csv", "some.csv", "--out", "all", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["folder"] for one in told] == ["all/pump-1", "all/pump-2"]
    for one in told:
        assert DeviceIdentity.load(Path(one["folder"])).node_id == one["node_id"]
    Path("more.csv").write_text("name\npump-3\npump-2\n")
    assert run("node", "enroll", "--tenant", "acme", "--csv", "more.csv", "--out", "more") == 2
    assert "line 3: Another node of this tenant has this name." in capsys.readouterr().err
    assert sorted(node["name"] for node in nodes()) == ["pump-1", "pump-2"]
    assert not Path("more").exists()


def test_a_name_of_two_tenants_needs_the_tenant(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    for tenant in ("acme", "umbra"):
        assert run("node", "enroll", "--tenant", tenant, "--name", "pump-7", "--out", tenant) == 0
    assert run("node", "revoke", "pump-7") == 2
    assert "several tenants" in capsys.readouterr().err
    assert run("node", "revoke", "pump-7", "--tenant", "umbra") == 0
    assert DeviceIdentity.load(Path("umbra")).node_id in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["node", "enroll", "--out", "o"], "--tenant is needed"),
        (["node", "enroll", "--tenant", "a", "--name", "Pump", "--out", "o"], "no name"),
        (["node", "enroll", "--tenant", "a", "--tag", "site", "--out", "o"], "tag"),
        (["node", "enroll", "--tenant", "a", "--csv", "none.csv", "--out", "o"], "cannot read"),
        (["node", "enroll", "--csv", "x.csv", "--name", "a", "--out", "o"], "in the file"),
        (["node", "rename", "pump-7"], "--none"),
        (["node", "rename", "pump-7", "b", "--none"], "--none"),
        (["node", "rename", "nobody", "b"], "No node has this id or name"),
        (["node", "rename", "Not A Name", "b"], "heliograph nodes"),
        (["node", "tag", "pump-7"], "--remove"),
        (["node", "tag", "pump-7", "--remove", "a=b"], "key alone"),
        (["node", "tag", "pump-7", "a=1", "a=2"], "twice"),
        (["nodes", "--tag", "site"], "--tag"),
        (["log", "nobody"], "no node has that name"),
    ],
)
def test_wrong_use_is_told_in_one_line_and_leaves_nothing(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], argv: list[str], told: str
) -> None:
    assert run(*argv) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not Path("o").exists()


def test_a_folder_that_holds_an_identity_is_not_overwritten(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], nodes: Callable[..., list[dict[str, Any]]]
) -> None:
    assert run("node", "enroll", "--tenant", "acme", "--out", "one") == 0
    before = DeviceIdentity.load(Path("one")).node_id
    assert run("node", "enroll", "--tenant", "acme", "--out", "one") == 2
    assert "holds an identity already" in capsys.readouterr().err
    assert [node["node_id"] for node in nodes()] == [before]


def test_log_and_nodes_take_a_name(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("node", "enroll", "--tenant", "acme", "--name", "pump-7", "--out", "one") == 0
    capsys.readouterr()
    assert run("log", "pump-7") == 0
    assert run("nodes") == 0
    assert "pump-7" in capsys.readouterr().out


def test_nodes_of_two_tenants_with_one_name_have_a_folder_each(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("two.csv").write_text("name,tenant\npump-1,acme\npump-1,umbra\nvalve,acme\n,acme\n")
    assert run("node", "enroll", "--csv", "two.csv", "--out", "all", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert len({one["folder"] for one in told}) == 4
    for one in told:
        identity = DeviceIdentity.load(Path(one["folder"]))
        assert (identity.node_id, identity.leaf.tenant) == (one["node_id"], one["tenant"])
    assert told[2]["folder"] == "all/valve"


def test_watching_the_nodes_of_a_stopped_gateway_is_refused(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("nodes", "--watch") == 2
    assert "heliograph serve" in capsys.readouterr().err
