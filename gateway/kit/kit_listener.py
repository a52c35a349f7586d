"""Where the node under test dials: WebSockets that a check can do anything with, also what no gateway may do.

Each connection has a task: it reads the request, for an upgrade or for the node's next identity, waits for a check to
answer it, and after an upgrade tells of each message. It is not the gateway's own listener, which would never send a
frame that is not sound.
"""

import contextlib
import socket
import ssl
import struct
from http import HTTPStatus
from typing import TypeAlias

import h11
import trio
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN

from actors.kit.player import Noticed
from actors.kit.steps import Asked, Dialled, Ended, Received
from gateway.net.websocket.protocol import WireProtocol
from schemas.closes import NodeClose
from schemas.frames import FRAME_BYTES_MAX, SUBPROTOCOL

PATH = "/devices/connect"
RENEW_PATH = b"/devices/renew"
BODY_BYTES_MAX = 8 * 1024  # of a request for an identity; a longer one is 413
REQUEST_S_MAX = 10.0  # for TLS and the upgrade request; then the connection is closed
REQUEST_BYTES_MAX = 16 * 1024  # of the request; a longer one is closed
ANSWER_S_MAX = 600.0  # for a check to answer a dial; then the connection is closed
CLOSE_S_MAX = 2.0  # for the node to answer a close; then the connection is cut
CONNECTIONS_MAX = 16  # at once; the next one is closed
MESSAGE_BYTES_MAX = 8 * FRAME_BYTES_MAX  # of the node: its frames may be too large, and are to be seen so; beyond, 4413
Stream: TypeAlias = trio.SocketStream | trio.SSLStream[trio.SocketStream]

_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError, OSError)


class KitListener:
    def __init__(self, notices: trio.MemorySendChannel[Noticed], tls: ssl.SSLContext | None = None) -> None:
        self._notices = notices
        self._tls = tls
        self._connections = 0

    async def listen(self, nursery: trio.Nursery, host: str, port: int) -> int:
        """Bind, accept in the nursery until it is cancelled, and say on which port. Raises OSError."""
        listeners = await trio.open_tcp_listeners(port, host=host)
        nursery.start_soon(trio.serve_listeners, self._serve, listeners)
        bound: int = listeners[0].socket.getsockname()[1]
        return bound

    async def _serve(self, raw: trio.SocketStream) -> None:
        self._connections += 1
        try:
            if self._connections <= CONNECTIONS_MAX:
                await self._meet(raw)
        finally:
            self._connections -= 1
            raw.socket.close()

    async def _meet(self, raw: trio.SocketStream) -> None:
        with contextlib.suppress(*_GONE):
            stream: Stream = raw
            if self._tls is not None:
                stream = trio.SSLStream(raw, self._tls, server_side=True, https_compatible=True)
            connection = KitConnection(stream, raw)
            with trio.move_on_after(REQUEST_S_MAX):
                await connection.hear_request()
            if connection.request is not None:
                await connection.run(self._notices)
            elif connection.asked is not None:
                await connection.wait_for_answer(self._notices)


