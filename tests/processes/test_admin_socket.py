"""Operators on a unix socket, printed at the start, taken over from a killed gateway, gone at the end."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 60
HELIOGRAPH = [sys.executable, "-m", "gateway.commands.cli"]
NO_PORT = ["--http", "127.0.0.1:0", "--devices", "127.0.0.1:0"]


@contextmanager
def gateway(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    socket = tmp_path / "admin.sock"
    environment = {**os.environ, "HELIOGRAPH_ADMIN_LISTEN": f"unix:{socket}"}
    command = [*HELIOGRAPH, "serve", "--data", str(tmp_path / "data"), *NO_PORT]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().endswith(f"   operators   unix:{socket}\n")
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def nodes(tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    command = [*HELIOGRAPH, "nodes", "--data", str(tmp_path / "data")]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_socket_of_a_killed_gateway_is_taken_over_and_that_of_a_stopped_one_is_gone(tmp_path: Path) -> None:
    socket = tmp_path / "admin.sock"
    with gateway(tmp_path) as killed:
        assert (nodes(tmp_path).returncode, nodes(tmp_path).stdout) == (0, "none\n")
        killed.kill()
        killed.wait(PATIENCE_S)
    assert socket.exists()
    with gateway(tmp_path) as stopped:
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert nodes(tmp_path).returncode == 0
        stopped.send_signal(signal.SIGTERM)
        assert stopped.wait(PATIENCE_S) == 0
    assert not socket.exists()
