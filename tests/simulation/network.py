"""Links between a node and a gateway that delay, stall, break and lie, as networks do.

A link carries frames both ways in order, each after a delay. What may happen to it:
- cut: nothing gets through any more; each side learns of it at a time of its own, the gateway perhaps never;
- half-open: one direction goes dead and neither side is told;
- stall: nothing moves for a while, then everything does.
"""

from collections import deque
from collections.abc import Callable
from random import Random

import trio

from actors.device.wire import ABNORMAL, WireClosed
from schemas.closes import NodeClose

DELAY_S_MAX = 0.2


class Pipe:
    """One direction: frames in order, each delivered by a call after its delay."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._queue: deque[bytes] = deque()
        self._news = trio.Event()
        self.is_dead = False
        self.stalled_until_s = 0.0

    def put(self, data: bytes) -> None:
        if not self.is_dead:
            self._queue.append(data)
            self._news.set()

    async def run(self, deliver: Callable[[bytes], None]) -> None:
        while True:
            while not self._queue:
                self._news = trio.Event()
                await self._news.wait()
            await trio.sleep(self._rng.uniform(0, DELAY_S_MAX))
            while trio.current_time() < self.stalled_until_s:  # noqa: ASYNC110  # a stall may grow meanwhile
                await trio.sleep_until(self.stalled_until_s)
            data = self._queue.popleft() if self._queue else None
            if data is not None and not self.is_dead:
                deliver(data)


class Link:
    """The node's end is a `Wire`, the gateway's end a `Connection`."""

    def __init__(self, rng: Random, nursery: trio.Nursery) -> None:
        self.rng = rng
        self.up, self.down = Pipe(rng), Pipe(rng)
        self.node_end = NodeEnd(self)
        self.gateway_end = GatewayEnd(self)
        self.scope = trio.CancelScope()
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        with self.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.up.run, self.gateway_end.take)
                nursery.start_soon(self.down.run, self.node_end.take)

    @property
    def is_over(self) -> bool:
        return self.node_end.closed is not None and self.gateway_end.is_gone

    # ---- what happens to it -----------------------------------------------------------------------------------------

    def stall(self, seconds: float) -> None:
        for pipe in (self.up, self.down):
            pipe.stalled_until_s = max(pipe.stalled_until_s, trio.current_time() + seconds)

    def half_open(self) -> None:
        self.rng.choice((self.up, self.down)).is_dead = True

    def cut(self, nursery: trio.Nursery, *, gateway_notices: bool = True) -> None:
        """Nothing passes any more; the ends find out later, each in its own time."""
        self.up.is_dead = self.down.is_dead = True
        nursery.start_soon(self._notice, self.rng.uniform(0, 2), gateway_notices)

    async def _notice(self, seconds: float, gateway_notices: bool) -> None:
        await trio.sleep(seconds)
        self.node_end.hang_up(ABNORMAL, "")
        await trio.sleep(self.rng.uniform(0, 5))
        if gateway_notices:
            self.gateway_end.hang_up()


class NodeEnd:
    """Implements `actors.device.wire.Wire`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._inbox: deque[bytes] = deque()
        self._news = trio.Event()
        self.closed: WireClosed | None = None

    def take(self, data: bytes) -> None:
        self._inbox.append(data)
        self._news.set()

    def hang_up(self, code: int, reason: str) -> None:
        if self.closed is None:
            self.closed = WireClosed(code, reason)
        self._news.set()

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self.closed is not None:
            raise self.closed
        self._link.up.put(data)

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._inbox:
            if self.closed is not None:
                raise self.closed
            self._news = trio.Event()
            await self._news.wait()
        return self._inbox.popleft()

    async def aclose(self, code: int, reason: str) -> None:
        await trio.lowlevel.checkpoint()
        if self.closed is None:
            self.hang_up(code, reason)
            if not self._link.up.is_dead:
                self._link.gateway_end.hang_up()


class GatewayEnd:
    """Implements `actors.node.services.Connection`. Until somebody is `on_frame`, the gateway greets."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.on_frame: Callable[[bytes], None] | None = None
        self.on_gone: Callable[[], None] | None = None
        self.on_send: Callable[[bytes], None] | None = None
        self.is_gone = False
        self._over = trio.Event()

    def take(self, data: bytes) -> None:
        if not self.is_gone and self.on_frame is not None:
            self.on_frame(data)

    def hang_up(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            self._over.set()
            if self.on_gone is not None:
                self.on_gone()

    def die(self) -> None:
        """The gateway's process is gone: it says nothing more, and its kernel hangs up at once."""
        self.is_gone = True
        self._over.set()
        self._link.down.is_dead = True

    def send(self, data: bytes) -> bool:
        if self.is_gone or self._over.is_set():
            return False
        if self.on_send is not None:
            self.on_send(data)
        self._link.down.put(data)
        return True

    def close(self, close: NodeClose) -> None:
        if not self._over.is_set():
            self._over.set()
            if not self._link.down.is_dead:
                self._link.node_end.hang_up(close.value.code, close.value.reason)

    async def run(self) -> None:
        await self._over.wait()
