"""The order of a node's session (device wire §2.3 to §3): which frame may come when, and what ends the session.

    phase        entered by            frames that may come                      leaves to
    -----------  --------------------  ----------------------------------------  ---------------------------
    opening      a verified `auth`     none: the epoch is being recorded         announcing
    announcing   the epoch is durable  announce, heartbeat                       resuming, by an accepted one
    resuming     a manifest accepted   resume, announce, heartbeat               live, when the log has taken it
    live         `resume` taken        cmd_ack, telemetry, announce, heartbeat   -
    ended        any close             none counts any more                      -

From any phase: a bad frame or one out of order 4400, a frame too large 4413, 60 s without one 4408, a `resume` that is
not complete within 10 s of `auth_ok` 4408, three refused manifests in a row 4422, a flood 4429, the end of the token
4401. The first close stands. Time that we take ourselves (to keep a manifest, to record a `resume`) is not the node's.

Judging a manifest is dear. One that says what is accepted already is acknowledged at once; others have a rate, and one
at a time: beyond it the node is told E_RATE_LIMITED, and may try again.

Synchronous and without a clock: every method takes `now` and returns effects, to be performed in their order. What a
manifest is worth (`schemas.manifest`), what a `resume` or an ack does to commands (`actors.node.command_rules`) and who
writes to the socket are not known here; what it means when the log does not take something is (`lost`, `illegal`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from actors.bucket_rules import TokenBucket
from actors.bus.bus import Failed, Outcome
from actors.log.appender import Lost
from actors.node.history import Reason
from actors.node.intents import Cancel, Intent, Issue, OpenSession, ReportUnwritten, Resumed, TakeAck, TakeResume
from actors.node.moment import Moment
from actors.node.reports import Drop
from actors.node.settings import NodeSettings
from schemas.closes import NodeClose
from schemas.errors import Code, ErrorEnvelope, envelope
from schemas.frames import (
    Announce,
    AnnounceAck,
    AuthOk,
    BadFrame,
    CmdAck,
    ErrorFrame,
    Fault,
    Frame,
    Heartbeat,
    HeartbeatAck,
    Resume,
    ResumeOk,
    Telemetry,
)
from schemas.manifest import Accepted, Rejected
from schemas.ulids import Mint

_ONE_AT_A_TIME_MS = 1000  # told to a node that announces again before its last manifest is acknowledged


class Phase(Enum):
    OPENING = auto()
    ANNOUNCING = auto()
    RESUMING = auto()
    LIVE = auto()
    ENDED = auto()


# ---- effects -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendFrame:
    frame: Frame


@dataclass(frozen=True, slots=True)
class CloseWith:
    close: NodeClose


@dataclass(frozen=True, slots=True)
class JudgeManifest:
    """Judge it, then say `judged`."""

    announce: Announce


@dataclass(frozen=True, slots=True)
class KeepManifest:
    """Make it durable, then say `kept`."""

    announce: Announce
    accepted: Accepted


@dataclass(frozen=True, slots=True)
class HandResume:
    """All frames of one `resume`, for the log; then say `resumed`."""

    frames: tuple[Resume, ...]


@dataclass(frozen=True, slots=True)
class HandAck:
    """For the log, or for a cadence."""

    ack: CmdAck


@dataclass(frozen=True, slots=True)
class Relay:
    telemetry: Telemetry


@dataclass(frozen=True, slots=True)
class Count:
    """Something was dropped: add one to its counter."""

    what: Drop


@dataclass(frozen=True, slots=True)
class EndSession:
    """Say `close`: the session has to end, unless it has already."""

    close: NodeClose


@dataclass(frozen=True, slots=True)
class Settle:
    """Tell the caller of this command."""

    msg_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class GiveBack:
    """It never became a command: it takes no slot and costs nothing."""

    issue: Issue


@dataclass(frozen=True, slots=True)
class Abandon:
    """Its caller is gone, and the log does not know: to be remembered for the node's next session."""

    msg_id: str


