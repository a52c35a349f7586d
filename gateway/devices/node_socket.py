"""A node's WebSocket after its handshake: frames to its actor, bytes to its socket, neither ever waiting.

Reading is the pump's (`on_readable`). Writing goes straight to the socket while it takes it; what it does not take
waits here, at most `unsent_frames_max` frames, and `run` flushes it. Whether that is over TLS, only the socket knows.
What the frames mean is the actor's; what an unreadable one is worth is said in our close codes, not in WebSocket's.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import trio
from websockets.exceptions import PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN

from actors.node.services import Receiver
from gateway.net.pump import Pump
from gateway.net.tls_socket import AnySocket
from gateway.net.websocket.frame_reader import FrameReader
from gateway.net.websocket.protocol import WireProtocol
from schemas.closes import NodeClose
from schemas.frames import FRAME_BYTES_MAX, SUBPROTOCOL
from schemas.websocket_frames import text_frame


@dataclass(frozen=True, slots=True)
class SocketSettings:
    unsent_frames_max: int = 64  # more that the node does not read: 4413
    read_bytes_max: int = 8 * 1024  # taken from one socket before the next one has its turn
    control_frames_max: int = 16  # pings and fragments in one read; more: 4429
    close_s_max: float = 1.0  # for the close frame to go out and the node to hang up; then the socket is closed


class NodeProtocol(WireProtocol):
    def __init__(self) -> None:
        super().__init__(
            bytes_max=FRAME_BYTES_MAX,
            too_large=NodeClose.TOO_LARGE.value,
            malformed=NodeClose.BAD_FRAME.value,
            subprotocols=[SUBPROTOCOL],
        )


class NodeSocket:
    """A non-blocking socket. Implements `actors.node.services.Connection` and `gateway.net.pump.Owner`."""

    def __init__(
        self, sock: AnySocket, reader: FrameReader, protocol: NodeProtocol, settings: SocketSettings, pump: Pump
    ) -> None:
        self._sock = sock
        self._pump = pump
        self._reader = reader
        self._protocol = protocol
        self._settings = settings
        self._actor: Receiver | None = None
        self._crash: Callable[[Exception], None] | None = None
        self._unsent: deque[bytes] = deque()
        self._fragments: list[bytes] = []
        self._gone = trio.Event()
        self._parted = trio.Event()  # gone, or both sides have said close: nothing is left to wait for
        self._closing = False
        self._has_work = trio.Event()
        self._flushing = trio.CancelScope()

    def belongs_to(self, actor: Receiver, crash: Callable[[Exception], None]) -> None:
        """From here on frames go to this actor, and a bug while reading them crashes it alone."""
        self._actor = actor
        self._crash = crash

    def crash(self, exc: Exception) -> None:
        assert self._crash is not None
        self._crash(exc)

    # ---- in ---------------------------------------------------------------------------------------------------------

    def start_reading(self) -> None:
        self._pump.register(self._sock, self)

    def on_readable(self) -> None:
        try:
            data = self._sock.recv(self._settings.read_bytes_max)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.feed(data)

    def feed(self, data: bytes) -> None:
        """Bytes from the node; none means that it is gone."""
        if not data:
            self._hang_up()
            return
        actor, protocol = self._actor, self._protocol
        assert actor is not None
        had_failed = protocol.parser_exc is not None
        others = 0
        for message in self._reader.read(data):
            if isinstance(message, Frame):
                others += 1
                self._on_frame(message)
            else:
                actor.on_frame(message)
        if others > self._settings.control_frames_max:
            actor.close(NodeClose.RATE_LIMITED)
        if protocol.parser_exc is not None and not had_failed:
            if isinstance(protocol.parser_exc, PayloadTooBig):
                actor.on_too_large()
            else:
                actor.on_binary()
        if protocol.close_rcvd is not None:
            self._parted.set()
        if answers := protocol.data_to_send():  # pongs, a close
            if self._is_backed_up():
                actor.close(NodeClose.TOO_LARGE)
            else:
                self._write([b"".join(answers)])

    def _on_frame(self, frame: Frame) -> None:
        assert self._actor is not None
        match frame.opcode:
            case Opcode.TEXT if frame.fin:
                self._actor.on_frame(bytes(frame.data))
            case Opcode.TEXT | Opcode.CONT:
                # A fragmented binary message is refused at its first frame; its rest is text to nobody.
                self._fragments.append(bytes(frame.data))
                if frame.fin:
                    whole, self._fragments = b"".join(self._fragments), []
                    self._actor.on_frame(whole)
            case Opcode.BINARY:
                self._actor.on_binary()
            case Opcode.CLOSE:
                self._actor.close(NodeClose.NORMAL)

    def _hang_up(self) -> None:
        self._pump.unregister(self._sock)
        self._gone.set()
        self._parted.set()
        self._has_work.set()
        self._flushing.cancel()
        self._unsent.clear()
        if self._actor is not None:
            self._actor.close(NodeClose.NORMAL)

    # ---- out --------------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> bool:
        if self._gone.is_set() or self._closing or self._protocol.state is not OPEN:
            return False
        if self._is_backed_up():
            assert self._actor is not None
            self._actor.close(NodeClose.TOO_LARGE)
            return False
        self._unsent.append(text_frame(data))
        self._flush_now()
        return not self._gone.is_set()

    def close(self, close: NodeClose) -> None:
        if self._closing:
            return
        self._closing = True
        if self._protocol.state is OPEN:
            self._protocol.send_close(close.value.code, close.value.reason)
        self._write(self._protocol.data_to_send())
        self._flushing.deadline = trio.current_time() + self._settings.close_s_max
        self._has_work.set()

    def _write(self, chunks: list[bytes]) -> bool:
        """Queue and flush; False when the socket is gone."""
        # An empty chunk asks for a half-close; `run` ends the connection soon after one anyway.
        self._unsent.extend(chunk for chunk in chunks if chunk)
        self._flush_now()
        return not self._gone.is_set()

    async def run(self) -> None:
        while not self._gone.is_set() and not self._closing:
            await self._has_work.wait()
            self._has_work = trio.Event()
            if not self._closing:  # closed meanwhile, it has only the bounded time below
                with trio.CancelScope() as self._flushing:
                    await self._flush_all()
        with trio.move_on_after(self._settings.close_s_max):
            await self._flush_all()
            await self._parted.wait()  # the server is the one to hang up (RFC 6455)

    def _is_backed_up(self) -> bool:
        """Whether the node does not read: more is waiting than it may."""
        return len(self._unsent) >= self._settings.unsent_frames_max

    def _flush_now(self) -> None:
        try:
            while self._unsent:
                chunk = self._unsent[0]
                written = self._sock.send(chunk)
                if written < len(chunk):
                    self._unsent[0] = chunk[written:]
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            self._has_work.set()
        except OSError:
            self._hang_up()

    async def _flush_all(self) -> None:
        while self._unsent:
            await trio.lowlevel.wait_writable(self._sock)
            self._flush_now()

    def end(self, cause: Exception | None) -> None:
        """After the actor's last step. If it crashed, the node is told so as far as that goes without waiting."""
        if cause is not None and not self._gone.is_set():
            self.close(NodeClose.INTERNAL)
        self._pump.unregister(self._sock)
        self._sock.close()
        self._closing = True
        # Each of these leads back here, and what has ended is to be freed now, not by the next search for cycles.
        self._actor = self._crash = None
        self._protocol.parser.close()
