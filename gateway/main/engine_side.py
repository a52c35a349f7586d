"""A gateway that is one of several on NATS JetStream: connection, log, buckets, and what keeps its view of them true.

A process has an id of its own, new with each start. While it does not reach the engine for longer than `lost_s_max` it
sends its nodes away: others may have them. It says goodbye by taking its entry out, so nobody waits for that to end.
"""

import os
import platform
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import structlog
import trio
from ulid import ULID

from actors.bus.bus import Bus
from actors.bus.directory import HERE, NodeRecord
from actors.engine.engine_bus import EngineBus
from actors.engine.engine_directory import EngineDirectory
from actors.engine.engine_purse import EnginePurse
from actors.engine.facts import Facts
from actors.engine.feeds import Feeds
from actors.engine.heartbeat import Me
from actors.engine.janitor import Janitor
from actors.engine.presence_rules import PROCESS, Standing, Unease, is_witness
from actors.engine.process_looks import ProcessState, processes_shown
from actors.log.store import CannotOpenError
from actors.node.fleet import Fleet
from actors.node.moment import Moment
from actors.stream.streams import Streams
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.engine.connection import Connection, NotConnectedError
from gateway.engine.credentials import NOBODY, BadCredentialsError, Credentials, read_credentials
from gateway.engine.link import LinkState
from gateway.engine.nats_kv import NatsKv
from gateway.engine.nats_messages import NatsMessages
from gateway.engine.nats_runs import Names
from gateway.engine.nats_store import NatsStore
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.objects import NotReadyError, Objects
from gateway.engine.objects_rules import CONFIG, LIVE, MANIFESTS
from gateway.engine.objects_watch import ObjectCounts, ObjectsWatch
from gateway.engine.syncing import is_always_synced
from gateway.governance.governor import Governor
from gateway.governance.policy.source import PolicySource
from gateway.governance.policy_judge import PolicyJudge
from gateway.main.agreed import Agreed
from gateway.main.agreed_among_several import agreed_among_several
from gateway.main.data_folder import DataFolder, Place
from gateway.main.desk import Desk
from gateway.main.engine_discovery import discovery_of
from gateway.main.engine_settings import EngineSettings
from gateway.main.settings import UNIX, Address, Settings, SettingsError
from gateway.mcp.forward import Forwards
from gateway.mcp.homes import Homes
from gateway.mcp.sessions import Sessions
from gateway.observe.tracing import CallSpans
from schemas.closes import NodeClose

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_FLUSH_S_MAX = 0.4  # for charges and releases that wait; what is left is charged when it is overdue
_GOODBYE_S_MAX = 1.0  # for our entry to be taken out; then it ends by itself after `dead_s`


@dataclass(frozen=True, slots=True)
class _Counts:
    """An `EngineCounts`."""

    objects: Mapping[str, ObjectCounts]
    store: NatsStore

    @property
    def unknown_outcomes(self) -> int:
        return self.store.unknown_outcomes


