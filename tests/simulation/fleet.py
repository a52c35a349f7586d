"""The actors of a simulation: gateways that crash and come back over one disk, nodes that do the same over theirs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.signing import SigningKey

from actors.bus.local_directory import LocalDirectory
from actors.device.agent import Agent
from actors.device.device import Device
from actors.device.handlers import ECHO_CAPABILITY
from actors.device.identity import DeviceIdentity, manifest_signer
from actors.device.journal import JournalState, Opened
from actors.device.memory_journal import JournalDisk, MemoryJournal
from actors.device.wire import ABNORMAL, Wire, WireClosed
from actors.ledger.ledgers import Ledgers
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.node.actor import NodeActor
from actors.node.calls import PendingCalls
from actors.node.fleet import Fleet
from actors.node.moment import Moment
from actors.node.services import Authenticated, NodeServices
from actors.node.settings import NodeSettings
from actors.supervision.supervisor import Supervisor
from schemas.certificates import CertificateAuthority, KnownCertificates
from schemas.closes import NodeClose
from schemas.frames import Auth, Cmd, Side, decode
from schemas.manifest import NodeIdentity
from schemas.projection import project
from tests.simulation.network import Link
from tests.simulation.oracle import Oracle

BASE_MS = 1_790_000_000_000
TENANTS = ("sim/a", "sim")  # one is the beginning of the other's name
FINGERPRINT = {"algo": "blake3-256", "value": "0" * 64, "sources": ["machine_id"]}
CAPABILITY = {
    **ECHO_CAPABILITY,
    "constraints": {"rate_limit_rps": 50, "max_concurrency": 8, "deadline_ms_default": 2000},
}
# The node runs fewer at once than it announces, so that commands wait on it, received and not begun.
CONCURRENCY_OF_A_NODE = 2


def now() -> Moment:
    """As the nodes' clocks have it."""
    return Moment(trio.current_time(), BASE_MS + round(trio.current_time() * 1000))


def tenant_of(node_id: str) -> str:
    return TENANTS[int(node_id[-3:]) % len(TENANTS)]


@dataclass(frozen=True, slots=True)
class Rules:
    """Which rules are left out, and how: nothing by default."""

    agent: type[Agent] = Agent
    store: type[MemoryStore] = MemoryStore
    actor: type[NodeActor] = NodeActor


@dataclass(slots=True)
class Site:
    """What the whole simulation shares."""

    rng: Random
    nursery: trio.Nursery
    oracle: Oracle
    disk: MemoryDisk
    rules: Rules
    ca: CertificateAuthority
    certificates: KnownCertificates
    gateways: list["SimGateway"] = field(default_factory=list)
    back_ms: int = 0  # by which the gateways' clock has stepped back

    @property
    def pays(self) -> bool:
        """A ledger has one writer: where there is one gateway, calls cost something."""
        return len(self.gateways) == 1

    def now(self) -> Moment:
        """As the gateways' clock has it."""
        mono_s, wall_ms = now()
        return Moment(mono_s, wall_ms - self.back_ms)


