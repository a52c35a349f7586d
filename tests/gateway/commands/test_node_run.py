"""`heliograph node run`: a node as its operator meets it, with the page for whoever debugs on the device."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from actors.device.file_journal import FileJournal
from actors.device.identity import DeviceIdentity, hw_fingerprint
from gateway.commands.cli import main
from gateway.commands.node_run import be_a_node
from tests.gateway.devices.site import open_site, token
from tests.gateway.devices.test_device_listener import until
from tests.schemas.attested import LEAF, NODE_KEY
from tests.schemas.examples import NODE_ID


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port: int = unused.getsockname()[1]
    return port


async def page_of(port: int) -> tuple[int, dict[str, str], bytes]:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    answer = b""
    async with stream:
        await stream.send_all(f"GET /.well-known/mcp.json HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
        async for chunk in stream:
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.split(": ", 1) for line in lines), body


async def test_the_local_page_shows_the_manifest_that_the_gateway_accepted(tmp_path: Path) -> None:
    port = free_port()
    async with open_site() as site, trio.open_nursery() as nursery:
        identity = DeviceIdentity(NODE_KEY, site.leaf, token())
        identity.save(tmp_path)
        journal = FileJournal(tmp_path)
        url = f"ws://127.0.0.1:{site.port}/devices/connect"
        nursery.start_soon(be_a_node, identity, journal, tmp_path, url, 1, port)
        directory = site.devices.directory
        await until(lambda: directory.live_count == 1)
        record = directory.find(NODE_ID)
        assert record is not None
        status, headers, body = await page_of(port)
        assert (status, headers["etag"]) == (200, f'"{record.accepted.etag}"')
        assert json.loads(body) == record.manifest
        nursery.cancel_scope.cancel()
    journal.close()


async def test_before_the_node_has_reached_its_gateway_the_local_page_says_so(tmp_path: Path) -> None:
    port = free_port()
    identity = DeviceIdentity(NODE_KEY, LEAF, token())
    identity.save(tmp_path)
    journal = FileJournal(tmp_path)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            url = f"ws://127.0.0.1:{free_port()}/devices/connect"
            nursery.start_soon(be_a_node, identity, journal, tmp_path, url, 1, port)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert (await page_of(port))[0] == 503
            nursery.cancel_scope.cancel()
    journal.close()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As a process of its own: it sets up logging for good."""
    command = [sys.executable, "-m", "gateway.commands.cli", "node", "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_port_that_is_taken_is_told_before_the_node_dials(tmp_path: Path) -> None:
    DeviceIdentity(NODE_KEY, LEAF, token()).save(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as gateway:
        port = taken.getsockname()[1]
        url = f"ws://127.0.0.1:{gateway.getsockname()[1]}/devices/connect"
        done = run(str(tmp_path), "--gateway", url, "--mock", "1", "--local", str(port))
        gateway.setblocking(False)
        with pytest.raises(BlockingIOError):
            gateway.accept()
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
    assert "--local" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("port", ["0", "65536", "-1"])
def test_what_is_no_port_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str], port: str) -> None:
    arguments = ["node", "run", str(tmp_path), "--gateway", "ws://127.0.0.1:1/", f"--local={port}"]
    assert main(arguments) == 2
    assert "--local" in capsys.readouterr().err


def test_an_address_that_is_none_is_wrong_use(tmp_path: Path) -> None:
    DeviceIdentity(NODE_KEY, LEAF, token()).save(tmp_path)
    done = run(str(tmp_path), "--gateway", "http://127.0.0.1/")
    assert done.returncode == 2
    assert "ws://" in done.stderr


def test_a_machine_that_cannot_be_known_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    DeviceIdentity(NODE_KEY, LEAF, token()).save(tmp_path)
    monkeypatch.setattr("gateway.commands.node_run.log_to", lambda _: None)
    monkeypatch.setattr("gateway.commands.node_run.this_machine", lambda: hw_fingerprint(None, None))
    assert main(["node", "run", str(tmp_path), "--gateway", "ws://127.0.0.1:1/devices/connect"]) == 2
    assert "/etc/machine-id" in capsys.readouterr().err
