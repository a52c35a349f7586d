"""Three `nats-server`s and three gateways, each a process of its own on loopback, and what can happen to them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import trio
from ulid import ULID

from actors.device.identity import DeviceIdentity
from gateway.engine.server_run import ServerRun
from gateway.identity.tokens import Scope, TokenClass
from gateway.main.data_folder import DataFolder
from tests.gateway.engine.cluster import three_servers

TENANT = "acme"
RICH, POOR = "agent_6f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6", "agent_7f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6"
PRICE_MICROS = 10_000
POOR_MICROS = 400_000  # forty calls
RICH_MICROS = 1_000_000_000
GATEWAYS = 3
START_S_MAX = 120.0
HEARTBEAT_S, DEAD_S = 0.5, 4.0
_POLICY = f"""
[[agents]]
agent = "{POOR}"
tools = ["**"]
price = 0.01
budget = {POOR_MICROS / 1_000_000}

[[agents]]
agent = "*"
tools = ["**"]
price = 0.01
budget = {RICH_MICROS // 1_000_000}
"""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@dataclass
class GatewayRun:
    """One gateway, at the same addresses whenever it starts."""

    config: Path
    http: int
    devices: int
    errors: Path
    process: subprocess.Popen[bytes] | None = None
    harmed_s: list[tuple[float, float]] = field(default_factory=list)
    """When it was not itself; the end of the last one is open."""
    killed_s: float | None = None
    """When, where it has not answered since it was started again."""

    @property
    def device_url(self) -> str:
        return f"ws://127.0.0.1:{self.devices}/devices/connect"

    def start(self) -> None:
        command = [sys.executable, "-m", "gateway.commands.cli", "serve", "--config", str(self.config)]
        command += ["--http", f"127.0.0.1:{self.http}", "--devices", f"127.0.0.1:{self.devices}"]
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        self.killed_s = trio.current_time()
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def answered(self, now_s: float) -> None:
        """A gateway that was killed is away until its first answer: how long Python takes to start is the machine's."""
        if self.killed_s is not None and self.process is not None and self.process.poll() is None:
            self.harmed_s.insert(0, (self.killed_s, now_s))  # the last one may be open
            self.killed_s = None

    def send(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def was_harmed(self, from_s: float, to_s: float) -> bool:
        return self.killed_s is not None or any(began < to_s and ended > from_s for began, ended in self.harmed_s)


@dataclass
class Field:
    folder: Path
    nodes: int
    servers: list[ServerRun] = field(default_factory=list)
    gateways: list[GatewayRun] = field(default_factory=list)
    identities: list[DeviceIdentity] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)
    server_harm_s: list[tuple[float, float]] = field(default_factory=list)

    @property
    def urls(self) -> str:
        return ",".join(server.url for server in self.servers)

    async def start(self) -> None:
        self.servers = three_servers(self.folder)
        async with trio.open_nursery() as nursery:
            for server in self.servers:
                nursery.start_soon(server.start)
        data = self.folder / "data"
        with DataFolder.hold(data, wall_ms(), shares=True) as folder:
            for _ in range(self.nodes):
                self.identities.append(folder.enroll(str(ULID()).lower(), TENANT, str(ULID()), wall_ms()))
            for agent in (RICH, POOR):
                self.tokens[agent] = folder.mint(
                    TokenClass.AGENT_RUNTIME, agent, TENANT, [Scope.READ_ONLY], 86_400, str(ULID()), wall_ms()
                )
        await trio.Path(self.folder / "policy.toml").write_text(_POLICY)
        await trio.Path(self.folder / "nats.token").write_text(self.servers[0].token)
        engine = {
            "url": self.urls,
            "credentials": str(self.folder / "nats.token"),
            "sync_is_always": True,
            "heartbeat_s": HEARTBEAT_S,
            "dead_s": DEAD_S,
            "lost_s_max": 3.0,
            "log_bytes_max": 256 * 1024**2,
            "bucket_bytes_max": 16 * 1024**2,
        }
        lines = [f"data = {json.dumps(str(data))}", "[governance]"]
        lines += [f"policy = {json.dumps(str(self.folder / 'policy.toml'))}", "[audit]", "enabled = false", "[engine]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in engine.items()]
        config = self.folder / "heliograph.toml"
        await trio.Path(config).write_text("\n".join(lines) + "\n")
        ports = free_ports(2 * GATEWAYS)
        for number in range(GATEWAYS):
            errors = self.folder / f"gateway-{number}.log"
            gateway = GatewayRun(config, ports[2 * number], ports[2 * number + 1], errors)
            self.gateways.append(gateway)
            gateway.start()

    async def stop(self) -> None:
        for gateway in self.gateways:
            gateway.kill()
        for server in self.servers:
            await server.stop()

    # ---- harm -------------------------------------------------------------------------------------------------------

    async def kill_gateway(self, number: int, for_s: float) -> None:
        gateway = self.gateways[number]
        await self._while_harmed(gateway.harmed_s, gateway.kill, gateway.start, for_s)

    async def stop_gateway(self, number: int, for_s: float) -> None:
        gateway = self.gateways[number]
        await self._while_harmed(
            gateway.harmed_s, lambda: gateway.send(signal.SIGSTOP), lambda: gateway.send(signal.SIGCONT), for_s
        )

    async def kill_server(self, number: int, for_s: float) -> None:
        server = self.servers[number]
        began_s = trio.current_time()
        server.kill()
        await trio.sleep(for_s)
        await server.start()
        self.server_harm_s.append((began_s, trio.current_time()))

    async def stop_server(self, number: int, for_s: float) -> None:
        server = self.servers[number]
        await self._while_harmed(self.server_harm_s, server.pause, server.go_on, for_s)

    async def _while_harmed(
        self, spans: list[tuple[float, float]], begin: Callable[[], None], end: Callable[[], None], for_s: float
    ) -> None:
        spans.append((trio.current_time(), float("inf")))
        begin()
        try:
            await trio.sleep(for_s)
        finally:
            end()
            spans[-1] = (spans[-1][0], trio.current_time())