class EngineSide:
    """A `gateway.main.side.Side`."""

    shares_ports = True
    pays_at_hand = False

    def __init__(
        self,
        link: Connection,
        store: NatsStore,
        names: Names,
        settings: EngineSettings,
        me: Me,
        now: Callable[[], Moment],
    ) -> None:
        """Use `opened`."""
        self._now = now
        self.stream_counts: Callable[[], dict[str, int]] = dict
        self._purse: EnginePurse | None = None
        self.on_blind: Callable[[], None] = lambda: None
        bounds = settings.bounds
        self.link, self.store, self.names, self.me = link, store, names, me
        self.settings = settings
        self._objects = Objects(link, names, bounds)
        self._objects_watch = ObjectsWatch(link, names, bounds.read_s_max)
        self.counts = _Counts(self._objects_watch.counts, store)
        self.config = NatsKv(link, names, CONFIG, bounds)
        self.live = NatsKv(link, names, LIVE, bounds)
        said = replace(me, says=lambda: msgspec.to_builtins(self._state()))
        self.directory = EngineDirectory(self.live, NatsKv(link, names, MANIFESTS, bounds), said, settings.presence)
        self.facts = Facts(self.config, me, settings.presence)
        self.feeds = Feeds(self.facts, settings.presence)
        self.janitor = Janitor(self.live, me.process, settings.presence, self.directory.settle_lost)
        self._discovery = None
        if settings.mqtt is not None:
            name = "credentials" if settings.mqtt_credentials is None else "mqtt_credentials"
            who = _credentials(getattr(settings, name), name)
            self._discovery = discovery_of(settings, who, me.process, self.directory, me.wall_ms, self.janitor.is_here)

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: Settings, place: Place, now: Callable[[], Moment]) -> AsyncIterator["EngineSide"]:
        engine = settings.engine
        async with opened_engine(engine) as (link, names, log_id):
            live = NatsKv(link, names, LIVE, engine.bounds)
            me = Me(
                process=str(ULID()),
                host=platform.node(),
                address=_internal_address(engine, place),
                wall_ms=lambda: now().wall_ms,
                stamped_ms=live.stamped_ms,
                counts=lambda: side.stream_counts(),
            )
            store = NatsStore(link, names, log_id, lambda: now().wall_ms / 1000, engine=engine.bounds)
            async with store:
                side = cls(link, store, names, engine, me, now)
                try:
                    yield side
                finally:
                    await side.say_goodbye()

    def agree(self, folder: DataFolder, policy: PolicySource) -> Agreed:
        return agreed_among_several(
            folder,
            self.store,
            self.directory,
            policy,
            self.facts,
            self.feeds,
            self.settings.presence,
            self._now,
        )

    def is_witness(self, record: NodeRecord) -> bool:
        me = self.me.process
        owner = me if record.owner == HERE else record.owner
        return is_witness(me, owner, self.directory.processes, live=record.live)

    def begin(self, supervisor: Supervisor) -> None:
        _keep(supervisor, "engine_connection", self.link.watch, Kind.FATAL, Stage.LOG)
        _keep(supervisor, "engine_objects", self._objects.keep_live, Kind.PERMANENT, Stage.CORE)
        _keep(supervisor, "engine_objects_watch", self._objects_watch.run, Kind.PERMANENT, Stage.CORE)
        _keep(supervisor, "engine_directory", self.directory.run, Kind.PERMANENT, Stage.CORE)
        _keep(supervisor, "engine_facts", self.facts.run, Kind.PERMANENT, Stage.CORE)
        _keep(supervisor, "engine_feeds", self.feeds.run, Kind.PERMANENT, Stage.CORE)

    def join(self, supervisor: Supervisor, fleet: Fleet, spans: CallSpans | None) -> Bus:
        messages = NatsMessages(self.link)
        bus = EngineBus(
            fleet, self.directory, messages, self.me.process, self._now, self.settings.bus, self.names.prefix
        )
        bus.calls_for_others.on_served = None if spans is None else spans.served
        supervisor.start(
            ChildSpec(name="bus", run=bus.run, kind=Kind.PERMANENT, stage=Stage.STREAMS, ask_stop=bus.stop)
        )
        fleet.sweeps = self._sweeps
        fleet.compacts = self.janitor.is_here
        self.directory.on_superseded = fleet.supersede
        _keep(supervisor, "janitor", self.janitor.run, Kind.PERMANENT, Stage.CORE)
        _keep(supervisor, "engine_standing", lambda: self._watch_standing(fleet), Kind.PERMANENT, Stage.CORE)
        if self._discovery is not None:
            _keep(supervisor, "discovery", self._discovery.run, Kind.PERMANENT, Stage.CORE)
            if self.settings.mqtt_telemetry:
                fleet.services = replace(fleet.services, on_telemetry=self._discovery.telemetry)
        return bus

    def share_streams(self, streams: Streams) -> None:
        """A tenant's quota is for all processes: what others have is as old as their last heartbeat."""
        self.stream_counts = streams.counts
        mine = self.me.process

        def elsewhere(tenant: str) -> int:
            others = (entry for process, entry in self.directory.processes.items() if process != mine)
            return sum(entry.counts.get(tenant, 0) for entry in others)

        streams.elsewhere = elsewhere

    def pay(self, supervisor: Supervisor, governor: Governor, ledgers: object) -> EnginePurse:
        del ledgers  # those of one process
        purse = self._purse = EnginePurse(
            self.store,
            NatsMessages(self.link),
            self.me.process,
            self._now,
            PolicyJudge(governor),
            self.settings.purse,
            self.names.prefix,
        )
        governor.shared = purse
        is_over = trio.Event()

        async def run() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(purse.run)
                await is_over.wait()
                await purse.flush(_FLUSH_S_MAX)
                nursery.cancel_scope.cancel()

        # With the nodes: when they are told to go, all calls have ended, and the log still takes what they cost.
        supervisor.start(ChildSpec(name="purse", run=run, kind=Kind.PERMANENT, stage=Stage.NODES, ask_stop=is_over.set))
        return purse

    def forwards(self, sessions: Sessions, supervisor: Supervisor, idle_s_max: float) -> Forwards:
        homes = Homes(self.live, self.me.process, self.directory.processes, idle_s_max)
        sessions.on_end = homes.closed
        _keep(supervisor, "mcp_homes", homes.run, Kind.PERMANENT, Stage.CORE)
        return Forwards(homes, self.me.host)

    def desk(self, forwards: Forwards | None) -> Desk | None:
        if forwards is None:
            return None
        return Desk(self.live, self.me.process, self.directory.processes, forwards)

    def standing(self) -> Standing:
        """The worse of what is known of nodes, and of what is agreed."""
        known = self.feeds.standing()
        return self.directory.standing() if known is Standing.READY else known

    def takes_nodes(self) -> bool:
        return self.standing() is Standing.READY

    def serves(self) -> bool:
        return self.feeds.standing() is Standing.READY

    def _state(self) -> ProcessState:
        return ProcessState(
            standing=self.standing().value,
            link=self.link.state.value,
            lag_ms=max(self.directory.lag_ms(), self.facts.lag_ms()),
            skew_ms=self.directory.skew_ms,
            queued_appends=self.store.queued_appends,
            unknown_outcomes=self.store.unknown_outcomes,
            ledgers=0 if self._purse is None else self._purse.owned,
        )

    def shown(self) -> Mapping[str, Any]:
        return {
            "prefix": self.names.prefix,
            "server_version": ".".join(map(str, self.link.server_version)),
            "is_janitor": self.janitor.is_here(),
            **processes_shown(self.directory.process_looks(), self.me.process, self._state()),
        }

    def is_ready(self) -> bool:
        return self.takes_nodes()

    def _sweeps(self, node_id: str) -> bool:
        """What a live node has left, the process with its session settles."""
        record = self.directory.find(node_id)
        is_elsewhere = record is not None and record.live and record.owner != HERE
        return self.janitor.is_here() and not is_elsewhere

    async def _watch_standing(self, fleet: Fleet) -> None:
        before, unease = Standing.READY, Unease(self.settings.leave_s)
        while True:
            standing = self.standing()
            if unease.leaves(standing, trio.current_time(), is_connected=self.link.state is LinkState.UP):
                log.warning("engine_server_left", standing=standing)
                self.link.leave()
            if standing is not before:
                log.warning("engine_standing", standing=standing)
                before = standing
            if standing is Standing.LOST or not self.serves():
                fleet.end_all(NodeClose.SERVICE_RESTART)
            if not self.serves():
                self.on_blind()
            await trio.sleep(self.settings.heartbeat_s / 2)

    async def say_goodbye(self) -> None:
        with trio.CancelScope(shield=True), trio.move_on_after(_GOODBYE_S_MAX):
            await self.live.delete(PROCESS + self.me.process)


