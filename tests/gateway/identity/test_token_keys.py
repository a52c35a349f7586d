"""Tokens of a deployment's own issuer: its keys count, ours do not, and what we can no longer do is said."""

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from trio.testing import MockClock
from ulid import ULID

from gateway.commands.cli import main
from gateway.identity.settings import AccessSettings
from gateway.identity.token_keys import JWKS_BYTES_MAX, Keys, TokenKeys, read_keys
from gateway.identity.tokens import AnyScope, Issuer, OperatorScope, Scope, TokenClass, jwks, key_id
from gateway.main.settings import SettingsError, load
from tests.gateway.api.client import AGENT
from tests.gateway.api.live import TENANT, live_gateway, request

OLD, NEW = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
ISSUER, AUDIENCE = "https://id.example", "https://gw.example"
RELOAD_S = 2.0


def written(path: Path, *keys: Ed25519PrivateKey) -> Path:
    path.write_text(json.dumps(jwks(key.public_key() for key in keys)))
    return path


def token(key: Ed25519PrivateKey, token_class: TokenClass, sub: str, *scopes: AnyScope, tenant: str = TENANT) -> str:
    return Issuer(key, issuer=ISSUER, audience=AUDIENCE).mint(
        sub=sub,
        tenant=tenant,
        token_class=token_class,
        scopes=scopes,
        jti=str(ULID()),
        now_ms=time.time_ns() // 1_000_000,
        life_s=600,
    )


def agent(key: Ed25519PrivateKey) -> str:
    return token(key, TokenClass.AGENT_RUNTIME, AGENT, Scope.READ_ONLY)


def device(node_id: str) -> str:
    return token(OLD, TokenClass.DEVICE_RUNTIME, node_id, Scope.DEVICE_CONNECT)


def settings(file: Path) -> dict[str, Any]:
    return {"access.jwks": str(file), "access.issuer": ISSUER, "access.audience": AUDIENCE}


# ---- the whole gateway -----------------------------------------------------------------------------------------------


async def test_tokens_of_the_file_count_and_those_of_the_folder_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "keys.json", OLD)
    with trio.fail_after(60):
        async with live_gateway(tmp_path, device, **settings(file)) as live:
            call = json.dumps({"tool": live.tool(), "arguments": {"message": "hi"}}).encode()

            async def status(path: str, bearer: str | None, body: bytes = b"") -> int:
                async with live.client() as client:
                    answer = await client.ask(request("POST" if body else "GET", path, bearer, body))
                assert answer is not None
                return answer.status

            async def command(*words: str) -> tuple[int, str]:
                code = await trio.to_thread.run_sync(main, [*words, "--data", str(tmp_path / "data")])
                return code, "".join(capsys.readouterr())

            own = live.gateway.folder.issuer.mint(
                sub=AGENT,
                tenant=TENANT,
                token_class=TokenClass.AGENT_RUNTIME,
                scopes=[Scope.READ_ONLY],
                jti=str(ULID()),
                now_ms=time.time_ns() // 1_000_000,
                life_s=600,
            )
            assert await status("/mcp/tools/call", agent(OLD), call) == 200
            assert await status("/mcp/tools/call", own, call) == 401
            assert await status("/mcp/tools/call", agent(NEW), call) == 401
            async with live.client() as client:
                served = await client.ask(request("GET", "/.well-known/jwks.json"))
            assert served is not None
            assert served.json == jwks([OLD.public_key()])

            code, said = await command("token", "mint", "--tenant", TENANT)
            assert code == 2
            assert "makes no tokens" in said
            assert "ask it for a token of class agent_runtime" in said
            code, said = await command("nodes")
            assert code == 2
            assert "HELIOGRAPH_OPERATOR_TOKEN" in said
            code, said = await command("call", live.tool(), "{}")
            assert code == 2
            assert "--token" in said
            operator = token(OLD, TokenClass.OPERATOR, "ada", *OperatorScope, tenant="operators")
            monkeypatch.setenv("HELIOGRAPH_OPERATOR_TOKEN", operator)
            assert (await command("nodes"))[0] == 0
            out = tmp_path / "new-node"
            code, said = await command("node", "enroll", "--tenant", TENANT, "--out", str(out))
            assert code == 0
            assert "no token" in said
            assert f"write it to {out / 'token'}" in said
            assert sorted(path.name for path in out.iterdir()) == ["node.crt", "node.key"]
            minting = {"token_class": "agent_runtime", "sub": AGENT, "tenant": TENANT, "scopes": [], "life_s": 60}
            assert await status("/admin/mint", operator, json.dumps(minting).encode()) == 400
    note = tmp_path / "data" / "token.jwks"
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert main(["token", "mint", "--tenant", TENANT, "--data", str(tmp_path / "data")]) == 2, "a stopped one, too"
    async with live_gateway(tmp_path) as live:  # without the setting the folder's own key counts again
        assert not note.exists()
        assert live.token()


