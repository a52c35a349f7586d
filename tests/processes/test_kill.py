"""kill -9 of the gateway and of the node at each point of a command's life: nothing acknowledged is lost, nothing runs
twice."""

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from nacl.signing import SigningKey

from actors.device.identity import DeviceIdentity
from actors.ledger.ledgers import Ledgers
from actors.log.sqlite_store import SqliteStore
from actors.node.history import (
    FINAL_STATE,
    CommandQueued,
    CommandState,
    Settlement,
    decode,
)
from actors.node.node_stream import stream_of
from gateway.identity.tokens import Issuer, Scope, TokenClass
from schemas.certificates import CertificateAuthority
from tests.processes.gateway_child import AGENT, PRICE_MICROS, TOKEN_KEY
from tests.processes.points import GATEWAY_POINTS, NODE_POINTS, Point
from tests.schemas.examples import NODE_ID

TENANT = "acme"
ARGUMENT = re.compile(rb"run\d+-\d+")
PATIENCE_S = 60
LIFE_S_MAX = 180  # of a process; one that never comes to the point where it is to be killed would talk for ever


class Child:
    """A process of ours, its lines, and its end."""

    def __init__(self, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", f"tests.processes.{module}", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._end_of_life = threading.Timer(LIFE_S_MAX, self.process.terminate)
        self._end_of_life.daemon = True
        self._end_of_life.start()

    def lines(self) -> Iterator[list[str]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield line.split()

    def wait_killed(self) -> None:
        assert self.process.wait(PATIENCE_S) == -signal.SIGKILL

    def end(self) -> None:
        self._end_of_life.cancel()
        self.process.kill()
        self.process.wait(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Field:
    """A gateway and a node on disk, started and killed as a test likes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.node_folder = folder / "gateway", folder / "node"
        self.folder.mkdir()
        now_ms = time.time_ns() // 1_000_000
        ca = CertificateAuthority.make(Ed25519PrivateKey.generate(), now_ms - 1000)
        key = Ed25519PrivateKey.generate()
        leaf = ca.issue(NODE_ID, TENANT, key.public_key(), now_ms - 1000)
        token = Issuer(TOKEN_KEY, issuer="test", audience="test").mint(
            sub=NODE_ID,
            tenant=TENANT,
            token_class=TokenClass.DEVICE_RUNTIME,
            scopes=[Scope.DEVICE_CONNECT],
            jti="01HZXC0000000000000000J000",
            now_ms=now_ms,
            life_s=3600,
        )
        (self.folder / "ca.der").write_bytes(ca.certificate.public_bytes(Encoding.DER))
        DeviceIdentity(SigningKey(key.private_bytes_raw()), leaf, token).save(self.node_folder)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.told: dict[str, str] = {}  # token → what its caller was told
        self._children: list[Child] = []
        self._runs = 0

    def gateway(self, point: Point | None = None, times: int = 1) -> Child:
        self._runs += 1
        return self._start(
            "gateway_child", self.folder, self.node_folder, self.port, f"run{self._runs}", point or "", times
        )

    def node(self, point: Point | None = None, times: int = 1) -> Child:
        return self._start("node_child", self.node_folder, self.port, point or "", times)

    def _start(self, module: str, *arguments: object) -> Child:
        child = Child(module, *arguments)
        self._children.append(child)
        return child

    def listen_to(self, gateway: Child, *, until_ok: int | None = None) -> None:
        """Take down what it says, until so many calls more have succeeded, or until it ends."""
        succeeded = 0
        for word, *rest in gateway.lines():
            if word in ("ok", "failed"):
                self.told[rest[0]] = word
                succeeded += word == "ok"
            if word == "settled" or (until_ok is not None and succeeded >= until_ok):
                return

    def settle(self, gateway: Child) -> None:
        assert gateway.process.stdin is not None
        gateway.process.stdin.write("stop\n")
        gateway.process.stdin.flush()
        self.listen_to(gateway)

    def end(self) -> None:
        for child in self._children:
            child.end()

    # ---- the verdict ------------------------------------------------------------------------------------------------

    def effects(self) -> Counter[str]:
        return Counter((self.node_folder / "effects").read_text().split())

    async def finals(self) -> dict[str, CommandState]:
        """Every command of the log and how it ended; raises if one is open."""
        finals: dict[str, CommandState] = {}
        queued = set()
        async with await SqliteStore.open(self.folder / "log.sqlite") as store:
            assert [stream for stream in await store.open_streams() if stream.startswith("node/")] == []
            for recorded in await store.read(stream_of(NODE_ID)):
                event = decode(recorded.data)
                if isinstance(event, CommandQueued):
                    queued.add(event.msg_id)
                elif isinstance(event, Settlement):
                    assert event.msg_id not in finals
                    finals[event.msg_id] = FINAL_STATE[type(event)]
            ledger = await Ledgers(store).of(*AGENT)
        assert set(finals) == queued
        # Reserved together with each command, charged together with its end: to the micro-dollar, whatever was killed.
        assert (ledger.state.open, ledger.state.used_micros) == ({}, PRICE_MICROS * len(queued))
        return finals

    def check_files(self) -> None:
        """No argument of any call, answered or not, is in any file of the gateway's folder. (The node's has them.)"""
        for file in self.folder.iterdir():
            assert ARGUMENT.search(file.read_bytes()) is None, f"arguments in {file.name}"

    def check(self) -> Counter[CommandState]:
        self.check_files()
        assert ARGUMENT.search((self.node_folder / "effects").read_bytes())
        effects = self.effects()
        assert max(effects.values()) == 1, "something ran twice"
        for token, told in self.told.items():
            if told == "ok":
                assert effects[token] == 1, "a caller was told of a success that did not happen"
        ends = Counter(trio.run(self.finals).values())
        may_have_run = sum(ends[state] for state in (CommandState.ACKED, CommandState.FAILED)) + sum(
            ends[state] for state in (CommandState.INTERRUPTED, CommandState.UNKNOWN)
        )
        assert ends[CommandState.ACKED] <= len(effects) <= may_have_run
        return ends


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    one = Field(tmp_path)
    yield one
    one.end()


@pytest.mark.parametrize("times", [1, 7])
@pytest.mark.parametrize("point", GATEWAY_POINTS)
def test_gateway_killed_at_each_point(field: Field, point: Point, times: int) -> None:
    field.node()
    armed = field.gateway(point, times)
    field.listen_to(armed)
    armed.wait_killed()
    field.check_files()
    again = field.gateway()
    field.listen_to(again, until_ok=3)
    field.settle(again)
    field.end()
    assert field.check()[CommandState.ACKED] >= 3


@pytest.mark.parametrize("times", [1, 7])
@pytest.mark.parametrize("point", NODE_POINTS)
def test_node_killed_at_each_point(field: Field, point: Point, times: int) -> None:
    gateway = field.gateway()
    armed = field.node(point, times)
    armed.wait_killed()
    field.node()
    field.listen_to(gateway, until_ok=3 + times)
    field.settle(gateway)
    field.end()
    assert field.check()[CommandState.ACKED] >= 3


def test_both_killed_again_and_again_at_any_moment(field: Field) -> None:
    for round_number in range(6):
        gateway, node = field.gateway(), field.node()
        field.listen_to(gateway, until_ok=2 + round_number)
        for victim in (gateway, node) if round_number % 2 else (node, gateway):
            victim.process.kill()
            victim.process.wait(PATIENCE_S)
        field.check_files()
    gateway = field.gateway()
    field.node()
    field.listen_to(gateway, until_ok=2)
    field.settle(gateway)
    field.end()
    assert field.check()[CommandState.ACKED] >= 20
