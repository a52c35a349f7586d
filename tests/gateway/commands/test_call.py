"""`heliograph call` of another MCP server's tool: the token it needs is made as for a device's."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from gateway.commands.call import patience_s
from gateway.commands.cli import main
from tests.gateway.calls.upstreams.site import AGENTS, by_stdio, front
from tests.gateway.commands.fake_gateway import ECHO, Asked, FakeGateway, Reply, fake_gateway, reply, running_on

POLICY = f"""
{AGENTS}
[[upstreams]]
name = "files"
tenants = ["acme"]
command = ["never-run"]
read_only = ["read_*"]

[[upstreams]]
name = "search"
tenants = ["globex", "acme"]
command = ["never-run"]
"""


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HELIOGRAPH_DATA", "HELIOGRAPH_TOKEN", "HELIOGRAPH_OPERATOR_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FakeGateway]:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    with fake_gateway() as server, running_on(tmp_path / "data", server, policy):
        yield server


def call(tmp_path: Path, tool: str, *more: str) -> int:
    return main(["call", tool, "{}", *more, "--data", str(tmp_path / "data")])


def minted(gateway: FakeGateway) -> list[Any]:
    return [asked.body for asked in gateway.asked if asked.path == "/admin/mint"]


@pytest.mark.parametrize(
    ("tool", "more", "tenant", "scope"),
    [
        ("files.read_text", (), "acme", "tools:call:read_only"),
        ("files.write_text", (), "acme", "tools:call:reversible"),
        ("files.a.b", (), "acme", "tools:call:reversible"),
        ("files.write_text", ("--tenant", "acme"), "acme", "tools:call:reversible"),
        ("search.find", ("--tenant", "globex"), "globex", "tools:call:reversible"),
        ("search.find", ("--tenant", "acme"), "acme", "tools:call:reversible"),
        (ECHO, (), "acme", "tools:call:read_only"),
        (ECHO, ("--tenant", "acme"), "acme", "tools:call:read_only"),
        (ECHO.replace(".", "-"), (), "acme", "tools:call:read_only"),
        ("system_echo_invoke", (), "acme", "tools:call:read_only"),
        ("fleet_find", ("--tenant", "acme"), "acme", "tools:call:read_only"),
    ],
)
def test_token_is_of_a_tenant_that_may_use_the_tool_and_has_the_one_scope_it_needs(
    tool: str, more: tuple[str, ...], tenant: str, scope: str, tmp_path: Path, gateway: FakeGateway
) -> None:
    assert call(tmp_path, tool, *more) == 0
    (minting,) = minted(gateway)
    assert (minting["tenant"], minting["scopes"], minting["token_class"]) == (tenant, [scope], "agent_runtime")
    assert gateway.asked[-1].authorization == "Bearer a.minted.token"
    assert gateway.asked[-1].body == {"tool": tool, "arguments": {}}


@pytest.mark.parametrize(
    ("tool", "more", "hint"),
    [
        ("search.find", (), "say which with --tenant (acme, globex)"),
        ("search.find", ("--tenant", "initech"), "choose from acme, globex"),
        ("files.read_text", ("--tenant", "globex"), "choose from acme"),
        (ECHO, ("--tenant", "globex"), "choose from acme"),
        ("mail.send", (), "upstreams are files, search"),
        ("nonsense", (), "upstreams are files, search"),
        (ECHO.replace(".echo.", ".other."), (), "heliograph nodes --json"),
        ("files.read_text", ("--tenant", "acme", "--token", "mine"), "leave --tenant out"),
    ],
)
def test_tool_that_no_token_can_be_made_for_is_told_with_what_to_do(
    tool: str,
    more: tuple[str, ...],
    hint: str,
    tmp_path: Path,
    gateway: FakeGateway,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(tmp_path, tool, *more) == 2
    assert hint in capsys.readouterr().err
    assert minted(gateway) == []


def test_policy_that_is_broken_by_now_is_told_with_its_line(
    tmp_path: Path, gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy.toml").write_text("\nx = 1")
    assert call(tmp_path, "files.read_text") == 2
    told = capsys.readouterr().err
    assert "policy.toml: line 2" in told
    assert "--token" in told


def test_gateway_without_a_policy_has_no_upstreams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fake_gateway() as gateway, running_on(tmp_path / "data", gateway):
        assert call(tmp_path, "files.read_text") == 2
    assert "no upstreams" in capsys.readouterr().err


def test_upstream_that_takes_its_time_is_waited_for() -> None:
    """The gateway gives another server up to 600 s, and a device 5 s."""
    assert patience_s("files.read_text") > 600
    assert 5 < patience_s(ECHO) <= 10


async def test_tool_of_a_real_upstream_is_called_with_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = AGENTS + by_stdio("std", read_only=["say"])
    async with front(tmp_path, policy) as here:
        await here.until_listed("std.add")
        data = ["--data", str(here.site.gateway.folder.path)]
        for words, answer in (
            (["std.add", '{"a": 1, "b": 2}'], {"result": 3}),
            (["std.say", '{"text": "hi"}'], {"said": "hi"}),
        ):
            assert await trio.to_thread.run_sync(main, ["call", *words, *data]) == 0, capsys.readouterr().err
            assert capsys.readouterr().out.endswith(json.dumps(answer, indent=2) + "\n")
        assert await trio.to_thread.run_sync(main, ["call", "std.nothing", "{}", *data]) == 1
        assert json.loads(capsys.readouterr().err)["code"] == "E_MANIFEST_NOT_FOUND"


def test_result_is_printed_without_control_characters(
    tmp_path: Path, gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    def replies(asked: Asked) -> Reply:
        return Reply([1, "\x1b[2J"]) if asked.path == "/mcp/tools/call" else reply(asked)

    gateway.replies = replies
    assert call(tmp_path, "files.read_text") == 0
    out = capsys.readouterr().out
    assert json.loads(out) == [1, "\x1b[2J"]
    assert "\x1b" not in out
