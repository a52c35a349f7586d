"""A gateway's device side as a process: SQLite, a listener, and an agent that calls the node again and again.

It says on standard output what became of each call, and `settled` when it was asked to stop calling (a line on standard
input) and no command is open any more.
"""

import sys
from pathlib import Path
from typing import Any

import trio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from actors.bus.bus import Succeeded
from actors.device.identity import DeviceIdentity
from actors.ledger.ledgers import Agent, command_key
from actors.ledger.rules import Budget
from actors.log.sqlite_store import SqliteStore
from actors.log.store import AppendAnswer, AppendRefused, BlindEvents, Part, StoreFailedError, Then
from actors.node.actor import NodeActor
from actors.supervision.supervisor import Supervisor
from gateway.devices.device_side import DeviceSettings, DeviceSide
from gateway.devices.node_socket import NodeSocket
from gateway.identity.tokens import Verifier, key_id
from gateway.main.clock import now
from schemas.certificates import KnownCertificates
from tests.processes.points import Point, Trap

TOKEN_KEY = Ed25519PrivateKey.from_private_bytes(b"t" * 32)
CALLS_AT_ONCE = 3
AGENT, PRICE_MICROS, PLENTY = Agent("acme", "agent"), 15_000, Budget(10**12)


class TrappedStore:
    """The real store; the process may die right before or right after an append."""

    def __init__(self, store: SqliteStore, trap: Trap) -> None:
        self._store = store
        self._trap = trap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
        events = b"".join(event for part in parts for event in part.events)
        if b"command_sent" in events:
            self._trap.passed(Point.BEFORE_SENT)
        if b"command_acked" in events:
            self._trap.passed(Point.BEFORE_ACKED)

        def answered(answer: AppendAnswer | StoreFailedError) -> None:
            if b"command_sent" in events:
                self._trap.passed(Point.AFTER_SENT)
            if b"command_acked" in events:
                self._trap.passed(Point.AFTER_ACKED)
            then(answer)

        return self._store.submit(parts, answered, blind_events)


async def has_open_commands(store: TrappedStore) -> bool:
    return any(stream.startswith("node/") for stream in await store.open_streams())


def say(*words: object) -> None:
    print(*words, flush=True)


async def call_for_ever(devices: DeviceSide, node_id: str, tokens: "Tokens", stop: trio.Event) -> None:
    tool = f"sysecho.{node_id}.echo.invoke"
    ledger = await devices.ledgers.of(*AGENT)
    while not stop.is_set():
        actor: NodeActor | None = devices.fleet.nodes.find(node_id)
        if actor is None or not actor.is_live:
            await trio.sleep(0.005)
            continue
        token = tokens.next()
        say("call", token)
        outcome = await actor.call(
            tool,
            {"message": token},
            sub=AGENT.sub,
            tenant=AGENT.tenant,
            deadline_at_ms=now().wall_ms + 5000,
            hold=lambda msg_id: ledger.hold(command_key(node_id, msg_id), tool, PRICE_MICROS, PLENTY, now().wall_ms),
        )
        say("ok" if isinstance(outcome, Succeeded) else "failed", token, outcome.msg_id)
        await trio.sleep(0.1)  # ten a second is what the capability allows


class Tokens:
    def __init__(self, run: str) -> None:
        self._run, self._count = run, 0

    def next(self) -> str:
        self._count += 1
        return f"{self._run}-{self._count}"


async def main(folder: Path, node_folder: Path, port: int, run: str, trap: Trap) -> None:
    store = TrappedStore(await SqliteStore.open(folder / "log.sqlite"), trap)
    certificates = KnownCertificates(x509.load_der_x509_certificate((folder / "ca.der").read_bytes()))
    leaf = DeviceIdentity.load(node_folder).leaf
    certificates.learn(leaf)
    public_key = TOKEN_KEY.public_key()
    verifier = Verifier({key_id(public_key): public_key}, issuer="test", audience="test")
    supervisor = Supervisor()
    devices = DeviceSide(supervisor, store, verifier, certificates, DeviceSettings())

    written = NodeSocket.send

    def send(self: NodeSocket, data: bytes) -> bool:
        sent = written(self, data)
        if b'"type":"cmd"' in data:
            trap.passed(Point.AFTER_WRITE)
        return sent

    NodeSocket.send = send  # type: ignore[method-assign]
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        await devices.start()
        say("listening", await devices.listen("127.0.0.1", port))
        tokens = Tokens(run)
        async with trio.open_nursery() as callers:  # a call may just have begun at the stop: wait for them all
            for _ in range(CALLS_AT_ONCE):
                callers.start_soon(call_for_ever, devices, leaf.node_id, tokens, stop)
            await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
            stop.set()
        while await has_open_commands(store):  # noqa: ASYNC110  # a database cannot set an event
            await trio.sleep(0.02)
        say("settled")
        await trio.sleep_forever()


if __name__ == "__main__":
    _, folder, node_folder, port, run, point, times = sys.argv
    trap = Trap(Point(point) if point else None, int(times))
    trio.run(main, Path(folder), Path(node_folder), int(port), run, trap)
