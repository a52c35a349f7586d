"""A client's WebSocket in a room where there is no socket to adopt: over HTTP/2, its bytes through a pair.

The room's side of the pair is adopted like any client's socket, so that rates, limits, pings and closes are the same by
construction; here bytes are carried between the other side and the server. A client that does not read stops the one
direction, a room that does not read the other: what waits meanwhile is bounded by the pair's buffers, then by the room.
Each such client costs three file descriptors.
"""

import socket
from collections.abc import Callable

import trio

from gateway.net.exchange import Receive, Send
from gateway.net.hypercorn.raw_websocket import RAW_WEBSOCKET

PIECE_BYTES_MAX = 16 * 1024  # carried at once


class RelayedSocket:
    def __init__(self, receive: Receive, send: Send, abort: Callable[[], None], patience_s: float) -> None:
        """`abort` ends a write that no cancel reaches; `patience_s` is how long the last words may take."""
        self._receive = receive
        self._send = send
        self._abort = abort
        self._patience_s = patience_s
        self._has_said_all = trio.Event()
        self._is_released = trio.Event()

    async def serve(self, subprotocol: str | None, adopt: Callable[[socket.socket, Callable[[], None]], None]) -> None:
        """From its acceptance to its end. `adopt` takes the room's side, and what to call when that is closed."""
        await self._receive()  # that it wants to connect
        await self._send({"type": "websocket.accept", "subprotocol": subprotocol, RAW_WEBSOCKET: True})
        rooms, clients = socket.socketpair()
        rooms.setblocking(False)
        async with trio.SocketStream(trio.socket.from_stdlib_socket(clients)) as wire, trio.open_nursery() as nursery:
            adopt(rooms, self._is_released.set)
            nursery.start_soon(self._carry_in, wire)
            nursery.start_soon(self._carry_out, wire)
            await self._is_released.wait()
            with trio.move_on_after(self._patience_s) as patience:
                await self._has_said_all.wait()
            if patience.cancelled_caught:
                self._abort()
            nursery.cancel_scope.cancel()

    async def _carry_in(self, wire: trio.SocketStream) -> None:
        try:
            while (message := await self._receive())["type"] == RAW_WEBSOCKET:
                await wire.send_all(message["bytes"])
            await wire.send_eof()  # the client is gone
        except trio.BrokenResourceError:
            return  # the room's side is closed

    async def _carry_out(self, wire: trio.SocketStream) -> None:
        try:
            while data := await wire.receive_some(PIECE_BYTES_MAX):
                await self._send({"type": RAW_WEBSOCKET, "bytes": bytes(data), "more": True})
        except trio.BrokenResourceError:
            pass
        await self._send({"type": RAW_WEBSOCKET, "bytes": b"", "more": False})
        self._has_said_all.set()
