"""A client's WebSocket in a room where there is no socket to adopt: over TLS and HTTP/2, by ASGI's messages.

Weaker than a socket of our own, in three ways. A write that is under way can be neither bounded nor cancelled from
here: the stream under hypercorn ends it after the door's `write_s_max`. A pong is not told, so silence is not judged: a
client that is gone is noticed when TCP gives up on it. Nor is the client's close frame: every client that leaves is
announced `leave_s` later.
"""

from collections import deque
from collections.abc import Callable

import trio

from actors.space.room import Room
from actors.space.settings import SpaceSettings
from gateway.net.exchange import Receive, Send
from schemas.echo.closes import RoomClose
from schemas.websocket_frames import PING_OPCODE, split_frames

STUCK_S_MAX = 0.5  # nothing is written inside `flush`, so that frames wait although the client reads; not for so long
HARD_TIMES = 4  # as much as may wait for a client that is not stuck; then it is closed with 4413 all the same


class AsgiRoomSocket:
    """Implements `actors.space.room.RoomConnection`."""

    def __init__(self, key: str, spaces: SpaceSettings, *, is_text: bool) -> None:
        self.is_text = is_text
        self._key = key
        self._spaces = spaces
        self._room: Room | None = None
        self._opening: deque[bytes] = deque()
        self._frames: deque[bytes] = deque()
        self._bytes = 0  # of frames, but for the opening
        self._close: RoomClose | None = None
        self._has_work = trio.Event()
        self._writing_since_s: float | None = None
        self._may_read = trio.Event()
        self._may_read.set()

    def send(self, frames: bytes, *, is_opening: bool = False) -> None:
        if self._close is not None:
            return
        for opcode, payload in split_frames(frames):
            if opcode == PING_OPCODE:
                if self._room is not None:
                    self._room.hear(self._key)
            elif is_opening:
                self._opening.append(payload)
            else:
                self._frames.append(payload)
                self._bytes += len(payload)

    def flush(self) -> bool:
        self._has_work.set()
        since_s = self._writing_since_s
        is_stuck = since_s is not None and trio.current_time() - since_s > STUCK_S_MAX
        times = 1 if is_stuck else HARD_TIMES
        over_frames = len(self._frames) >= self._spaces.unsent_frames_max * times
        return not over_frames and self._bytes < self._spaces.unsent_bytes_max * times

    def stop_reading(self) -> None:
        if self._may_read.is_set():
            self._may_read = trio.Event()

    def read_on(self) -> None:
        self._may_read.set()

    def close(self, close: RoomClose) -> None:
        if self._close is None:
            self._close = close
            if close is RoomClose.SLOW:
                self._opening.clear()
                self._frames.clear()
            self._has_work.set()

    async def serve(
        self, receive: Receive, send: Send, join: Callable[["AsgiRoomSocket"], Room], subprotocol: str | None
    ) -> None:
        """From its acceptance to its end."""
        await receive()  # that it wants to connect
        await send({"type": "websocket.accept", "subprotocol": subprotocol})
        self._room = room = join(self)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, receive, room, nursery.cancel_scope)
                await self._write(send)
                nursery.cancel_scope.cancel()
        finally:
            room.left(self._key, is_clean=False)  # which a room that has closed it knows already
            self._room = None

    async def _read(self, receive: Receive, room: Room, both: trio.CancelScope) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            if text is None:
                room.receive(self._key, [(message["bytes"], False)])
            else:
                room.receive(self._key, [(text.encode("utf-8", "surrogatepass"), True)])
            await self._may_read.wait()
        both.cancel()

    async def _write(self, send: Send) -> None:
        while True:
            while queue := self._opening or self._frames:
                payload = queue.popleft()
                self._writing_since_s = trio.current_time()
                kind: dict[str, str | bytes] = {"text": payload.decode()} if self.is_text else {"bytes": payload}
                await send({"type": "websocket.send", **kind})
                self._writing_since_s = None
                if queue is self._frames:
                    self._bytes -= len(payload)
            if self._close is not None:
                await send(
                    {"type": "websocket.close", "code": self._close.value.code, "reason": self._close.value.reason}
                )
                return
            await self._has_work.wait()
            self._has_work = trio.Event()
