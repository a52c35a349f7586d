"""What SIGHUP asks for, of a whole gateway: new connections get the new certificate, open ones go on."""

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from structlog.testing import capture_logs

from gateway.commands.cli import main
from gateway.main.server import Running, running
from gateway.main.settings import Settings, SettingsError, load
from gateway.net.tls import server_context
from tests.certificates import write_certificate
from tests.gateway.net.http1.site import Client

LISTEN: dict[str, Any] = {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0", "admin.listen": "127.0.0.1:0"}
PATIENCE_S = 60


def new_certificate(folder: Path, name: str) -> bytes:
    """Puts another one into the file. Answers its certificate."""
    (folder / "made").mkdir(exist_ok=True)
    pem = write_certificate(folder / "made").read_bytes()
    (folder / name).write_bytes(pem)
    return x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERT") :]).public_bytes(Encoding.DER)


@asynccontextmanager
async def gateway_with_tls(folder: Path, **more: Any) -> AsyncIterator[tuple[Running, Callable[[], Settings]]]:
    """With its settings as they would be read again."""
    for name in ("http.pem", "devices.pem"):
        if not (folder / name).exists():
            new_certificate(folder, name)
    tls = {
        f"{of}.tls_{what}": str(folder / f"{of}.pem") for of in ("http", "devices") for what in ("certificate", "key")
    }
    flags = {**LISTEN, "data": str(folder / "data"), **tls, **more}
    with trio.fail_after(PATIENCE_S):
        async with running(load(None, {}, flags)) as gateway:
            yield gateway, lambda: load(None, {}, flags)


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[trio.SSLStream[trio.SocketStream]]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    raw = await trio.open_tcp_stream(*_split(address))
    async with trio.SSLStream(raw, context, https_compatible=True) as stream:
        await stream.do_handshake()
        yield stream


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def seen(address: str) -> bytes:
    async with connected(address) as stream:
        certificate = stream.getpeercert(binary_form=True)
        assert isinstance(certificate, bytes)
        return certificate


async def test_new_connections_get_the_new_certificate_and_open_ones_go_on(tmp_path: Path) -> None:
    async with gateway_with_tls(tmp_path) as (gateway, reread), connected(gateway.http) as open_before:
        client = Client(open_before)
        assert (await client.get("/healthz")).status == 200
        assert gateway.admin is not None
        places = {"http": [gateway.http, gateway.admin], "devices": [gateway.device_address]}
        for section, addresses in places.items():
            new = new_certificate(tmp_path, f"{section}.pem")
            others = [address for of, some in places.items() if of != section for address in some]
            before = [await seen(address) for address in others]
            with capture_logs() as lines:
                await gateway.reload.run(reread)
            assert [await seen(address) for address in addresses] == [new] * len(addresses)
            assert [await seen(address) for address in others] == before
            loaded = [line["listener"] for line in lines if line["event"] == "tls_certificate_loaded"]
            assert loaded == [section], "only what has changed"
        assert (await client.get("/healthz")).status == 200, "a connection of before goes on"


async def test_command_line_knows_the_gateway_by_its_new_certificate(tmp_path: Path) -> None:
    async with gateway_with_tls(tmp_path) as (gateway, reread):
        new_certificate(tmp_path, "http.pem")
        await gateway.reload.run(reread)
        assert await trio.to_thread.run_sync(main, ["nodes", "--data", str(tmp_path / "data")]) == 0


@pytest.mark.parametrize("section", ["http", "devices"])
@pytest.mark.parametrize("wrong", ["mismatch", "nonsense", "gone", "encrypted", "named otherwise"])
async def test_certificate_that_does_not_fit_is_told_and_the_old_one_stays(
    tmp_path: Path, section: str, wrong: str
) -> None:
    async with gateway_with_tls(tmp_path) as (gateway, reread):
        address = gateway.http if section == "http" else gateway.device_address
        before = await seen(address)
        file = tmp_path / f"{section}.pem"
        good = file.read_bytes()
        match wrong:
            case "mismatch":
                new_certificate(tmp_path, "other.pem")
                key, certificate = good[: good.index(b"-----BEGIN CERT")], (tmp_path / "other.pem").read_bytes()
                file.write_bytes(key + certificate[certificate.index(b"-----BEGIN CERT") :])
            case "named otherwise":  # as OpenSSL takes it, and clients of our command line do not
                file.write_bytes(good.replace(b" CERTIFICATE-", b" X509 CERTIFICATE-"))
            case "nonsense":
                file.write_text("nonsense")
            case "gone":
                file.unlink()
            case "encrypted":
                locked = load_pem_private_key(good, None).private_bytes(
                    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
                )
                file.write_bytes(locked + good[good.index(b"-----BEGIN CERT") :])
        for _ in range(2):
            with capture_logs() as lines:
                await gateway.reload.run(reread)
            (line,) = [line for line in lines if line["event"] == "tls_certificate_refused"]
            assert (line["log_level"], line["listener"]) == ("error", section)
            assert await seen(address) == before
        file.write_bytes(good)
        with capture_logs() as lines:
            await gateway.reload.run(reread)
        assert [line["event"] for line in lines] == ["settings_reloaded"], "all is as it was"
        assert await seen(address) == before


async def test_certificate_with_a_remark_in_any_encoding_is_loaded(tmp_path: Path) -> None:
    for name in ("http.pem", "devices.pem"):
        new_certificate(tmp_path, name)
        (tmp_path / name).write_bytes("# für München\n".encode("latin-1") + (tmp_path / name).read_bytes())
    async with gateway_with_tls(tmp_path) as (gateway, reread):
        for section in ("http", "devices"):
            new = new_certificate(tmp_path, f"{section}.pem")
            file = tmp_path / f"{section}.pem"
            file.write_bytes("# für München\n".encode("latin-1") + file.read_bytes())
            await gateway.reload.run(reread)
            assert await seen(gateway.http if section == "http" else gateway.device_address) == new
        assert await trio.to_thread.run_sync(main, ["nodes", "--data", str(tmp_path / "data")]) == 0


async def test_files_that_change_while_they_are_loaded_are_told_and_the_old_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is noted for the command line would be another certificate than that of the listener."""
    async with gateway_with_tls(tmp_path) as (gateway, reread):
        before = await seen(gateway.http)
        new_certificate(tmp_path, "http.pem")

        def changing(*arguments: Any) -> Any:
            new_certificate(tmp_path, "http.pem")
            return server_context(*arguments)

        monkeypatch.setattr("gateway.main.reload.server_context", changing)
        with capture_logs() as lines:
            await gateway.reload.run(reread)
        (line,) = [line for line in lines if line["event"] == "tls_certificate_refused"]
        assert "try again" in line["message"]
        assert await seen(gateway.http) == before


async def test_certificate_at_another_path_is_loaded(tmp_path: Path) -> None:
    async with gateway_with_tls(tmp_path) as (gateway, reread):
        new = new_certificate(tmp_path, "moved.pem")
        moved = str(tmp_path / "moved.pem")
        http_moved = msgspec.structs.replace(reread().http, tls_certificate=moved, tls_key=moved)

        def reread_moved() -> Settings:
            return msgspec.structs.replace(reread(), http=http_moved)

        with capture_logs() as lines:
            await gateway.reload.run(reread_moved)
        assert await seen(gateway.http) == new
        (line,) = [line for line in lines if line["event"] == "settings_reloaded"]
        assert (line["changed"], line["needs_restart"]) == (["http.tls_certificate", "http.tls_key"], [])


async def test_key_moves_out_of_the_file_of_its_certificate_and_back(tmp_path: Path) -> None:
    async with gateway_with_tls(tmp_path, **{"http.tls_key": None}) as (gateway, reread):
        together = await seen(gateway.http)
        new = new_certificate(tmp_path, "apart.pem")
        pem = (tmp_path / "apart.pem").read_bytes()
        key, certificate = tmp_path / "apart.key", tmp_path / "apart.crt"
        begin = pem.index(b"-----BEGIN CERT")
        key.write_bytes(pem[:begin])
        certificate.write_bytes(pem[begin:])
        http_apart = msgspec.structs.replace(reread().http, tls_certificate=str(certificate), tls_key=str(key))

        def reread_apart() -> Settings:
            return msgspec.structs.replace(reread(), http=http_apart)

        for again, shown in ((reread_apart, new), (reread, together)):
            with capture_logs() as lines:
                await gateway.reload.run(again)
            assert await seen(gateway.http) == shown
            assert [line["event"] for line in lines] == ["settings_reloaded", "tls_certificate_loaded"]
            assert (lines[0]["changed"], lines[0]["needs_restart"]) == (["http.tls_certificate", "http.tls_key"], [])


async def test_file_of_settings_that_never_ends_does_not_keep_a_gateway_from_ending(tmp_path: Path) -> None:
    never = tmp_path / "never.toml"
    os.mkfifo(never)
    flags = {**LISTEN, "data": str(tmp_path / "data")}
    with trio.fail_after(PATIENCE_S), ExitStack() as stack:
        async with running(load(None, {}, flags)) as gateway, trio.open_nursery() as nursery:
            nursery.start_soon(gateway.reload.run, lambda: load(never, {}, {}))
            writer = await trio.to_thread.run_sync(os.open, never, os.O_WRONLY)  # once it is open to be read
            stack.callback(os.close, writer)
            nursery.cancel_scope.cancel()


async def test_live_limits_hold_from_now_on_and_others_are_named(tmp_path: Path) -> None:
    flags = {**LISTEN, "data": str(tmp_path / "data")}
    new = {
        "stream.streams_max": 3, "node.open_commands_max": 4, "listener.nodes_max": 5, "members.members_max": 6,
        "audit.keep_days": 7, "backup.download_s_max": 8.0, "door.connections_max": 9,
    }  # fmt: skip
    with trio.fail_after(PATIENCE_S):
        async with running(load(None, {}, flags)) as gateway:
            with capture_logs() as lines:
                await gateway.reload.run(lambda: load(None, {}, {**flags, **new}))
            assert gateway.devices.fleet.services.settings.open_commands_max == 4
            assert gateway.members is not None
            assert gateway.members.settings.members_max == 6
            assert gateway.reload.settings.door.connections_max != 9
            (line,) = lines
            assert (line["event"], line["needs_restart"]) == ("settings_reloaded", ["door.connections_max"])
            assert line["changed"] == sorted(new.keys() - {"door.connections_max"})


async def test_settings_that_are_wrong_are_told_and_nothing_changes(tmp_path: Path) -> None:
    def reread() -> Settings:
        raise SettingsError("a setting is wrong: there is no strem")

    async with gateway_with_tls(tmp_path) as (gateway, _):
        new = new_certificate(tmp_path, "http.pem")
        before = gateway.reload.settings
        with capture_logs() as lines:
            await gateway.reload.run(reread)
        assert [line["event"] for line in lines] == ["settings_refused", "tls_certificate_loaded"]
        assert gateway.reload.settings is before
        assert await seen(gateway.http) == new, "a certificate is no setting"


# ---- as a process ----------------------------------------------------------------------------------------------------


def lines_of(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("target", ["stderr", "file"])
def test_hangup_signal_reloads_and_ends_nothing(tmp_path: Path, target: str) -> None:
    config, log = tmp_path / "settings.toml", tmp_path / "log"
    config.write_text("[stream]\nping_s = 25.0\n")
    command = [sys.executable, "-m", "gateway.commands.cli", "serve", "--config", str(config), "--log", "json"]
    command += ["--data", str(tmp_path / "data"), "--http", "127.0.0.1:0", "--devices", "127.0.0.1:0"]
    environment = {**os.environ, "HELIOGRAPH_LOG_TARGET": str(log) if target == "file" else "stderr"}
    stack = ExitStack()
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("agents")
        address = json.loads((tmp_path / "data" / "running.json").read_text())["http"]
        stack.enter_context(closing(connection := http.client.HTTPConnection(address, timeout=PATIENCE_S)))
        connection.request("GET", "/healthz")
        assert connection.getresponse().read()
        if target == "file":
            log.rename(tmp_path / "log.1")
        config.write_text("[stream]\nping_s = 5.0\n[door]\nidle_s_max = 1.0\n")
        process.send_signal(signal.SIGHUP)
        until(lambda: any(line["event"] == "settings_reloaded" for line in lines_of(log)))
        (line,) = [line for line in lines_of(log) if line["event"] == "settings_reloaded"]
        assert (line["changed"], line["needs_restart"]) == (["stream.ping_s"], ["door.idle_s_max"])
        config.write_text("[strem]\nping_s = 5.0\n")
        process.send_signal(signal.SIGHUP)
        until(lambda: any(line["event"] == "settings_refused" for line in lines_of(log)))
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200, "the very same connection"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        stack.close()
        process.kill()
        process.communicate()