class SimGateway:
    def __init__(self, site: Site) -> None:
        self._site = site
        self.fleet: Fleet | None = None
        self._links: list[Link] = []
        self._scope = trio.CancelScope()
        self._store: MemoryStore | None = None
        self.ledgers: Ledgers | None = None
        self.callers: trio.Nursery | None = None
        """Tasks of this process, which a crash ends like all others."""

    @property
    def is_up(self) -> bool:
        return self.fleet is not None

    async def start(self) -> None:
        """Boot on what the disk holds."""
        site = self._site

        async def pause() -> None:
            await trio.sleep(site.rng.choice((0, 0, 0.002, 0.02, 0.3)))

        self._store = site.rules.store(site.disk, before_commit=pause, before_answer=pause)
        supervisor = Supervisor()
        self.ledgers = Ledgers(self._store) if site.pays else None
        services = NodeServices(
            store=self._store,
            directory=LocalDirectory(self._store),
            calls=PendingCalls(),
            certificates=site.certificates,
            settings=NodeSettings(),
            now=site.now,
            entropy=site.rng.randbytes,
            count=lambda _: None,
            ledgers=self.ledgers,
        )
        self._scope = trio.CancelScope()
        await site.nursery.start(self._run, supervisor)
        await services.directory.load()
        fleet = Fleet(supervisor, services)
        fleet.actor_class = site.rules.actor
        await fleet.settle_ledgers()
        self.fleet = fleet
        fleet.start_sweeper()

    async def _run(self, supervisor: Supervisor, *, task_status: trio.TaskStatus[None]) -> None:
        with self._scope:
            async with trio.open_nursery() as self.callers:
                await supervisor.run(task_status=task_status)

    def crash(self) -> None:
        assert self._store is not None
        self.fleet = None
        for link in self._links:
            link.gateway_end.die()
            link.cut(self._site.nursery)
        self._links = []
        self._store.crash()
        self._scope.cancel()

    def accept(self, link: Link) -> None:
        """A node has dialled in: its first frame decides."""
        self._links.append(link)
        end = link.gateway_end
        fleet = self.fleet
        assert fleet is not None

        def greet(data: bytes) -> None:
            frame = decode(data, Side.NODE)
            if not isinstance(frame, Auth):
                end.close(NodeClose.BAD_FRAME)
                return
            proved = Authenticated(
                NodeIdentity(frame.node_id, tenant_of(frame.node_id)), frame.msg_id, "token", BASE_MS * 2
            )
            actor, _ = fleet.start_session(proved, end, lambda _: None)
            end.on_frame = actor.on_frame
            end.on_gone = lambda: actor.close(NodeClose.NORMAL)
            end.on_send = lambda data: self._watch(actor, data)

        end.on_frame = greet

    def _watch(self, actor: NodeActor, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        if isinstance(frame, Cmd):
            self._site.oracle.wrote(actor.identity.node_id, frame.msg_id, frame.arguments["message"], actor.epoch)


class SimNode:
    def __init__(self, site: Site, number: int, last_cmd: str | None = None) -> None:
        """`last_cmd` is what it claims to have begun last, for a gateway that it has never met."""
        self._site = site
        self.node_id = f"01hzx9k3m4p7q8r9s0t1v2w{number:03d}"
        self.journal_disk = JournalDisk()
        if last_cmd is not None:
            self.journal_disk.writes.append((Opened(site.disk.log_id, f"journal-{number}", last_cmd),))
        self.link: Link | None = None
        self._journal: MemoryJournal | None = None
        self._scope = trio.CancelScope()
        key = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
        leaf = site.ca.issue(self.node_id, tenant_of(self.node_id), key.public_key(), BASE_MS - 3_600_000)
        site.certificates.learn(leaf)
        identity = DeviceIdentity(SigningKey(key.private_bytes_raw()), leaf, "token")
        (tool,) = project({"node_id": self.node_id, "capabilities": [CAPABILITY]})
        tool = replace(tool, constraints={**tool.constraints, "max_concurrency": CONCURRENCY_OF_A_NODE})
        self.tool = tool.name
        self._device = Device(
            self.node_id,
            "token",
            {tool.name: tool},
            {tool.name: self._echo},
            manifest_signer(identity, FINGERPRINT, [CAPABILITY]),
        )

    @property
    def is_up(self) -> bool:
        return self._journal is not None

    def start(self) -> None:
        rng = self._site.rng

        async def pause() -> None:
            await trio.sleep(rng.choice((0, 0, 0.005, 0.05, 0.5)))

        self._journal = MemoryJournal(self.journal_disk, before_write=pause, before_answer=pause)
        self._scope = trio.CancelScope()
        agent = self._site.rules.agent(
            self._device,
            journal=self._journal,
            connect=self._connect,
            wall_ms=lambda: now().wall_ms,
            rng=Random(rng.getrandbits(64)),
        )
        self._site.nursery.start_soon(self._run, agent, self._scope)

    async def _run(self, agent: Agent, scope: trio.CancelScope) -> None:
        with scope:
            await agent.run()

    @property
    def last_cmd(self) -> str | None:
        """Where its journal stands on disk."""
        return JournalState(record for write in self.journal_disk.writes for record in write).last_cmd

    def crash(self) -> None:
        assert self._journal is not None
        self._journal.crash()
        self._journal = None
        if self.link is not None:
            self.link.node_end.hang_up(ABNORMAL, "")
            self.link.cut(self._site.nursery, gateway_notices=self._site.rng.random() < 0.8)
        self._scope.cancel()

    async def _connect(self) -> Wire:
        await trio.sleep(self._site.rng.uniform(0, 0.3))
        up = [gateway for gateway in self._site.gateways if gateway.is_up]
        if not up:
            raise WireClosed(ABNORMAL)
        self.link = Link(self._site.rng, self._site.nursery)
        self._site.rng.choice(up).accept(self.link)
        return self.link.node_end

    async def _echo(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Really executing: the oracle sees it. Sometimes slow, sometimes past its own deadline, sometimes broken."""
        rng = self._site.rng
        self._site.oracle.executed(self.node_id, arguments["message"], self._site.now().wall_ms)
        await trio.sleep(rng.choice((0, 0.01, 0.2, 1.0, 3.0)))
        if rng.random() < 0.1:
            raise RuntimeError("broken")
        return {"message": arguments["message"], "received_at_ms": now().wall_ms, "node_id": self.node_id}
