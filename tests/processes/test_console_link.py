"""`heliograph serve` prints a link to the console to a person at a terminal, and to nobody who reads it later."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE_S = 60
SERVE = [sys.executable, "-m", "gateway.commands.cli", "serve", "--http", "127.0.0.1:0", "--devices", "127.0.0.1:0"]
LINK = re.compile(r"console   (http://localhost:\d+)/console#k=([A-Za-z0-9_-]{43})   good once, for 600 s")


@contextmanager
def serving(data: Path, stdout: int, **environment: str) -> Iterator[None]:
    """Once it answers, and so has said what it says at its start."""
    command, stderr = [*SERVE, "--data", str(data)], data.parent / "stderr"
    with stderr.open("wb") as errors:
        process = subprocess.Popen(command, stdout=stdout, stderr=errors, env={**os.environ, **environment})
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (data / "running.json").exists():
            assert process.poll() is None, stderr.read_text()
            assert time.monotonic() < deadline
        address = json.loads((data / "running.json").read_text())["http"]
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=PATIENCE_S) as response:
            assert response.status == 200
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


class Terminal:
    def __enter__(self) -> "Terminal":
        self._ours, self.fd = pty.openpty()
        os.set_blocking(self._ours, False)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)
        os.close(self.fd)

    def shown(self) -> str:
        said = b""
        try:
            while data := os.read(self._ours, 65_536):
                said += data
        except BlockingIOError:
            return said.decode()
        return said.decode()


def test_person_at_a_terminal_gets_a_link_that_signs_in(tmp_path: Path) -> None:
    with Terminal() as terminal, serving(tmp_path / "data", terminal.fd):
        found = LINK.search(terminal.shown())
        assert found is not None
        origin, secret = found.groups()
        request = urllib.request.Request(
            origin.replace("localhost", "127.0.0.1") + "/console/api/session",
            data=json.dumps({"link": secret}).encode(),
            headers={"origin": origin, "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            assert "fleet:write" in json.load(response)["operator"]["scopes"]
    assert secret not in (tmp_path / "stderr").read_text(), "the log has it neither"


@pytest.mark.parametrize("target", ["stderr", "stdout"])
def test_file_or_journal_gets_none(tmp_path: Path, target: str) -> None:
    output = tmp_path / "output"
    with output.open("wb") as out, serving(tmp_path / "data", out.fileno(), HELIOGRAPH_LOG_TARGET=target):
        told = output.read_text() + (tmp_path / "stderr").read_text()
    assert "agents   http://" in told
    assert "/console#" not in told


def test_terminal_that_is_the_logs_gets_none(tmp_path: Path) -> None:
    with Terminal() as terminal, serving(tmp_path / "data", terminal.fd, HELIOGRAPH_LOG_TARGET="stdout"):
        told = terminal.shown() + (tmp_path / "stderr").read_text()
    assert "agents   http://" in told
    assert "/console#" not in told
