"""A client's WebSocket in a room, on a socket adopted from the door: bytes in by the pump, bytes out without waiting.

    open ── the client's close ──► answered, closed
      ├──── the room's close ──► closing ── the client answers or hangs up, or `socket_close_s_max` passed ──► closed
      └──── reset, end of file ──► closed

There is a task only while something waits to be written or a close is under way. Of what is read, no more frames are
looked at than the client's rate allows and one; the rest waits here, no longer than one read, and no more is read
before it is used up. What messages mean, and what a client deserves that does not read, is the room's.
"""

import contextlib
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog
import trio
from websockets.exceptions import PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN

from actors.space.room import Room
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.crash_report import report
from actors.supervision.errors import SupervisorStoppingError
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.net.pump import Pump
from gateway.net.tls_socket import AnySocket
from gateway.net.websocket.frame_reader import FrameReader
from gateway.net.websocket.protocol import WireProtocol
from gateway.spaces.outgoing import Outgoing
from gateway.spaces.settings import EchoSettings
from gateway.spaces.unsent import Unsent
from schemas.echo.closes import RoomClose
from schemas.websocket_frames import pong_frame

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SocketServices:
    """What all sockets of rooms share."""

    supervisor: Supervisor
    pump: Pump
    settings: EchoSettings
    unsent: Unsent


