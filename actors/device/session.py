"""One wire while it is open: a reader, a writer, and how it ended. What is read and written is the agent's business.

Frames to send wait in a bounded outbox, so that whoever sends never does. The reader hands on each frame in one
synchronous call, so that it never waits on work.
"""

from collections.abc import Awaitable, Callable

import structlog
import trio

from actors.device.wire import Wire, WireClosed
from schemas.closes import NodeClose
from schemas.frames import Frame, encode

OUTBOX_FRAMES_MAX = 1024  # a wire that takes no more is given up: 4413
GOODBYE_S_MAX = 3.0

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Session:
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
