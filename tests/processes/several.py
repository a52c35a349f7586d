"""`heliograph serve --processes`, its children, and a node that dials whichever it gets."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import trio
from ulid import ULID

from actors.device.agent import Agent
from actors.device.device import standard_device
from actors.device.file_journal import FileJournal
from actors.device.identity import DeviceIdentity, hw_fingerprint
from actors.device.mock_sampler import MockSampler
from actors.device.websocket import WebSocketDialer
from gateway.commands.unix_http import UnixConnection
from gateway.identity.tokens import OperatorScope, Scope, TokenClass
from gateway.main.data_folder import DataFolder

TENANT = "acme"
AGENT = "agent_6f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6"
PATIENCE_S = 120.0
_LOOK_S = 0.05


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Several:
    """A folder with enrolled nodes, and what runs on it. Made by `enrolled`."""

    folder: Path
    settings: dict[str, Any]
    identities: list[DeviceIdentity]
    agent: str
    operator: str
    parent: subprocess.Popen[str] | None = None
    http: str = ""
    devices: str = ""
    errors: Path = field(default_factory=Path)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self, processes: int) -> None:
        """Returns when it says that it is ready."""
        config = self.folder / "heliograph.toml"
        lines = ["[http]", "metrics_open = true", "[engine]"]
        lines += [f"{name.removeprefix('engine.')} = {json.dumps(value)}" for name, value in self.settings.items()]
        config.write_text("\n".join(lines))
        self.errors = self.folder / "errors"
        command = [sys.executable, "-m", "gateway.commands.cli", "serve", "--config", str(config)]
        command += ["--data", str(self.data), "--http", "127.0.0.1:0", "--devices", "127.0.0.1:0"]
        with self.errors.open("a") as errors:
            self.parent = subprocess.Popen(
                [*command, "--processes", str(processes)], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self.parent.stdout is not None
        said = self.parent.stdout.readline().split()
        assert said[:1] == ["agents"], self.errors.read_text()
        self.http, self.devices = said[1], said[3]

    def end(self) -> int:
        assert self.parent is not None
        self.parent.send_signal(signal.SIGTERM)
        code = self.parent.wait(PATIENCE_S)
        if self.parent.stdout is not None:
            self.parent.stdout.close()
        return code

    def kill(self) -> None:
        if self.parent is not None and self.parent.poll() is None:
            self.parent.kill()
            self.parent.wait(PATIENCE_S)

    def children(self) -> list[int]:
        assert self.parent is not None
        threads = Path(f"/proc/{self.parent.pid}/task").iterdir()  # a child is that of the thread which made it
        found: list[str] = []
        for thread in threads:
            with contextlib.suppress(FileNotFoundError):
                found += (thread / "children").read_text().split()
        return sorted(int(pid) for pid in found)

    def ask(self, number: int, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
        """The process of this number."""
        connection = UnixConnection(str(self.data / "processes" / f"{number}.sock"), PATIENCE_S)
        with contextlib.closing(connection):
            headers = {"authorization": f"Bearer {token or self.agent}"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            answer = response.read()
        return response.status, json.loads(answer) if answer[:1] in (b"{", b"[") else answer

    def call(self, number: int, node_id: str, message: str) -> int:
        body = {"tool": f"sysecho.{node_id}.echo.invoke", "arguments": {"message": message}}
        return self.ask(number, "POST", "/mcp/tools/call", body)[0]

    def first_frame(self, number: int, node_id: str) -> bytes:
        """Of a stream at that process."""
        body = {"tool": f"sys.{node_id}.metrics.subscribe", "arguments": {"interval_ms": 1000}}
        connection = UnixConnection(str(self.data / "processes" / f"{number}.sock"), PATIENCE_S)
        with contextlib.closing(connection):
            headers = {"authorization": f"Bearer {self.agent}", "accept": "text/event-stream"}
            connection.request("POST", "/mcp/tools/call", json.dumps(body), headers)
            response = connection.getresponse()
            assert response.status == http.client.OK, response.read()
            while not (line := response.readline()).startswith(b"event: metric"):
                assert line, "the stream ended"
        return line

    def until(self, what: str, holds: Any) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if holds():
                    return
            assert time.monotonic() < end_s, f"{what}: {self.errors.read_text()[-4000:]}"
            time.sleep(_LOOK_S)


def enrolled(folder: Path, settings: dict[str, Any], nodes: int) -> Several:
    with DataFolder.hold(folder / "data", wall_ms(), shares=True) as data:
        ids = [str(ULID()).lower() for _ in range(nodes)]
        identities = [data.enroll(node_id, TENANT, str(ULID()), wall_ms()) for node_id in ids]

        def mint(token_class: TokenClass, sub: str, tenant: str, scopes: Any) -> str:
            return data.mint(token_class, sub, tenant, scopes, 3600, str(ULID()), wall_ms())

        agent = mint(TokenClass.AGENT_RUNTIME, AGENT, TENANT, [Scope.READ_ONLY])
        operator = mint(TokenClass.OPERATOR, "ada", "operators", list(OperatorScope))
    return Several(folder, settings, identities, agent, operator)


@contextlib.contextmanager
def nodes_of(several: Several) -> Iterator[None]:
    """Real agents with made-up metrics, in a thread of their own."""
    stopping = threading.Event()
    url = several.devices

    async def one(identity: DeviceIdentity) -> None:
        device = standard_device(identity, hw_fingerprint("test", None), MockSampler(1, wall_ms()), wall_ms)
        journal = FileJournal(several.folder / identity.node_id)
        try:
            async with trio.open_nursery() as nursery:
                dial = WebSocketDialer(nursery, url)
                await Agent(device, journal=journal, connect=dial, wall_ms=wall_ms, rng=Random()).run()
        finally:
            journal.close()

    async def all_of_them() -> None:
        async with trio.open_nursery() as nursery:
            for identity in several.identities:
                nursery.start_soon(one, identity)
            while not stopping.is_set():  # noqa: ASYNC110  # it is set in another thread
                await trio.sleep(_LOOK_S)
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(all_of_them,))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