Effect = (
    SendFrame
    | CloseWith
    | JudgeManifest
    | KeepManifest
    | HandResume
    | HandAck
    | Relay
    | Count
    | EndSession
    | Settle
    | GiveBack
    | Abandon
)
Effects = Sequence[Effect]


# ---- what it means when an intent comes to nothing -------------------------------------------------------------------


def _not_issued(code: Code) -> Callable[[Issue], Effects]:
    return lambda issue: (GiveBack(issue), Settle(issue.msg_id, Failed(code, issue.msg_id, is_command=False)))


def _close(close: NodeClose) -> Callable[[Any], Effects]:
    return lambda _: (EndSession(close),)


def _abandon(cancel: Cancel) -> Effects:
    return (Abandon(cancel.msg_id),)


def _ack_not_recorded(ack: TakeAck) -> Effects:
    """The node keeps what it reported: it has to resume, or it would never say it again."""
    msg_id = ack.report.msg_id
    settle = Settle(msg_id, Failed(Code.INTERNAL, msg_id))
    return (Count(Drop.ACK_NOT_RECORDED), settle, EndSession(NodeClose.INTERNAL))


_LOST: Mapping[tuple[type[Intent], Lost], Callable[[Any], Effects]] = {
    (OpenSession, Lost.REFUSED): _close(NodeClose.INTERNAL),
    (TakeResume, Lost.REFUSED): _close(NodeClose.INTERNAL),
    (TakeAck, Lost.REFUSED): _ack_not_recorded,
    (Issue, Lost.REFUSED): _not_issued(Code.INTERNAL),
    (Issue, Lost.SUPERSEDED): _not_issued(Code.NODE_OFFLINE),
    (Issue, Lost.ENDED): _not_issued(Code.NODE_OFFLINE),
    (ReportUnwritten, Lost.REFUSED): _close(NodeClose.INTERNAL),  # the node knows nothing of it: it has to resume
    (Cancel, Lost.REFUSED): _abandon,
    (Cancel, Lost.SUPERSEDED): _abandon,
    (Cancel, Lost.ENDED): _abandon,
}
"""Whatever is not here is dropped: the node will say it again when it resumes, and time comes round by itself."""


def lost(intent: Intent, why: Lost) -> Effects:
    """The log did not take it."""
    means = _LOST.get((type(intent), why))
    return () if means is None else means(intent)


def illegal(intent: Intent, reason: Reason) -> Effects:
    """It could not follow on what the log holds."""
    match intent:
        case TakeResume():
            return (EndSession(NodeClose.BAD_FRAME),)
        case Issue():
            return _not_issued(Code.DEADLINE_EXCEEDED if reason is Reason.PAST_DEADLINE else Code.INTERNAL)(intent)
        case _:
            return (Count(Drop.COMMAND_ILLEGAL),)