@asynccontextmanager
async def opened_engine(engine: EngineSettings) -> AsyncIterator[tuple[Connection, Names, str]]:
    """A connection to an engine that is as it has to be, what its objects are called, and the id of its log.

    Raises SettingsError, CannotOpenError.
    """
    names, settings = _names(engine.prefix), _connection_settings(engine, "credentials")
    try:
        is_synced = await _is_synced(engine)
        link = await Connection.open(settings)
    except NotConnectedError as error:
        raise CannotOpenError(str(error)) from error
    async with link:
        try:
            log_id = await Objects(link, names, engine.bounds).prepare(is_synced)
        except NotReadyError as error:
            raise CannotOpenError(f"the engine is not as it has to be: {error}") from error
        yield link, names, log_id


def _keep(supervisor: Supervisor, name: str, run: Callable[[], object], kind: Kind, stage: Stage) -> None:
    supervisor.start(ChildSpec(name=name, run=run, kind=kind, stage=stage))  # type: ignore[arg-type]


def _internal_address(engine: EngineSettings, place: Place) -> str:
    """Where other processes hand over what is ours to answer: those of other machines need `internal_listen`."""
    if engine.internal_listen is None:
        return f"{UNIX}{place.socket}"
    address = Address.parse(engine.internal_listen)
    return f"{address.host}:{address.port + place.number}"


def _names(prefix: str) -> Names:
    try:
        return Names(prefix)
    except ValueError as error:
        raise SettingsError(f"engine.prefix: {error}") from None


async def _is_synced(engine: EngineSettings) -> bool | None:
    """Raises NotConnectedError."""
    if engine.system_credentials is None:
        return None
    async with await Connection.open(_connection_settings(engine, "system_credentials")) as system:
        return await is_always_synced(system)


def _connection_settings(engine: EngineSettings, name: str) -> ConnectionSettings:
    who = _credentials(getattr(engine, name), name)
    return ConnectionSettings(
        servers=engine.servers,
        token=who.token,
        user=who.user,
        password=who.password,
        nkey=who.nkey,
        jwt=who.jwt,
        tls_ca=None if engine.tls_ca is None else Path(engine.tls_ca),
        name=f"heliograph {os.getpid()}",
    )


def _credentials(path: str | None, name: str) -> Credentials:
    if path is None:
        return NOBODY
    try:
        return read_credentials(Path(path))
    except (OSError, BadCredentialsError) as error:
        raise SettingsError(f"engine.{name}: cannot use {path}: {error}") from None
