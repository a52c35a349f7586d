"""What the kit hears of a node and says in return, whatever the check: heartbeats, manifests, commands and acks. Pure.

Acks and telemetry are noted under the command they are for, whoever waits for what: a frame that comes late belongs to
the check that asked for it, and breaks no other. A flood of frames is what no check can work with.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from actors.kit.clock_rules import KitClock
from actors.kit.facts import ANSWER_S, Enrolled, KitSettings, Session, Stage, seen
from actors.kit.steps import (
    Answer,
    Asked,
    Dialled,
    Ended,
    Exited,
    Happening,
    Listen,
    Received,
    Refuse,
    Script,
    SendText,
    Step,
    TimeUp,
)
from actors.kit.verdicts import Blocked, Broken, NotApplicable
from schemas.canonical import digest
from schemas.contract import contract
from schemas.frames import (
    Announce,
    AnnounceAck,
    BadFrame,
    Cmd,
    CmdAck,
    Frame,
    Heartbeat,
    HeartbeatAck,
    Side,
    Telemetry,
    decode,
    encode,
)
from schemas.projection import project
from schemas.ulids import Mint

FLOOD_FRAMES, FLOOD_S = 1200, 5.0  # more than 200 a second, for so long (§2.5, 4429), and some on top
ACKS_NOTED_MAX = 3  # of one command: a second one is wrong, further ones say no more
FRAMES_NOTED_MAX = 1000  # of one cadence; no check looks at more
FLOOD = "more than 200 frames a second for 5 s"

F = TypeVar("F", bound=Frame)


class Hearing:
    def __init__(self, node: Enrolled, settings: KitSettings, clock: KitClock, entropy: Callable[[int], bytes]) -> None:
        self.node = node
        self.settings = settings
        self.clock = clock
        self.stage = Stage.AWAY
        self.session = Session()
        self.confirms = True
        self.answers_heartbeats = True
        self.takes_requests = False  # for the next identity; else they are told to try later
        self.acks: dict[str, list[CmdAck]] = defaultdict(list)
        self.telemetry: dict[str, list[tuple[float, Telemetry]]] = defaultdict(list)
        self.etag: str | None = None
        """Of the manifest that was acknowledged last."""
        self.overlaps = 0  # dials while a session was open
        self.floods = 0
        self.is_lost = False
        """The node stays away, rightly or not: who needs a session has to start it again."""
        self.has_left = False  # rightly: what cannot be tried for that is not held against it
        self._mint = Mint(entropy)
        self._commands: dict[str, bool] = {}  # of this log, in order: whether each is settled
        self._cadences: set[str] = set()
        self._frames_at: deque[float] = deque(maxlen=FLOOD_FRAMES)

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
    ) -> Script[Frame | Dialled | Asked | Ended | Exited | TimeUp]:
        """The next frame of a wanted type, or what comes instead of any. Acks and telemetry are noted in passing.

        `expected` is what to say when a frame comes that is neither wanted nor of those.
        """
        while True:
            happening = yield from self.do(Listen(until))
            match happening:
                case Received(data=data, is_text=is_text):
                    self._count()
                    frame = self._read(data, is_text)
                    yield from self._note(frame, wanted, expected)
                    if isinstance(frame, wanted):
                        return frame
                case Dialled() if self.stage is not Stage.AWAY:
                    self.overlaps += 1
                    yield from self.do(Refuse(503))
                case Asked() if not self.takes_requests:
                    yield from self.do(Answer(503))
                case Ended():
                    self.stage = Stage.AWAY
                    return happening
                case Exited():
                    self.stage, self.is_lost = Stage.AWAY, True
                    return happening
                case Dialled() | Asked() | TimeUp():
                    return happening

    def _count(self) -> None:
        self._frames_at.append(self.now)
        if len(self._frames_at) == FLOOD_FRAMES and self.now - self._frames_at[0] < FLOOD_S:
            self._frames_at.clear()
            self.floods += 1
            raise Blocked(f"the node sent {FLOOD}")

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
                if len(self.acks[msg_id]) < ACKS_NOTED_MAX:
                    self.acks[msg_id].append(frame)
                self._settle(msg_id)
            case Telemetry(in_reply_to=str(msg_id)):
                if msg_id not in self._cadences:
                    raise Broken("telemetry of a subscribe", "telemetry whose in_reply_to names none")
                if len(self.telemetry[msg_id]) < FRAMES_NOTED_MAX:
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
        fields = {"manifest_etag": self.etag, "now_ms": self.clock.ms, "confirmed_through": self.confirmed_through}
        yield from self.send(HeartbeatAck(msg_id=self.new_id(), in_reply_to=heartbeat.msg_id, **(fields | changes)))

    def acknowledge(self, announce: Announce) -> Script[None]:
        self.keep(announce)
        names = [tool.name for tool in project(announce.manifest)]
        yield from self.send(
            AnnounceAck(
                msg_id=self.new_id(), in_reply_to=announce.msg_id, manifest_etag=self.etag or "", tools=sorted(names)
            )
        )

    def keep(self, announce: Announce) -> None:
        """The manifest of this session from now on; Broken if its shape is not one."""
        flaw = contract("manifest@1.0.0").first_flaw(announce.manifest)
        if flaw is not None:
            raise Broken("a manifest that fits its schema", flaw.words)
        self.session.manifest = announce.manifest
        self.etag = digest(announce.manifest)

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
