"""A whole gateway whose agents come over TLS: its limits, its command line, and mistakes in its settings."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from gateway.commands.cli import main
from gateway.identity.tokens import Scope, TokenClass
from gateway.main.clock import now
from gateway.main.server import Running, running
from gateway.main.settings import SettingsError, load
from gateway.net.exchange import BODY_BYTES_MAX
from schemas.ulids import Mint
from tests.certificates import write_certificate
from tests.gateway.api.client import AGENT
from tests.gateway.net.http1.site import HOST, Client
from tests.gateway.net.hypercorn.http2 import Http2

LISTEN: dict[str, Any] = {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"}


@asynccontextmanager
async def gateway_with_tls(folder: Path) -> AsyncIterator[tuple[Running, ssl.SSLContext]]:
    pem = str(write_certificate(folder))
    settings = load(None, {}, LISTEN | {"data": str(folder / "data"), "http.tls_certificate": pem, "http.tls_key": pem})
    with trio.fail_after(30):
        async with running(settings) as gateway:
            yield gateway, ssl.create_default_context(cafile=pem)


@asynccontextmanager
async def connect(gateway: Running, trusts: ssl.SSLContext, alpn: str) -> AsyncIterator[Client]:
    trusts.set_alpn_protocols([alpn])
    raw = await trio.open_tcp_stream("127.0.0.1", int(gateway.http.rpartition(":")[2]))
    async with trio.SSLStream(raw, trusts, server_hostname="127.0.0.1", https_compatible=True) as stream:
        await stream.do_handshake()
        yield Client(stream)


def token(gateway: Running) -> str:
    new_id = Mint(lambda count: b"\x07" * count).mint(now().wall_ms)
    scopes = [Scope.READ_ONLY]
    return gateway.folder.mint(TokenClass.AGENT_RUNTIME, AGENT, "acme", scopes, 60, new_id, now().wall_ms)


async def test_body_over_64_kib_is_413_by_either_protocol(tmp_path: Path) -> None:
    body = b"x" * (BODY_BYTES_MAX + 1)
    async with gateway_with_tls(tmp_path) as (gateway, trusts):
        assert gateway.http_url.startswith("https://")
        async with connect(gateway, trusts, "h2") as client:
            http2 = Http2(client.stream)
            await http2.begin()
            told = await http2.ask("/mcp/tools/call", body, authorization=f"Bearer {token(gateway)}")
            assert (told.status, told.said["code"]) == (413, "E_MANIFEST_INVALID")
            assert (await http2.ask("/mcp/tools/call", body)).status == 401  # nobody reads a stranger's body
        async with connect(gateway, trusts, "http/1.1") as client:
            head = b"POST /mcp/tools/call HTTP/1.1\r\n%bAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n"
            told = await client.ask(head % (HOST, token(gateway).encode(), len(body)) + body)
            assert (told.status, told.said["code"]) == (413, "E_MANIFEST_INVALID")
        async with connect(gateway, trusts, "http/1.1") as client:
            assert (await client.get("/healthz")).said == {"status": "ok", "service": "kisko-echo"}


async def test_command_line_knows_its_gateway_by_the_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    async with gateway_with_tls(tmp_path):
        capsys.readouterr()  # the line that says which policy holds
        assert await trio.to_thread.run_sync(main, ["nodes", "--json", "--data", str(data)]) == 0
        assert json.loads(capsys.readouterr().out) == []
        note = json.loads((data / "running.json").read_text())
        other = tmp_path / "other"
        other.mkdir()
        certificate = write_certificate(other).read_text().partition("-----END PRIVATE KEY-----\n")[2]
        (data / "running.json").write_text(json.dumps(note | {"http_certificate": certificate}))
        assert await trio.to_thread.run_sync(main, ["nodes", "--json", "--data", str(data)]) == 2
        assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err


@pytest.mark.parametrize("section", ["http", "devices"])
@pytest.mark.parametrize(
    ("certificate", "key", "hint"),
    [
        ("nope.pem", None, r"tls_certificate: cannot read .*nope.pem: No such file"),
        ("server.pem", "nope.key", r"tls_key: cannot read .*nope.key: No such file"),
        ("text.pem", None, "PEM files"),
        ("server.pem", "text.pem", "PEM files"),
        ("server.pem", "other/server.pem", "KEY_VALUES_MISMATCH"),
        (None, "server.pem", "give both, or neither"),
    ],
)
async def test_mistake_about_certificates_is_named_before_anything_starts(
    tmp_path: Path, section: str, certificate: str | None, key: str | None, hint: str
) -> None:
    (tmp_path / "other").mkdir()
    write_certificate(tmp_path)
    write_certificate(tmp_path / "other")
    (tmp_path / "text.pem").write_text("no certificate")
    flags = LISTEN | {"data": str(tmp_path / "data")}
    for name, file in (("tls_certificate", certificate), ("tls_key", key)):
        flags[f"{section}.{name}"] = file and str(tmp_path / file)
    with pytest.raises(SettingsError, match=hint):
        async with running(load(None, {}, flags)):
            pass
    assert not (tmp_path / "data").exists()
