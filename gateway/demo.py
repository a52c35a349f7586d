"""`heliograph demo`: a gateway's device side and a small fleet in one process, over real sockets and a real log.

Nodes dial in, are authenticated and announce; an agent calls them; one streams telemetry; one goes away; one sends
rubbish. Agents reach all this over HTTP and MCP once those doors are built.
"""

import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import structlog
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.signing import SigningKey
from ulid import ULID

from actors.device.agent import Agent
from actors.device.device import standard_device
from actors.device.file_journal import FileJournal
from actors.device.identity import DeviceIdentity, hw_fingerprint
from actors.device.mock_sampler import MockSampler
from actors.device.websocket import WebSocketDialer
from actors.log.sqlite_store import SqliteStore
from actors.node.actor import NodeActor
from actors.node.calls import Failed, Succeeded
from actors.supervision.supervisor import Supervisor
from gateway.access.tokens import Issuer, Scope, TokenClass, Verifier, key_id
from gateway.clock import now
from gateway.device_side import DeviceSettings, DeviceSide
from schemas.certificates import CertificateAuthority, KnownCertificates
from schemas.errors import envelope
from schemas.frames import BadFrame, Side, decode

NODES = 5
TENANT = "demo"
LIVE_S_MAX = 20.0
HOSTILE = {
    "a frame that nests for ever": b"[" * 100_000,
    "a key given twice": b'{"type":"auth","type":"cmd"}',
    "an unknown type": b'{"type":"reboot_everything"}',
    "a heartbeat with a strange etag": (
        b'{"type":"heartbeat","msg_id":"01HZXC0000000000000000DEV0","payload":{"manifest_etag":"<b>evil</b>"}}'
    ),
}


