"""A fleet comes back at once: connects a second until `resume_ok`, and the longest stall of the gateway's event loop.

    python -m bench.reconnect [--quick] [--nodes 20000] [--rounds 2]

The server is a whole gateway on core 0 with its default settings, its log durable on a disk, every identity enrolled
before it starts. The load on core 1 is one process that speaks for all nodes over real sockets, each with an identity
of its own, 32 to an address: upgrade, `auth`, `announce`, `resume`, then heartbeats. As many are under way as the
listener takes strangers; the next one dials when one is live. One that is refused dials again, and is counted.

Three storms a round: all *arrive* for the first time, all *leave*, all *return* with the manifest they had, as a node
does whose connection broke. The peer is the same gateway with a fleet of 1,000: what a connect costs more in the large
fleet is what grows with the fleet. Connects a CPU-second of the server decide, for others may use the machine too.

*Stall* is how much later than it asked for a task of the server that sleeps a millisecond at a time goes on: what
anybody else's call would have waited in addition. *Stall, CPU* is the processor time that the event loop's thread took
meanwhile; what is longer by the clock alone, the machine or the log's thread took.
"""

import argparse
import json
import os
import resource
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import trio
from ulid import ULID

from bench.ingest import LOAD_CORE, SERVER_CORE, TENANT, masked

NODES, QUICK_NODES, PEER_NODES = 20_000, 3_000, 1_000
CPU_RATIO_MIN = 0.7
STALL_CPU_MS_MAX = 250.0
AT_ONCE = 1_000  # the listener's `strangers_max`
NODES_PER_ADDRESS = 32
FILES_SPARE = 200  # of the limit of file descriptors, for all that is no node's socket
HEARTBEAT_S = 25.0
BEAT_S, SAMPLE_S = 0.001, 0.1
QUIET_S = 1.0  # before a storm
GIVE_UP_S = 120.0
RESULTS = Path(__file__).parent / "results" / "reconnect.json"
UPGRADE = (
    b"GET /devices/connect HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Protocol: node-wire.v2\r\n\r\n"
)
STORMS = ("arrive", "leave", "return")


# ---- identities ----------------------------------------------------------------------------------------------------


def framed(kind: str, payload: dict[str, Any]) -> bytes:
    frame = {"type": kind, "msg_id": str(ULID()), "payload": payload}
    return masked(json.dumps(frame, separators=(",", ":")).encode().ljust(126))


def make_identities(data: Path, nodes: int) -> tuple[list[str], list[list[bytes]]]:
    """Enroll them in a data folder: the certificates' names, and what each node says when it dials in."""
    from actors.device.handlers import CAPABILITIES
    from actors.device.identity import hw_fingerprint, manifest_signer
    from gateway.commands.node_run import wall_ms
    from gateway.main.data_folder import DataFolder

    kids, said = [], []
    with DataFolder.hold(data, wall_ms()) as folder:
        for number in range(nodes):
            identity = folder.enroll(str(ULID()).lower(), TENANT, str(ULID()), wall_ms())
            sign = manifest_signer(identity, hw_fingerprint(f"bench machine {number}", None), CAPABILITIES)
            kids.append(identity.leaf.kid)
            said.append(
                [
                    framed("auth", {"token": identity.token, "node_id": identity.node_id}),
                    framed("announce", dict(sign(wall_ms()).manifest)),
                    framed("resume", {"journal_id": "bench", "last_cmd": None, "outcomes": [], "running": []}),
                ]
            )
    return kids, said


# ---- the server ----------------------------------------------------------------------------------------------------


class Stalls:
    """The longest since the last sample."""

    def __init__(self) -> None:
        self.ms = self.cpu_ms = 0.0

    async def watch(self) -> None:
        while True:
            began_s, cpu_s = time.monotonic(), time.thread_time()
            await trio.sleep(BEAT_S)
            self.ms = max(self.ms, (time.monotonic() - began_s - BEAT_S) * 1000)
            self.cpu_ms = max(self.cpu_ms, (time.thread_time() - cpu_s) * 1000)


