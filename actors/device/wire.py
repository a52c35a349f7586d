"""The port between an agent and whatever carries its frames (a WebSocket, or a pair of queues in a simulation), and one
wire while it is open: a reader, a writer, and how it ended. What is read and written is the agent's business.

Frames to send wait in a bounded outbox, so that whoever sends never does. The reader hands on each frame in one
synchronous call, so that it never waits on work.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog
import trio

from schemas.closes import NodeClose
from schemas.frames import Frame, encode

OUTBOX_FRAMES_MAX = 1024  # a wire that takes no more is given up: 4413
GOODBYE_S_MAX = 3.0
ABNORMAL = 1006  # WebSocket's code for a connection that ended without saying why; never on the wire

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class WireClosed(Exception):  # noqa: N818  # an expected end, named for what happened
    """The wire is gone: the gateway closed it with this code, or it broke or never opened (1006)."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"{code} {reason}".strip())
        self.code = code
        self.reason = reason


class Wire(Protocol):
    """`send` and `receive` are called by one task each. All three may raise WireClosed."""

    async def send(self, data: bytes) -> None:
        """One text frame."""

    async def receive(self) -> bytes:
        """The next text frame."""

    async def aclose(self, code: int, reason: str) -> None:
        """Say goodbye if that is still possible, within a bounded time; free everything. May be called twice."""


Connect = Callable[[], Awaitable[Wire]]
"""Opens a wire within a bounded time, or raises WireClosed."""


class OpenWire:
    """`hear` is called with each frame that comes in."""

    def __init__(self, wire: Wire, hear: Callable[[bytes], None]) -> None:
        self._wire = wire
        self._hear = hear
        self._scope = trio.CancelScope()
        self._outbox_in, self._outbox = trio.open_memory_channel[Frame](OUTBOX_FRAMES_MAX)
        self._ours: NodeClose = NodeClose.NORMAL  # what we close with
        self.ended_with = WireClosed(NodeClose.NORMAL.value.code)
        self.was_live = False

    def send(self, frame: Frame) -> None:
        try:
            self._outbox_in.send_nowait(frame)
        except trio.WouldBlock:
            self.close(NodeClose.TOO_LARGE)

    def close(self, close: NodeClose) -> None:
        """Once: the first reason stands."""
        if self._scope.cancel_called:
            return
        log.warning("device_closes", close_code=close.value.code)
        self._ours = close
        self.ended_with = WireClosed(close.value.code, close.value.reason)
        self._scope.cancel()

    async def run(self) -> None:
        """Until either side closes."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._until_closed, self._write)
                nursery.start_soon(self._until_closed, self._read)

    async def say_goodbye(self) -> None:
        """Also when the agent is being cancelled: a gateway that is told need not find out by itself."""
        with trio.move_on_after(GOODBYE_S_MAX, shield=True):
            try:
                await self._wire.aclose(self._ours.value.code, self._ours.value.reason)
            except WireClosed:
                return

    async def _until_closed(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except WireClosed as closed:
            if not self._scope.cancel_called:
                self.ended_with = closed
            self._scope.cancel()

    async def _read(self) -> None:
        while True:
            self._hear(await self._wire.receive())

    async def _write(self) -> None:
        async for frame in self._outbox:
            await self._wire.send(encode(frame))
