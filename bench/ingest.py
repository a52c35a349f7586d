"""Telemetry frames a second that one core takes in from 500 nodes: our device listener beside a bare counting server.

    python -m bench.ingest [--nodes 500] [--rounds 5] [--seconds 3]

Ours does all of its work on every frame: WebSocket parsing, decoding, validation by the published schema, the session's
and the cadence's rules, and the call of a listener (the minimum gap is 0, so that every frame is relayed). The peer is
`websockets.trio.serve` with a handler that only counts messages. Each server runs in a process of its own on one core;
the load, the same for both, on the other. Rounds alternate, medians count.

Two numbers. *Paced*: frames arrive spread over the nodes, slower than either server can take them, so that each read
finds one message, as telemetry does in the field; frames per second of the server's CPU time. This one decides.
*Saturated*: as many as the sockets take; dozens of frames come with each read, and the cost of a read, where the two
differ most, hardly shows.
"""

import argparse
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.signing import SigningKey
from ulid import ULID

EXPECTED_RATIO = 1.5
SERVER_CORE, LOAD_CORE = 0, 1
NODE_SEED = bytes(range(32))
TENANT = "bench"
FRAME = {
    "ts_ms": 1745300000000,
    "cpu_pct": 12.4,
    "mem_bytes": 1234567890,
    "mem_total_bytes": 8589934592,
    "disk_pct": 31.2,
    "load_1m": 0.42,
    "load_5m": 0.39,
    "load_15m": 0.35,
}
METRICS = {
    "cap_id": "metrics",
    "kind": "system.metrics",
    "schema_ref": "mcp://schemas/system.metrics@1.0.0",
    "verbs": ["snapshot", "subscribe"],
    "safety_class": "read_only",
    "constraints": {"rate_limit_rps": 1000},
}


# ---- the servers ---------------------------------------------------------------------------------------------------


async def report(counter: list[int]) -> None:
    """What has been taken in so far, ten times a second, on standard output."""
    while True:
        await trio.sleep(0.1)
        sample = {"at": time.monotonic(), "frames": counter[0], "cpu": time.process_time()}
        print(json.dumps(sample), flush=True)


def tell(ready: Path, port: int, nodes: list[dict[str, str]]) -> None:
    ready.write_text(json.dumps({"port": port, "nodes": nodes}))


async def serve_peer(_: int, ready: Path) -> None:
    from websockets.trio.server import serve

    counter = [0]

    async def count(connection: Any) -> None:
        async for _message in connection:
            counter[0] += 1

    async with trio.open_nursery() as nursery:
        server = await nursery.start(
            lambda task_status: serve(count, 0, host="127.0.0.1", compression=None, task_status=task_status)
        )
        tell(ready, server.listeners[0].socket.getsockname()[1], [])
        await report(counter)


async def serve_ours(nodes: int, ready: Path) -> None:
    from actors.log.memory_store import MemoryStore
    from actors.node.actor import NodeActor
    from actors.node.settings import NodeSettings
    from actors.supervision.supervisor import Supervisor
    from gateway.devices.device_side import DeviceSettings, DeviceSide
    from gateway.devices.listener import ListenerSettings
    from gateway.identity.tokens import Issuer, Scope, TokenClass, Verifier, key_id
    from gateway.main.clock import now
    from schemas.certificates import CertificateAuthority, KnownCertificates

    counter = [0]

    class Sink:
        def on_frame(self, _: Any) -> None:
            counter[0] += 1

        def on_cadence_end(self) -> None:
            pass

    key = Ed25519PrivateKey.generate()
    issuer = Issuer(key, issuer="bench", audience="bench")
    verifier = Verifier({key_id(key.public_key()): key.public_key()}, issuer="bench", audience="bench")
    ca = CertificateAuthority.make(Ed25519PrivateKey.generate(), now().wall_ms - 1000)
    certificates = KnownCertificates(ca.certificate)
    public_key = Ed25519PrivateKey.from_private_bytes(NODE_SEED).public_key()
    enrolled = []
    for _ in range(nodes):
        node_id = str(ULID()).lower()
        leaf = ca.issue(node_id, TENANT, public_key, now().wall_ms - 1000)
        certificates.learn(leaf)
        scopes = [Scope.DEVICE_CONNECT]
        token = issuer.mint(
            sub=node_id, tenant=TENANT, token_class=TokenClass.DEVICE_RUNTIME, scopes=scopes, jti=str(ULID()),
            now_ms=now().wall_ms, life_s=3600,
        )  # fmt: skip
        enrolled.append({"node_id": node_id, "kid": leaf.kid, "token": token})

    supervisor = Supervisor()
    settings = DeviceSettings(
        NodeSettings(cadence_gap_min=0.0, frames_per_s_max=1_000_000), ListenerSettings(strangers_per_address_max=nodes)
    )
    devices = DeviceSide(supervisor, MemoryStore(), verifier, certificates, settings)

    async def subscribe_to_all() -> None:
        """One listener a node, as soon as it is live."""
        listening: set[NodeActor] = set()
        while len(listening) < nodes:
            for actor in devices.fleet.nodes:
                if actor.is_live and actor not in listening:
                    listening.add(actor)
                    actor.attach(f"sys.{actor.identity.node_id}.metrics.subscribe", 1000, Sink())
            await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        await devices.start()
        port = await devices.listen("127.0.0.1", 0)
        nursery.start_soon(subscribe_to_all)
        tell(ready, port, enrolled)
        await report(counter)