async def serve(data: str) -> None:
    from gateway.main.server import running
    from gateway.main.settings import load
    from gateway.observe.log_output import LogSettings, log_to

    log_to(LogSettings(format="json"))  # as in production; the bench throws it away
    flags = {"data": data, "http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"}
    async with running(load(None, {}, flags)) as gateway, trio.open_nursery() as nursery:
        stalls = Stalls()
        nursery.start_soon(stalls.watch)
        print(json.dumps({"port": int(gateway.device_address.rpartition(":")[2])}), flush=True)
        while True:
            await trio.sleep(SAMPLE_S)
            sample = {"at_s": time.monotonic(), "nodes": len(gateway.devices.fleet.nodes), "cpu_s": time.process_time()}
            print(json.dumps(sample | {"stall_ms": stalls.ms, "stall_cpu_ms": stalls.cpu_ms}), flush=True)
            stalls.ms = stalls.cpu_ms = 0.0


# ---- the load ------------------------------------------------------------------------------------------------------


class Dial:
    """One node's connection, from the upgrade to `resume_ok`."""

    def __init__(self, number: int, said: list[bytes], port: int) -> None:
        self.number = number
        self._to_say = [*reversed(said)]
        self._heard = b""
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        high, low = divmod(number // NODES_PER_ADDRESS, 250)
        self.sock.bind((f"127.1.{high}.{low + 1}", 0))
        self.sock.connect_ex(("127.0.0.1", port))

    def connected(self) -> None:
        self.sock.send(UPGRADE)

    def on_readable(self) -> bool | None:
        """Whether the node is live now; None when it was refused."""
        try:
            data = self.sock.recv(65536)
        except OSError:
            return None
        self._heard += data
        if not data or not self._heard.startswith((b"HTTP/1.1 101", b"\x81")[len(self._to_say) < 3]):
            return None
        if not self._is_whole():
            return False
        is_live = not self._to_say
        if not is_live:
            self.sock.send(self._to_say.pop())
        elif b'"resume_ok"' not in self._heard:
            return None
        self._heard = b""
        return is_live

    def _is_whole(self) -> bool:
        heard = self._heard
        if heard.startswith(b"H"):
            return heard.endswith(b"\r\n\r\n")
        start, length = (4, int.from_bytes(heard[2:4])) if heard[1:2] == b"~" else (2, heard[1] if heard[1:] else 126)
        return len(heard) >= start + length


class Load:
    def __init__(self, said: list[list[bytes]], port: int) -> None:
        self._said = said
        self._port = port
        self._live: deque[tuple[float, Dial]] = deque()  # with when its heartbeat is due, the next one first
        self._heartbeat = framed("heartbeat", {"manifest_etag": None})

    def storm(self) -> dict[str, float]:
        """All of them, until the last one is live."""
        to_dial = deque(range(len(self._said)))
        under_way: dict[int, Dial] = {}
        again = 0
        began_s = time.monotonic()
        with select.epoll() as epoll:
            while to_dial or under_way:
                while to_dial and len(under_way) < AT_ONCE:
                    number = to_dial.popleft()
                    dial = Dial(number, self._said[number], self._port)
                    under_way[dial.sock.fileno()] = dial
                    epoll.register(dial.sock, select.EPOLLOUT)
                for fd, flags in epoll.poll(0.1):
                    dial = under_way[fd]
                    if flags == select.EPOLLOUT:
                        dial.connected()
                        epoll.modify(fd, select.EPOLLIN)
                        continue
                    is_live = dial.on_readable()
                    if is_live is False:
                        continue
                    epoll.unregister(fd)
                    del under_way[fd]
                    if is_live:
                        self._live.append((time.monotonic() + HEARTBEAT_S, dial))
                    else:
                        again += 1
                        dial.sock.close()
                        to_dial.append(dial.number)
                self.beat()
        return {"began_s": began_s, "ended_s": time.monotonic(), "again": again}

    def beat(self) -> None:
        now_s = time.monotonic()
        while self._live and self._live[0][0] <= now_s:
            due_s, dial = self._live.popleft()
            dial.sock.send(self._heartbeat)
            self._live.append((due_s + HEARTBEAT_S, dial))

    def leave(self) -> dict[str, float]:
        began_s = time.monotonic()
        for _, dial in self._live:
            dial.sock.close()
        self._live.clear()
        return {"began_s": began_s, "ended_s": time.monotonic(), "again": 0}


def load(port: int, said: Path, nodes: int) -> None:
    """Do as each line of standard input says; how it went on standard output."""
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    here = Load(msgspec.msgpack.decode(said.read_bytes(), type=list[list[bytes]])[:nodes], port)
    waiting = select.poll()
    waiting.register(sys.stdin, select.POLLIN)
    while True:
        while not waiting.poll(100):
            here.beat()
        what = sys.stdin.readline().strip()
        if not what:
            return
        print(json.dumps(here.leave() if what == "leave" else here.storm()), flush=True)


# ---- the run -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Storm:
    per_s: float
    per_cpu_s: float
    stall_ms: float
    stall_cpu_ms: float
    again: int


class Server:
    """The samples that it has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.port: int = json.loads(self._line())["port"]
        self.samples: list[dict[str, float]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def _read(self) -> None:
        while line := self._line():
            self.samples.append(json.loads(line))

    def until(self, holds: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        """The first sample from now on for which it holds."""
        seen, give_up_s = len(self.samples), time.monotonic() + GIVE_UP_S
        while True:
            for sample in self.samples[seen:]:
                seen += 1
                if holds(sample):
                    return sample
            if self.process.poll() is not None or time.monotonic() > give_up_s:
                raise SystemExit("the gateway did not go on")
            time.sleep(SAMPLE_S / 10)


def measure(folder: Path, data: Path, kids: list[str], nodes: int) -> dict[str, Storm]:
    """A fresh gateway that knows so many nodes, and their three storms."""
    own = folder / "data"
    shutil.copytree(data, own, ignore=shutil.ignore_patterns("leafs", "lock"))
    (own / "leafs").mkdir(mode=0o700)
    for kid in kids[:nodes]:
        shutil.copy(data / "leafs" / f"{kid}.crt", own / "leafs")
    try:
        with child(SERVER_CORE, "serve", str(own)) as serving:
            server = Server(serving)
            with child(LOAD_CORE, "load", str(server.port), str(folder / "said"), str(nodes)) as loading:
                return {what: storm(server, loading, what, nodes) for what in STORMS}
    finally:
        shutil.rmtree(own)


def storm(server: Server, loading: subprocess.Popen[str], what: str, nodes: int) -> Storm:
    assert loading.stdin is not None
    assert loading.stdout is not None
    time.sleep(QUIET_S)
    before = server.until(lambda _: True)
    loading.stdin.write(f"{what}\n")
    loading.stdin.flush()
    answer = loading.stdout.readline()
    if not answer:
        raise SystemExit("the load did not go on")
    told = json.loads(answer)
    after = server.until(lambda sample: sample["nodes"] == (0 if what == "leave" else nodes))
    ended_s = after["at_s"] if what == "leave" else told["ended_s"]
    within = [sample for sample in server.samples if before["at_s"] < sample["at_s"] <= after["at_s"]]
    return Storm(
        per_s=nodes / (ended_s - told["began_s"]),
        per_cpu_s=nodes / (after["cpu_s"] - before["cpu_s"]),
        stall_ms=max(sample["stall_ms"] for sample in within),
        stall_cpu_ms=max(sample["stall_cpu_ms"] for sample in within),
        again=told["again"],
    )


@contextmanager
def child(core: int, *role: str) -> Iterator[subprocess.Popen[str]]:
    command = ["taskset", "-c", str(core), sys.executable, "-m", "bench.reconnect", "--role", *role]
    log = subprocess.DEVNULL if role[0] == "serve" else None
    process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def note(text: str) -> None:
    print(f"[load {os.getloadavg()[0]:.1f}] {text}", file=sys.stderr, flush=True)


def run(nodes: int, peer_nodes: int, rounds: int) -> dict[int, list[dict[str, Storm]]]:
    found: dict[int, list[dict[str, Storm]]] = {nodes: [], peer_nodes: []}
    # Identities are made in memory; the gateways' logs are beside the code, because /tmp may be memory too.
    with (
        tempfile.TemporaryDirectory(dir=RESULTS.parent, prefix="heliograph-reconnect-") as disk,
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="heliograph-reconnect-") as memory,
    ):
        note(f"making {nodes:,} identities ...")
        kids, said = make_identities(Path(memory), nodes)
        (Path(disk) / "said").write_bytes(msgspec.msgpack.encode(said))
        del said
        for number in range(1, rounds + 1):
            for size, of in found.items():
                of.append(measure(Path(disk), Path(memory), kids, size))
                told = [f"{what} {one.per_s:,.0f}/s, stall {one.stall_ms:.0f} ms" for what, one in of[-1].items()]
                note(f"round {number} of {rounds}, {size:,} nodes: {'; '.join(told)}")
    return found


def report(found: dict[int, list[dict[str, Storm]]]) -> bool:
    """Print what was found and keep it; whether it is what was expected."""
    print(f"{'nodes':>7}  {'storm':8}{'per s':>9}{'per CPU-s':>11}{'stall ms':>10}{'stall, CPU ms':>15}{'again':>7}")
    for size, rounds in found.items():
        for what in STORMS:
            storms = [one[what] for one in rounds]
            print(
                f"{size:>7,}  {what:8}{statistics.median(one.per_s for one in storms):>9,.0f}"
                f"{statistics.median(one.per_cpu_s for one in storms):>11,.0f}"
                f"{statistics.median(one.stall_ms for one in storms):>10,.0f}"
                f"{statistics.median(one.stall_cpu_ms for one in storms):>15,.0f}{sum(one.again for one in storms):>7,}"
            )
    ours, peer = found.values()
    ratios = {
        what: statistics.median(
            one[what].per_cpu_s / other[what].per_cpu_s for one, other in zip(ours, peer, strict=True)
        )
        for what in STORMS
    }
    stall_ms = statistics.median(one["return"].stall_cpu_ms for one in ours)
    met = ratios["return"] >= CPU_RATIO_MIN and stall_ms <= STALL_CPU_MS_MAX
    print(f"connects a CPU-second, {max(found):,} nodes to {min(found):,}: ", end="")
    print(", ".join(f"{what} {ratio:.2f}" for what, ratio in ratios.items() if what != "leave"))
    print(f"expected on return: at least {CPU_RATIO_MIN:g}, and no stall over {STALL_CPU_MS_MAX:g} ms of CPU: ", end="")
    print("met" if met else "NOT MET")
    result = {
        "ratios": ratios,
        "met": met,
        "rounds": {n: [{what: asdict(s) for what, s in one.items()} for one in of] for n, of in found.items()},
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"one round of {QUICK_NODES:,} nodes")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    match options.role:
        case ["serve", data]:
            trio.run(serve, data)
            return 0
        case ["load", port, said, count]:
            load(int(port), Path(said), int(count))
            return 0
    nodes = options.nodes or (QUICK_NODES if options.quick else NODES)
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files_max != resource.RLIM_INFINITY and nodes > files_max - FILES_SPARE:
        nodes = files_max - FILES_SPARE
        note(f"{nodes:,} nodes: each is a file descriptor of the gateway, and {files_max:,} is the hard limit here")
    RESULTS.parent.mkdir(exist_ok=True)
    rounds = options.rounds or (1 if options.quick else 2)
    return 0 if report(run(nodes, min(PEER_NODES, nodes // 3), rounds)) else 1


if __name__ == "__main__":
    sys.exit(main())
