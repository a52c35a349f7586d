"""The gateway's part of a session (device wire §2 to §7), as checks play it: scripts that a check delegates to. Pure.

It is the plainest gateway that a node can meet: one session at a time, heartbeats answered, manifests acknowledged,
commands sent and acks noted, confirmed unless a check wants them unconfirmed. What a check is about, it does itself.

    stage    the node has                         leads to
    -------  -----------------------------------  -----------------------------------
    away     no connection                        opening, when it dials and is let in
    opening  one, and its session is not live     live, by `resume_ok`
    live     an open session                      away, when either side ends it

Its clock is not the machine's (`KitClock`): a node that goes by its own clock where the wire means the gateway's is
found out. Acks and telemetry are noted under the command they are for, whoever waits for what: a frame that comes late
belongs to the check that asked for it, and breaks no other.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeVar

from actors.kit.clock_rules import KitClock
from actors.kit.steps import (
    CloseWith,
    Dialled,
    Drop,
    Ended,
    Exited,
    Happening,
    Kill,
    Listen,
    Received,
    Refuse,
    Script,
    SendText,
    Start,
    Step,
    TimeUp,
    Upgrade,
)
from actors.kit.verdicts import Blocked, Broken, NotApplicable
from schemas.canonical import digest
from schemas.certificates import KnownCertificates
from schemas.closes import NodeClose
from schemas.contract import contract
from schemas.errors import Code, envelope
from schemas.frames import (
    SUBPROTOCOL,
    Announce,
    AnnounceAck,
    Auth,
    AuthOk,
    BadFrame,
    Cmd,
    CmdAck,
    ErrorFrame,
    Frame,
    Heartbeat,
    HeartbeatAck,
    Resume,
    ResumeOk,
    Side,
    Telemetry,
    decode,
    encode,
)
from schemas.manifest import NodeIdentity
from schemas.projection import project
from schemas.ulids import Mint

AUTH_S = 5.0  # from the upgrade to `auth` (§2.3)
RESUME_S = 10.0  # from `auth_ok` to the last `resume` (§2.4)
ANSWER_S = 10.0  # for an ack: the call's own 5 s, and as much again for a slow way
NODE_GONE = "the node did not come back; start the kit with the node's command behind --, and it starts it again"

F = TypeVar("F", bound=Frame)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KitSettings:
    first_dial_s: float = 300.0  # for the first connection; then the run ends
    patience_s: float = 90.0  # for a node to come back, whose backoff may be a minute; then it counts as gone
    heartbeat_ms: int = 1000  # told in `auth_ok`: often enough to be watched
    hold_s: float = 1.0  # an answer is held back so long, to see whether the node waits for it
    quiet_s: float = 1.0  # nothing may come for so long, where nothing may come
    away_s: float = 10.0  # watched after a close that is final; a node that comes back later is not noticed


@dataclass(frozen=True, slots=True)
class Enrolled:
    """The node under test, as the kit enrolled it."""

    identity: NodeIdentity
    certificates: KnownCertificates
    token: str
    next_token: str  # for after 4401


class Stage(Enum):
    AWAY = auto()
    OPENING = auto()
    LIVE = auto()


@dataclass(slots=True)
class Session:
    """What one connection has brought so far."""

    upgraded_at: float
    auth: Auth | None = None
    auth_ok_at: float | None = None
    manifest: Mapping[str, Any] | None = None
    resume: list[Resume] = field(default_factory=list)

    @property
    def outcomes(self) -> dict[str, Any]:
        return {outcome.in_reply_to: outcome for page in self.resume for outcome in page.outcomes}

    @property
    def running(self) -> set[str]:
        return {msg_id for page in self.resume for msg_id in page.running}

    @property
    def last_cmd(self) -> str | None:
        return self.resume[-1].last_cmd if self.resume else None

    @property
    def journal_id(self) -> str | None:
        return self.resume[-1].journal_id if self.resume else None


class KitGateway:
    def __init__(
        self,
        node: Enrolled,
        settings: KitSettings,
        clock: KitClock,
        entropy: Callable[[int], bytes],
        *,
        can_start: bool,
    ) -> None:
        """`can_start`: whether `Kill` and `Start` can be asked for."""
        self.node = node
        self.settings = settings
        self.clock = clock
        self.can_start = can_start
        self.token = node.token  # in the node's folder
        self.stage = Stage.AWAY
        self.session = Session(upgraded_at=0.0)
        self.overlaps = 0  # dials while a session was open
        self.confirms = True
        self.answers_heartbeats = True
        self.is_suspect = False  # a check has failed in this session: the next one begins with another
        self.acks: dict[str, list[CmdAck]] = defaultdict(list)
        self.telemetry: dict[str, list[tuple[float, Telemetry]]] = defaultdict(list)
        self._mint = Mint(entropy)
        self._epoch = 0
        self._etag: str | None = None
        self._commands: dict[str, bool] = {}  # of this log, in order: whether each is settled
        self._cadences: set[str] = set()
        self._has_dialled = False
        self._is_lost = False
        self.log_id = self.new_id()
        self.opening: object = None  # what `opening_checks` noted

    # ---- small things ------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.clock.now

    def new_id(self) -> str:
        return self._mint.mint(self.clock.ms)

    def do(self, step: Step) -> Script[Happening]:
        happening = yield step
        self.clock.now = happening.at
        return happening

    def send(self, frame: Frame) -> Script[None]:
        yield from self.do(SendText(encode(frame)))

    def tool(self, kind: str, verb: str) -> str:
        """The node's tool of this kind. NotApplicable if it announces none."""
        assert self.session.manifest is not None
        for tool in project({**self.session.manifest, "node_id": self.node.identity.node_id}):
            if (tool.target.kind, tool.target.verb) == (kind, verb):
                return tool.name
        raise NotApplicable(f"the node announces no {kind} with {verb}")

    def any_call(self) -> tuple[str, Mapping[str, Any]]:
        """A tool that can be called, and arguments for it."""
        try:
            return self.tool("system.echo", "invoke"), {"message": "heliograph"}
        except NotApplicable:
            return self.tool("system.metrics", "snapshot"), {"include": ["uptime"]}

    # ---- hearing -----------------------------------------------------------------------------------------------------

    def hear(
        self, until: float, *wanted: type[Frame], expected: str = ""
    ) -> Script[Frame | Dialled | Ended | Exited | TimeUp]:
        """The next frame of a wanted type, or what comes instead of any. Acks and telemetry are noted in passing.

        `expected` is what to say when a frame comes that is neither wanted nor of those.
        """
        while True:
            happening = yield from self.do(Listen(until))
            match happening:
                case Received(data=data, is_text=is_text):
                    frame = self._read(data, is_text)
                    yield from self._note(frame, wanted, expected)
                    if isinstance(frame, wanted):
                        return frame
                case Dialled() if self.stage is not Stage.AWAY:
                    self.overlaps += 1
                    yield from self.do(Refuse(503))
                case Ended():
                    self.stage = Stage.AWAY
                    return happening
                case Dialled() | Exited() | TimeUp():
                    return happening

    def _read(self, data: bytes, is_text: bool) -> Frame:
        if not is_text:
            raise Broken("text frames only", "a binary frame")
        frame = decode(data, Side.NODE)
        if isinstance(frame, BadFrame):
            raise Broken("a frame of a node that fits its schema", frame.words)
        return frame

    def _note(self, frame: Frame, wanted: tuple[type[Frame], ...], expected: str) -> Script[None]:
        match frame:
            case CmdAck(in_reply_to=str(msg_id)):
                if msg_id not in self._commands and msg_id not in self._cadences:
                    raise Broken("acks of commands that were sent", "an ack whose in_reply_to names none of them")
                self.acks[msg_id].append(frame)
                self._settle(msg_id)
            case Telemetry(in_reply_to=str(msg_id)):
                if msg_id not in self._cadences:
                    raise Broken("telemetry of a subscribe", "telemetry whose in_reply_to names none")
                self.telemetry[msg_id].append((self.now, frame))
            case Heartbeat():
                if self.session.auth_ok_at is None:
                    raise Broken("no frame between auth and auth_ok", seen(frame))
                if self.answers_heartbeats:
                    yield from self.answer(frame)
            case Announce() if Announce not in wanted and self.stage is Stage.LIVE:
                yield from self.acknowledge(frame)
            case _ if not isinstance(frame, wanted):
                names = " or ".join(kind.type for kind in wanted) or "no frame but a heartbeat"
                raise Broken(expected or f"{names} next", seen(frame))

    def expect(self, kind: type[F], within_s: float, why: str = "") -> Script[F]:
        expected = f"{kind.type} within {within_s:g} s{why and f' {why}'}"
        heard = yield from self.hear(self.now + within_s, kind, expected=expected)
        if isinstance(heard, kind):
            return heard
        raise Broken(expected, seen(heard))

    def let_pass(self, seconds: float, expected: str = "the session to stay open") -> Script[None]:
        """Time, in a session that stays open. What comes is noted; a frame that may not come now breaks the check."""
        heard = yield from self.hear(self.now + seconds, expected=expected)
        if not isinstance(heard, TimeUp):
            raise Broken(expected, seen(heard))

    def answer(self, heartbeat: Heartbeat, **changes: Any) -> Script[None]:
        fields = {"manifest_etag": self._etag, "now_ms": self.clock.ms, "confirmed_through": self.confirmed_through}
        yield from self.send(HeartbeatAck(msg_id=self.new_id(), in_reply_to=heartbeat.msg_id, **(fields | changes)))

    def acknowledge(self, announce: Announce) -> Script[None]:
        self.keep(announce)
        names = [tool.name for tool in project(announce.manifest)]
        yield from self.send(
            AnnounceAck(
                msg_id=self.new_id(), in_reply_to=announce.msg_id, manifest_etag=self._etag or "", tools=sorted(names)
            )
        )

    def keep(self, announce: Announce) -> None:
        """The manifest of this session from now on; Broken if its shape is not one."""
        flaw = contract("manifest@1.0.0").first_flaw(announce.manifest)
        if flaw is not None:
            raise Broken("a manifest that fits its schema", flaw.words)
        self.session.manifest = announce.manifest
        self._etag = digest(announce.manifest)

    @property
    def etag(self) -> str | None:
        """Of the manifest that was acknowledged last."""
        return self._etag

    # ---- commands ----------------------------------------------------------------------------------------------------

    @property
    def confirmed_through(self) -> str | None:
        if not self.confirms:
            return None
        last = None
        for msg_id, is_settled in self._commands.items():
            if not is_settled:
                break
            last = msg_id
        return last

    def _settle(self, msg_id: str) -> None:
        if msg_id in self._commands:
            self._commands[msg_id] = True

    def command(self, tool: str, arguments: Mapping[str, Any], in_ms: int = 5000) -> Script[str]:
        """Send one; its id."""
        msg_id = self.new_id()
        if tool.endswith(".subscribe"):
            self._cadences.add(msg_id)
        else:
            self._commands[msg_id] = False
        yield from self.send_again(msg_id, tool, arguments, in_ms)
        return msg_id

    def reserve(self) -> str:
        """The id of a command that is not sent now."""
        msg_id = self.new_id()
        self._commands[msg_id] = True
        return msg_id

    def send_again(self, msg_id: str, tool: str, arguments: Mapping[str, Any], in_ms: int = 5000) -> Script[None]:
        yield from self.send(
            Cmd(msg_id=msg_id, tool=tool, arguments=arguments, deadline_at_ms=max(0, self.clock.ms + in_ms))
        )

    def ack_of(self, msg_id: str) -> Script[CmdAck]:
        until = self.now + ANSWER_S
        while not self.acks[msg_id]:
            heard = yield from self.hear(until, CmdAck)
            if not isinstance(heard, CmdAck):
                raise Broken(f"cmd_ack within {ANSWER_S:g} s", seen(heard))
        return self.acks[msg_id][0]

    def call(self, tool: str, arguments: Mapping[str, Any], in_ms: int = 5000) -> Script[CmdAck]:
        msg_id = yield from self.command(tool, arguments, in_ms)
        ack = yield from self.ack_of(msg_id)
        return ack

    # ---- sessions ----------------------------------------------------------------------------------------------------

    def live(self) -> Script[None]:
        """A live session, whatever the check before left behind. Blocked if there is none to be had."""
        self.confirms = self.answers_heartbeats = True
        if self.stage is Stage.LIVE and not self.is_suspect:
            yield from self.prepare(self.hear(self.now))  # it may have ended meanwhile
        if self.stage is not Stage.LIVE or self.is_suspect:
            yield from self.prepare(self.reopen())

    def prepare(self, script: Script[T]) -> Script[T]:
        """What a check needs before it begins: a rule that is broken there is not the check's own."""
        try:
            value = yield from script
        except Broken as broken:
            raise Blocked(f"there was no session for it: {broken}") from None
        return value

    def reopen(self) -> Script[None]:
        """The next session, after this one is dropped if it is open."""
        yield from self.dial_again()
        yield from self.admit()
        announce = yield from self.expect(Announce, RESUME_S)
        yield from self.acknowledge(announce)
        yield from self.hear_resume()
        yield from self.go_live()

    def dial_again(self) -> Script[None]:
        """A new connection, let in, after this one is dropped if it is open."""
        if self.stage is not Stage.AWAY:
            yield from self.drop()
        self.is_suspect = False
        dialled = yield from self.dialled()
        yield from self.let_in(dialled)

    def drop(self) -> Script[None]:
        yield from self.do(Drop())
        self.stage = Stage.AWAY

    def close(self, close: NodeClose) -> Script[None]:
        yield from self.do(CloseWith(close.value.code, close.value.reason))
        self.stage = Stage.AWAY

    def restart(self) -> Script[None]:
        """Kill the node's process as it is, and start it again."""
        if not self.can_start:
            raise NotApplicable("the kit cannot start the node: give it the node's command behind --")
        yield from self.do(Kill())
        self.stage = Stage.AWAY
        yield from self.do(Start())
        self._is_lost = False

    def dialled(self) -> Script[Dialled]:
        """The node's next connection, not let in yet."""
        if self._is_lost:
            if not self.can_start:
                raise Blocked(NODE_GONE)
            yield from self.restart()
        within_s = self.settings.patience_s if self._has_dialled else self.settings.first_dial_s
        heard = yield from self.hear(self.now + within_s)
        if not isinstance(heard, Dialled):
            self._is_lost = True
            raise Broken(f"the node to connect within {within_s:g} s", seen(heard))
        self._has_dialled = True
        return heard

    def is_gone(self) -> None:
        """The node stays away, rightly or not: who needs a session has to start it again."""
        self._is_lost = True

    def let_in(self, dialled: Dialled) -> Script[None]:
        if SUBPROTOCOL not in dialled.subprotocols:
            yield from self.do(Refuse(400))
            raise Broken(f"the subprotocol {SUBPROTOCOL} to be offered", "an upgrade without it")
        yield from self.do(Upgrade())
        self.stage = Stage.OPENING
        self.session = Session(upgraded_at=self.now)

    def admit(self) -> Script[None]:
        """`auth` and `auth_ok`."""
        auth = self.session.auth = yield from self.expect(Auth, AUTH_S, "of the upgrade")
        yield from self.identify(auth)
        yield from self.say_auth_ok()

    def identify(self, auth: Auth) -> Script[None]:
        if (auth.node_id, auth.token) != (self.node.identity.node_id, self.token):
            yield from self.close(NodeClose.FORBIDDEN)
            self._is_lost = True
            raise Broken("the node_id and the token of the folder in auth", "another node_id or token")

    def say_auth_ok(self) -> Script[None]:
        assert self.session.auth is not None
        self._epoch += 1
        self.session.auth_ok_at = self.now
        yield from self.send(
            AuthOk(
                msg_id=self.new_id(),
                in_reply_to=self.session.auth.msg_id,
                session_id=self.new_id(),
                epoch=self._epoch,
                log_id=self.log_id,
                now_ms=self.clock.ms,
                heartbeat_ms=self.settings.heartbeat_ms,
            )
        )

    def refuse_manifest(self, announce: Announce, code: Code, retry_after_ms: int | None = None) -> Script[None]:
        error = envelope(code, retry_after_ms=retry_after_ms)
        yield from self.send(ErrorFrame(msg_id=self.new_id(), in_reply_to=announce.msg_id, error=error))

    def hear_resume(self) -> Script[None]:
        """All its frames, in time; what they say is filed."""
        assert self.session.auth_ok_at is not None
        while not self.session.resume or self.session.resume[-1].more:
            within_s = max(0.0, self.session.auth_ok_at + RESUME_S - self.now)
            heard = yield from self.hear(self.now + within_s, Resume)
            if not isinstance(heard, Resume):
                raise Broken(f"the whole resume within {RESUME_S:g} s of auth_ok", seen(heard))
            self.session.resume.append(heard)
        for msg_id in self.session.outcomes:
            self._settle(msg_id)

    def go_live(self) -> Script[None]:
        """`resume_ok`. What is not reported and does not run is settled as a gateway does, without sending it again."""
        for msg_id in self._commands.keys() - self.session.running:
            self._settle(msg_id)
        yield from self.send(
            ResumeOk(
                msg_id=self.new_id(),
                in_reply_to=self.session.resume[-1].msg_id,
                epoch=self._epoch,
                confirmed_through=self.confirmed_through,
                replayed=0,
                expired=0,
            )
        )
        self.stage = Stage.LIVE

    def start_log(self) -> None:
        """From the next session on this is a gateway with another command log."""
        self.log_id = self.new_id()
        self._commands.clear()


def said(ack: CmdAck) -> str:
    """An ack in our words."""
    if ack.error is None:
        return "ok: true"
    return f"ok: false, begun: {str(ack.begun).lower()}, {ack.error['code']}"


def seen(heard: Frame | Happening) -> str:
    match heard:
        case Ended(code=None):
            return "the connection broken off"
        case Ended(code=code):
            return f"the connection closed by the node with {code}"
        case Exited():
            return "the node's process ended"
        case TimeUp():
            return "nothing"
        case Frame():
            return f"a frame of type {heard.type}"
    return "a new connection"
