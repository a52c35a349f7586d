"""Gateways that share nodes: each a fleet, a directory and a bus of its own; what is between them is to be given."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from actors.bus.bus import Bus, Listener, Outcome, free
from actors.bus.directory import OwnersDirectory
from actors.engine.engine_bus import EngineBus
from actors.engine.engine_directory import EngineDirectory
from actors.engine.heartbeat import Me
from actors.engine.kv import Kv
from actors.engine.memory_kv import MemoryBucket, MemoryKv
from actors.engine.memory_messages import MemoryBroker, MemoryMessages
from actors.engine.messages import Messages
from actors.engine.settings import BusSettings, PresenceSettings
from actors.log.memory_store import MemoryDisk
from actors.node.fleet import Fleet
from actors.supervision.supervisor import Supervisor
from schemas.frames import Cmd, Frame, Telemetry
from tests.actors.node.calling import ECHO
from tests.actors.node.harness import Gateway, ScriptedNode, now
from tests.schemas.examples import FRAME, NODE_ID


async def until(holds: Callable[[], bool], s_max: float = 60.0) -> None:
    """Let time pass until it does."""
    with trio.fail_after(s_max):
        while not holds():  # noqa: ASYNC110 (of another process: there is no event to wait for)
            await trio.sleep(0.02)


@dataclass(slots=True, eq=False)
class Process:
    """A gateway, as the tests see it."""

    fleet: Fleet
    bus: Bus
    directory: OwnersDirectory
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    messages: MemoryMessages | None = None
    live: MemoryKv | None = None

    @property
    def engine(self) -> EngineBus:
        assert isinstance(self.bus, EngineBus)
        return self.bus

    def is_told(self, *, live: bool = True, epoch: int | None = None) -> bool:
        """Whether it knows the node to be live, or away."""
        record = self.directory.find(NODE_ID)
        return record is not None and record.live is live and epoch in (None, record.epoch)

    async def session(self, **resume: Any) -> ScriptedNode:
        """The node, live here."""
        node = ScriptedNode.started_by(self.fleet)
        await node.go_live(**resume)
        return node

    def stop(self) -> None:
        """As by SIGSTOP, of what others see."""
        assert self.messages is not None
        assert self.live is not None
        self.messages.stop()
        self.live.is_reachable = False

    def go_on(self) -> None:
        assert self.messages is not None
        assert self.live is not None
        self.messages.go_on()
        self.live.is_reachable = True

    def die(self) -> None:
        assert self.messages is not None
        self.messages.die()
        self.scope.cancel()


async def one_process(nursery: trio.Nursery) -> Process:
    """A gateway that is alone."""
    gateway = Gateway()
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    fleet = Fleet(supervisor, gateway.services)
    return Process(fleet, fleet, gateway.services.directory)


async def one_of_several(
    nursery: trio.Nursery,
    name: str,
    disk: MemoryDisk,
    live: Kv,
    manifests: Kv,
    messages: Messages,
    settings: BusSettings,
    presence: PresenceSettings,
) -> Process:
    gateway = Gateway(disk)
    directory = EngineDirectory(live, manifests, Me(name, "host", "unix:x", lambda: now().wall_ms), presence)
    supervisor = Supervisor()
    scope = trio.CancelScope()
    fleet = Fleet(supervisor, replace(gateway.services, directory=directory))
    directory.on_superseded = fleet.supersede
    bus = EngineBus(fleet, directory, messages, name, now, settings)

    async def live_on(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with scope:
            async with trio.open_nursery() as own:
                await own.start(supervisor.run)
                own.start_soon(bus.run)
                own.start_soon(directory.run)
                await directory.load()
                task_status.started()

    await nursery.start(live_on)
    return Process(fleet, bus, directory, scope)


class MemoryEngine:
    """Everything that is between processes, in memory."""

    def __init__(
        self, nursery: trio.Nursery, settings: BusSettings | None = None, presence: PresenceSettings | None = None
    ) -> None:
        self.nursery = nursery
        self.settings = settings or BusSettings()
        self.presence = presence or PresenceSettings()
        self.disk = MemoryDisk()
        self.live, self.manifests, self.broker = MemoryBucket(), MemoryBucket(), MemoryBroker()

    async def process(self, name: str) -> Process:
        messages, live = MemoryMessages(self.broker), MemoryKv(self.live)
        process = await one_of_several(
            self.nursery, name, self.disk, live, MemoryKv(self.manifests), messages, self.settings, self.presence
        )
        process.messages, process.live = messages, live
        return process


class Asked:
    """A call under way, from a process that may not have the node."""

    def __init__(
        self, process: Process, nursery: trio.Nursery, tool: str = ECHO, s_max: float = 5.0, **arguments: Any
    ) -> None:
        self.outcome: Outcome | None = None
        self.scope = trio.CancelScope()
        self.held: list[str] = []
        self.answered_s: float | None = None
        self._process, self._tool, self._arguments = process, tool, arguments or {"message": "ping"}
        self._deadline_at_ms = now().wall_ms + round(s_max * 1000)
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        def hold(msg_id: str) -> None:
            self.held.append(msg_id)
            free(msg_id)

        with self.scope:
            self.outcome = await self._process.bus.call(
                NODE_ID,
                self._tool,
                self._arguments,
                sub="agent_x",
                tenant="acme",
                deadline_at_ms=self._deadline_at_ms,
                hold=hold,
            )
            self.answered_s = trio.current_time()

    async def answer(self) -> Outcome:
        await until(lambda: self.outcome is not None)
        assert self.outcome is not None
        return self.outcome


class Recorder(Listener):
    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.ended = 0

    def on_frame(self, frame: Any) -> None:
        self.frames.append(frame)

    def on_cadence_end(self) -> None:
        self.ended += 1


def telemetry(node: ScriptedNode, cmd: Cmd, **changes: Any) -> None:
    node.say(Telemetry(msg_id=node.msg_id(), in_reply_to=cmd.msg_id, frame=FRAME | changes))


def sent(node: ScriptedNode, kind: type[Frame]) -> list[Any]:
    return [frame for frame in node.connection.sent if isinstance(frame, kind)]
