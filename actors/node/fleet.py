"""All nodes of this process: starting a session, reaching a node, and the sweep of what nobody finished.

A node has at most one actor, that of its newest session; an older one is closed with 4409 the moment a newer one is
authenticated. A node that is away has no actor: its commands rest in the log, where only the sweeper touches them.
"""

import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
import trio

from actors.bus.bus import Attachment, Failed, LastFrame, Listener, Outcome, free, nothing
from actors.ledger.ledger import Agent
from actors.ledger.rules import Exceeded
from actors.log.store import Appended, UnreadableError
from actors.node.actor import NodeActor
from actors.node.append_with_charges import append_with_charges
from actors.node.cadences import Cadence
from actors.node.command_rules import Decision, decide
from actors.node.counts import NodeCounts
from actors.node.history import NodeState
from actors.node.intents import Settled, Sweep
from actors.node.limit_rules import CapabilityUse
from actors.node.node_stream import UNREADABLE, node_of, open_commands_of, part_of, restore, stream_of
from actors.node.reports import outcome_of
from actors.node.services import Authenticated, Connection, NodeServices
from actors.supervision.child import ChildSpec, Handle, Kind
from actors.supervision.crash_report import report
from actors.supervision.registry import Registry
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.manifest import NodeIdentity

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

SWEEP_EVERY_S = 60.0
CALLS_S_MAX_AT_STOP = 3.5  # a stop has 4 s for them: who still waits then is told E_DEADLINE_EXCEEDED before
COMPACT_EVERY_SWEEPS = 60
NOTHING_BUT_TIME = Sweep()
RETENTION_MS = 7 * 24 * 3600 * 1000  # settled history older than this is removed from the log


@dataclass(frozen=True, slots=True)
class _Attached:
    actor: NodeActor
    cadence: Cadence
    listener: Listener

    def detach(self) -> None:
        self.actor.detach(self.cadence, self.listener)


