"""`[admin] listen`: operators come to an address or a socket of their own, and nobody finds them elsewhere."""

import http.client
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import trio

from gateway.commands.cli import main
from gateway.commands.unix_http import UnixConnection
from gateway.identity.tokens import OperatorScope, TokenClass
from gateway.main.server import CannotListenError, running
from gateway.main.settings import SettingsError, load
from gateway.net.tls import client_context, leaf
from tests.certificates import write_certificate
from tests.gateway.api.live import Live, live_gateway, request

HIDDEN = ["/admin/nodes", "/admin/mint", "/admin/nope", "/admin/", "/metrics"]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HELIOGRAPH_OPERATOR_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)


def operator(live: Live, *scopes: OperatorScope) -> str:
    return live.token(token_class=TokenClass.OPERATOR, sub="ada", scopes=scopes or list(OperatorScope))


def ask(connection: http.client.HTTPConnection, method: str, path: str, token: str | None) -> tuple[int, bytes]:
    connection.request(method, path, headers={} if token is None else {"authorization": f"Bearer {token}"})
    response = connection.getresponse()
    return response.status, response.read()


async def asked(connection: http.client.HTTPConnection, path: str, token: str | None = None) -> tuple[int, bytes]:
    try:
        return await trio.to_thread.run_sync(ask, connection, "GET", path, token)
    finally:
        connection.close()


async def publicly(live: Live, method: str, path: str, token: str | None) -> tuple[int, dict[str, Any]]:
    async with live.client() as client:
        answer = await client.ask(request(method, path, token))
    assert answer is not None
    assert "www-authenticate" not in answer.headers
    return answer.status, {name: value for name, value in answer.json.items() if name != "correlation_id"}


async def command(*words: str) -> int:
    return await trio.to_thread.run_sync(main, [*words, "--data", "data"])


@pytest.mark.parametrize("listen", ["unix:admin.sock", "127.0.0.1:0"])
async def test_public_address_answers_for_operators_routes_as_for_any_that_is_not(tmp_path: Path, listen: str) -> None:
    with trio.fail_after(60):
        async with live_gateway(tmp_path, **{"admin.listen": listen}) as live:
            nothing = await publicly(live, "GET", "/nope", None)
            assert nothing[0] == 404
            for path in HIDDEN:
                for token in (None, "nonsense", live.token(), operator(live)):
                    assert await publicly(live, "GET", path, token) == nothing
                    assert await publicly(live, "POST", path, token) == nothing


async def test_operators_are_served_on_a_socket_of_their_own_and_agents_are_not(tmp_path: Path) -> None:
    socket = str(tmp_path / "admin.sock")
    with trio.fail_after(60):
        async with live_gateway(tmp_path, **{"admin.listen": f"unix:{socket}"}) as live:
            assert stat.S_IMODE((tmp_path / "admin.sock").stat().st_mode) == 0o600
            assert live.gateway.admin_url == f"unix:{tmp_path / 'admin.sock'}"
            status, body = await asked(UnixConnection(socket, 10), "/admin/nodes", operator(live))
            assert status == 200
            assert [node["node_id"] for node in json.loads(body)["nodes"]] == [live.node_id]
            assert (await asked(UnixConnection(socket, 10), "/admin/nodes"))[0] == 401, "a socket is no token"
            assert (await asked(UnixConnection(socket, 10), "/metrics", operator(live)))[0] == 200
            minter = operator(live, OperatorScope.TOKENS_MINT)
            assert (await asked(UnixConnection(socket, 10), "/metrics", minter))[0] == 403
            for path in ("/mcp/tools", "/healthz", "/mcp"):
                assert (await asked(UnixConnection(socket, 10), path, live.token()))[0] == 404
            async with live.client() as client:
                assert await client.ask(live.good_call()) is not None
    assert not (tmp_path / "admin.sock").exists()


@pytest.mark.parametrize("listen", ["unix:admin.sock", "127.0.0.1:0"])
async def test_command_line_finds_the_listener(tmp_path: Path, listen: str, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(60):
        async with live_gateway(tmp_path, **{"admin.listen": listen}) as live:
            capsys.readouterr()
            assert await command("nodes", "--json") == 0
            assert [node["node_id"] for node in json.loads(capsys.readouterr().out)] == [live.node_id]
            assert await command("log", live.node_id) == 0
            assert await command("node", "enroll", "--tenant", "acme", "--out", "new-node") == 0
            capsys.readouterr()
            assert await command("token", "mint", "--tenant", "acme", "--json") == 0
            (made,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]  # others: the log
            jti = json.loads(made)["jti"]
            assert await command("token", "revoke", jti) == 0
            operator_words = ["--class", "operator", "--sub", "ada", "--scope", "fleet:read", "--life", "30d"]
            assert await command("token", "mint", "--tenant", "operators", *operator_words) == 0
            assert await command("call", live.tool(), '{"message": "hi"}') == 0, "minted there, called where agents do"


async def test_own_token_without_the_scope_is_told_which_to_ask_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with trio.fail_after(60):
        async with live_gateway(tmp_path, **{"admin.listen": "unix:admin.sock"}) as live:
            monkeypatch.setenv("HELIOGRAPH_OPERATOR_TOKEN", operator(live, OperatorScope.FLEET_READ))
            assert await command("nodes") == 0
            assert await command("node", "enroll", "--tenant", "acme", "--out", "new-node") == 2
            assert "fleet:write" in capsys.readouterr().err


async def test_listener_over_tcp_has_the_certificate_of_the_public_one(tmp_path: Path) -> None:
    pem = str(write_certificate(tmp_path))
    given = {"http.tls_certificate": pem, "http.tls_key": pem, "admin.listen": "127.0.0.1:0"}
    flags = {"data": "data", "http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"}
    with trio.fail_after(60):
        async with running(load(None, {}, flags | given)) as gateway:
            assert gateway.admin is not None
            host, _, port = gateway.admin.rpartition(":")
            assert gateway.admin_url == f"https://{gateway.admin}"
            context = client_context(leaf(pem))
            connection = http.client.HTTPSConnection(host, int(port), timeout=10, context=context)
            assert (await asked(connection, "/admin/nodes"))[0] == 401
            assert await command("nodes") == 0


def cannot_listen(why: str) -> pytest.RaisesGroup[CannotListenError]:
    return pytest.RaisesGroup(pytest.RaisesExc(CannotListenError, match=why), flatten_subgroups=True)


@pytest.mark.parametrize("kind", ["file", "taken"])
async def test_socket_that_cannot_be_had_is_named_before_anything_is_served(tmp_path: Path, kind: str) -> None:
    flags = {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0", "admin.listen": "unix:admin.sock"}
    if kind == "file":
        (tmp_path / "admin.sock").write_text("precious")
        with cannot_listen("not a socket"):
            async with running(load(None, {}, flags | {"data": "one"})):
                pass
        assert (tmp_path / "admin.sock").read_text() == "precious"
    else:
        async with running(load(None, {}, flags | {"data": "one"})):
            with cannot_listen("another process listens"):
                async with running(load(None, {}, flags | {"data": "two"})):
                    pass


@pytest.mark.parametrize("listen", ["unix:", "nowhere", "127.0.0.1", "127.0.0.1:99999", ":1"])
async def test_address_that_is_none_is_named_before_anything_starts(tmp_path: Path, listen: str) -> None:
    with pytest.raises(SettingsError, match="unix:/path/to/socket"):
        async with running(load(None, {}, {"data": "data", "admin.listen": listen})):
            pass
    assert not (tmp_path / "data").exists()
