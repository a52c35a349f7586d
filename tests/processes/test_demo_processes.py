"""`heliograph demo --processes 2`: five nodes, two gateways, and whichever is asked reaches them all."""

import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

PATIENCE_S = 180


def test_two_gateways_share_five_nodes() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        ready_file, output = folder / "ready.json", folder / "output"
        command = [
            sys.executable,
            "-m",
            "gateway.commands.cli",
            "demo",
            "--processes",
            "2",
            "--data",
            str(folder / "d"),
        ]
        with output.open("wb") as out:
            demo = subprocess.Popen([*command, "--ready-file", str(ready_file)], stdout=out, stderr=subprocess.STDOUT)
        try:
            end_s = time.monotonic() + PATIENCE_S
            while not ready_file.exists() or not ready_file.read_text().endswith("\n"):
                assert demo.poll() is None, output.read_text()
                assert time.monotonic() < end_s, output.read_text()
                time.sleep(0.05)
            ready = json.loads(ready_file.read_text())
            assert ready["answered"] == {"0": 5, "1": 5}
            assert sum(ready["sessions"].values()) == 5
            for node_id in ready["nodes"]:
                body = {"tool": f"sys.{node_id}.metrics.subscribe", "arguments": {"interval_ms": 1000}}
                headers = {"authorization": f"Bearer {ready['agent_token']}", "accept": "text/event-stream"}
                asked = urllib.request.Request(f"{ready['http']}/mcp/tools/call", json.dumps(body).encode(), headers)
                with urllib.request.urlopen(asked, timeout=PATIENCE_S) as stream:
                    while not (line := stream.readline()).startswith(b"event: metric"):
                        assert line
            demo.send_signal(signal.SIGINT)
            assert demo.wait(PATIENCE_S) == 0
            shown = output.read_text()
            assert "2 gateways share 5 nodes" in shown
            assert "process 1: has the sessions of" in shown
        finally:
            demo.kill()
            demo.wait(PATIENCE_S)