class Session:
    def __init__(
        self, mint: Mint, settings: NodeSettings, now: Moment, token_expires_at_ms: int, manifests: TokenBucket
    ) -> None:
        """`manifests` is the node's, across its sessions."""
        self.phase = Phase.OPENING
        self.accepted: Accepted | None = None
        self.told_ms: int | None = None
        """The earliest time that the node was told: what it stamps by it is of this session."""
        self._mint = mint
        self._settings = settings
        self._heard_s = now.mono_s
        self._resume_by_s: float | None = None
        self._token_expires_s = now.mono_s + (token_expires_at_ms - now.wall_ms) / 1000
        self._refused_in_a_row = 0
        self._manifests = manifests
        self._keeping_since_s: float | None = None  # a manifest
        self._resume_frames: list[Resume] = []
        self._flood = _Flood(settings)

    # ---- what the driver did ----------------------------------------------------------------------------------------

    def granted(self, session_id: str, epoch: int, log_id: str, in_reply_to: str, now: Moment) -> Effects:
        """The epoch is durable."""
        if self.phase is not Phase.OPENING:
            return ()
        self.phase = Phase.ANNOUNCING
        self._heard_s = now.mono_s
        self.told_ms = now.wall_ms
        self._resume_by_s = now.mono_s + self._settings.resume_s_max
        return [
            SendFrame(
                AuthOk(
                    msg_id=self._mint.mint(now.wall_ms),
                    in_reply_to=in_reply_to,
                    session_id=session_id,
                    epoch=epoch,
                    log_id=log_id,
                    now_ms=now.wall_ms,
                    heartbeat_ms=round(self._settings.heartbeat_s * 1000),
                )
            )
        ]

    def judged(self, announce: Announce, verdict: Accepted | Rejected, known: Accepted | None, now: Moment) -> Effects:
        """A manifest was judged. One that is `known`, the last accepted of this node, is durable already."""
        if isinstance(verdict, Rejected):
            self._refused_in_a_row += 1
            error = envelope(verdict.code, verdict.message, correlation_id=announce.msg_id)
            refusal = self._refusal(announce, error, now)
            if self._refused_in_a_row >= self._settings.manifests_refused_max:
                return [refusal, *self.close(NodeClose.MANIFEST_REJECTED)]
            return [refusal]
        self._refused_in_a_row = 0
        if verdict is known:
            return self._acknowledge(announce, verdict, now)
        self._keeping_since_s = now.mono_s
        return (KeepManifest(announce, verdict),)

    def kept(self, announce: Announce, accepted: Accepted, durable: bool, now: Moment) -> Effects:
        """The log has taken the manifest, or not."""
        since_s, self._keeping_since_s = self._keeping_since_s, None
        if self.phase is Phase.ENDED:
            return ()
        if not durable:
            return self.close(NodeClose.INTERNAL)
        if self._resume_by_s is not None and since_s is not None:
            self._resume_by_s += now.mono_s - since_s
        return self._acknowledge(announce, accepted, now)

    def _acknowledge(self, announce: Announce, accepted: Accepted, now: Moment) -> Effects:
        self.accepted = accepted
        if self.phase is Phase.ANNOUNCING:
            self.phase = Phase.RESUMING
        tools, msg_id = [tool.name for tool in accepted.tools], self._mint.mint(now.wall_ms)
        ack = AnnounceAck(msg_id=msg_id, in_reply_to=announce.msg_id, manifest_etag=accepted.etag, tools=tools)
        return (SendFrame(ack),)

    def _refusal(self, announce: Announce, error: ErrorEnvelope, now: Moment) -> SendFrame:
        msg_id = self._mint.mint(now.wall_ms)
        return SendFrame(ErrorFrame(msg_id=msg_id, in_reply_to=announce.msg_id, error=error))

    def resumed(self, frame_id: str, resumed: Resumed, now: Moment) -> Effects:
        """The log has taken the `resume`; commands may follow `resume_ok`, not before."""
        if self.phase is not Phase.RESUMING:
            return ()
        self.phase = Phase.LIVE
        self._resume_by_s = None
        return [
            SendFrame(
                ResumeOk(
                    msg_id=self._mint.mint(now.wall_ms),
                    in_reply_to=frame_id,
                    epoch=resumed.epoch,
                    confirmed_through=resumed.confirmed_through,
                    replayed=len(resumed.replayed),
                    expired=len(resumed.expired),
                )
            )
        ]

    def close(self, close: NodeClose) -> Effects:
        """End the session, unless it has ended already: the first reason stands."""
        if self.phase is Phase.ENDED:
            return ()
        self.phase = Phase.ENDED
        return (CloseWith(close),)

    # ---- what came in -----------------------------------------------------------------------------------------------

    def received(self, frame: Frame | BadFrame, confirmed_through: str | None, now: Moment) -> Effects:
        if self.phase is Phase.ENDED:
            return ()
        self._heard_s = now.mono_s
        if self._flood.is_one_too_many(now.mono_s):
            return self.close(NodeClose.RATE_LIMITED)
        match frame, self.phase:
            case Telemetry(), Phase.LIVE:
                return (Relay(frame),)
            case CmdAck(), Phase.LIVE:
                return (HandAck(frame),)
            case Heartbeat(), Phase.ANNOUNCING | Phase.RESUMING | Phase.LIVE:
                return (SendFrame(self._heartbeat_ack(frame, confirmed_through, now)),)
            case Announce(), Phase.ANNOUNCING | Phase.RESUMING | Phase.LIVE:
                return self._announce(frame, now)
            case Resume(), Phase.RESUMING if self._resume_by_s is not None:
                return self._resume(frame)
            case BadFrame(type="telemetry", msg_id=str()), Phase.LIVE:
                return (Count(Drop.TELEMETRY_INVALID),)
            case BadFrame(fault=Fault.TOO_LARGE), _:
                return self.close(NodeClose.TOO_LARGE)
            case _:
                return self.close(NodeClose.BAD_FRAME)

    def _announce(self, frame: Announce, now: Moment) -> Effects:
        accepted = self.accepted
        if accepted is not None and frame.manifest == accepted.manifest and not accepted.is_expired(now.wall_ms):
            return self._acknowledge(frame, accepted, now)
        wait_ms = _ONE_AT_A_TIME_MS if self._keeping_since_s is not None else self._manifests.take(now.mono_s)
        if wait_ms is not None:
            error = envelope(Code.RATE_LIMITED, retry_after_ms=wait_ms, correlation_id=frame.msg_id)
            return (self._refusal(frame, error, now),)
        return (JudgeManifest(frame),)

    def _heartbeat_ack(self, frame: Heartbeat, confirmed_through: str | None, now: Moment) -> HeartbeatAck:
        self.told_ms = min(self.told_ms or now.wall_ms, now.wall_ms)
        return HeartbeatAck(
            msg_id=self._mint.mint(now.wall_ms),
            in_reply_to=frame.msg_id,
            manifest_etag=self.accepted.etag if self.accepted else None,
            now_ms=now.wall_ms,
            confirmed_through=confirmed_through,
        )

    def _resume(self, frame: Resume) -> Effects:
        """Frames of one `resume` are collected; the last one, without `more`, makes it whole."""
        frames = self._resume_frames
        frames.append(frame)
        disagrees = (frame.journal_id, frame.last_cmd) != (frames[0].journal_id, frames[0].last_cmd)
        endless = frame.more and len(frames) >= self._settings.resume_frames_max
        if disagrees or endless or sum(len(f.outcomes) for f in frames) > self._settings.resume_outcomes_max:
            return self.close(NodeClose.BAD_FRAME)
        if frame.more:
            return ()
        whole, self._resume_frames = tuple(self._resume_frames), []
        self._resume_by_s = None  # it is complete: how long the log takes for it is not the node's doing
        return (HandResume(whole),)

    # ---- time -------------------------------------------------------------------------------------------------------

    def next_deadline_s(self) -> float:
        """When `tick` has something to say if nothing happens until then."""
        deadlines = [self._silent_by_s(), self._token_expires_s]
        if self._resume_by_s is not None and self._keeping_since_s is None:
            deadlines.append(self._resume_by_s)
        return min(deadlines)

    def tick(self, now: Moment) -> Effects:
        if now.mono_s >= self._token_expires_s:
            return self.close(NodeClose.UNAUTHORIZED)
        if now.mono_s >= self._silent_by_s():
            return self.close(NodeClose.TIMEOUT)
        if self._resume_by_s is not None and self._keeping_since_s is None and now.mono_s >= self._resume_by_s:
            return self.close(NodeClose.TIMEOUT)
        return ()

    def _silent_by_s(self) -> float:
        """Until `auth_ok` the node may say nothing: the time is ours."""
        return math.inf if self.phase is Phase.OPENING else self._heard_s + self._settings.silence_s_max


class _Flood:
    """More than so many frames a second, in so many consecutive seconds."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._second = 0
        self._frames = 0
        self._hot_seconds = 0

    def is_one_too_many(self, mono_s: float) -> bool:
        second = int(mono_s)
        if second != self._second:
            was_hot = self._frames > self._settings.frames_per_s_max and second == self._second + 1
            self._hot_seconds = self._hot_seconds + 1 if was_hot else 0
            self._second, self._frames = second, 0
        self._frames += 1
        return self._hot_seconds >= self._settings.flood_s
