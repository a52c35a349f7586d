"""How commands speak to a gateway: straight, with the token for nobody else, and in clear words when it is none."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.commands.cli import main
from gateway.main.data_folder import DataFolder
from tests.gateway.commands.fake_gateway import (
    AGENT,
    ECHO,
    JTI,
    NOW_MS,
    PROXIES,
    Asked,
    FakeGateway,
    Reply,
    fake_gateway,
    node,
    reply,
    running_on,
)
from tests.schemas.examples import NODE_ID

COMMANDS = {
    "nodes": ["nodes"],
    "log": ["log", NODE_ID],
    "ledger": ["ledger", AGENT],
    "mint": ["token", "mint", "--tenant", "acme"],
    "revoke": ["token", "revoke", JTI],
    "enroll": ["node", "enroll", "--tenant", "acme", "--out", "enrolled"],
    "call": ["call", ECHO, '{"message": "hello"}'],
    "watch": ["watch", NODE_ID],
}
OTHER_NODE = "01hzxc0000000000000000n002"
PAGE = b"<html>\x1b[2J<body>Sign in to the hotel's network</body></html>"
LONG_CURSOR = "a b&c=d/é#?"


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HELIOGRAPH_DATA", "HELIOGRAPH_TOKEN", "HELIOGRAPH_OPERATOR_TOKEN", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FakeGateway]:
    with DataFolder.hold(tmp_path / "data", NOW_MS) as folder:
        identity = folder.enroll(NODE_ID, "acme", JTI, NOW_MS)
    enrolled: dict[str, Any] = {
        "node_id": NODE_ID, "tenant": "acme", "name": None, "tags": {}, "token_id": JTI,
        "key": identity.key.encode().hex(), "certificate": identity.leaf.der.hex(), "token": identity.token,
    }  # fmt: skip

    def replies(asked: Asked) -> Reply:
        return Reply(enrolled) if asked.path == "/admin/enroll" else reply(asked)

    with fake_gateway(replies) as server, running_on(tmp_path / "data", server):
        yield server


def run(words: list[str], *more: str) -> int:
    return main([*words, *more, "--data", "data"])


# ---- the token is the gateway's alone -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_token_goes_to_the_gateway_and_through_no_proxy(
    command: list[str], gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_gateway() as proxy:
        for name in PROXIES:
            monkeypatch.setenv(name, f"http://{proxy.address}")
            monkeypatch.setenv(name.upper(), f"http://{proxy.address}")
        assert run(command) == (1 if command[0] == "ledger" else 0), capsys.readouterr().err
        assert proxy.asked == []
    assert gateway.asked
    assert all((asked.authorization or "").startswith("Bearer ") for asked in gateway.asked)


@pytest.mark.parametrize("command", ["call", "watch"])
def test_address_that_is_given_is_asked_without_a_proxy_too(
    command: str, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_gateway() as proxy:
        monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
        given = ["--url", f"http://{gateway.address}/", "--token", "mine"]
        assert main([*COMMANDS[command], *given]) == 0
        assert proxy.asked == []
    assert [(asked.path, asked.authorization) for asked in gateway.asked] == [("/mcp/tools/call", "Bearer mine")]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_redirect_is_not_followed_with_a_token(
    command: list[str], status: int, gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_gateway() as elsewhere:
        gateway.replies = lambda asked: Reply(
            b"", status, headers={"Location": f"http://{elsewhere.address}{asked.path}"}
        )
        assert run(command) == 2
        assert elsewhere.asked == []
    told = capsys.readouterr().err
    assert "is not a gateway" in told
    assert "give the gateway's own address" in told


def test_token_that_no_header_can_carry_is_refused_and_not_shown(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(COMMANDS["call"], "--token", "SECRET\nX-Other: 1") == 2
    monkeypatch.setenv("HELIOGRAPH_TOKEN", "SECRÉT")
    assert run(COMMANDS["call"]) == 2
    told = capsys.readouterr().err
    assert told.count("copy it again") == 2
    assert "SECR" not in told
    assert gateway.asked == []
    monkeypatch.setenv("HELIOGRAPH_TOKEN", "mine\n")  # as files of variables have it
    assert run(COMMANDS["call"]) == 0
    assert gateway.asked[-1].authorization == "Bearer mine"


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_note_of_a_killed_gateway_gives_no_token_to_who_listens_there_now(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_gateway() as other:
        with running_on(tmp_path / "data", other):
            note = (tmp_path / "data" / "running.json").read_text()
        (tmp_path / "data" / "running.json").write_text(note)
        code = run(command)
        assert other.asked == []
    if command[0] in ("call", "watch"):
        assert code == 2
        assert "no gateway runs on data: start one" in capsys.readouterr().err


# ---- what is no gateway ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        Reply(PAGE, 200, "text/html"),
        Reply(PAGE, 502, "text/html"),
        Reply(PAGE, 407, "text/html"),
        Reply(PAGE, 200, "application/json"),
        Reply(b"[" * 100_000, 200, "application/json"),
        Reply(b"", 200, "application/json"),
        Reply({"detail": "not ours"}, 403),
        Reply(["not ours"], 500),
    ],
    ids=lambda answer: f"{answer.status}-{answer.content_type[:9]}-{str(answer.body)[:9]}",
)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_answer_that_is_no_gateways_is_said_to_be_one(
    command: list[str], answer: Reply, gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.replies = lambda _: answer
    assert run(command) == 2
    told = capsys.readouterr().err
    assert f"what answers at http://{gateway.address} is not a gateway" in told
    assert f"HTTP {answer.status}" in told
    assert told.count("\n") == 1
    assert "\x1b" not in told


@pytest.mark.parametrize("command", ["nodes", "log", "ledger", "mint", "revoke", "enroll"])
def test_json_of_something_else_is_no_answer(
    command: str, gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    for body in ({"status": "ok"}, ["nodes"], 1):
        gateway.replies = lambda _, body=body: Reply(body)  # type: ignore[misc]
        assert run(COMMANDS[command]) == 2
        assert "is not a gateway" in capsys.readouterr().err


@pytest.mark.parametrize("garbage", [b"", b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_server_that_speaks_no_http_does_not_answer(
    command: list[str], garbage: bytes, gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.replies = lambda _: Reply(garbage, 0)
    assert run(command) == 2
    told = capsys.readouterr().err
    assert f"http://{gateway.address}" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("url", ["127.0.0.1:8420", "file:///etc/hosts", "http://", "http://me@host", "http://h:x", "é"])
def test_address_that_is_none_is_refused_with_its_form(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["call", ECHO, "--url", url, "--token", "mine"]) == 2
    assert "--url is http://HOST:PORT" in capsys.readouterr().err


def test_nobody_at_the_address_is_told_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_gateway() as gone:
        pass
    assert main(["call", ECHO, "--url", f"http://{gone.address}", "--token", "mine"]) == 2
    told = capsys.readouterr().err
    assert "does not answer" in told
    assert "see that it runs" in told


# ---- what a gateway says --------------------------------------------------------------------------------------------

REFUSAL = {"code": "E_SAFETY_DENIED", "message": "No.\x1b[31m", "suggested_fix": "Ask an operator."}


@pytest.mark.parametrize("command", ["nodes", "log", "ledger", "mint", "revoke", "enroll"])
def test_refusal_of_an_operator_is_told_in_one_line_without_control_characters(
    command: str, gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.replies = lambda _: Reply(REFUSAL, 403)
    assert run(COMMANDS[command]) == 2
    assert capsys.readouterr().err == "heliograph: No.[31m Ask an operator.\n"


@pytest.mark.parametrize("command", ["call", "watch"])
def test_refusal_of_a_tool_is_printed_as_json_and_exits_1(
    command: str, gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.replies = lambda asked: Reply(REFUSAL, 403) if asked.path == "/mcp/tools/call" else reply(asked)
    assert run(COMMANDS[command]) == 1
    told = capsys.readouterr().err
    assert json.loads(told) == REFUSAL
    assert "\x1b" not in told


def paged(asked: Asked) -> Reply:
    if asked.path != "/admin/nodes":
        return reply(asked)
    if asked.query.get("cursor") == [LONG_CURSOR]:
        return Reply({"nodes": [node(OTHER_NODE, "other")]})
    return Reply({"nodes": [node()], "nextCursor": LONG_CURSOR})


def test_nodes_are_listed_from_all_pages(gateway: FakeGateway, capsys: pytest.CaptureFixture[str]) -> None:
    gateway.replies = paged
    assert run(COMMANDS["nodes"], "--json") == 0
    assert [one["node_id"] for one in json.loads(capsys.readouterr().out)] == [NODE_ID, OTHER_NODE]
    assert len(gateway.asked) == 2


def test_tool_of_a_node_on_a_later_page_is_called_in_its_tenant(gateway: FakeGateway) -> None:
    gateway.replies = paged
    assert run(["call", ECHO.replace(NODE_ID, OTHER_NODE), "{}"]) == 0
    (minting,) = [asked.body for asked in gateway.asked if asked.path == "/admin/mint"]
    assert (minting["tenant"], minting["scopes"]) == ("other", ["tools:call:read_only"])


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["token", "mint", "--tenant", "acme", "--sub", "bob"], "agent_<uuid>"),
        (["token", "mint", "--tenant", "acme", "--class", "operator", "--scope", "fleet:read"], "1 to 128 printable"),
        (["token", "mint", "--tenant", "acme", "--class", "device_runtime", "--sub", "x"], "heliograph nodes"),
        (["token", "mint", "--tenant", ""], "1 to 64 printable characters"),
        (["token", "mint", "--tenant", "acme", "--life", "long"], "10m, 12h or 30d"),
        (["token", "revoke", "x"], "token mint --json"),
        (["node", "enroll", "--tenant", "acme", "--node-id", "X", "--out", "o"], "lower-case ULID"),
        (["node", "enroll", "--tenant", "\n", "--out", "o"], "1 to 64 printable characters"),
        (["log", "../nodes"], "heliograph nodes"),
        (["watch", "Nope!"], "heliograph nodes"),
        (["ledger", "bob"], "agent_<uuid>"),
        (["call", ECHO, "{"], "not JSON"),
    ],
    ids=lambda value: "-".join(value)[:40] if isinstance(value, list) else "",
)
def test_wrong_use_is_told_before_anybody_is_asked(
    words: list[str], hint: str, gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert hint in capsys.readouterr().err
    assert gateway.asked == []


def test_identity_that_cannot_be_written_down_is_told(
    gateway: FakeGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "enrolled").write_text("a file")
    assert run(COMMANDS["enroll"]) == 2
    assert "another folder with --out" in capsys.readouterr().err
    assert gateway.asked == []


def test_operators_own_token_is_used_where_it_is_given(gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_OPERATOR_TOKEN", "of-our-issuer\n")
    assert run(COMMANDS["nodes"]) == 0
    assert gateway.asked == [dataclasses.replace(gateway.asked[0], authorization="Bearer of-our-issuer")]