def run_demo() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(prefix="heliograph-demo-") as folder:
        trio.run(_Demo(Path(folder)).run)
    return 0


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class _Demo:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ca = CertificateAuthority.make(Ed25519PrivateKey.generate(), _wall_ms() - 1000)
        self._certificates = KnownCertificates(self._ca.certificate)
        key = Ed25519PrivateKey.generate()
        self._issuer = Issuer(key, issuer="demo", audience="demo")
        self._verifier = Verifier({key_id(key.public_key()): key.public_key()}, issuer="demo", audience="demo")
        self._plugs: dict[str, trio.CancelScope] = {}  # by node

    async def run(self) -> None:
        supervisor = Supervisor()
        async with await SqliteStore.open(self._folder / "log.sqlite") as store, trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            devices = DeviceSide(supervisor, store, self._verifier, self._certificates, DeviceSettings())
            await devices.start()
            port = await devices.listen("127.0.0.1", 0)
            print(f"gateway   listening for nodes on ws://127.0.0.1:{port}/devices/connect, log in a folder of its own")
            async with trio.open_nursery() as field:
                for number in range(NODES):
                    field.start_soon(self._run_node, number, port)
                actors = await self._all_live(devices)
                await self._call_each(actors)
                await self._snapshot(actors[0])
                await self._follow(actors[0])
                await self._lose_one(devices, actors[-1])
                self._show_hostile_input()
                await self._show_log(devices, actors)
                field.cancel_scope.cancel()
            supervisor.request_stop()
        print("\nNext: docs/index.md, and `.venv/bin/heliograph schema list` for every published contract.")

    # ---- nodes ------------------------------------------------------------------------------------------------------

    async def _run_node(self, number: int, port: int) -> None:
        """A device: the agent that also runs on real ones, with made-up metrics."""
        key = Ed25519PrivateKey.generate()
        node_id = str(ULID()).lower()
        leaf = self._ca.issue(node_id, TENANT, key.public_key(), _wall_ms() - 1000)
        self._certificates.learn(leaf)
        token = self._issuer.mint(
            sub=node_id,
            tenant=TENANT,
            token_class=TokenClass.DEVICE_RUNTIME,
            scopes=[Scope.DEVICE_CONNECT],
            jti=str(ULID()),
            now_ms=_wall_ms(),
            life_s=600,
        )
        identity = DeviceIdentity(SigningKey(key.private_bytes_raw()), leaf, token)
        fingerprint = hw_fingerprint(f"demo machine {number}", None)
        device = standard_device(identity, fingerprint, MockSampler(number, _wall_ms()), _wall_ms)
        journal = FileJournal(self._folder / f"node-{number}")
        try:
            with trio.CancelScope() as self._plugs[node_id]:
                async with trio.open_nursery() as nursery:
                    dial = WebSocketDialer(nursery, f"ws://127.0.0.1:{port}/devices/connect")
                    await Agent(device, journal=journal, connect=dial, wall_ms=_wall_ms, rng=Random()).run()
        finally:
            journal.close()

    async def _all_live(self, devices: DeviceSide) -> list[NodeActor]:
        with trio.fail_after(LIVE_S_MAX):
            await _until(lambda: sum(actor.is_live for actor in devices.fleet.nodes) == NODES)
        actors = list(devices.fleet.nodes)
        print(f"nodes     {NODES} live, each by its certificate, its token and a signed manifest; their tools:")
        for name in sorted(actors[0].tools):
            print(f"            {name}")
        print(f"            ... {sum(len(actor.tools) for actor in actors)} in all")
        return actors

    # ---- what an agent does -----------------------------------------------------------------------------------------

    async def _call(self, actor: NodeActor, tool: str, arguments: Mapping[str, Any]) -> tuple[Any, float]:
        started = trio.current_time()
        name = next(name for name in actor.tools if name.endswith(tool))
        deadline_at_ms = now().wall_ms + 5000
        outcome = await actor.call(name, arguments, sub="agent_demo", tenant=TENANT, deadline_at_ms=deadline_at_ms)
        return outcome, (trio.current_time() - started) * 1000

    async def _call_each(self, actors: list[NodeActor]) -> None:
        print("\necho      to each node and back, durable in the log before it is sent and when it is answered:")
        for actor in actors:
            outcome, took_ms = await self._call(actor, ".echo.invoke", {"message": "hello"})
            assert isinstance(outcome, Succeeded), outcome
            print(f"            {actor.identity.node_id}  {outcome.result['message']!r} after {took_ms:.1f} ms")

    async def _snapshot(self, actor: NodeActor) -> None:
        outcome, _ = await self._call(actor, ".metrics.snapshot", {"include": ["cpu", "mem", "load"]})
        assert isinstance(outcome, Succeeded), outcome
        sample = outcome.result
        used = 1 - sample["mem"]["available_bytes"] / sample["mem"]["total_bytes"]
        cpu, load = sample["cpu"], sample["load"]["one"]
        print(f"\nsnapshot  {cpu['cores']} cores at {cpu['usage_pct']:.0f} %, memory {used:.0%} used, load {load:.2f}")

    async def _follow(self, actor: NodeActor) -> None:
        print("\ntelemetry one frame a second, for three seconds:")
        followed = _Followed()
        tool = next(name for name in actor.tools if name.endswith(".subscribe"))
        cadence = actor.attach(tool, 1000, followed)
        assert not isinstance(cadence, Failed), cadence
        with trio.fail_after(LIVE_S_MAX):
            await _until(lambda: followed.frames == 3)
        actor.detach(cadence, followed)

    async def _lose_one(self, devices: DeviceSide, actor: NodeActor) -> None:
        node_id = actor.identity.node_id
        self._plugs[node_id].cancel()
        with trio.fail_after(LIVE_S_MAX):
            await _until(lambda: devices.fleet.nodes.find(node_id) is None)
        outcome, _ = await self._call(actor, ".echo.invoke", {"message": "anybody there?"})
        assert isinstance(outcome, Failed)
        error = envelope(outcome.code)
        print(f"\ngone      a node is unplugged; the next call to it answers {error['code']}:")
        print(f"            {error['message']} {error['suggested_fix']}")

    def _show_hostile_input(self) -> None:
        print("\nhostile   input is normal; each frame gets a fixed answer, and nothing of it is repeated:")
        for what, data in HOSTILE.items():
            bad = decode(data, Side.NODE)
            assert isinstance(bad, BadFrame)
            print(f"            {what:<33} {bad.words}")

    async def _show_log(self, devices: DeviceSide, actors: list[NodeActor]) -> None:
        print(f"\nlog       the history of {actors[0].identity.node_id}, without arguments or results:")
        for event in await devices.fleet.world.store.read(f"node/{actors[0].identity.node_id}"):
            print(f"            {event.version:>3}  {event.data.decode()[:110]}")


class _Followed:
    """Prints what it hears."""

    def __init__(self) -> None:
        self.frames = 0

    def on_frame(self, frame: Mapping[str, Any]) -> None:
        self.frames += 1
        bar = "█" * round(frame["cpu_pct"] / 4)
        print(f"            cpu {frame['cpu_pct']:5.1f} % {bar:<25}  load {frame['load_1m']:.2f}")

    def on_cadence_end(self) -> None:
        pass


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # what it waits for is many things at once
        await trio.sleep(0.01)
