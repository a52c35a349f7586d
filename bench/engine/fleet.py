"""The gateways of bench.engine, and whom they serve: one NATS server, several fleets on it, and one gateway without it.

A fleet has a prefix of its own in NATS and a data folder of its own, so that several can be up at the same time and be
measured in turns. All gateways are as in production, but for limits that a single client address, or frames that come
faster than a node may send them, would meet.
"""

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import trio
from ulid import ULID

from actors.device.handlers import ECHO_CAPABILITY, METRICS_CAPABILITY
from actors.device.identity import hw_fingerprint, manifest_signer
from bench.calls import our_call, post
from bench.engine.cgroups import Group, Groups
from bench.engine.children import START_S_MAX, BenchError, ended, started
from bench.reconnect import framed
from gateway.commands.node_run import wall_ms
from gateway.engine.server_run import ServerRun
from gateway.identity.tokens import Scope, TokenClass
from gateway.main.data_folder import DataFolder

TENANT = "bench"
ECHO_RPS, ECHO_AT_ONCE = 50, 64  # the rate is the most that the manifest schema lets an echo announce
INTERVAL_MS = 1000
CAPABILITIES: list[Any] = [
    {**ECHO_CAPABILITY, "constraints": {"rate_limit_rps": ECHO_RPS, "max_concurrency": ECHO_AT_ONCE}},
    METRICS_CAPABILITY,
]
POLICY = '[[agents]]\nagent = "*"\ntools = ["**"]\nprice = 0.01\nbudget = 1000000\n'


@dataclass
class Gateway:
    """One process, limited by its group where there is one."""

    name: str
    http: int
    devices: int
    process: subprocess.Popen[bytes]
    group: Group | None
    log: Path
    token: str  # of the agent that calls here
    first: int = 0  # of its nodes, among all of the bench
    node_ids: list[str] = field(default_factory=list)

    def cpu_s(self) -> float:
        return cpu_s(self.process.pid)

    def rss_bytes(self) -> int:
        rss: int = psutil.Process(self.process.pid).memory_info().rss
        return rss


@dataclass
class Fleet:
    name: str
    gateways: list[Gateway]