async def test_keys_change_under_a_running_gateway(tmp_path: Path) -> None:
    file = written(tmp_path / "keys.json", OLD)
    old = agent(OLD)
    with trio.fail_after(60):
        async with live_gateway(tmp_path, device, **settings(file), **{"access.reload_s": 0.01}) as live:

            async def keys_are(*keys: Ed25519PrivateKey) -> None:
                expected = jwks(key.public_key() for key in keys)
                async with live.client() as client:
                    while True:
                        answer = await client.ask(request("GET", "/.well-known/jwks.json"))
                        assert answer is not None
                        if answer.json == expected:
                            return

            async def status(bearer: str) -> int:
                async with live.client() as client:
                    answer = await client.ask(request("GET", "/mcp/tools", bearer))
                assert answer is not None
                return answer.status

            assert await status(old) == 200
            written(file, OLD, NEW)
            await keys_are(OLD, NEW)
            assert (await status(old), await status(agent(NEW))) == (200, 200)
            written(file, NEW)
            await keys_are(NEW)
            assert (await status(old), await status(agent(NEW))) == (401, 200)


# ---- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, r"cannot be read \(No such file or directory\)"),
        (b"MARK", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "no JWKS"),
        (b'{"keys": [{"kty": "RSA", "kid": "MARK"}]}', "no Ed25519 key"),
        (b'{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "MARK", "x": "MARK"}]}', "no JWKS"),
        (b" " * (JWKS_BYTES_MAX + 1), "too long"),
    ],
)
def test_file_that_has_no_keys_stops_the_start_and_is_not_quoted(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=f"access.jwks: .*keys.json: .*{why}") as error:
        TokenKeys.open(AccessSettings(str(path)))
    assert "MARK" not in str(error.value)
    assert "\n" not in str(error.value)


def test_serve_says_it_in_one_line_and_exits_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gateway.commands.cli", "serve", "--data", str(tmp_path / "data")]
    environment = os.environ | {"HELIOGRAPH_ACCESS_JWKS": str(tmp_path / "keys.json"), "HELIOGRAPH_TOKEN": "an agent's"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("heliograph: access.jwks: ")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_pipe_is_no_file_of_keys(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "regular file" in str(read_keys(tmp_path / "pipe"))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"access.issuer": "x"}, "access.jwks"),
        ({"access.audience": "x"}, "access.jwks"),
        ({"access.reload_s": 0}, "access.reload_s"),
    ],
)
def test_settings_that_mean_nothing_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        TokenKeys.open(load(None, {}, given).access)


def test_without_a_file_the_gateway_makes_its_tokens() -> None:
    assert TokenKeys.open(AccessSettings()) is None


async def at_once(read: Callable[[Path], Keys | str], path: Path) -> Keys | str:
    """Threads and a clock that jumps do not go together."""
    await trio.lowlevel.checkpoint()
    return read(path)


async def test_broken_file_leaves_the_old_keys_and_is_told(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    path = written(tmp_path / "keys.json", OLD)
    source = TokenKeys(path, AccessSettings(str(path), reload_s=RELOAD_S), at_once)
    told: list[Keys] = []
    source.on_change = told.append
    nursery.start_soon(source.watch)
    with structlog.testing.capture_logs() as lines:
        path.write_text("MARK")
        await trio.sleep(3 * RELOAD_S)
        assert list(source.current) == [key_id(OLD.public_key())]
        path.unlink()
        await trio.sleep(3 * RELOAD_S)
        assert list(source.current) == [key_id(OLD.public_key())]
        written(path, NEW)
        await trio.sleep(3 * RELOAD_S)
    assert list(source.current) == [key_id(NEW.public_key())]
    assert told == [source.current]
    assert [line["event"] for line in lines] == ["token_keys_refused", "token_keys_refused", "token_keys_loaded"]
    assert "MARK" not in str(lines)
    nursery.cancel_scope.cancel()