class KitConnection:
    """Implements `actors.kit.player.Connection`."""

    def __init__(self, stream: Stream, raw: trio.SocketStream) -> None:
        self._stream = stream
        self._raw = raw
        self._protocol = WireProtocol(
            bytes_max=MESSAGE_BYTES_MAX,
            too_large=NodeClose.TOO_LARGE.value,
            malformed=NodeClose.BAD_FRAME.value,
            subprotocols=[SUBPROTOCOL],
        )
        self.request: Request | None = None
        self.asked: Asked | None = None
        self._answered = trio.Event()
        self._sending = trio.Lock()
        self._scope = trio.CancelScope()
        self._parts: list[bytes] = []

    # ---- its task ----------------------------------------------------------------------------------------------------

    async def hear_request(self) -> None:
        if isinstance(self._stream, trio.SSLStream):
            await self._stream.do_handshake()
        size = 0
        while self.request is None and size <= REQUEST_BYTES_MAX:
            data = bytes(await self._stream.receive_some(REQUEST_BYTES_MAX))
            if not data:
                return
            if size == 0 and data.startswith(b"POST"):
                with contextlib.suppress(h11.RemoteProtocolError):
                    self.asked = await self._hear_asked(data)
                return
            size += len(data)
            self._protocol.receive_data(data)
            if self._protocol.handshake_exc is not None:
                return
            requests = [event for event in self._protocol.events_received() if isinstance(event, Request)]
            self.request = requests[0] if requests else None
        if self.request is not None and self.request.path.partition("?")[0] != PATH:
            await self.refuse(404)
            self.request = None

    async def _hear_asked(self, data: bytes) -> Asked | None:
        """A request for the next identity; None if it is for anything else."""
        reader = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        reader.receive_data(data)
        token, body = "", b""
        while True:
            match reader.next_event():
                case h11.NEED_DATA:
                    reader.receive_data(bytes(await self._stream.receive_some(REQUEST_BYTES_MAX)))
                case h11.Request(target=target, headers=headers):
                    if target.partition(b"?")[0] != RENEW_PATH:
                        await self.answer(404, b"")
                        return None
                    token = dict(headers).get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ")
                case h11.Data(data=part):
                    body += bytes(part)
                    if len(body) > BODY_BYTES_MAX:
                        await self.answer(413, b"")
                        return None
                case h11.EndOfMessage():
                    return Asked(trio.current_time(), token, body)
                case _:
                    return None

    async def wait_for_answer(self, notices: trio.MemorySendChannel[Noticed]) -> None:
        assert self.asked is not None
        await notices.send((self, self.asked))
        with self._scope, trio.move_on_after(ANSWER_S_MAX):
            await self._answered.wait()

    async def run(self, notices: trio.MemorySendChannel[Noticed]) -> None:
        """From the request to the end of the connection."""
        assert self.request is not None
        offered = ",".join(self.request.headers.get_all("Sec-WebSocket-Protocol"))
        subprotocols = tuple(name.strip() for name in offered.split(",") if name.strip())
        await notices.send((self, Dialled(trio.current_time(), subprotocols)))
        with self._scope:
            with trio.move_on_after(ANSWER_S_MAX):
                await self._answered.wait()
            if self._protocol.state is OPEN:
                code = await self._read(notices)
                await notices.send((self, Ended(trio.current_time(), code)))
        self._protocol.parser.close()

    async def _read(self, notices: trio.MemorySendChannel[Noticed]) -> int | None:
        """Until the node closes (its code) or is gone (None)."""
        while True:
            try:
                data = bytes(await self._stream.receive_some(FRAME_BYTES_MAX))
            except _GONE:
                data = b""
            if not data:
                return None
            self._protocol.receive_data(data)
            for frame in self._protocol.events_received():
                if isinstance(frame, Frame):
                    await self._note(frame, notices)
            await self._flush()
            if self._protocol.close_rcvd is not None:
                return self._protocol.close_rcvd.code
            if self._protocol.parser_exc is not None:
                return None

    async def _note(self, frame: Frame, notices: trio.MemorySendChannel[Noticed]) -> None:
        at = trio.current_time()
        if frame.opcode is Opcode.BINARY:
            await notices.send((self, Received(at, bytes(frame.data), is_text=False)))
        elif frame.opcode in (Opcode.TEXT, Opcode.CONT):
            if frame.data:  # of any number of empty ones nothing is kept
                self._parts.append(bytes(frame.data))
            if frame.fin:
                whole, self._parts = b"".join(self._parts), []
                await notices.send((self, Received(at, whole)))

    # ---- what checks do ----------------------------------------------------------------------------------------------

    async def upgrade(self) -> None:
        assert self.request is not None
        self._protocol.send_response(self._protocol.accept(self.request))
        await self._flush()
        self._answered.set()

    async def refuse(self, status: int) -> None:
        self._protocol.send_response(self._protocol.reject(status, ""))
        await self._flush()
        with contextlib.suppress(*_GONE):
            await self._raw.send_eof()
        self._answered.set()

    async def answer(self, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        with contextlib.suppress(*_GONE):
            await self._stream.send_all(head.encode() + body)
            await self._raw.send_eof()
        self._answered.set()

    async def send(self, data: bytes, *, is_text: bool) -> None:
        with contextlib.suppress(InvalidState):  # the node has closed meanwhile
            self._protocol.send_text(data) if is_text else self._protocol.send_binary(data)
        await self._flush()

    async def close(self, code: int, reason: str) -> None:
        with contextlib.suppress(InvalidState):
            self._protocol.send_close(code, reason)
        self._scope.deadline = trio.current_time() + CLOSE_S_MAX
        await self._flush()

    def drop(self) -> None:
        """As when the network breaks: a reset, and no close."""
        with contextlib.suppress(OSError):
            self._raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._scope.cancel()

    async def _flush(self) -> None:
        async with self._sending:
            data = b"".join(self._protocol.data_to_send())
            if data:
                with contextlib.suppress(*_GONE):
                    await self._stream.send_all(data)
