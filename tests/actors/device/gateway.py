"""The other end of an agent's wire, in memory: a test plays the gateway, frame by frame."""

import math
from typing import Any, TypeVar

import trio

from actors.device.wire import ABNORMAL, WireClosed
from schemas.frames import (
    Announce,
    AnnounceAck,
    Auth,
    AuthOk,
    BadFrame,
    Cmd,
    CmdAck,
    CmdCancel,
    Frame,
    Heartbeat,
    HeartbeatAck,
    Resume,
    ResumeOk,
    Side,
    decode,
    encode,
)
from tests.actors.device.node import ECHO, HELLO, LOG, SESSION, T0_MS, cid

F = TypeVar("F", bound=Frame)


class MemoryWire:
    """What the agent holds. It breaks when the gateway closes it, and can be made to swallow what is sent."""

    def __init__(self) -> None:
        self.to_gateway, self.from_node = trio.open_memory_channel[tuple[float, bytes]](math.inf)
        self.to_node, self._from_gateway = trio.open_memory_channel[bytes](math.inf)
        self.closed: WireClosed | None = None
        self.said_goodbye: tuple[int, str] | None = None
        self.takes_frames = True

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self.closed is not None:
            raise self.closed
        if not self.takes_frames:
            await trio.sleep_forever()
        self.to_gateway.send_nowait((trio.current_time(), data))

    async def receive(self) -> bytes:
        try:
            return await self._from_gateway.receive()
        except trio.EndOfChannel:
            assert self.closed is not None
            raise self.closed from None

    async def aclose(self, code: int, reason: str) -> None:
        await trio.lowlevel.checkpoint()
        if self.closed is not None:
            raise self.closed
        self.said_goodbye = (code, reason)
        self.closed = WireClosed(ABNORMAL)
        self.to_gateway.close()


class Peer:
    """What the gateway holds. The gateway's clock is T0_MS when the trio clock is at 0."""

    def __init__(self, wire: MemoryWire) -> None:
        self.wire = wire
        self.opened_at = trio.current_time()

    @property
    def now_ms(self) -> int:
        return T0_MS + round(trio.current_time() * 1000)

    async def expect(self, kind: type[F]) -> F:
        """The next frame, which has to be of this type."""
        (_, frame) = await self.expect_timed(kind)
        return frame

    async def expect_timed(self, kind: type[F]) -> tuple[float, F]:
        """With the time at which it was sent."""
        with trio.fail_after(3600):
            sent_at, data = await self.wire.from_node.receive()
        frame = decode(data, Side.NODE)
        assert not isinstance(frame, BadFrame), frame
        assert isinstance(frame, kind), frame
        return sent_at, frame

    def send(self, frame: Frame) -> None:
        self.wire.to_node.send_nowait(encode(frame))

    def close(self, code: int) -> None:
        self.wire.closed = WireClosed(code)
        self.wire.to_node.close()

    # ---- a session ---------------------------------------------------------------------------------------------------

    async def authenticate(self, **changes: Any) -> Auth:
        auth = await self.expect(Auth)
        fields: dict[str, Any] = {
            "msg_id": cid(0),
            "in_reply_to": auth.msg_id,
            "session_id": SESSION,
            "epoch": 1,
            "log_id": LOG,
            "now_ms": self.now_ms,
            "heartbeat_ms": 25_000,
        }
        self.send(AuthOk(**fields | changes))
        return auth

    async def accept(self) -> Announce:
        announce = await self.expect(Announce)
        self.send(AnnounceAck(msg_id=cid(0), in_reply_to=announce.msg_id, manifest_etag="0" * 64, tools=[]))
        return announce

    async def go_live(self, **changes: Any) -> Resume:
        await self.authenticate(**changes)
        await self.accept()
        resume = await self.expect(Resume)
        self.send(ResumeOk(msg_id=cid(0), epoch=1, confirmed_through=None, replayed=0, expired=0))
        return resume

    def answer(self, heartbeat: Heartbeat) -> None:
        self.send(
            HeartbeatAck(
                msg_id=cid(0),
                in_reply_to=heartbeat.msg_id,
                manifest_etag=heartbeat.manifest_etag,
                now_ms=self.now_ms,
                confirmed_through=None,
            )
        )

    def command(self, number: int, tool: str = ECHO, arguments: Any = HELLO) -> None:
        deadline_at_ms = self.now_ms + 5000
        self.send(Cmd(msg_id=cid(number), tool=tool, arguments=arguments, deadline_at_ms=deadline_at_ms))

    def cancel(self, number: int) -> None:
        self.send(CmdCancel(msg_id=cid(0), in_reply_to=cid(number)))

    async def call(self, number: int, tool: str = ECHO, arguments: Any = HELLO) -> CmdAck:
        self.command(number, tool, arguments)
        return await self.expect(CmdAck)


class Gateway:
    """Where an agent dials. `refuse_next(n)` makes the next dials fail."""

    def __init__(self) -> None:
        self.dialled_at: list[float] = []
        self._to_test, self._dials = trio.open_memory_channel[Peer](math.inf)
        self._refusals = 0

    def refuse_next(self, dials: int) -> None:
        self._refusals = dials

    async def connect(self) -> MemoryWire:
        await trio.lowlevel.checkpoint()
        self.dialled_at.append(trio.current_time())
        if self._refusals:
            self._refusals -= 1
            raise WireClosed(ABNORMAL)
        wire = MemoryWire()
        self._to_test.send_nowait(Peer(wire))
        return wire

    async def accept(self) -> Peer:
        with trio.fail_after(3600):
            return await self._dials.receive()

    async def accept_live(self, **changes: Any) -> Peer:
        peer = await self.accept()
        await peer.go_live(**changes)
        return peer


def wall_ms() -> int:
    return T0_MS + round(trio.current_time() * 1000)
