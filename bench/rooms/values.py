"""Values read and written a second: our store through the door, beside a bare handler."""

import json
import subprocess
import tempfile
import urllib.request
from pathlib import Path

from bench.calls import cpu_s, write_calls
from bench.rooms.clients import LOAD_CORE, Server, serving
from bench.rooms.verdict import ValueRound, ValueRun

VALUE_SERVERS = ("ours", "sqlite")
CALLERS = 16
KEYS = 64
VALUE = "v" * 100
WARM_UP_S = 0.5


def measure_values(name: str, seconds: float, program: Path, folder: Path) -> ValueRound:
    with tempfile.TemporaryDirectory() as made, serving(name, 1, folder) as server:
        keys = [f"key-{number}" for number in range(KEYS)]
        body = json.dumps({"value": VALUE}).encode()
        for key in keys:
            url = f"http://127.0.0.1:{server.port}{server.values}{key}"
            urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})).close()
        reads = [(request(server, "GET", key), f'"value":"{VALUE}"'.encode()) for key in keys]
        writes = [(request(server, "POST", key, body), f'"key":"{key}"'.encode()) for key in keys]
        runs = []
        for calls in (reads, writes):
            file = write_calls(Path(made) / "calls", calls)
            run(program, server, WARM_UP_S, file)
            runs.append(run(program, server, seconds, file))
    return ValueRound(name, *runs)


def request(server: Server, method: str, key: str, body: bytes = b"") -> bytes:
    head = f"{method} {server.values}{key} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


def run(program: Path, server: Server, seconds: float, calls: Path) -> ValueRun:
    arguments = [str(server.port), str(CALLERS), str(seconds), str(calls)]
    before_s = cpu_s(server.process.pid)
    ran = subprocess.run(["taskset", "-c", str(LOAD_CORE), program, *arguments], capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    used_s = cpu_s(server.process.pid) - before_s
    done, elapsed_s, _load_s, p50_ms, p99_ms = map(float, ran.stdout.split())
    return ValueRun(done / used_s, done / elapsed_s, p50_ms, p99_ms)