@dataclass
class World:
    """Everything that runs, and the openings of all nodes."""

    folder: Path
    server: ServerRun
    groups: Groups | None
    prefix: list[str] = field(default_factory=list)  # of commands of the load
    fleets: dict[str, Fleet] = field(default_factory=dict)
    openings: list[dict[str, Any]] = field(default_factory=list)

    def gateways(self) -> Iterator[Gateway]:
        for fleet in self.fleets.values():
            yield from fleet.gateways

    def limit(self, share: float | None) -> None:
        for gateway in self.gateways():
            if gateway.group is not None:
                gateway.group.limit(share)

    @contextmanager
    def fleet(self, name: str, processes: int, nodes_each: int, *, on_engine: bool = True) -> Iterator[Fleet]:
        """Started, and up when `are_ready` returns."""
        folder = self.folder / name
        folder.mkdir()
        data = folder / "data"
        (folder / "policy.toml").write_text(POLICY)
        tokens, nodes = [], []
        with DataFolder.hold(data, wall_ms(), shares=on_engine) as held:
            for _ in range(processes):
                tokens.append(self._token(held))
                nodes.append([self._enrolled(held) for _ in range(nodes_each)])
        config = self._configured(folder, data, name if on_engine else None)
        fleet = Fleet(name, [])
        try:
            for number in range(processes):
                fleet.gateways.append(self._started(folder, config, number, f"{name}-{number}", tokens[number]))
                self._give(fleet.gateways[-1], nodes[number])
            self.fleets[name] = fleet
            yield fleet
        finally:
            self.fleets.pop(name, None)
            for gateway in fleet.gateways:
                ended(gateway.process)
                if gateway.group is not None:
                    gateway.group.remove()

    def _token(self, held: DataFolder) -> str:
        agent = f"agent_{uuid.uuid4()}"
        scopes = [Scope.READ_ONLY]
        return held.mint(TokenClass.AGENT_RUNTIME, agent, TENANT, scopes, 86_400, str(ULID()), wall_ms())

    def _enrolled(self, held: DataFolder) -> dict[str, Any]:
        identity = held.enroll(str(ULID()).lower(), TENANT, str(ULID()), wall_ms())
        sign = manifest_signer(identity, hw_fingerprint("bench", None), CAPABILITIES)
        said = [
            framed("auth", {"token": identity.token, "node_id": identity.node_id}),
            framed("announce", dict(sign(wall_ms()).manifest)),
            framed("resume", {"journal_id": "bench", "last_cmd": None, "outcomes": [], "running": []}),
        ]
        return {"node_id": identity.node_id, "said": said}

    def _give(self, gateway: Gateway, nodes: Sequence[dict[str, Any]]) -> None:
        gateway.first = len(self.openings)
        for node in nodes:
            gateway.node_ids.append(node["node_id"])
            self.openings.append({**node, "port": gateway.devices})

    def _configured(self, folder: Path, data: Path, prefix: str | None) -> Path:
        sections: dict[str, dict[str, Any]] = {
            "governance": {"policy": str(folder / "policy.toml")},
            "node": {"cadence_gap_min": 0.0},
            "stream": {"streams_per_agent_max": 20_000, "frames_pending_max": 10_000},
            "door": {"connections_max": 20_000, "connections_per_address_max": 20_000},
            "listener": {"strangers_per_address_max": 1_000},
        }
        if prefix is not None:
            token = folder / "nats.token"
            token.write_text(self.server.token)
            sections["engine"] = {
                "url": self.server.url,
                "credentials": str(token),
                "prefix": prefix,
                "replicas": 1,
                "sync_is_always": True,
                "log_bytes_max": 1024**3,
                "bucket_bytes_max": 64 * 1024**2,
            }
        lines = [f"data = {json.dumps(str(data))}"]
        for name, settings in sections.items():
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
        config = folder / "heliograph.toml"
        config.write_text("\n".join(lines) + "\n")
        return config

    def _started(self, folder: Path, config: Path, number: int, name: str, token: str) -> Gateway:
        http, devices = free_ports(2)
        command = [sys.executable, "-m", "gateway.commands.cli", "serve", "--config", str(config), "--log", "json"]
        command += ["--http", f"127.0.0.1:{http}", "--devices", f"127.0.0.1:{devices}"]
        log = folder / f"{number}.log"
        with log.open("wb") as lines:
            process = started(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=lines)
        group = None
        if self.groups is not None:
            group = self.groups.make(name)
            group.take(process.pid)
        return Gateway(name, http, devices, process, group, log, token)


async def are_ready(gateways: Sequence[Gateway]) -> None:
    for gateway in gateways:
        give_up_s = time.monotonic() + START_S_MAX
        while not await _is_ready(gateway):
            if gateway.process.poll() is not None or time.monotonic() > give_up_s:
                raise BenchError(f"{gateway.name} did not come up:\n{gateway.log.read_text()[-1000:]}")
            await trio.sleep(0.1)


async def _is_ready(gateway: Gateway) -> bool:
    with trio.move_on_after(5):
        try:
            async with await trio.open_tcp_stream("127.0.0.1", gateway.http) as stream:
                await stream.send_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                return (await stream.receive_some(64)).startswith(b"HTTP/1.1 200")
        except (OSError, trio.BrokenResourceError):
            return False
    return False


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def cpu_s(pid: int) -> float:
    """Of all its threads, to the nanosecond."""
    return time.clock_gettime(~pid << 3 | 2)


def calls_to(node_ids: Sequence[str], token: str) -> list[tuple[bytes, bytes]]:
    return [our_call(node_id, token, f"hello {number}") for number, node_id in enumerate(node_ids)]


def stream_request(node_id: str, token: str) -> bytes:
    body = {"tool": f"sys.{node_id}.metrics.subscribe", "arguments": {"interval_ms": INTERVAL_MS}}
    return post("/mcp/tools/call", {"Accept": "text/event-stream", "Authorization": f"Bearer {token}"}, body)


def load_average() -> float:
    return os.getloadavg()[0]