class Fleet:
    """Implements `actors.bus.bus.Bus`."""

    actor_class = NodeActor

    def __init__(self, supervisor: Supervisor, services: NodeServices) -> None:
        self.services = services
        self.nodes: Registry[str, NodeActor] = Registry()
        self.sweeps: Callable[[str], bool] = lambda _node_id: True
        """Of a node without a session here: whether it is this process that settles what it has left."""
        self.compacts: Callable[[], bool] = lambda: True
        """Whether it is this process that removes settled history from the log."""
        self._supervisor = supervisor
        self._keeps_deadlines = False

    def start_session(
        self, proved: Authenticated, connection: Connection, on_end: Callable[[Exception | None], None]
    ) -> tuple[NodeActor, Handle]:
        """Start the node's new session and supersede the old one. Synchronous: the socket is never without an owner.

        `on_end` is called after the actor's last step; when this raises, the connection is still the caller's.
        """
        self.keep_deadlines()  # before the first session there are no calls
        node_id = proved.identity.node_id
        older = self.nodes.find(node_id)
        actor = self.actor_class(proved, connection, self.services)

        def ended(crash: Exception | None) -> None:
            wall_ms = self.services.now().wall_ms  # one that crashed had no chance to tell
            self.services.directory.went(actor.identity, actor.epoch, NodeClose.INTERNAL, wall_ms)
            on_end(crash)

        handle = self._supervisor.start(
            ChildSpec(
                name="node",
                run=actor.run,
                kind=Kind.TEMPORARY,
                stage=Stage.NODES,
                entry=self.nodes.entry(node_id, actor),
                ask_stop=lambda: actor.close(NodeClose.SERVICE_RESTART),
                on_end=ended,
            )
        )
        if older is not None:
            older.close(NodeClose.SUPERSEDED)
        return actor, handle

    async def call(
        self,
        node_id: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        sub: str,
        tenant: str,
        deadline_at_ms: int,
        hold: Callable[[str], Exceeded | None] = free,
        withdrawn: Callable[[], None] = nothing,
    ) -> Outcome:
        actor = self.nodes.find(node_id)
        if actor is None:
            return Failed(Code.NODE_OFFLINE)
        return await actor.call(
            tool, arguments, sub=sub, tenant=tenant, deadline_at_ms=deadline_at_ms, hold=hold, withdrawn=withdrawn
        )

    def live_epoch(self, node_id: str) -> int | None:
        """Of the node's session in this process; None: there is none that is live."""
        actor = self.nodes.find(node_id)
        return actor.epoch if actor is not None and actor.is_live else None

    def last_frame(self, node_id: str) -> LastFrame | None:
        actor = self.nodes.find(node_id)
        return None if actor is None else actor.cadences.last_frame

    async def attach(self, node_id: str, tool: str, interval_ms: int, listener: Listener) -> Attachment | Failed:
        actor = self.nodes.find(node_id)
        if actor is None:
            return Failed(Code.NODE_OFFLINE)
        cadence = actor.attach(tool, interval_ms, listener)
        return cadence if isinstance(cadence, Failed) else _Attached(actor, cadence, listener)

    # ---- for people to see: what is in memory of a node, in this process --------------------------------------------

    def counts_of(self, node_id: str) -> NodeCounts | None:
        """None when it never had a session here. The same object for as long as the node is not forgotten."""
        kept = self.services.kept.get(node_id)
        return None if kept is None else kept.counts

    def uses_of(self, node_id: str) -> Mapping[tuple[str, str], CapabilityUse]:
        """By kind and `cap_id`, of the capabilities of a connected node."""
        actor = self.nodes.find(node_id)
        return {} if actor is None else actor.uses()

    def intervals_of(self, node_id: str, cap_id: str) -> list[int]:
        """At which somebody listens to a capability already, in milliseconds."""
        actor = self.nodes.find(node_id)
        return [] if actor is None else actor.cadences.intervals(cap_id)

    # ---- ends from outside ------------------------------------------------------------------------------------------

    def revoke(self, token_id: str) -> None:
        """The token was revoked: what it opened ends with 4401."""
        for actor in self.nodes:
            if actor.token_id == token_id:
                actor.close(NodeClose.UNAUTHORIZED)

    def supersede(self, node_id: str, epoch: int) -> None:
        """The node has a session of this epoch in another process: an older one here ends with 4409.

        One that has no epoch yet is about to be granted a higher one, or is refused by the log.
        """
        actor = self.nodes.find(node_id)
        if actor is not None and 0 < actor.epoch < epoch:
            actor.close(NodeClose.SUPERSEDED)

    def end(
        self, node_id: str, close: NodeClose, is_over: Callable[[str, int], bool] = lambda _jti, _issued_at_ms: True
    ) -> None:
        """End the session of this node, if the token that opened it `is_over`."""
        actor = self.nodes.find(node_id)
        if actor is not None and is_over(actor.token_id, actor.token_issued_at_ms):
            actor.close(close)

    def end_all(self, close: NodeClose) -> None:
        """End every session of this process."""
        for actor in list(self.nodes):
            actor.close(close)

    async def forget(self, node_id: str) -> bool:
        """Settle what a node that will never come back has left open, then remove its history; whether that is done.

        Not while it is connected, nor when the log does not take it. Idempotent.
        """
        if self.nodes.find(node_id) is not None or not await self._sweep_away(node_id, Sweep(gone_for_good=True)):
            return False
        self.services.kept.pop(node_id, None)
        return await self.services.store.forget(stream_of(node_id)) is None

    async def settle_ledgers(self) -> None:
        """Once, at start: what the process before left reserved, and for no command that is still open, was spent."""
        ledgers, open_commands = self.services.ledgers, []
        if ledgers is None:
            return
        for stream in await self.services.store.open_streams():
            node_id = node_of(stream)
            if node_id is None:
                continue
            try:
                loaded = await self.services.store.load(stream)
            except UNREADABLE as error:  # then its commands stay open, and what they reserved stays reserved
                self.services.unreadable.tell(node_id, error)
                continue
            for msg_id, command in open_commands_of(loaded).items():
                open_commands.append((node_id, msg_id, Agent(command.tenant, command.sub)))
        charged = await ledgers.start(open_commands, self.services.now().wall_ms)
        if charged:
            log.info("ledgers_settled", charged=charged)

    def start_sweeper(self) -> None:
        self._keep("sweeper", self._sweep_for_ever)

    def keep_deadlines(self) -> None:
        """Start the task that keeps the calls' deadlines, if it is not there yet."""
        if not self._keeps_deadlines:
            calls = self.services.calls
            self._keep("call_deadlines", calls.watch, Stage.STREAMS, lambda: calls.hurry(CALLS_S_MAX_AT_STOP))
            self._keeps_deadlines = True

    def _keep(
        self,
        name: str,
        run: Callable[[], Awaitable[None]],
        stage: Stage = Stage.CORE,
        ask_stop: Callable[[], None] | None = None,
    ) -> None:
        spec = ChildSpec(name=name, run=run, kind=Kind.PERMANENT, stage=stage, ask_stop=ask_stop)
        self._supervisor.start(spec)

    async def _sweep_for_ever(self) -> None:
        for sweeps in itertools.count():
            await self.sweep()
            if sweeps % COMPACT_EVERY_SWEEPS == 0 and self.compacts():
                await self.compact()
            await trio.sleep(SWEEP_EVERY_S)

    async def compact(self) -> None:
        """Cut settled history; streams that cannot be cut for want of a snapshot get one, for the next time."""
        compacted = await self.services.store.compact(self.services.now().wall_ms - RETENTION_MS)
        for stream in compacted.uncovered:
            node_id = node_of(stream)
            if node_id is not None:
                await self._snapshot(node_id)
            elif self.services.ledgers is not None:
                await self.services.ledgers.snapshot(stream, self.services.now().wall_ms)

    async def _snapshot(self, node_id: str) -> None:
        actor = self.nodes.find(node_id)
        if actor is not None:
            actor.sweep(snapshot=True)
            return
        state = await self._read(node_id)
        if state is not None:
            wall_ms = self.services.now().wall_ms
            await self.services.store.append(part_of(node_id, state, Decision(state), wall_ms, snapshot=True))

    async def sweep(self) -> None:
        """Settle what has waited too long: by a live node's own actor, for a node that is away directly."""
        try:
            streams = await self.services.store.open_streams()
        except UnreadableError as error:
            log.error("sweep_failed", causes=report(error))  # the next one may do better
            return
        for stream in streams:
            node_id = node_of(stream)
            if node_id is None:
                continue
            actor = self.nodes.find(node_id)
            if actor is not None:
                actor.sweep()
            elif self.sweeps(node_id):
                await self._sweep_away(node_id)

    async def _sweep_away(self, node_id: str, sweep: Sweep = NOTHING_BUT_TIME) -> bool:
        """Whether there is nothing left to settle: not even in a history that cannot be read."""
        state = await self._read(node_id)
        if state is None:
            return True
        wall_ms = self.services.now().wall_ms
        decision = decide(state, sweep, wall_ms)
        if not decision.events:
            return True
        part = part_of(node_id, state, decision, wall_ms)
        # A conflict means that the node has come back meanwhile, a refusal that the log is in trouble: in both cases
        # the next sweep is soon enough.
        answer = await append_with_charges(self.services.store, self.services.ledgers, part, decision.events, wall_ms)
        if not isinstance(answer, Appended):
            return False
        for settled in decision.answers:
            if isinstance(settled, Settled):
                node = NodeIdentity(node_id, state.open_commands[settled.msg_id].tenant)
                self.services.calls.of(node).settle(settled.msg_id, outcome_of(settled))
        return True

    async def _read(self, node_id: str) -> NodeState | None:
        """None when its history cannot be read: that is this node's trouble, its sessions end with 1011."""
        try:
            state = restore(await self.services.store.load(stream_of(node_id)))
        except UNREADABLE as error:
            self.services.unreadable.tell(node_id, error)
            return None
        self.services.unreadable.is_read(node_id)
        return state
