"""Gateways that share a log, buckets and messages; each may die, be stopped and go on, or be cut off from the rest."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import trio

from actors.bus.purse import Account, Agreed, Guess, Look, NotGiven, Order, Stands, TooOften
from actors.engine.engine_bus import EngineBus
from actors.engine.engine_directory import EngineDirectory
from actors.engine.engine_purse import EnginePurse
from actors.engine.heartbeat import Me
from actors.engine.janitor import Janitor
from actors.engine.kv import Change, Entry, NotPut
from actors.engine.memory_kv import MemoryBucket, MemoryKv
from actors.engine.memory_messages import MemoryBroker, MemoryMessages
from actors.engine.presence_rules import Standing
from actors.engine.settings import DEFAULT_PRESENCE
from actors.ledger.rules import Budget
from actors.node.calls import PendingCalls
from actors.node.fleet import Fleet
from actors.node.moment import Moment
from actors.node.services import NodeServices
from actors.node.settings import NodeSettings
from actors.supervision.supervisor import Supervisor
from schemas.closes import NodeClose
from tests.simulation.fleet import Rules, SimGateway, Site
from tests.simulation.network import Link

PRICE_MICROS = 15_000


@dataclass(frozen=True, slots=True)
class OnePrice:
    """A `Judge`: every tool costs the same."""

    budget: Budget

    def judge(self, order: Order, account: Account, now: Moment) -> Agreed:
        del order, account, now
        return Agreed(PRICE_MICROS, self.budget, ())

    def guessed(self, guess: Guess, now: Moment) -> TooOften | None:
        raise NotImplementedError

    def stands(self, look: Look, account: Account, now: Moment) -> Stands | NotGiven:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class EngineRules(Rules):
    """Besides, what is put in the place of a function of a module, by its full name."""

    patches: Mapping[str, object] = field(default_factory=dict)


class Gate:
    """What a process waits at before it does anything that others see."""

    def __init__(self) -> None:
        self._is_open = trio.Event()
        self._is_open.set()

    @property
    def is_closed(self) -> bool:
        return not self._is_open.is_set()

    def close(self) -> None:
        self._is_open = trio.Event()

    def open(self) -> None:
        self._is_open.set()

    async def wait(self) -> None:
        await self._is_open.wait()


class GatedKv(MemoryKv):
    """A bucket as a process sees it that may be stopped or cut off: what it does not hear, it hears later."""

    def __init__(self, bucket: MemoryBucket, process: Gate, engine: Gate) -> None:
        super().__init__(bucket)
        self._process, self._engine = process, engine
        self._unheard: deque[tuple[Callable[[Change], None], Change]] = deque()

    async def get(self, key: str) -> Entry | None:
        await self._engine.wait()
        await self._process.wait()
        return await super().get(key)

    async def _write(self, key: str, data: bytes | None, expected: int | None, ttl_s: float | None) -> int | NotPut:
        await self._engine.wait()
        await self._process.wait()
        return await super()._write(key, data, expected, ttl_s)

    async def watch(self, heard: Callable[[Change], None]) -> None:
        def hear(change: Change) -> None:
            if self._process.is_closed or not self.is_reachable:
                self._unheard.append((heard, change))
            else:
                heard(change)

        self._unheard.clear()  # a watcher that begins anew is told everything
        await super().watch(hear)

    def catch_up(self) -> None:
        while self._unheard:
            heard, change = self._unheard.popleft()
            heard(change)


@dataclass(slots=True)
class EngineSite(Site):
    """Besides, what is between the gateways."""

    broker: MemoryBroker = field(default_factory=MemoryBroker)
    live: MemoryBucket = field(default_factory=MemoryBucket)
    manifests: MemoryBucket = field(default_factory=MemoryBucket)
    engine: Gate = field(default_factory=Gate)  # closed while it has no leader
    started: int = 0  # processes
    budget: Budget = field(default_factory=lambda: Budget(60 * PRICE_MICROS))  # of an agent, in each tenant

    @property
    def pays(self) -> bool:
        return False


class EngineGateway(SimGateway):
    """One of several. Stopped, it does nothing that others see; its clocks go on, as they would for whoever asks it."""

    def __init__(self, site: EngineSite) -> None:
        super().__init__(site)
        self.site = site
        self.process = ""
        self.bus: EngineBus | None = None
        self.directory: EngineDirectory | None = None
        self.purse: EnginePurse | None = None
        self.messages = MemoryMessages(site.broker)
        self.gate, self.wire = Gate(), Gate()  # of the process, and of its connection to the engine
        self.kvs: tuple[GatedKv, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Nothing happens to it now."""
        return self.is_up and not self.gate.is_closed and not self.wire.is_closed

    async def start(self) -> None:
        site, rng = self.site, self.site.rng
        site.started += 1
        self.process = f"P{site.started}"
        self.gate, self.wire = Gate(), Gate()

        async def before_commit() -> None:
            await trio.sleep(rng.choice((0, 0, 0.002, 0.02, 0.3)))
            await site.engine.wait()
            await self.gate.wait()
            await self.wire.wait()

        async def before_answer() -> None:
            await trio.sleep(rng.choice((0, 0, 0.002, 0.02, 0.3)))
            await site.engine.wait()  # it has landed, and nobody says so before there is a leader
            await self.gate.wait()
            await self.wire.wait()

        self._store = site.rules.store(site.disk, before_commit=before_commit, before_answer=before_answer)
        self.messages = MemoryMessages(site.broker)
        live, manifests = (GatedKv(bucket, self.gate, site.engine) for bucket in (site.live, site.manifests))
        self.kvs = live, manifests
        me = Me(self.process, "host", "unix:x", lambda: site.now().wall_ms)
        self.directory = directory = EngineDirectory(live, manifests, me)
        services = NodeServices(
            store=self._store,
            directory=directory,
            calls=PendingCalls(),
            certificates=site.certificates,
            settings=NodeSettings(),
            now=site.now,
            entropy=rng.randbytes,
            count=lambda _: None,
        )
        supervisor = Supervisor()
        self._scope = trio.CancelScope()
        await site.nursery.start(self._run, supervisor)
        assert self.callers is not None
        fleet = Fleet(supervisor, services)
        fleet.actor_class = site.rules.actor
        self.bus = EngineBus(fleet, directory, self.messages, self.process, site.now)
        judge = OnePrice(site.budget)
        self.purse = EnginePurse(self._store, self.messages, self.process, site.now, judge)
        janitor = Janitor(live, self.process, DEFAULT_PRESENCE, directory.settle_lost)
        fleet.sweeps = lambda _: janitor.is_here()
        directory.on_superseded = fleet.supersede
        for run in self.bus.run, directory.run, janitor.run, self.purse.run:
            self.callers.start_soon(run)
        await directory.load()
        self.callers.start_soon(self._watch_standing, fleet)
        self.fleet = fleet
        fleet.start_sweeper()

    async def _watch_standing(self, fleet: Fleet) -> None:
        """As the composition root does."""
        assert self.directory is not None
        while True:
            await trio.sleep(1.0)
            if self.directory.standing() is Standing.LOST:
                fleet.end_all(NodeClose.SERVICE_RESTART)

    def accept(self, link: Link) -> None:
        assert self.directory is not None
        if self.directory.standing() is Standing.READY:
            super().accept(link)
        else:
            self._links.append(link)
            link.gateway_end.close(NodeClose.SERVICE_RESTART)

    # ---- what happens to it -----------------------------------------------------------------------------------------

    def crash(self) -> None:
        self.bus = self.directory = self.purse = None
        self.messages.die()
        super().crash()

    async def stop_for(self, span_s: float) -> None:
        """SIGSTOP, and later SIGCONT."""
        for link in self._links:
            link.stall(span_s)
        self.gate.close()
        self.messages.stop()
        await trio.sleep(span_s)
        self.go_on()

    def go_on(self) -> None:
        self.gate.open()
        self.messages.go_on()
        self._catch_up()

    async def cut_off_for(self, span_s: float) -> None:
        """From the engine; its nodes and its callers reach it."""
        self.wire.close()
        self.messages.cut_off()
        for kv in self.kvs:
            kv.is_reachable = False
        await trio.sleep(span_s)
        self.connect()

    def connect(self) -> None:
        for kv in self.kvs:
            kv.is_reachable = True
        self.wire.open()
        if self.is_up:
            self.messages.connect()
        self._catch_up()

    def _catch_up(self) -> None:
        if self.is_idle:
            for kv in self.kvs:
                kv.catch_up()
