"""One live session of a node, driven: frames and calls in, decisions made durable, effects performed.

The reader hands frames to `on_frame`, which never waits: heartbeats are answered and telemetry is relayed at once,
whatever changes the log is offered to the appender, which has it decided, made durable and then performed here. So a
command's byte leaves only after its events are on disk, in `msg_id` order.

Nothing is decided here: the session's order, and what it means when the log does not take something, is in
`session_rules`, the life of a command in `command_rules`, limits in `limit_rules`, telemetry in `cadences`. The socket
is behind `Connection`; what a crash or a stop does to this actor is the supervisor's.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import structlog
import trio

from actors.bus.bus import Failed, Listener, Outcome, free, nothing
from actors.ledger.ledgers import Agent
from actors.ledger.rules import Exceeded
from actors.log.appender import Appender, Lost
from actors.log.store import AppendAnswer, Appended, AppendRefused, Loaded, StoreFailedError, Then
from actors.log_throttle import LogThrottle
from actors.node import intents, session_rules
from actors.node.append_with_charges import submit_with_charges
from actors.node.cadences import Cadence, Cadences, Stage
from actors.node.calls import PendingCall
from actors.node.command_rules import decide
from actors.node.history import Event, Illegal, NodeState, confirmed_through
from actors.node.intents import Answer, Cancel, Intent, Issue, OpenSession, ReportUnwritten, Sweep, TakeSnapshot
from actors.node.limit_rules import CapabilityLimits, CapabilityUse, NodeLimits
from actors.node.moment import Moment
from actors.node.node_stream import UNREADABLE, part_of, restore, stream_of
from actors.node.reports import Drop, outcome_of, report_of
from actors.node.services import Authenticated, Connection, NodeServices
from actors.node.session_rules import Effects, Phase, Session
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.frames import Announce, BadFrame, CmdAck, CmdCancel, Fault, Frame, Resume, Side, decode, encode, encode_cmd
from schemas.manifest import Accepted, accept, kid_of
from schemas.projection import Tool, parse_tool_name

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

LATE_ACK_EVERY_S = 60.0  # between two log lines about a node's late acks; all of them are counted
UNKNOWN_LEAFS_MAX = 4  # manifests that wait until somebody has looked for their certificate; one more is judged at once
OVERLOAD_RETRY_MS = 1000  # what a caller is told when the gateway, not the capability, is at a limit


@dataclass(slots=True)
class Batch:
    """Intents, decided one after the other, each on the state that the one before it left."""

    before: NodeState
    state: NodeState
    now_ms: int
    events: list[Event] = field(default_factory=list)
    answers: list[tuple[Intent, Answer]] = field(default_factory=list)
    takes_snapshot: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.events and not self.takes_snapshot


class NodeActor:
    """Implements `actors.log.appender.Owner` and `actors.node.services.Receiver`."""

    def __init__(self, proved: Authenticated, connection: Connection, services: NodeServices) -> None:
        self.identity = proved.identity
        self.token_id, self.token_issued_at_ms = proved.token_id, proved.token_issued_at_ms
        self.tools: Mapping[str, Tool] = {}
        self.epoch = 0  # until it is granted
        self._auth_msg_id, self._agent = proved.msg_id, proved.agent
        self._connection = connection
        self._services = services
        settings, node_id, now = services.settings, proved.identity.node_id, services.now()
        kept = services.kept_of(node_id)
        self._mint, self._counts = kept.mint, kept.counts
        self._calls = services.calls.of(proved.identity)
        self._state = NodeState()
        self._session = Session(self._mint, settings, now, proved.token_expires_at_ms, kept.manifests)
        self.cadences = Cadences(node_id, settings, self._mint, self._send)
        self._limits = NodeLimits()
        self._appender: Appender[Intent, Batch] = Appender(
            services.store,
            stream_of(node_id),
            self,
            lambda: services.now().wall_ms,
            settings.inbox_items_max,
            settings.inbox_bytes_max,
        )
        self._deadlines_changed = trio.Event()
        self._unknown, self._to_look_up = trio.open_memory_channel[Announce](UNKNOWN_LEAFS_MAX)
        self._late_acks = LogThrottle(LATE_ACK_EVERY_S)

    @property
    def phase(self) -> Phase:
        return self._session.phase

    @property
    def is_live(self) -> bool:
        return self._session.phase is Phase.LIVE

    # ---- the actor's life -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_time)
            nursery.start_soon(self._keep_log)
            if self._services.find_leaf is not None:
                nursery.start_soon(self._look_up, self._services.find_leaf)
            await self._connection.run()
            self.close(NodeClose.NORMAL)
            # What the node said before it went still counts: it is done, then the appender ends.
            self._appender.close()
            self._unknown.close()

    def close(self, close: NodeClose) -> None:
        """End the session for a reason that lies outside of it: superseded, shutdown, token revoked, not reading."""
        self._perform(self._session.close(close), self._services.now())

    async def _keep_log(self) -> None:
        now = self._services.now()
        self._appender.offer(OpenSession(self._mint.mint(now.wall_ms)), now.wall_ms)
        try:
            await self._appender.run()
        except UNREADABLE as error:
            self._services.unreadable.tell(self.identity.node_id, error)
            self.close(NodeClose.INTERNAL)

    async def _watch_time(self) -> None:
        while self._session.phase is not Phase.ENDED:
            self._deadlines_changed = trio.Event()
            with trio.move_on_at(min(self._session.next_deadline_s(), self.cadences.next_deadline_s())):
                await self._deadlines_changed.wait()
            now = self._services.now()
            self.cadences.tick(now)
            self._perform(self._session.tick(now), now)

    # ---- frames in, effects out -------------------------------------------------------------------------------------

    def on_frame(self, data: bytes) -> None:
        """One text frame. Called by the reader, synchronously."""
        self._on(decode(data, Side.NODE), len(data))

    def on_binary(self) -> None:
        self._on(BadFrame(Fault.NOT_JSON))

    def on_too_large(self) -> None:
        self._on(BadFrame(Fault.TOO_LARGE))

    def _on(self, frame: Frame | BadFrame, size_bytes: int = 0) -> None:
        now = self._services.now()
        self._perform(self._session.received(frame, confirmed_through(self._state), now), now, size_bytes)

    def _perform(self, effects: Effects, now: Moment, size_bytes: int = 0) -> None:
        """`size_bytes` is that of the frame which they follow from."""
        for effect in effects:
            match effect:
                case session_rules.Relay(telemetry=telemetry):
                    dropped = self.cadences.relay(telemetry.in_reply_to, telemetry.frame, now)
                    if dropped is None:
                        self._counts.frames += 1
                        if self._services.on_telemetry is not None:
                            self._services.on_telemetry(self.identity.node_id, telemetry.frame)
                    else:
                        self._drop(dropped)
                case session_rules.SendFrame(frame=frame):
                    self._send(frame)
                case session_rules.HandAck(ack=ack):
                    self._hand_ack(ack, now, size_bytes)
                case session_rules.HandResume(frames=frames):
                    self._hand_resume(frames, now)
                case session_rules.JudgeManifest(announce=announce):
                    self._judge(announce, now)
                case session_rules.KeepManifest(announce=announce, accepted=accepted):
                    self._keep(announce, accepted, now)
                case session_rules.Settle(msg_id=msg_id, outcome=outcome):
                    self._calls.settle(msg_id, outcome)
                case session_rules.GiveBack(issue=issue):
                    self._give_back(issue)
                case session_rules.Abandon(msg_id=msg_id):
                    self._calls.abandon(msg_id)
                case session_rules.Count(what=what):
                    self._drop(what)
                case session_rules.EndSession(close=close):
                    self.close(close)
                case session_rules.CloseWith(close=close):
                    self._end(close, now)

    def _drop(self, what: Drop) -> None:
        """What it sent is good for nothing."""
        self._counts.drops += 1
        self._services.count(what)

    def _send(self, frame: Frame) -> None:
        self._connection.send(encode(frame))

    def _end(self, close: NodeClose, now: Moment) -> None:
        log.info("node_session_ended", node_id=self.identity.node_id, code=close.value.code, reason=close.value.reason)
        self._connection.close(close)
        self._deadlines_changed.set()
        self._services.directory.went(self.identity, self.epoch, close, now.wall_ms)
        self.cadences.end_all()

    def _offer(self, intent: Intent, now: Moment, size_bytes: int) -> None:
        """What a node says: one frame too many for the log is a flood."""
        if not self._appender.offer(intent, now.wall_ms, size_bytes):
            self.close(NodeClose.RATE_LIMITED)

    def _hand_ack(self, ack: CmdAck, now: Moment, size_bytes: int) -> None:
        msg_id = ack.in_reply_to or ""
        if msg_id in self.cadences:
            self.cadences.acked(msg_id, ack.ok)
            return
        command, arguments = self._state.open_commands.get(msg_id), self._calls.arguments_of(msg_id)
        self._offer(intents.TakeAck(report_of(ack, command, arguments, self.identity.node_id)), now, size_bytes)

    def _hand_resume(self, frames: Sequence[Resume], now: Moment) -> None:
        # Whose callers gave up while the node was away: cancelled before anything is sent again.
        for msg_id in self._calls.abandoned_of(self._state.open_commands):
            self._appender.offer(Cancel(msg_id), now.wall_ms)
        node_id, open_commands = self.identity.node_id, self._state.open_commands
        last = frames[-1]
        resume = intents.TakeResume(
            last.msg_id,
            last.journal_id,
            last.last_cmd,
            tuple(
                report_of(
                    said, open_commands.get(said.in_reply_to), self._calls.arguments_of(said.in_reply_to), node_id
                )
                for frame in frames
                for said in frame.outcomes
            ),
            frozenset(msg_id for frame in frames for msg_id in frame.running),
        )
        self._offer(resume, now, 0)  # bounded as a whole, by the session's rules

    # ---- manifests --------------------------------------------------------------------------------------------------

    def _judge(self, announce: Announce, now: Moment, *, is_looked_up: bool = False) -> None:
        kid = kid_of(announce.manifest)
        is_unknown = kid is not None and self._services.certificates.resolve(kid) is None
        if is_unknown and self._services.find_leaf is not None and not is_looked_up:
            with suppress(trio.WouldBlock):
                self._unknown.send_nowait(announce)
                return
        record = self._services.directory.find(self.identity.node_id)
        last = None if record is None else record.accepted
        certificates, told_ms = self._services.certificates, self._session.told_ms
        verdict = accept(announce.manifest, self.identity, certificates, last, now.wall_ms, told_ms)
        if verdict is last:
            self._adopt(last, now)
        self._perform(self._session.judged(announce, verdict, last, now), now)

    async def _look_up(self, find_leaf: Callable[[str], Awaitable[object]]) -> None:
        """A node may have been enrolled elsewhere a moment ago: nobody refuses it before that was looked up."""
        async for announce in self._to_look_up:
            kid = kid_of(announce.manifest)
            if kid is not None:
                await find_leaf(kid)
            if self._session.phase is not Phase.ENDED:
                self._judge(announce, self._services.now(), is_looked_up=True)

    def _keep(self, announce: Announce, accepted: Accepted, now: Moment) -> None:
        """It is acknowledged when it is durable."""
        then = partial(self._kept, announce, accepted)
        refused = self._services.directory.announce(self.identity, accepted, now.wall_ms, then)
        if refused is not None:
            then(refused)

    def _kept(self, announce: Announce, accepted: Accepted, answer: AppendAnswer | StoreFailedError) -> None:
        """By the log, between two steps of the event loop: a bug here is this actor's, not the log's."""
        try:
            now, durable = self._services.now(), isinstance(answer, Appended)
            if durable:
                self._adopt(accepted, now)
            self._perform(self._session.kept(announce, accepted, durable, now), now)
            self._deadlines_changed.set()
        except Exception as exc:
            self._appender.crash(exc)

    def _adopt(self, accepted: Accepted, now: Moment) -> None:
        self.tools = {tool.name: tool for tool in accepted.tools}
        self._limits.adopt(accepted.tools, now.mono_s)

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
        withdrawn: Callable[[], None] = nothing,
    ) -> Outcome:
        """As `actors.bus.bus.Bus.call` has it.

        A caller that is cancelled leaves its command to the log: taken back if it was not decided yet, else cancelled
        on the node, by this session or the next.
        """
        now = self._services.now()
        limits = self._admit(tool, now)
        if isinstance(limits, Failed):
            return limits
        settings = self._services.settings
        open_commands = max(len(self._state.open_commands), len(self._calls))  # the latter: some may wait for the log
        if self._services.calls.is_full or open_commands >= settings.open_commands_max:
            return Failed(Code.RATE_LIMITED, retry_after_ms=OVERLOAD_RETRY_MS)
        over = limits.over_concurrency(now.mono_s) or limits.over_rate(now.mono_s)
        if over is not None:
            return over.failed
        issue = Issue(self._mint.mint(now.wall_ms), tool, sub, tenant, deadline_at_ms)
        exceeded = hold(issue.msg_id)
        if exceeded is not None:
            return Failed(Code.RATE_LIMITED, over_budget=exceeded)
        call = PendingCall(issue.msg_id, arguments, now.mono_at(deadline_at_ms))
        self._limits.occupy(self.tools[tool].target, issue.msg_id, call.deadline_s)
        self._calls.add(call)
        try:
            if not self._appender.offer(issue, now.wall_ms):
                self._give_back(issue)
                return Failed(Code.RATE_LIMITED, retry_after_ms=OVERLOAD_RETRY_MS)
            self._counts.calls += 1
            self._counts.last_call_ms = now.wall_ms
            return await call.wait()
        except trio.Cancelled:
            if self._appender.withdraw(issue):
                self._give_back(issue)
                withdrawn()
            elif not self._appender.offer(Cancel(issue.msg_id), self._services.now().wall_ms):
                self._calls.abandon(issue.msg_id)  # too late, or one too many: the node's next session will see to it
            raise
        finally:
            self._calls.remove(call)

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

    def _give_back(self, issue: Issue) -> None:
        self._limits.release(issue.msg_id)
        if self._services.ledgers is not None:
            self._services.ledgers.drop(self.identity.node_id, issue.msg_id, Agent(issue.tenant, issue.sub))

    def uses(self) -> Mapping[tuple[str, str], CapabilityUse]:
        """How much of its limits each capability uses, by kind and `cap_id`."""
        return self._limits.uses(self._services.now().mono_s)

    def sweep(self, *, snapshot: bool = False) -> None:
        """A minute has passed; or history is to be cut, and needs the state as it is."""
        self._appender.offer(TakeSnapshot() if snapshot else Sweep(), self._services.now().wall_ms)

    # ---- telemetry --------------------------------------------------------------------------------------------------

    def attach(self, tool: str, interval_ms: int, listener: Listener) -> Cadence | Failed:
        """Listen to a cadence; the first listener starts it on the node, for one token of the capability's rate."""
        now = self._services.now()
        limits = self._admit(tool, now)
        if isinstance(limits, Failed):
            return limits
        cap_id = self.tools[tool].target.cap_id
        cadence = self.cadences.find(cap_id, interval_ms)
        if cadence is None:
            if self.cadences.is_full:
                return Failed(Code.RATE_LIMITED, retry_after_ms=OVERLOAD_RETRY_MS)
            over = limits.over_rate(now.mono_s)
            if over is not None:
                return over.failed
            cadence = self.cadences.start(tool, cap_id, interval_ms, now)
            if cadence.stage is Stage.OVER:  # the session ended over sending it
                return Failed(Code.NODE_OFFLINE)
            self._deadlines_changed.set()
        cadence.listeners[listener] = None
        return cadence

    def detach(self, cadence: Cadence, listener: Listener) -> None:
        self.cadences.leave(cadence, listener, self._services.now())

    # ---- the appender's owner ---------------------------------------------------------------------------------------

    def load(self, loaded: Loaded) -> bool:
        self._state = restore(loaded)
        self._services.unreadable.is_read(self.identity.node_id)
        if self._state.highest_id is not None:
            self._mint.observe(self._state.highest_id)
        # One that was closed before it had its epoch must not take it from whoever came after it.
        return self._state.epoch == self.epoch or (self.epoch == 0 and self.phase is Phase.OPENING)

    def decide(self, batch: Sequence[Intent], now_ms: int) -> Batch:
        decided = Batch(self._state, self._state, now_ms)
        for intent in batch:
            decision = decide(decided.state, intent, now_ms, epoch=self.epoch, arguments_of=self._calls)
            decided.state = decision.state
            decided.events += decision.events
            decided.takes_snapshot |= type(intent) is TakeSnapshot
            for answer in decision.answers:
                decided.answers.append((intent, answer))
        return decided

    def submit(self, draft: Batch, then: Then) -> AppendRefused | None:
        part = part_of(self.identity.node_id, draft.before, draft, draft.now_ms, snapshot=draft.takes_snapshot)
        return submit_with_charges(self._services.store, self._services.ledgers, part, draft.events, draft.now_ms, then)

    def perform_late(self, draft: Batch) -> None:
        for _, answer in draft.answers:
            if isinstance(answer, intents.Settled):
                self._calls.settle(answer.msg_id, outcome_of(answer))

    def perform(self, draft: Batch) -> Sequence[Intent]:
        self._state = draft.state
        unwritten: list[Intent] = []
        for intent, answer in draft.answers:
            match answer:
                case intents.SendCommand(msg_id=msg_id):
                    if not self._send_command(answer):
                        unwritten.append(ReportUnwritten(msg_id))
                case intents.Settled(msg_id=msg_id):
                    self._limits.release(msg_id)
                    self._calls.settle(msg_id, outcome_of(answer))
                case _:
                    self._say(intent, answer, self._services.now())
        return unwritten

    def _say(self, intent: Intent, answer: Answer, now: Moment) -> None:
        match answer:
            case intents.SessionGranted(epoch=epoch, session_id=session_id):
                self.epoch = epoch
                self._services.directory.granted(self.identity, epoch, now.wall_ms)
                log_id = self._services.store.log_id
                self._perform(self._session.granted(session_id, epoch, log_id, self._auth_msg_id, now), now)
                self._deadlines_changed.set()
            case intents.SendCancel(msg_id=msg_id):
                self._send(CmdCancel(msg_id=self._mint.mint(now.wall_ms), in_reply_to=msg_id))
            case intents.Resumed() if isinstance(intent, intents.TakeResume):
                self._resumed(intent, answer, now)
            case intents.LateAck(msg_id=msg_id, state=state):
                self._drop(Drop.LATE_ACK)
                if late := self._late_acks.hit(now.mono_s):  # a node could fill the disk with them
                    node_id = self.identity.node_id
                    log.info("late_ack", node_id=node_id, correlation_id=msg_id, state=state.value, late=late)
            case intents.UnknownCommand():
                self._drop(Drop.ACK_UNKNOWN)
            case intents.StaleEpoch():
                self.lose((intent,), Lost.SUPERSEDED)
            case Illegal(reason=reason):
                self._perform(session_rules.illegal(intent, reason), now)

    def _send_command(self, said: intents.SendCommand) -> bool:
        """False when not one byte of it went out: the socket is gone, or its caller, who had the arguments."""
        arguments = self._calls.arguments_of(said.msg_id)
        if arguments is None:
            return False
        encoded = msgspec.json.encode(arguments)
        return self._connection.send(encode_cmd(said.msg_id, said.tool, encoded, said.deadline_at_ms))

    def _resumed(self, resume: intents.TakeResume, said: intents.Resumed, now: Moment) -> None:
        if resume.last_cmd is not None:
            self._mint.observe(resume.last_cmd)
        for command in self._state.open_commands.values():
            target = parse_tool_name(command.tool)
            if not isinstance(target, Code):
                self._limits.occupy(target, command.msg_id, now.mono_at(command.deadline_at_ms))
        self._perform(self._session.resumed(resume.frame_id, said, now), now)
        if self.is_live:
            self._services.directory.came(self.identity, self.epoch, now.wall_ms, self._agent)

    def lose(self, batch: Sequence[Intent], why: Lost) -> None:
        now = self._services.now()
        if why is Lost.SUPERSEDED:
            self.close(NodeClose.SUPERSEDED)
        for intent in batch:
            self._perform(session_rules.lost(intent, why), now)
