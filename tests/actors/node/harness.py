"""A gateway's side of one node in memory: a connection that remembers, a node that speaks by script."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import trio

from actors.bus.local_directory import LocalDirectory
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.node.actor import NodeActor
from actors.node.calls import PendingCalls
from actors.node.fleet import Fleet
from actors.node.moment import Moment
from actors.node.services import Authenticated, NodeServices
from actors.node.settings import NodeSettings
from schemas.closes import NodeClose
from schemas.frames import (
    Announce,
    AnnounceAck,
    AuthOk,
    Cmd,
    CmdAck,
    Frame,
    Resume,
    ResumeOk,
    Side,
    decode,
    encode,
)
from schemas.ulids import Mint
from tests.schemas.attested import NOW_MS, SESSION, known, signed
from tests.schemas.examples import ACK_ID

TOKEN_ID = "01HZXC0000000000000000J000"
F = TypeVar("F", bound=Frame)


def now() -> Moment:
    return Moment(trio.current_time(), NOW_MS + round(trio.current_time() * 1000))


def proved(token_s: float = 86_400) -> Authenticated:
    return Authenticated(SESSION, ACK_ID, TOKEN_ID, now().wall_ms + round(token_s * 1000))


class FakeConnection:
    """Implements `Connection`. `is_dead` makes every send fail."""

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self.closed: NodeClose | None = None
        self.is_dead = False
        self._over = trio.Event()
        self._news = trio.Event()

    def send(self, data: bytes) -> bool:
        if self.is_dead or self.closed is not None:
            return False
        frame = decode(data, Side.GATEWAY)
        assert isinstance(frame, Frame), frame
        self.sent.append(frame)
        self._tell()
        return True

    def close(self, close: NodeClose) -> None:
        if self.closed is None:
            self.closed = close
        self._over.set()
        self._tell()

    def hang_up(self) -> None:
        self.is_dead = True
        self._over.set()

    async def run(self) -> None:
        await self._over.wait()

    async def next(self, kind: type[F], *, after: int = 0) -> F:
        """The first frame of this kind at or after an index, waiting for it."""
        while True:
            for frame in self.sent[after:]:
                if isinstance(frame, kind):
                    return frame
            news = self._news
            await news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()


class Gateway:
    """The services that actors share, over a disk that may outlive it."""

    def __init__(self, disk: MemoryDisk | None = None, settings: NodeSettings | None = None) -> None:
        self.store = MemoryStore(disk)
        self.counts: Counter[str] = Counter()
        self.services = NodeServices(
            store=self.store,
            directory=LocalDirectory(self.store),
            calls=PendingCalls(),
            certificates=known(),
            settings=settings or NodeSettings(),
            now=now,
            entropy=lambda n: b"\x55" * n,
            count=self._count,
        )

    def _count(self, what: str) -> None:
        self.counts[what] += 1


class ScriptedNode:
    """One session of the node, spoken by hand."""

    _ids = itertools.count(1)

    def __init__(self, connection: FakeConnection, actor: NodeActor) -> None:
        self.connection = connection
        self.actor = actor
        self._mint = Mint(lambda n: next(self._ids).to_bytes(n))

    @classmethod
    def alone(cls, gateway: Gateway, *, token_s: float = 86_400) -> "ScriptedNode":
        """A session whose actor the test runs by itself."""
        connection = FakeConnection()
        return cls(connection, NodeActor(proved(token_s), connection, gateway.services))

    @classmethod
    def started_by(cls, fleet: Fleet) -> "ScriptedNode":
        """A session that a fleet has started and runs."""
        connection = FakeConnection()
        actor, _ = fleet.start_session(proved(), connection, lambda _: None)
        return cls(connection, actor)

    def msg_id(self) -> str:
        return self._mint.mint(now().wall_ms)

    def say(self, frame: Frame) -> None:
        self.actor.on_frame(encode(frame))

    def announce(self, **changes: Any) -> Announce:
        fresh = {"issued_at_ms": now().wall_ms, "expires_at_ms": now().wall_ms + 3_600_000}
        frame = Announce(msg_id=self.msg_id(), manifest=signed(**fresh | changes))
        self.say(frame)
        return frame

    def resume(self, **changes: Any) -> Resume:
        fields: dict[str, Any] = {"journal_id": "J", "last_cmd": None, "outcomes": [], "running": []} | changes
        frame = Resume(msg_id=self.msg_id(), **fields)
        self.say(frame)
        return frame

    async def go_live(self, **resume: Any) -> ResumeOk:
        await self.connection.next(AuthOk)
        self.announce()
        await self.connection.next(AnnounceAck)
        self.resume(**resume)
        return await self.connection.next(ResumeOk)

    def ack(self, cmd: Cmd, result: Any = None) -> None:
        """It was done; with the right answer, unless another is given."""
        answer = echo_of(cmd) if result is None else result
        self.say(CmdAck(msg_id=self.msg_id(), in_reply_to=cmd.msg_id, ok=True, result=answer))

    def fail(self, cmd: Cmd, code: str, *, begun: bool) -> None:
        error = {"code": code, "message": "no", "suggested_fix": "none"}
        self.say(CmdAck(msg_id=self.msg_id(), in_reply_to=cmd.msg_id, ok=False, error=error, begun=begun))

    async def commands(self, count: int) -> list[Cmd]:
        while True:
            found = [frame for frame in self.connection.sent if isinstance(frame, Cmd)]
            if len(found) >= count:
                return found
            await trio.sleep(0.001)


def echo_of(cmd: Cmd) -> dict[str, Any]:
    return {"message": cmd.arguments["message"], "received_at_ms": NOW_MS, "node_id": SESSION.node_id}


async def until(condition: Callable[[], bool]) -> None:
    """Let (mock) time pass until it holds; a minute is for ever here."""
    for _ in range(100_000):
        if condition():
            return
        await trio.sleep(0.001)
    raise AssertionError("never came true")
