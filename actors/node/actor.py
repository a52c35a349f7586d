"""One live session of a node, driven: frames and calls in, decisions made durable, effects performed.

The reader hands frames to `on_frame`, which never waits: heartbeats are answered and telemetry is relayed at once,
whatever changes the log goes to `commits`, which brings it back here (`act`) when it is durable. So a command's byte
leaves only after its events are on disk, in `msg_id` order.

The rules are elsewhere: the session's order in `session_rules`, the life of a command in `actors.node.command_rules`,
limits in `limit_rules`, telemetry in `cadence_rules`. The socket is behind `Connection`; what a crash or a stop does
to this actor is the supervisor's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
import trio

from actors.bus.bus import Failed, Listener, Outcome, free
from actors.ledger.ledgers import Agent
from actors.ledger.rules import Exceeded
from actors.log.store import Appended, answered
from actors.log_throttle import LogThrottle
from actors.node import commands
from actors.node.cadence import Cadence
from actors.node.cadences import Cadences
from actors.node.calls import PendingCall
from actors.node.command_rules import confirmed_through
from actors.node.commits import Commits
from actors.node.drops import Drop
from actors.node.inbox import Cancel, Issue, LogItem, Sweep, Unwritten
from actors.node.limit_rules import CapabilityLimits, NodeLimits
from actors.node.outcomes import mono_s, outcome_of
from actors.node.services import Authenticated, Connection, LogRefusedError, NodeServices
from actors.node.session_rules import (
    CloseWith,
    Count,
    Effects,
    JudgeManifest,
    Moment,
    Phase,
    Relay,
    SendFrame,
    Session,
    TakeAck,
    TakeResume,
)
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.frames import Announce, BadFrame, CmdAck, CmdCancel, Fault, Frame, Side, decode, encode, encode_cmd
from schemas.manifest import Accepted, accept
from schemas.projection import Tool, parse_tool_name
from schemas.ulids import Mint

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

LATE_ACK_EVERY_S = 60.0  # between two log lines about a node's late acks; all of them are counted
OVERLOAD_RETRY_MS = 1000  # what a caller is told when the gateway, not the capability, is at a limit


class NodeActor:
    """Implements `commits.Owner`."""

    commits_class = Commits

    def __init__(self, proved: Authenticated, connection: Connection, services: NodeServices) -> None:
        self.identity = proved.identity
        self.token_id = proved.token_id
        self.tools: Mapping[str, Tool] = {}
        self._auth_msg_id = proved.msg_id
        self._connection = connection
        self._services = services
        self._mint = Mint(services.entropy)
        self._session = Session(self._mint, services.settings, services.now(), proved.token_expires_at_ms)
        self._cadences = Cadences(proved.identity.node_id, services.settings, self._mint, self._send)
        self._limits = NodeLimits()
        self._commits = self.commits_class(proved.identity.node_id, self, services, self._mint)
        self._deadlines_changed = trio.Event()
        self._late_acks = LogThrottle(LATE_ACK_EVERY_S)

    @property
    def node_id(self) -> str:
        return self.identity.node_id

    @property
    def tenant(self) -> str:
        return self.identity.tenant

    @property
    def phase(self) -> Phase:
        return self._session.phase

    @property
    def is_live(self) -> bool:
        return self._session.phase is Phase.LIVE

    @property
    def epoch(self) -> int:
        return self._commits.state.epoch

    # ---- the actor's life -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_time)
            nursery.start_soon(self._commits.run)
            await self._connection.run()
            self.close(NodeClose.NORMAL)
            # What the node said before it went still counts: it is done, then the worker ends.
            self._commits.close()

    def close(self, close: NodeClose) -> None:
        """End the session for a reason that lies outside of it: superseded, shutdown, token revoked, not reading."""
        self._perform(self._session.close(close), self._services.now())

    async def _watch_time(self) -> None:
        while self._session.phase is not Phase.ENDED:
            self._deadlines_changed = trio.Event()
            with trio.move_on_at(min(self._session.next_deadline_s(), self._cadences.next_deadline_s())):
                await self._deadlines_changed.wait()
            now = self._services.now()
            self._cadences.tick(now)
            self._perform(self._session.tick(now), now)

    # ---- frames in, effects out -------------------------------------------------------------------------------------

    def on_frame(self, data: bytes) -> None:
        """One text frame. Called by the reader, synchronously."""
        self._on(decode(data, Side.NODE))

    def on_binary(self) -> None:
        self._on(BadFrame(Fault.NOT_JSON))

    def on_too_large(self) -> None:
        self._on(BadFrame(Fault.TOO_LARGE))

    def _on(self, frame: Frame | BadFrame) -> None:
        now = self._services.now()
        self._perform(self._session.received(frame, confirmed_through(self._commits.state), now), now)

    def _perform(self, effects: Effects, now: Moment) -> None:
        for effect in effects:
            match effect:
                case Relay(telemetry=telemetry, now=now):
                    dropped = self._cadences.relay(telemetry.in_reply_to, telemetry.frame, now)
                    if dropped is not None:
                        self._services.count(dropped)
                case SendFrame(frame=frame):
                    self._send(frame)
                case TakeAck(ack=CmdAck(in_reply_to=str() as msg_id, ok=ok)) if msg_id in self._cadences:
                    self._cadences.acked(msg_id, ok)
                case TakeAck() | TakeResume() | JudgeManifest():
                    if not self._commits.offer(effect, now.wall_ms):
                        self.close(NodeClose.RATE_LIMITED)
                case Count(what=what):
                    self._services.count(what)
                case CloseWith(close=close):
                    self._end(close)

    def _send(self, frame: Frame) -> None:
        self._connection.send(encode(frame))

    def _end(self, close: NodeClose) -> None:
        log.info("node_session_ended", node_id=self.identity.node_id, code=close.value.code, reason=close.value.reason)
        self._connection.close(close)
        self._deadlines_changed.set()
        self._services.directory.went(self.identity, self.epoch, close, self._services.now().wall_ms)
        self._cadences.end_all()

    # ---- calls ------------------------------------------------------------------------------------------------------

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        sub: str,
        tenant: str,
        deadline_at_ms: int,
        hold: Callable[[str], Exceeded | None] = free,
    ) -> Outcome:
        """Run a tool on the node. Name, access and arguments have been checked; the capability's limits are here.

        `hold` sets the price of the command with this id aside, or says that the budget does not reach for it.
        """
        now = self._services.now()
        limits = self._admit(tool, now)
        if isinstance(limits, Failed):
            return limits
        if (
            self._services.calls.is_full
            or len(self._commits.state.open_commands) >= self._services.settings.open_commands_max
        ):
            return Failed(Code.RATE_LIMITED, retry_after_ms=OVERLOAD_RETRY_MS)
        over = limits.over_concurrency(now.mono_s) or limits.over_rate(now.mono_s)
        if over is not None:
            return Failed(Code.RATE_LIMITED, retry_after_ms=over.retry_after_ms)
        call = PendingCall(self._mint.mint(now.wall_ms), tool, arguments, sub, tenant, deadline_at_ms)
        exceeded = hold(call.msg_id)
        if exceeded is not None:
            return Failed(Code.RATE_LIMITED, over_budget=exceeded)
        deadline_s = mono_s(deadline_at_ms, now)
        limits.occupy(call.msg_id, deadline_s)
        if not self._commits.offer(Issue(call), now.wall_ms):
            self._give_back(call)
            return Failed(Code.RATE_LIMITED, retry_after_ms=OVERLOAD_RETRY_MS)
        return await self._answer_to(call, deadline_s)

    def _admit(self, tool: str, now: Moment) -> CapabilityLimits | Failed:
        record = self._services.directory.find(self.identity.node_id)
        if not self.is_live or record is None:
            return Failed(Code.NODE_OFFLINE)
        if record.is_expired(now.wall_ms):
            return Failed(Code.MANIFEST_INVALID)
        announced = self.tools.get(tool)
        if announced is None:
            return Failed(Code.MANIFEST_NOT_FOUND)
        return self._limits.of(announced.target) or Failed(Code.MANIFEST_NOT_FOUND)

    async def _answer_to(self, call: PendingCall, deadline_s: float) -> Outcome:
        self._services.calls.add(call, deadline_s)
        try:
            return await call.wait()
        except trio.Cancelled:
            if not self._commits.offer(Cancel(call.msg_id), self._services.now().wall_ms):
                self._services.calls.abandon(call.msg_id)  # this session is over: the node's next one will see to it
            raise
        finally:
            self._services.calls.remove(call)

    def sweep(self) -> None:
        """A minute has passed."""
        self._commits.offer(Sweep(), self._services.now().wall_ms)

    # ---- telemetry --------------------------------------------------------------------------------------------------

    def attach(self, tool: str, interval_ms: int, listener: Listener) -> Cadence | Failed:
        """Listen to a cadence; the first listener starts it on the node, for one token of the capability's rate."""
        now = self._services.now()
        limits = self._admit(tool, now)
        if isinstance(limits, Failed):
            return limits
        cap_id = self.tools[tool].target.cap_id
        cadence = self._cadences.find(cap_id, interval_ms)
        if cadence is None:
            if self._cadences.is_full:
                return Failed(Code.RATE_LIMITED, retry_after_ms=OVERLOAD_RETRY_MS)
            over = limits.over_rate(now.mono_s)
            if over is not None:
                return Failed(Code.RATE_LIMITED, retry_after_ms=over.retry_after_ms)
            cadence = self._cadences.start(tool, cap_id, interval_ms, now)
            if cadence.is_over:  # the session ended over sending it
                return Failed(Code.NODE_OFFLINE)
            self._deadlines_changed.set()
        cadence.listeners[listener] = None
        return cadence

    def detach(self, cadence: Cadence, listener: Listener) -> None:
        self._cadences.leave(cadence, listener, self._services.now())

    # ---- what the commits bring -------------------------------------------------------------------------------------

    def granted(self, session_id: str, epoch: int) -> None:
        log_id, now = self._services.store.log_id, self._services.now()
        self._perform(self._session.granted(session_id, epoch, log_id, self._auth_msg_id, now), now)
        self._deadlines_changed.set()

    def log_refused(self) -> None:
        self.close(NodeClose.INTERNAL)

    async def judge(self, announce: Announce) -> None:
        """One that is accepted is kept before it is acknowledged."""
        now, directory = self._services.now(), self._services.directory
        record = directory.find(self.identity.node_id)
        last_ms = record.issued_at_ms if record else None
        verdict = accept(announce.manifest, self.identity, self._services.certificates, last_ms, now.wall_ms)
        if isinstance(verdict, Accepted):
            kept = await answered(lambda then: directory.announce(self.identity, verdict, now.wall_ms, then))
            if not isinstance(kept, Appended):
                raise LogRefusedError
            self._adopt(verdict)
        now = self._services.now()
        self._perform(self._session.judged(announce, verdict, now), now)

    def _adopt(self, accepted: Accepted) -> None:
        self.tools = {tool.name: tool for tool in accepted.tools}
        self._limits.adopt(accepted.tools, self._services.now().mono_s)

    def refuse(self, batch: Sequence[LogItem]) -> None:
        """The log did not take it: nothing was sent, nothing is settled, and the node keeps what it reported."""
        for item in batch:
            match item:
                case Issue(call=call):
                    self._give_back(call)
                    call.settle(Failed(Code.INTERNAL, call.msg_id, is_command=False))
                case TakeAck(ack=CmdAck(in_reply_to=str() as msg_id)) if msg_id in self._commits.state.open_commands:
                    self._services.count(Drop.ACK_NOT_RECORDED)
                    self._services.calls.settle(msg_id, Failed(Code.INTERNAL, msg_id))
                case Cancel(msg_id=msg_id):
                    self._services.calls.abandon(msg_id)
                case TakeResume():
                    self.close(NodeClose.INTERNAL)

    def superseded(self, batch: Sequence[LogItem]) -> None:
        """What an older epoch still says counts for nothing; the node's newer session will tell how it ended."""
        self.close(NodeClose.SUPERSEDED)
        self.refuse([item for item in batch if isinstance(item, Issue | Cancel)])

    def act(self, item: LogItem, said: commands.Answer, results: Mapping[str, Mapping[str, Any]]) -> None:
        match said:
            case commands.SendCommand():
                self._send_command(said)
            case commands.SendCancel(msg_id=msg_id):
                self._send(CmdCancel(msg_id=self._mint.mint(self._services.now().wall_ms), in_reply_to=msg_id))
            case commands.Settled(msg_id=msg_id):
                self._commits.arguments.pop(msg_id, None)
                self._limits.release(msg_id)
                self._services.calls.settle(msg_id, outcome_of(said, isinstance(item, Unwritten), results.get(msg_id)))
            case commands.Resumed() if isinstance(item, TakeResume):
                self._resumed(item, said)
            case commands.LateAck(msg_id=msg_id, state=state):
                self._services.count(Drop.LATE_ACK)
                if late := self._late_acks.hit(self._services.now().mono_s):  # a node could fill the disk with them
                    node_id = self.identity.node_id
                    log.info("late_ack", node_id=node_id, correlation_id=msg_id, state=state.value, late=late)
            case commands.UnknownCommand():
                self._services.count(Drop.ACK_UNKNOWN)
            case commands.StaleEpoch():
                self.superseded([item])
            case commands.Illegal():
                self._illegal(item, said)

    def _send_command(self, said: commands.SendCommand) -> None:
        arguments = self._commits.arguments[said.msg_id]
        if not self._connection.send(encode_cmd(said.msg_id, said.tool, arguments, said.deadline_at_ms)):
            self._commits.report_unwritten(said.msg_id)

    def _resumed(self, item: TakeResume, said: commands.Resumed) -> None:
        frame, now = item.frames[-1], self._services.now()
        if frame.last_cmd is not None:
            self._mint.observe(frame.last_cmd)
        for command in self._commits.state.open_commands.values():
            target = parse_tool_name(command.tool)
            limits = None if isinstance(target, Code) else self._limits.of(target)
            if limits is not None:
                limits.occupy(command.msg_id, mono_s(command.deadline_at_ms, now))
        resumed = self._session.resumed(
            frame, said.epoch, said.confirmed_through, len(said.replayed), len(said.expired), now
        )
        self._perform(resumed, now)
        if self.is_live:
            self._services.directory.came(self.identity, self.epoch, now.wall_ms)

    def _illegal(self, item: LogItem, said: commands.Illegal) -> None:
        match item:
            case TakeResume():
                self.close(NodeClose.BAD_FRAME)
            case Issue(call=call):
                late = said.reason is commands.Reason.PAST_DEADLINE
                self._give_back(call)
                code = Code.DEADLINE_EXCEEDED if late else Code.INTERNAL
                call.settle(Failed(code, call.msg_id, is_command=False))
            case _:
                self._services.count(Drop.COMMAND_ILLEGAL)

    def _give_back(self, call: PendingCall) -> None:
        """It never became a command: it takes no slot and costs nothing."""
        self._limits.release(call.msg_id)
        if self._services.ledgers is not None:
            self._services.ledgers.drop(self.identity.node_id, call.msg_id, Agent(call.tenant, call.sub))
