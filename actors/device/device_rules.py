"""A node's side of a session (device wire §2 to §7): `handle(event, now) → effects`, `next_deadline()`. Pure.

    state       the node has                           the gateway may send                          leads to
    ----------  -------------------------------------  --------------------------------------------  ----------
    connecting  no wire                                nothing                                       auth sent
    auth sent   sent `auth`                            `auth_ok`, `error`                            announced
    announced   sent `announce`                        `announce_ack`, `heartbeat_ack`, `error`      resumed
    resumed     sent `resume`                          also `cmd` (replays), `cmd_cancel`,           live
                                                       `resume_ok`
    live        an open session                        all but `auth_ok` and `resume_ok`

From every state a lost wire leads back to connecting. So does a frame that may not come in this state or is no frame at
all: the node closes with 4400, and what such a frame should have told is settled by the next `resume`. So does silence:
a question (`auth`, `heartbeat`, `announce`) without an answer, or an opening that takes too long, closes with 4408.

A `resume` is made when the manifest is accepted and the journal agrees with what runs (`Execution.is_settled`). Acks
wait until the session is live; whatever ended before the `resume` was made is in it instead.

D0 to D3 are in `execution_rules`, cadences in `cadence_rules`, the clock bound in `gateway_clock`. Whether and when to
come back is for `reconnect_rules`; sockets, disks, handlers and clocks are the driver's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from actors.device.cadence_rules import DeviceCadences
from actors.device.device_messages import (
    CloseWith,
    Connected,
    Effect,
    Event,
    FrameReceived,
    FrameSampled,
    GarbageReceived,
    HandlerFailed,
    HandlerReturned,
    JournalWritten,
    NoteRefusal,
    SendFrame,
    TimePassed,
    WireLost,
)
from actors.device.execution_rules import BAD_ARGUMENTS, LATE, TOO_MANY, CommandFault, Execution, refused
from actors.device.gateway_clock import GatewayClock
from actors.device.journal import JournalState
from actors.device.manifest_life import ManifestLife, SignedManifest
from actors.device.resume_pages import resume_frames
from actors.device.ticks import Ticks
from schemas.closes import NodeClose
from schemas.contract import contract
from schemas.frames import (
    Announce,
    AnnounceAck,
    Auth,
    AuthOk,
    Cmd,
    CmdAck,
    CmdCancel,
    ErrorFrame,
    Frame,
    Heartbeat,
    HeartbeatAck,
    Outcome,
    ResumeOk,
    Telemetry,
)
from schemas.projection import Tool

HEARTBEAT_S_MIN, HEARTBEAT_S_MAX = 0.1, 3600.0  # whatever `auth_ok` asks for: neither a flood nor silence
OPENING_S_MAX = 30.0  # from the wire's opening until the session is live; then 4408
PATIENCE_HEARTBEATS = 2.4  # a question unanswered for so many periods: 4408. 60 s, as on the gateway's side
ANNOUNCE_AGAIN_S = 3.0  # after a refusal: the second one still makes it to `resume` in time


class DeviceState(Enum):
    CONNECTING = "connecting"
    AUTH_SENT = "auth sent"
    ANNOUNCED = "announced"
    RESUMED = "resumed"
    LIVE = "live"


_OPENED = frozenset({DeviceState.ANNOUNCED, DeviceState.RESUMED, DeviceState.LIVE})
_EXPECTED: Mapping[type[Frame], frozenset[DeviceState]] = {
    AuthOk: frozenset({DeviceState.AUTH_SENT}),
    ErrorFrame: _OPENED | {DeviceState.AUTH_SENT},
    AnnounceAck: _OPENED,
    HeartbeatAck: _OPENED,
    Cmd: frozenset({DeviceState.RESUMED, DeviceState.LIVE}),
    CmdCancel: frozenset({DeviceState.RESUMED, DeviceState.LIVE}),
    ResumeOk: frozenset({DeviceState.RESUMED}),
}


@dataclass(slots=True)
class _Link:
    """What one wire has seen so far."""

    epoch: int | None = None
    live_by: float | None = None  # None once it is live
    patience_s: float = OPENING_S_MAX
    heartbeats: Ticks | None = None
    announcement: tuple[str, float] | None = None  # the one that is not answered yet: its id, when it was sent
    announce_again_at: float | None = None  # after a refusal
    is_accepted: bool = False  # the first manifest of this session


class DeviceRules:
    """`sign(issued_at_ms)` makes a manifest, `new_id()` a ULID; both without side effects that anyone could notice."""

    clock_class = GatewayClock
    execution_class = Execution

    def __init__(
        self,
        *,
        node_id: str,
        tools: Mapping[str, Tool],
        sign: Callable[[int], SignedManifest],
        journal: JournalState,
        new_id: Callable[[], str],
    ) -> None:
        self._node_id = node_id
        self._tools = tools
        self._new_id = new_id
        self._clock = self.clock_class()
        self._manifest = ManifestLife(sign, self._clock)
        self._execution = self.execution_class(tools, self._clock, journal)
        self._cadences = DeviceCadences()
        self._link = _Link()
        self.state = DeviceState.CONNECTING

    @property
    def manifest(self) -> SignedManifest | None:
        """The last one signed."""
        return self._manifest.last

    def gateway_ms(self, now: float) -> int | None:
        """The gateway's time is at most this; None while no gateway has told it."""
        return self._clock.bound_ms(now) if self._clock.is_set else None

    # ---- the two doors -----------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        effects = self._dispatch(event, now) + self._execution.forget_surplus()
        if self.state is DeviceState.ANNOUNCED and self._link.is_accepted and self._execution.is_settled:
            effects += self._resume()
        if self.state is DeviceState.LIVE:
            effects += [self._ack(outcome) for outcome in self._execution.unreported]
            self._execution.unreported.clear()
        return effects

    def next_deadline(self) -> float | None:
        return _earliest(
            self._give_up_at,
            self._link.heartbeats.next_at if self._link.heartbeats else None,
            self._announce_at,
            self._execution.next_deadline(),
            self._cadences.next_deadline(),
        )

    def _dispatch(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Connected(token, sign):
                if sign is not None:
                    self._manifest.adopt(sign)
                return self._open(token, now)
            case WireLost():
                self._let_go()
                return []
            case GarbageReceived():
                return [] if self.state is DeviceState.CONNECTING else self._close(NodeClose.BAD_FRAME)
            case FrameReceived(frame):
                return self._receive(frame, now)
            case JournalWritten(ticket):
                return self._execution.written(ticket, now)
            case HandlerReturned(msg_id, result):
                return self._execution.returned(msg_id, result, now)
            case HandlerFailed(msg_id):
                return self._execution.failed(msg_id, now)
            case FrameSampled(msg_id, sampled):
                if not self._cadences.sampled(msg_id) or sampled is None:
                    return []
                return [SendFrame(Telemetry(msg_id=self._new_id(), in_reply_to=msg_id, frame=sampled))]
            case TimePassed():
                return self._time_passed(now)

    # ---- opening, closing, time --------------------------------------------------------------------------------------

    def _open(self, token: str, now: float) -> list[Effect]:
        if self.state is not DeviceState.CONNECTING:
            raise ValueError("there is a wire already")
        self.state = DeviceState.AUTH_SENT
        self._link.live_by = now + OPENING_S_MAX
        auth = Auth(msg_id=self._new_id(), token=token, node_id=self._node_id)
        self._clock.ask(auth.msg_id, now)
        return [SendFrame(auth)]

    def _let_go(self) -> None:
        """D0: the wire is gone, and with it all that hung on it."""
        self.state = DeviceState.CONNECTING
        self._execution.discard_not_begun()
        self._cadences.clear()
        self._clock.forget_questions()
        self._link = _Link()

    def _close(self, close: NodeClose) -> list[Effect]:
        self._let_go()
        return [CloseWith(close)]

    @property
    def _give_up_at(self) -> float | None:
        asked = (self._clock.oldest_question, self._link.announcement and self._link.announcement[1])
        return _earliest(self._link.live_by, *(at + self._link.patience_s for at in asked if at is not None))

    @property
    def _announce_at(self) -> float | None:
        if self.state not in _OPENED or self._link.announcement is not None:
            return None
        again_at = self._link.announce_again_at
        return again_at if again_at is not None else self._manifest.renew_at

    def _time_passed(self, now: float) -> list[Effect]:
        if _is_due(self._give_up_at, now):
            return self._close(NodeClose.TIMEOUT) + self._execution.time_passed(now)
        effects: list[Effect] = []
        if _is_due(self._announce_at, now):
            effects += self._announce(now)
        if self._link.heartbeats is not None and self._link.heartbeats.lateness(now) is not None:
            heartbeat = Heartbeat(msg_id=self._new_id(), manifest_etag=self._manifest.etag)
            self._clock.ask(heartbeat.msg_id, now)
            effects.append(SendFrame(heartbeat))
        return effects + self._execution.time_passed(now) + self._cadences.time_passed(now)

    # ---- frames ------------------------------------------------------------------------------------------------------

    def _receive(self, frame: Frame, now: float) -> list[Effect]:
        if self.state is DeviceState.CONNECTING:
            return []  # from a wire we have let go of
        if self.state not in _EXPECTED.get(type(frame), ()):
            return self._close(NodeClose.BAD_FRAME)
        match frame:
            case AuthOk():
                return self._authenticated(frame, now)
            case AnnounceAck():
                if self._answers_announcement(frame):
                    self._link.announcement = None
                    self._link.is_accepted = True
            case ErrorFrame():
                return self._refused(frame, now)
            case HeartbeatAck():
                return self._heard(frame, now)
            case ResumeOk():
                if frame.epoch != self._link.epoch:
                    return self._close(NodeClose.BAD_FRAME)
                self.state = DeviceState.LIVE
                self._link.live_by = None
                return self._execution.confirm(frame.confirmed_through)
            case Cmd():
                return self._command(frame, now)
            case CmdCancel(in_reply_to=str(msg_id)):
                if msg_id not in self._cadences:
                    return self._execution.cancel(msg_id, now)
                self._cadences.stop(msg_id)
        return []

    def _authenticated(self, frame: AuthOk, now: float) -> list[Effect]:
        if not self._clock.answer(frame.in_reply_to, frame.now_ms):
            return self._close(NodeClose.BAD_FRAME)
        self.state = DeviceState.ANNOUNCED
        self._link.epoch = frame.epoch
        heartbeat_s = max(HEARTBEAT_S_MIN, min(frame.heartbeat_ms, HEARTBEAT_S_MAX * 1000) / 1000)
        self._link.heartbeats = Ticks(now, heartbeat_s)
        self._link.patience_s = PATIENCE_HEARTBEATS * heartbeat_s
        effects: list[Effect] = []
        if frame.log_id != self._execution.log_id:
            effects += self._execution.start_journal(frame.log_id, self._new_id())
        return effects + self._announce(now)

    def _announce(self, now: float) -> list[Effect]:
        manifest = self._manifest.to_announce(now).manifest
        announce = Announce(msg_id=self._new_id(), manifest=manifest)
        self._link.announcement = announce.msg_id, now
        self._link.announce_again_at = None
        return [SendFrame(announce)]

    def _answers_announcement(self, frame: Frame) -> bool:
        return self._link.announcement is not None and frame.in_reply_to in (None, self._link.announcement[0])

    def _refused(self, frame: ErrorFrame, now: float) -> list[Effect]:
        if self._answers_announcement(frame):
            self._link.announcement = None
            self._link.announce_again_at = now + ANNOUNCE_AGAIN_S
            self._manifest.refuse()
        return [NoteRefusal(frame.error["code"])]

    def _heard(self, frame: HeartbeatAck, now: float) -> list[Effect]:
        self._clock.answer(frame.in_reply_to, frame.now_ms)
        effects = self._execution.confirm(frame.confirmed_through)
        # While an announcement is under way the gateway may still speak of the manifest before it.
        is_open = self._link.announcement is None and self._link.announce_again_at is None
        if is_open and frame.manifest_etag != self._manifest.etag:
            effects += self._announce(now)
        return effects

    def _resume(self) -> list[Effect]:
        execution = self._execution
        assert execution.journal_id is not None, "a session without a log_id"
        self.state = DeviceState.RESUMED
        execution.unreported.clear()
        frames = resume_frames(
            execution.journal_id, execution.last_cmd, execution.outcomes(), execution.running(), self._new_id
        )
        return [SendFrame(frame) for frame in frames]

    def _ack(self, outcome: Outcome) -> Effect:
        return SendFrame(
            CmdAck(
                msg_id=self._new_id(),
                in_reply_to=outcome.in_reply_to,
                ok=bool(outcome.ok),
                result=outcome.result,
                error=outcome.error,
                begun=None if outcome.ok else outcome.begun,
            )
        )

    # ---- commands ----------------------------------------------------------------------------------------------------

    def _command(self, cmd: Cmd, now: float) -> list[Effect]:
        tool = self._tools.get(cmd.tool)
        if tool is None or tool.target.verb != "subscribe":
            return self._execution.take(cmd, now)
        if self.state is not DeviceState.LIVE:
            return self._close(NodeClose.BAD_FRAME)  # a cadence is never replayed
        if cmd.msg_id in self._cadences:
            return []
        return self._subscribe(cmd, tool, now)

    def _subscribe(self, cmd: Cmd, tool: Tool, now: float) -> list[Effect]:
        """Neither journaled nor held to `last_cmd`: starting a cadence twice harms nobody (§6)."""
        refusal: CommandFault | None = None
        if self._clock.bound_ms(now) >= cmd.deadline_at_ms:
            refusal = LATE
        elif not contract(tool.input_id).is_valid(cmd.arguments):
            refusal = BAD_ARGUMENTS
        elif self._cadences.is_full:
            refusal = TOO_MANY
        if refusal is not None:
            return [self._ack(refused(cmd.msg_id, refusal))]
        started = self._ack(Outcome(in_reply_to=cmd.msg_id, ok=True, result={}, begun=True))
        return [started, *self._cadences.start(cmd, tool, now)]


def _earliest(*moments: float | None) -> float | None:
    return min((at for at in moments if at is not None), default=None)


def _is_due(at: float | None, now: float) -> bool:
    return at is not None and at <= now