class RoomSocket:
    """Implements `RoomConnection` of `actors.space.room`, `Owner` of `gateway.net.pump` and `Reader` of `unsent.py`."""

    __slots__ = (
        "_fragments",
        "_is_begun_text",
        "_is_closing",
        "_is_counted",
        "_is_given_up",
        "_is_gone",
        "_is_parted",
        "_is_working",
        "_key",
        "_late_bytes",
        "_on_end",
        "_outgoing",
        "_patience",
        "_protocol",
        "_reader",
        "_room",
        "_services",
        "_sock",
        "is_text",
    )

    def __init__(
        self,
        sock: AnySocket,
        key: str,
        services: SocketServices,
        on_end: Callable[[], None],
        *,
        is_text: bool,
        opening: bytes,
    ) -> None:
        """`opening` is the answer to the upgrade, which goes out with the first frames."""
        self.is_text = is_text
        self._sock = sock
        self._key = key
        self._services = services
        self._on_end: Callable[[], None] | None = on_end
        self._protocol = WireProtocol(
            bytes_max=services.settings.message_bytes_max,
            too_large=RoomClose.TOO_LARGE.value,
            malformed=RoomClose.BAD_FRAME.value,
            state=OPEN,
            answers_pings=False,
        )
        self._reader = FrameReader(self._protocol, is_text=is_text)
        self._room: Room | None = None
        self._outgoing = Outgoing(opening)
        self._fragments: bytearray | None = None  # of a message that has begun; None also if it is to be dropped
        self._is_begun_text = False
        self._is_closing = False
        self._is_counted = False  # among those for whom something waits
        self._is_given_up = False  # the room is to close it, if only when it next writes
        self._is_parted = False  # both sides have said close
        self._is_gone = False
        self._late_bytes = 0  # received while closing
        self._is_working = False
        self._patience: trio.CancelScope | None = None

    def belongs_to(self, room: Room, early: bytes) -> None:
        """The room has taken it in, or closed it already. `early` is what came with the upgrade."""
        if self._is_gone:
            room.left(self._key, is_clean=False)
            return
        self._room = room
        self._services.pump.register(self._sock, self)
        if early:
            self._feed(early)

    # ---- in ---------------------------------------------------------------------------------------------------------

    def on_readable(self) -> None:
        room, has_more = self._room, self._reader.has_more and not self._is_closing
        if has_more and room is not None and room.frames_left(self._key):
            self._feed(b"")
            if not self._reader.has_more:
                self._services.pump.resume(self._sock)
            return
        try:
            data = self._sock.recv(self._services.settings.socket_read_bytes_max)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
        elif self._is_closing:
            self._look_for_close(data)
        elif has_more:  # it is paused, so that we are called only because it has hung up
            self._lose()
        else:
            self._feed(data)

    def crash(self, exc: Exception) -> None:
        log.error("room_socket_failed", causes=report(exc))
        if self._room is not None:
            self._room.drop(self._key, RoomClose.INTERNAL)
        self.close(RoomClose.INTERNAL)

    def _feed(self, data: bytes) -> None:
        room, reader = self._room, self._reader
        assert room is not None
        while frames_max := room.frames_left(self._key):
            self._take(room, reader.read(data, frames_max))
            if not reader.has_more or self._is_closing:
                return
            data = b""
        reader.keep(data)

    def _take(self, room: Room, frames: list[bytes | Frame]) -> None:
        protocol = self._protocol
        messages: list[tuple[bytes, bool]] = []
        pongs: list[bytes] = []
        for message in frames:
            if not isinstance(message, Frame):
                messages.append((message, self.is_text))
            elif message.fin and message.opcode in (Opcode.TEXT, Opcode.BINARY):
                messages.append((bytes(message.data), message.opcode is Opcode.TEXT))
            else:
                self._take_other(room, message, messages, pongs)
        if messages:
            room.receive(self._key, messages)
        if not self._reader.asked_library:
            return
        if protocol.parser_exc is not None:
            is_large = isinstance(protocol.parser_exc, PayloadTooBig)
            room.drop(self._key, RoomClose.TOO_LARGE if is_large else RoomClose.BAD_FRAME)
        elif protocol.close_rcvd is not None:
            self._part()
        elif pongs and not self._is_closing:
            self.send(b"".join(pongs))
            if not self.flush():
                room.drop(self._key, RoomClose.SLOW)

    def _look_for_close(self, data: bytes) -> None:
        """Nobody wants anything else any more, and after as much as one message not even that: then only its end."""
        settings = self._services.settings
        self._late_bytes += len(data)
        if self._late_bytes <= settings.message_bytes_max and not self._is_parted:
            self._reader.read(data, settings.frames_per_s_max)
            if self._protocol.close_rcvd is not None:
                self._part()

    def _take_other(self, room: Room, frame: Frame, messages: list[tuple[bytes, bool]], pongs: list[bytes]) -> None:
        """No whole message, but it counts toward the rate as one does. The last fragment counts as the message."""
        match frame.opcode:
            case Opcode.PING:
                if room.count(self._key, is_data=False):
                    pongs.append(pong_frame(bytes(frame.data)))
            case Opcode.PONG:
                room.count(self._key, is_data=False)
            case Opcode.TEXT | Opcode.BINARY:
                self._is_begun_text = frame.opcode is Opcode.TEXT
                self._fragments = bytearray(frame.data) if room.count(self._key, is_data=True) else None
            case Opcode.CONT:
                if self._fragments is not None and frame.fin:
                    self._fragments += frame.data
                    messages.append((bytes(self._fragments), self._is_begun_text))
                    self._fragments = None
                elif not room.count(self._key, is_data=True):
                    self._fragments = None
                elif self._fragments is not None:
                    self._fragments += frame.data  # no more of them than of one message: the library counts

    def _part(self) -> None:
        """The client has said close. The library has the answer ready, unless we were first."""
        was_closing, self._is_closing, self._is_parted = self._is_closing, True, True
        if not was_closing and self._room is not None:
            self._room.left(self._key, is_clean=True)
        self._write_last([] if was_closing else self._protocol.data_to_send())

    def _lose(self) -> None:
        """The client is gone, or hangs up after a close."""
        if self._is_gone:
            return
        self._is_gone = True
        self._services.pump.unregister(self._sock)
        self._outgoing.clear()
        self._count_unsent()
        if not self._is_closing and self._room is not None:
            self._room.left(self._key, is_clean=False)
        self._is_closing = True
        if self._is_working:
            assert self._patience is not None
            self._patience.cancel()
        else:
            self._release()

    # ---- out --------------------------------------------------------------------------------------------------------

    def open(self, frames: Sequence[bytes]) -> None:
        if not self._is_closing:
            self._outgoing.add_to_opening(frames)

    def send(self, frames: bytes) -> None:
        if not self._is_closing:
            self._outgoing.add(frames)

    def flush(self) -> bool:
        if self._is_closing:
            return True
        try:
            if self._outgoing.write(self._sock):
                if self._is_counted:
                    self._count_unsent()
                return True
        except OSError:
            self._lose()
            return True
        self._work()
        self._count_unsent()
        settings = self._services.settings
        exceeds = self._outgoing.exceeds(settings.unsent_frames_max, settings.unsent_bytes_max)
        return not (exceeds or self._is_given_up)

    def stop_reading(self) -> None:
        self._services.pump.pause(self._sock)

    def read_on(self) -> None:
        pump = self._services.pump
        if self._reader.has_more:
            pump.call_soon(self._sock)
        else:
            pump.resume(self._sock)

    def give_up(self) -> None:
        """More waits for all than may, and most of it for this one."""
        self._is_given_up = True
        if self._room is not None:
            self._room.drop(self._key, RoomClose.SLOW)

    def _count_unsent(self) -> None:
        """Not while closing: that takes no time to speak of, and nobody could be closed for it."""
        unsent = 0 if self._is_closing else self._outgoing.unsent_bytes
        self._is_counted = unsent > 0
        self._services.unsent.count(self, unsent)

    def close(self, close: RoomClose) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if close is RoomClose.SLOW:
            self._outgoing.forget_frames(self._sock)  # it could not have read them in time, and comes back for them
        if self._protocol.state is OPEN:  # else the library has failed it, with the same code
            self._protocol.send_close(close.value.code, close.value.reason)
        self._write_last(self._protocol.data_to_send())

    def _write_last(self, chunks: list[bytes]) -> None:
        for chunk in chunks:
            if chunk:  # an empty one asks for a half-close, which comes of itself
                self._outgoing.add(chunk)
        self._write()
        self._count_unsent()
        if self._is_gone:
            return
        self._services.pump.resume(self._sock)  # for its end
        if self._is_parted and not self._outgoing and not self._is_working:
            self._release()
            return
        self._work()
        if self._patience is not None:
            self._patience.deadline = trio.current_time() + self._services.settings.socket_close_s_max
            if self._is_parted and not self._outgoing:
                self._patience.cancel()

    def _write(self) -> None:
        try:
            self._outgoing.write(self._sock)
        except OSError:
            self._lose()

    # ---- what takes time --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Have a task that writes what waits, and sees a close through."""
        if self._is_working:
            return
        self._is_working = True
        self._patience = trio.CancelScope()
        spec = ChildSpec(
            name="room_socket",
            run=self._see_through,
            kind=Kind.TEMPORARY,
            stage=Stage.NODES,  # after the rooms, which say what to close with
            ask_stop=lambda: None,  # the room has closed it by then, and a close does not last
            on_end=self._worked,
        )
        try:
            self._services.supervisor.start(spec)
        except SupervisorStoppingError:
            self._is_working = False
            self._lose()

    async def _see_through(self) -> None:
        assert self._patience is not None
        with self._patience:
            with trio.move_on_after(self._services.settings.opening_s_max) as opening:
                while self._outgoing.has_opening:
                    await self._write_more()
            if opening.cancelled_caught and not self._is_closing and self._room is not None:
                self._room.drop(self._key, RoomClose.SLOW)
            while self._outgoing:
                await self._write_more()
            if self._is_closing and not self._is_parted and not self._is_gone:
                with contextlib.suppress(OSError):  # it went just now
                    self._sock.shutdown(socket.SHUT_WR)
                await trio.sleep_forever()  # until it hangs up: closing with unread input would take our words back

    async def _write_more(self) -> None:
        await trio.lowlevel.wait_writable(self._sock)
        self._write()
        self._count_unsent()

    def _worked(self, crash: Exception | None) -> None:
        self._is_working = False
        self._patience = None
        if self._is_closing:
            self._release()
        elif crash is not None:
            self._lose()
        elif self._outgoing:
            self._work()

    def _release(self) -> None:
        """Once. Closing is all that is left: nothing here touches the socket again."""
        if self._on_end is None:
            return
        self._is_gone = True
        self._services.pump.unregister(self._sock)
        self._sock.close()
        self._on_end()
        # Each leads back here, and what has ended is to be freed now, not by the next search for cycles.
        self._room = self._on_end = None
        self._protocol.parser.close()
