"""What bench.engine runs besides NATS: children that die with it, and are told what to do a line at a time."""

import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import trio

ROOT = Path(__file__).parent.parent.parent
START_S_MAX = 60.0  # for a child to say or do what it has to first; then the run ends
ANSWER_S_MAX = 30.0  # beyond what an order takes by itself; the same
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl


class BenchError(Exception):
    """The run cannot go on; the text says why."""


def die_with_us() -> None:
    """In the child: the kernel ends it when the thread that started it ends, and that is our main one."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def started(command: Sequence[str | Path], **more: Any) -> subprocess.Popen[bytes]:
    """No Ctrl-C reaches it: who started it ends it."""
    return subprocess.Popen(
        list(map(str, command)), cwd=ROOT, start_new_session=True, preexec_fn=die_with_us, bufsize=0, **more
    )


def ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def compiled(folder: Path, name: str, source: Path) -> Path:
    program = folder / name
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-o", program, source], check=True, timeout=START_S_MAX)
    return program


class Lines:
    """A child that answers each order, a line, with a line."""

    def __init__(self, process: subprocess.Popen[bytes], name: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._name = name
        self._to = trio.lowlevel.FdStream(os.dup(process.stdin.fileno()))
        self._from = trio.lowlevel.FdStream(os.dup(process.stdout.fileno()))
        self._heard = bytearray()

    async def ask(self, order: str, timeout_s: float) -> str:
        await self._to.send_all(order.encode() + b"\n")
        return await self.hear(timeout_s)

    async def hear(self, timeout_s: float) -> str:
        with trio.move_on_after(timeout_s):
            return await self._line()
        raise BenchError(f"{self._name} did not answer within {timeout_s:g} s")

    async def aclose(self) -> None:
        await self._to.aclose()
        await self._from.aclose()

    async def _line(self) -> str:
        while b"\n" not in self._heard:
            data = await self._from.receive_some(65536)
            if not data:
                raise BenchError(f"{self._name} ended by itself")
            self._heard += data
        line, _, rest = self._heard.partition(b"\n")
        self._heard = rest
        return line.decode()


@asynccontextmanager
async def talking(command: Sequence[str | Path], name: str) -> AsyncIterator[Lines]:
    process = started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    lines = Lines(process, name)
    try:
        yield lines
    finally:
        ended(process)
        with trio.CancelScope(shield=True):
            await lines.aclose()


# ---- what they are told --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Watched:
    """What the streams of one run saw."""

    seconds: float
    load_s: float
    closed: int
    frames: list[int]  # by entry


class Streams:
    """`streams.c`."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, command: Sequence[str | Path], entries: Sequence[tuple[int, int, bytes]], file: Path
    ) -> AsyncIterator["Streams"]:
        """Entries: port, how many, the request."""
        await trio.Path(file).write_bytes(
            b"".join(struct.pack("III", port, count, len(it)) + it for port, count, it in entries)
        )
        async with talking([*command, file], "the streams") as lines:
            said = await lines.hear(START_S_MAX + sum(count for _, count, _ in entries) / 100)
            if not said.startswith("opened"):
                raise BenchError(said)
            yield cls(lines)

    async def watch(self, seconds: float) -> Watched:
        words = (await self._lines.ask(f"run {seconds}", seconds + ANSWER_S_MAX)).split()
        return Watched(float(words[1]), float(words[2]), int(words[3]), [int(word) for word in words[4:]])


class Nodes:
    """`light_nodes`."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    @property
    def pid(self) -> int:
        return self._lines.process.pid

    @classmethod
    @asynccontextmanager
    async def running(
        cls, entries: Sequence[Mapping[str, Any]], file: Path, prefix: Sequence[str] = ()
    ) -> AsyncIterator["Nodes"]:
        await trio.Path(file).write_bytes(msgspec.msgpack.encode(entries))
        command = [*prefix, sys.executable, "-m", "bench.engine.light_nodes", str(file)]
        async with talking(command, "the nodes") as lines:
            yield cls(lines)

    async def dial(self, first: int, last: int) -> None:
        await self._order({"dial": [first, last]}, START_S_MAX + (last - first) / 20)

    async def rates(self, rates: Mapping[str, float]) -> None:
        await self._order({"rates": rates}, ANSWER_S_MAX)

    async def _order(self, order: dict[str, Any], timeout_s: float) -> None:
        said = await self._lines.ask(json.dumps(order), timeout_s)
        if said != "done":
            raise BenchError(f"the nodes: {said}")


@dataclass(frozen=True, slots=True)
class Called:
    """What the callers of one gateway saw."""

    calls: float
    seconds: float
    load_s: float
    p50_ms: float
    p99_ms: float


async def called(load: Sequence[str | Path], port: int, callers: int, seconds: float, calls: Path) -> Called:
    """`calls_load.c`: keep-alive connections, each with one call under way."""
    command = [*map(str, load), str(port), str(callers), str(seconds), str(calls)]
    said = None
    with trio.move_on_after(seconds + ANSWER_S_MAX):
        said = await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False, start_new_session=True
        )
    if said is None:
        raise BenchError(f"the calls at port {port} did not end")
    if said.returncode:
        raise BenchError(f"the calls at port {port}: {said.stderr.decode(errors='replace')[:400]}")
    return Called(*map(float, said.stdout.split()))
