"""The load of bench.fanout, started on its core and told what to do: `load.c` in Python's words."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.fanout.servers import Server

LOAD_CORE = 1
AT_ONCE = 64


def compiled(folder: Path, name: str, *libraries: str) -> Path:
    source = Path(__file__).parent / f"{name}.c"
    program = folder / name
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-o", program, source, *libraries], check=True)
    return program


@dataclass(frozen=True)
class Run:
    per_s: float
    per_cpu_s: float
    server_share: float
    load_share: float
    samples: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    closed: int
    lost: int


class Clients:
    def __init__(self, program: Path, folder: Path, server: Server) -> None:
        self._server = server
        request = folder / "request"
        request.write_bytes(server.request)
        command = ["taskset", "-c", str(LOAD_CORE), str(program), str(server.port), str(server.pid), str(request)]
        command += map(str, server.publish)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def open(self, count: int, stalled: int = 0, at_once: int = AT_ONCE) -> float:
        """Open so many more streams, `at_once` under way; how long it took, in seconds."""
        return self._ask(f"open {count} {stalled} {at_once}")[1]

    def await_ends(self) -> float:
        """Until the server has ended every stream; how long it took, in seconds."""
        return self._ask("ended")[1]

    def watch(self, seconds: float, hz: float = 0) -> Run:
        frames, elapsed_s, load_s, server_s, samples, p50_us, p99_us, max_us, closed, lost = self._ask(
            f"run {seconds} {hz}"
        )
        return Run(
            per_s=frames / elapsed_s,
            per_cpu_s=frames / server_s if server_s else 0.0,
            server_share=server_s / elapsed_s,
            load_share=load_s / elapsed_s,
            samples=int(samples),
            p50_ms=p50_us / 1000,
            p99_ms=p99_us / 1000,
            max_ms=max_us / 1000,
            closed=int(closed),
            lost=int(lost),
        )

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, order: str) -> list[float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        if not answer:
            raise SystemExit(f"the load ended on {order!r} ({self._server.name})")
        return [float(word) for word in answer[1:]]