# ---- the load ------------------------------------------------------------------------------------------------------


def masked(payload: bytes) -> bytes:
    """A client's text frame; its mask is zero, which costs the server as much to undo as any other."""
    length = bytes([0x81, 0x80 | 126]) + len(payload).to_bytes(2)
    return length + b"\0\0\0\0" + payload


class Client:
    """A blocking node, just enough of one to reach its cadence."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.sock.sendall(
            b"GET /devices/connect HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Protocol: node-wire.v2\r\n\r\n"
        )
        while b"\r\n\r\n" not in self._buffer:
            self._receive()
        self._buffer = self._buffer.partition(b"\r\n\r\n")[2]

    def _receive(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer += data

    def hear(self) -> dict[str, Any]:
        while True:
            if len(self._buffer) >= 4:
                short = self._buffer[1]
                start, length = (4, int.from_bytes(self._buffer[2:4])) if short == 126 else (2, short)
                if len(self._buffer) >= start + length:
                    frame = self._buffer[start : start + length]
                    self._buffer = self._buffer[start + length :]
                    decoded: dict[str, Any] = json.loads(frame)
                    return decoded
            self._receive()

    def say(self, kind: str, payload: dict[str, Any], in_reply_to: str | None = None) -> None:
        reply = {"in_reply_to": in_reply_to} if in_reply_to else {}
        frame = {"type": kind, "msg_id": str(ULID()), **reply, "payload": payload}
        self.sock.sendall(masked(json.dumps(frame, separators=(",", ":")).encode().ljust(126)))

    def open_cadence(self, node: dict[str, str]) -> str:
        from schemas.manifest import sign

        self.say("auth", {"token": node["token"], "node_id": node["node_id"]})
        now_ms = self.hear()["payload"]["now_ms"]
        manifest = {
            "manifest_version": "1.1.0",
            "node_id": node["node_id"],
            "hw_fingerprint": {"algo": "blake3-256", "value": "0" * 64, "sources": ["machine_id"]},
            "issued_at_ms": now_ms,
            "expires_at_ms": now_ms + 3_600_000,
            "capabilities": [METRICS],
        }
        self.say("announce", sign(manifest, node["kid"], SigningKey(NODE_SEED)))
        assert self.hear()["type"] == "announce_ack"
        self.say("resume", {"journal_id": "bench", "last_cmd": None, "outcomes": [], "running": []})
        assert self.hear()["type"] == "resume_ok"
        cmd = self.hear()
        self.say("cmd_ack", {"ok": True, "result": {}}, cmd["msg_id"])
        msg_id: str = cmd["msg_id"]
        return msg_id


def load(nodes: int, ready: Path, rate: int) -> None:
    services = json.loads(ready.read_text())
    selector = selectors.DefaultSelector()
    for n in range(nodes):
        client = Client(services["port"])
        node = services["nodes"][n] if services["nodes"] else {"node_id": str(ULID()).lower()}
        cadence = client.open_cadence(node) if services["nodes"] else str(ULID())
        payload = {"ts_ms": FRAME["ts_ms"], "node_id": node["node_id"]} | FRAME
        frame = {"type": "telemetry", "msg_id": str(ULID()), "in_reply_to": cadence, "payload": payload}
        data = masked(json.dumps(frame, separators=(",", ":")).encode())
        client.sock.setblocking(False)
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * 1024)
        selector.register(client.sock, selectors.EVENT_WRITE, (client, data, [b""]))
    print("loading", flush=True)
    if rate:
        pace([key.data for key in selector.get_map().values()], rate)
    else:
        saturate(selector)


def saturate(selector: selectors.BaseSelector) -> None:
    while True:
        for key, _ in selector.select():
            client, data, left = key.data
            try:
                pending = left[0] or data
                left[0] = pending[client.sock.send(pending) :]
            except BlockingIOError:
                pass


def pace(targets: list[tuple[Client, bytes, list[bytes]]], rate: int) -> None:
    """One frame to one node after another, so many a second in all."""
    start, sent = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - start) * rate)
        for n in range(sent, due):
            client, data, _ = targets[n % len(targets)]
            client.sock.send(data)
        sent = max(sent, due)
        time.sleep(0.0005)


# ---- the run -------------------------------------------------------------------------------------------------------


def measure(server: str, nodes: int, seconds: float, rate: int) -> float:
    """A fresh server under load: frames per second of its CPU time when paced, of the clock when saturated."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "bench.ingest", "--nodes", str(nodes), "--ready", str(ready)]
        serving = subprocess.Popen([*command, "--role", server], stdout=subprocess.PIPE, text=True)
        loading = None
        try:
            while not ready.exists() or not ready.read_text():
                if serving.poll() is not None:
                    raise RuntimeError("the server did not start")
                time.sleep(0.02)
            loading = subprocess.Popen(
                [*command, "--role", "load", "--rate", str(rate)], stdout=subprocess.PIPE, text=True
            )
            assert loading.stdout is not None
            if loading.stdout.readline().strip() != "loading":
                raise RuntimeError("the load could not connect")
            assert serving.stdout is not None
            samples = []
            begin = time.monotonic() + 1.0  # warm up
            for line in serving.stdout:
                sample = json.loads(line)
                if sample["at"] >= begin:
                    samples.append(sample)
                if sample["at"] >= begin + seconds:
                    break
            first, last = samples[0], samples[-1]
            frames, elapsed = last["frames"] - first["frames"], last["at"] - first["at"]
            if rate and frames < 0.9 * rate * elapsed:
                raise RuntimeError(f"{server} did not keep up with {rate} frames/s: choose a lower --rate")
            return float(frames / (last["cpu"] - first["cpu"] if rate else elapsed))
        finally:
            for process in (loading, serving):
                if process is not None:
                    process.kill()
                    process.wait()
                    if process.stdout is not None:
                        process.stdout.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rate", type=int, default=10_000, help="frames a second when paced")
    parser.add_argument("--role", choices=["ours", "peer", "load"], help=argparse.SUPPRESS)
    parser.add_argument("--ready", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role is not None:
        os.sched_setaffinity(0, {LOAD_CORE if arguments.role == "load" else SERVER_CORE})
        if arguments.role == "load":
            load(arguments.nodes, arguments.ready, arguments.rate)
        else:
            trio.run(serve_ours if arguments.role == "ours" else serve_peer, arguments.nodes, arguments.ready)
        return 0
    return compare(arguments.nodes, arguments.rounds, arguments.seconds, arguments.rate)


def compare(nodes: int, rounds: int, seconds: float, rate: int) -> int:
    measured: dict[tuple[str, str], list[float]] = {}
    for round_number in range(1, rounds + 1):
        for load_kind, offered in (("paced", rate), ("saturated", 0)):
            for server in ("ours", "peer"):
                print(f"round {round_number} of {rounds}: {server}, {load_kind} ...", file=sys.stderr, flush=True)
                measured.setdefault((server, load_kind), []).append(measure(server, nodes, seconds, offered))
    median = {key: statistics.median(values) for key, values in measured.items()}
    ratio = {kind: median["ours", kind] / median["peer", kind] for kind in ("paced", "saturated")}
    print(f"{nodes} nodes, one core{'':14}{'paced, frames/CPU-s':>22}{'saturated, frames/s':>22}")
    for name, server in (("heliograph, all rules on", "ours"), ("websockets.trio, only counting", "peer")):
        print(f"{name:32}{median[server, 'paced']:22,.0f}{median[server, 'saturated']:22,.0f}")
    print(f"{'ratio':32}{ratio['paced']:22.2f}{ratio['saturated']:22.2f}")
    print(f"expected of the paced ratio: at least {EXPECTED_RATIO}")
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    report = {"nodes": nodes, "rate": rate, "ratio": ratio} | {"/".join(key): value for key, value in measured.items()}
    (results / "ingest.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0 if ratio["paced"] >= EXPECTED_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
