"""A node's rules on a bench: events go in, effects are checked against the wire's contract and handed to the test."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from actors.device.device_messages import (
    Connected,
    Effect,
    Event,
    FrameReceived,
    HandlerReturned,
    JournalWritten,
    SendFrame,
    StartHandler,
    StartJournal,
    TimePassed,
    WireLost,
    WriteJournal,
)
from actors.device.device_rules import DeviceRules, DeviceState
from actors.device.handlers import CAPABILITIES
from actors.device.journal import JournalState, Opened
from actors.device.manifest_life import SignedManifest
from schemas.frames import (
    AnnounceAck,
    AuthOk,
    BadFrame,
    Cmd,
    CmdAck,
    CmdCancel,
    Frame,
    HeartbeatAck,
    Outcome,
    Resume,
    ResumeOk,
    Side,
    decode,
    encode,
)
from schemas.manifest import LIFE_MS_MAX
from schemas.projection import Tool, project
from tests.schemas.examples import NODE_ID

T0_MS = 1_790_000_000_000  # the gateway's time when the test begins
START = 100.0  # the node's monotonic time then
LOG = "01HZXC0000000000000000NG00"
OTHER_LOG = "01HZXC0000000000000000NG01"
JOURNAL = "01HZXC0000000000000000JRN0"
SESSION = "01HZXC0000000000000000SES0"
TOKEN = "a.b.c"

ECHO = f"sysecho.{NODE_ID}.echo.invoke"
SNAPSHOT = f"sys.{NODE_ID}.metrics.snapshot"
SUBSCRIBE = f"sys.{NODE_ID}.metrics.subscribe"
TOOLS = {tool.name: tool for tool in project({"node_id": NODE_ID, "capabilities": CAPABILITIES})}
ECHO_SLOTS: int = TOOLS[ECHO].constraints["max_concurrency"]
HANDLER_S: float = TOOLS[ECHO].constraints["deadline_ms_default"] / 1000
HELLO: Mapping[str, Any] = {"message": "hello"}

F = TypeVar("F", bound=Frame)
E = TypeVar("E", bound=Effect)


def cid(number: int) -> str:
    """The id of the number-th command."""
    return f"01HZXC{number:020d}"


def result_of(message: str = "hello") -> dict[str, Any]:
    return {"message": message, "received_at_ms": T0_MS, "node_id": NODE_ID}


def unsigned(issued_at_ms: int, life_ms: int = LIFE_MS_MAX) -> SignedManifest:
    """A stand-in for a manifest: the rules look at nothing but its two times."""
    stamps = {"issued_at_ms": issued_at_ms, "expires_at_ms": issued_at_ms + life_ms}
    return SignedManifest(stamps, f"{issued_at_ms:064x}")


def journal(last_cmd: str | None = None) -> JournalState:
    return JournalState([Opened(LOG, JOURNAL, last_cmd)])


def of(kind: type[E], effects: list[Effect]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(kind: type[F], effects: list[Effect]) -> list[F]:
    return [effect.frame for effect in of(SendFrame, effects) if isinstance(effect.frame, kind)]


class Node:
    """`now` is the node's monotonic time. The gateway's clock is T0_MS at START, unless a frame says otherwise."""

    def __init__(
        self,
        state: JournalState | None = None,
        tools: Mapping[str, Tool] = TOOLS,
        life_ms: int = LIFE_MS_MAX,
        rules_class: type[DeviceRules] = DeviceRules,
        sign: Callable[[int], SignedManifest] | None = None,
    ) -> None:
        self.now = START
        self._ids = 0
        self.rules = rules_class(
            node_id=NODE_ID,
            tools=tools,
            sign=sign or (lambda issued_at_ms: unsigned(issued_at_ms, life_ms)),
            journal=state or journal(),
            new_id=self._new_id,
        )

    def _new_id(self) -> str:
        self._ids += 1
        return f"01HZXD{self._ids:020d}"

    @property
    def gateway_ms(self) -> int:
        return T0_MS + round((self.now - START) * 1000)

    def feed(self, event: Event) -> list[Effect]:
        effects = self.rules.handle(event, self.now)
        for effect in of(SendFrame, effects):
            read = decode(encode(effect.frame), Side.NODE)
            assert not isinstance(read, BadFrame), read
        return effects

    def receive(self, frame: Frame) -> list[Effect]:
        return self.feed(FrameReceived(frame))

    def written(self, effects: list[Effect]) -> list[Effect]:
        """The disk has done everything that these effects asked of it."""
        return [
            effect
            for request in effects
            if isinstance(request, WriteJournal | StartJournal)
            for effect in self.feed(JournalWritten(request.ticket))
        ]

    def wait(self, seconds: float, wakes_max: int = 10_000) -> list[Effect]:
        """Let time pass, waking the rules whenever they asked for it; so often at most, or they would never sleep."""
        until, effects = self.now + seconds, []
        while (at := self.rules.next_deadline()) is not None and at <= until:
            wakes_max -= 1
            assert wakes_max, "the rules ask to be woken again and again"
            self.now = max(self.now, at)
            effects += self.feed(TimePassed())
        self.now = until
        return effects

    # ---- a session ---------------------------------------------------------------------------------------------------

    def connect(self) -> list[Effect]:
        return self.feed(Connected(TOKEN))

    def auth_ok(self, **changes: Any) -> list[Effect]:
        fields: dict[str, Any] = {
            "msg_id": cid(0),
            "session_id": SESSION,
            "epoch": 1,
            "log_id": LOG,
            "now_ms": self.gateway_ms,
            "heartbeat_ms": 25_000,
        }
        return self.receive(AuthOk(**fields | changes))

    def announce_ack(self, **changes: Any) -> list[Effect]:
        return self.receive(AnnounceAck(**{"msg_id": cid(0), "manifest_etag": "0" * 64, "tools": []} | changes))

    def resume_ok(self, **changes: Any) -> list[Effect]:
        fields: dict[str, Any] = {"msg_id": cid(0), "epoch": 1, "confirmed_through": None, "replayed": 0, "expired": 0}
        return self.receive(ResumeOk(**fields | changes))

    def resumed(self) -> list[Resume]:
        """From no wire to a `resume` on a new one."""
        effects = self.connect() + self.auth_ok()
        effects += self.written(effects) + self.announce_ack()
        assert self.rules.state is DeviceState.RESUMED
        return sent(Resume, effects)

    def live(self) -> "Node":
        self.resumed()
        self.resume_ok()
        return self

    def lose_wire(self) -> list[Effect]:
        return self.feed(WireLost())

    # ---- commands ----------------------------------------------------------------------------------------------------

    def cmd(self, number: int, tool: str = ECHO, arguments: Any = HELLO, in_ms: int = 5000) -> list[Effect]:
        deadline_at_ms = self.gateway_ms + in_ms
        return self.receive(Cmd(msg_id=cid(number), tool=tool, arguments=arguments, deadline_at_ms=deadline_at_ms))

    def begin(self, number: int, **changes: Any) -> list[Effect]:
        """A command that comes in and whose id is journaled at once."""
        effects = self.cmd(number, **changes)
        return effects + self.written(effects)

    def cancel(self, number: int) -> list[Effect]:
        return self.receive(CmdCancel(msg_id=cid(0), in_reply_to=cid(number)))


# ---- what effects say about commands ---------------------------------------------------------------------------------


def started(effects: list[Effect]) -> list[str]:
    return [start.msg_id for start in of(StartHandler, effects)]


def records(effects: list[Effect]) -> list[Any]:
    return [record for write in of(WriteJournal, effects) for record in write.records]


def refusals(effects: list[Effect]) -> list[tuple[str | None, str]]:
    """The commands acked as not begun, with their codes."""
    return [(ack.in_reply_to, ack.error["code"]) for ack in sent(CmdAck, effects) if ack.error and ack.begun is False]


def failures(effects: list[Effect]) -> list[tuple[str | None, str]]:
    """The commands acked as begun and failed, with their codes."""
    return [(ack.in_reply_to, ack.error["code"]) for ack in sent(CmdAck, effects) if ack.error and ack.begun]


def end(node: Node, number: int) -> list[Effect]:
    effects = node.feed(HandlerReturned(cid(number), result_of()))
    return effects + node.written(effects)


def confirm(node: Node, through: str | None) -> list[Effect]:
    return node.receive(
        HeartbeatAck(msg_id=cid(0), manifest_etag="0" * 64, now_ms=node.gateway_ms, confirmed_through=through)
    )


def reported(node: Node) -> list[Outcome]:
    node.lose_wire()
    return [outcome for frame in node.resumed() for outcome in frame.outcomes]
