"""A server of our own: what it keeps, and that it does not outlive us."""

import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import trio

from gateway.engine import server_run
from gateway.engine.connection import Connection
from gateway.engine.link import Message
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.server_run import NoServerError, ServerRun

TEST_S_MAX = 30.0
CHILD = """
import sys, trio
from pathlib import Path
from gateway.engine.server_run import ServerRun
async def main():
    server = ServerRun(Path(sys.argv[1]))
    await server.start()
    print(server.pid, flush=True)
    await trio.sleep_forever()
trio.run(main)
"""


async def test_it_has_a_port_and_a_token_of_its_own_and_syncs_always(tmp_path: Path) -> None:
    server = ServerRun(tmp_path)
    with trio.fail_after(TEST_S_MAX):
        await server.start()
        configuration = tmp_path / "nats-server.conf"
        assert configuration.stat().st_mode & 0o077 == 0
        assert '"sync_interval": "always"' in configuration.read_text()
        assert server.token not in proc(server.pid, "cmdline")
        address = server.url
        async with await Connection.open(ConnectionSettings((server.url,), token=server.token)) as link:
            assert isinstance(await link.request("$JS.API.INFO", timeout_s=TEST_S_MAX), Message)
        await server.stop()
        await server.stop()
        await server.start()
        assert server.url == address
        await server.stop()


async def test_it_does_not_outlive_whoever_started_it(tmp_path: Path) -> None:
    with trio.fail_after(TEST_S_MAX):
        command = [sys.executable, "-c", CHILD, str(tmp_path)]
        child = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        pid = int(await child.stdout.receive_some())
        assert proc(pid, "comm").strip() == "nats-server"
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()
        while _is_running(pid):  # noqa: ASYNC110  # it is nobody's child any more
            await trio.sleep(0.01)


async def test_a_server_that_does_not_start_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_run, "server_binary", lambda: Path("/bin/false"))
    with trio.fail_after(TEST_S_MAX), pytest.raises(NoServerError, match="did not start"):
        await ServerRun(tmp_path).start()


def test_a_machine_without_a_server_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoServerError, match=r"heliograph\[engine\]"):
        server_run.server_binary()


def proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def _is_running(pid: int) -> bool:
    try:
        return proc(pid, "stat").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
