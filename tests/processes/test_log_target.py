"""A gateway's log in a file, as an operator has it: written, rotated, and on a full disk no trouble to a call."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE_S = 60
HELIOGRAPH = [sys.executable, "-m", "gateway.commands.cli"]
NO_PORT = ["--http", "127.0.0.1:0", "--devices", "127.0.0.1:0"]


class Gateway:
    def __init__(self, process: "subprocess.Popen[str]", data: Path) -> None:
        self.process = process
        mint = [*HELIOGRAPH, "token", "mint", "--tenant", "acme", "--data", str(data)]
        self.url = "http://" + json.loads((data / "running.json").read_text())["http"]
        self.token = subprocess.run(mint, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout.strip()

    def refused_call(self) -> str:
        """The correlation id of a call to a node that there is not."""
        request = urllib.request.Request(
            f"{self.url}/mcp/tools/call",
            data=json.dumps({"tool": f"sysecho.{'0' * 26}.echo.invoke", "arguments": {}}).encode(),
            headers={"authorization": f"Bearer {self.token}"},
        )
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(request, timeout=PATIENCE_S)
        told: dict[str, str] = json.load(refusal.value)
        assert told["code"] == "E_MANIFEST_NOT_FOUND"
        return told["correlation_id"]

    def stop(self) -> str:
        """What it said on standard error."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, said
        return said


@contextmanager
def gateway(tmp_path: Path, target: str) -> Iterator[Gateway]:
    data = tmp_path / "data"
    environment = {**os.environ, "HELIOGRAPH_LOG_TARGET": target}
    command = [*HELIOGRAPH, "serve", "--data", str(data), *NO_PORT]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("agents")
        yield Gateway(process, data)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def audited(path: Path) -> list[str]:
    """The correlation ids of the calls that it has, in order."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["correlation_id"] for line in lines if line["event"] == "tool_call"]


def test_rotated_log_goes_on_in_a_new_file_after_a_hangup_signal(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with gateway(tmp_path, str(path)) as one:
        first = one.refused_call()
        assert audited(path) == [first]
        path.rename(tmp_path / "audit.log.1")
        one.process.send_signal(signal.SIGHUP)
        ids: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        while not path.exists():  # the signal takes its time
            assert time.monotonic() < deadline
            ids.append(one.refused_call())
        assert audited(tmp_path / "audit.log.1") + audited(path) == [first, *ids]
        assert path.stat().st_mode & 0o777 == 0o600
        one.stop()


def test_full_disk_costs_no_call_and_is_told_once(tmp_path: Path) -> None:
    with gateway(tmp_path, "/dev/full") as one:
        for _ in range(3):
            one.refused_call()
        assert one.stop() == "heliograph: 1 log lines lost: No space left on device\n"


def test_log_that_cannot_be_opened_is_wrong_use(tmp_path: Path) -> None:
    environment = {**os.environ, "HELIOGRAPH_LOG_TARGET": str(tmp_path / "nowhere" / "log")}
    command = [*HELIOGRAPH, "serve", "--data", str(tmp_path / "data"), *NO_PORT]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE_S, check=False)
    assert (done.returncode, "cannot open the log" in done.stderr) == (2, True)
