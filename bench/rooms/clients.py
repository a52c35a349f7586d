"""Starting the servers and the load of bench.rooms, each on its core, and telling the load what to do."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

SERVER_CORE, LOAD_CORE = 0, 1
ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Server:
    name: str
    process: subprocess.Popen[str]
    port: int
    rooms: list[str]
    values: str
    """Where values are, less their key."""

    def rss_bytes(self) -> int:
        rss: int = psutil.Process(self.process.pid).memory_info().rss
        return rss


@contextmanager
def serving(name: str, rooms: int, folder: Path) -> Iterator[Server]:
    """`folder` is for what the server keeps on disk, for as long as this lasts."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="heliograph-rooms-") as data:
        command = [sys.executable, "-m", "bench.rooms", "--serve", name, str(rooms), data]
        process = subprocess.Popen(
            ["taskset", "-c", str(SERVER_CORE), *command],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("ROOMS_DEBUG") else subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if not said:
                raise SystemExit(f"{name} did not start")
            where = json.loads(said)
            yield Server(name, process, where["port"], where["rooms"], where["values"])
        finally:
            process.kill()
            process.communicate()


def compiled(source: Path, folder: Path) -> Path:
    if shutil.which("cc") is None:
        raise SystemExit("bench.rooms needs a C compiler: apt install gcc")
    program = folder / source.stem
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-o", program, source], check=True)
    return program


@dataclass(frozen=True)
class Opened:
    count: int
    seconds: float
    server_s: float


@dataclass(frozen=True)
class Run:
    per_cpu_s: float
    per_s: float
    server_share: float
    load_share: float
    p50_ms: float
    p99_ms: float


class Clients:
    """`load.c` in Python's words."""

    def __init__(self, program: Path, folder: Path, server: Server) -> None:
        self._server = server
        targets = folder / "targets"
        targets.write_text("\n".join(server.rooms))
        command = [
            "taskset",
            "-c",
            str(LOAD_CORE),
            str(program),
            str(server.port),
            str(server.process.pid),
            str(targets),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def open(self, count: int, size: int) -> Opened:
        """So many more connections, as many in a room as `size` says."""
        _, seconds, server_s = self._ask(f"open {count} {size}")
        return Opened(count, seconds, server_s)

    def run(self, seconds: float, hz: float = 0, speakers: int = 1) -> Run:
        """`hz` messages a second, of all rooms; 0: in each, of `speakers` at once when everybody has the last ones."""
        deliveries, elapsed_s, load_s, server_s, _, p50_us, p99_us, *_ = self._ask(f"run {seconds} {hz} {speakers}")
        return Run(
            per_cpu_s=deliveries / server_s,
            per_s=deliveries / elapsed_s,
            server_share=server_s / elapsed_s,
            load_share=load_s / elapsed_s,
            p50_ms=p50_us / 1000,
            p99_ms=p99_us / 1000,
        )

    def end(self) -> None:
        self._process.communicate()

    def _ask(self, order: str) -> list[float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        if not answer:
            raise SystemExit(f"the load ended on {order!r} ({self._server.name})")
        return [float(word) for word in answer[1:]]
