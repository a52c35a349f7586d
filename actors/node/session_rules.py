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
4401. The first close stands.

Synchronous and without a clock: every method takes `now` and returns effects, to be performed in their order. What a
manifest is worth (`schemas.manifest`), what a `resume` or an ack does to commands (`actors.node.command_rules`) and who
writes to the socket are not known here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from actors.node.drops import Drop
from actors.node.settings import NodeSettings
from schemas.closes import NodeClose
from schemas.errors import envelope
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


class Moment(NamedTuple):
    """Now, on both clocks: `mono_s` for spans, `wall_ms` for dates that others know too."""

    mono_s: float
    wall_ms: int


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
    """Judge it, keep it if accepted, then say `judged`."""

    announce: Announce


@dataclass(frozen=True, slots=True)
class TakeResume:
    """All frames of one `resume`: give them to the log, then say `resumed`."""

    frames: tuple[Resume, ...]


@dataclass(frozen=True, slots=True)
class TakeAck:
    ack: CmdAck


@dataclass(frozen=True, slots=True)
class Relay:
    telemetry: Telemetry
    now: Moment


@dataclass(frozen=True, slots=True)
class Count:
    """Something was dropped: add one to its counter."""

    what: Drop


Effect = SendFrame | CloseWith | JudgeManifest | TakeResume | TakeAck | Relay | Count
Effects = Sequence[Effect]


class Session:
    def __init__(self, mint: Mint, settings: NodeSettings, now: Moment, token_expires_at_ms: int) -> None:
        self.phase = Phase.OPENING
        self.accepted: Accepted | None = None
        self._mint = mint
        self._settings = settings
        self._heard_s = now.mono_s
        self._resume_by_s: float | None = None
        self._token_expires_s = now.mono_s + (token_expires_at_ms - now.wall_ms) / 1000
        self._refused_in_a_row = 0
        self._resume_frames: list[Resume] = []
        self._flood = _Flood(settings)

    # ---- what the driver did ----------------------------------------------------------------------------------------

    def granted(self, session_id: str, epoch: int, log_id: str, in_reply_to: str, now: Moment) -> Effects:
        """The epoch is durable."""
        if self.phase is not Phase.OPENING:
            return ()
        self.phase = Phase.ANNOUNCING
        self._heard_s = now.mono_s
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

    def judged(self, announce: Announce, verdict: Accepted | Rejected, now: Moment) -> Effects:
        """A manifest was judged, and kept if it was accepted."""
        if self.phase is Phase.ENDED:
            return ()
        msg_id = self._mint.mint(now.wall_ms)
        if isinstance(verdict, Rejected):
            self._refused_in_a_row += 1
            error = envelope(verdict.code, verdict.message, correlation_id=announce.msg_id)
            refusal = SendFrame(ErrorFrame(msg_id=msg_id, in_reply_to=announce.msg_id, error=error))
            if self._refused_in_a_row >= self._settings.manifests_refused_max:
                return [refusal, *self.close(NodeClose.MANIFEST_REJECTED)]
            return [refusal]
        self._refused_in_a_row = 0
        self.accepted = verdict
        if self.phase is Phase.ANNOUNCING:
            self.phase = Phase.RESUMING
        tools = [tool.name for tool in verdict.tools]
        return [
            SendFrame(AnnounceAck(msg_id=msg_id, in_reply_to=announce.msg_id, manifest_etag=verdict.etag, tools=tools))
        ]

    def resumed(
        self, frame: Resume, epoch: int, confirmed_through: str | None, replayed: int, expired: int, now: Moment
    ) -> Effects:
        """The log has taken the `resume`; commands may follow `resume_ok`, not before."""
        if self.phase is not Phase.RESUMING:
            return ()
        self.phase = Phase.LIVE
        self._resume_by_s = None
        return [
            SendFrame(
                ResumeOk(
                    msg_id=self._mint.mint(now.wall_ms),
                    in_reply_to=frame.msg_id,
                    epoch=epoch,
                    confirmed_through=confirmed_through,
                    replayed=replayed,
                    expired=expired,
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
                return (Relay(frame, now),)
            case CmdAck(), Phase.LIVE:
                return (TakeAck(frame),)
            case Heartbeat(), Phase.ANNOUNCING | Phase.RESUMING | Phase.LIVE:
                return (SendFrame(self._heartbeat_ack(frame, confirmed_through, now)),)
            case Announce(), Phase.ANNOUNCING | Phase.RESUMING | Phase.LIVE:
                return (JudgeManifest(frame),)
            case Resume(), Phase.RESUMING:
                return self._resume(frame)
            case BadFrame(type="telemetry", msg_id=str()), Phase.LIVE:
                return (Count(Drop.TELEMETRY_INVALID),)
            case BadFrame(fault=Fault.TOO_LARGE), _:
                return self.close(NodeClose.TOO_LARGE)
            case _:
                return self.close(NodeClose.BAD_FRAME)

    def _heartbeat_ack(self, frame: Heartbeat, confirmed_through: str | None, now: Moment) -> HeartbeatAck:
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
        return (TakeResume(whole),)

    # ---- time -------------------------------------------------------------------------------------------------------

    def next_deadline_s(self) -> float:
        """When `tick` has something to say if nothing happens until then."""
        deadlines = [self._heard_s + self._settings.silence_s_max, self._token_expires_s]
        if self._resume_by_s is not None:
            deadlines.append(self._resume_by_s)
        return min(deadlines)

    def tick(self, now: Moment) -> Effects:
        if now.mono_s >= self._token_expires_s:
            return self.close(NodeClose.UNAUTHORIZED)
        if now.mono_s >= self._heard_s + self._settings.silence_s_max:
            return self.close(NodeClose.TIMEOUT)
        if self._resume_by_s is not None and now.mono_s >= self._resume_by_s:
            return self.close(NodeClose.TIMEOUT)
        return ()


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
