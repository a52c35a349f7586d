"""One connection's socket: reading, writing with a deadline, the ways to end it, and giving it away.

The socket is a non-blocking one: giving it away needs no dup. It stays in the door's pump from the first read on,
because putting it there and taking it out again would cost each request two system calls. What comes goes to the task
in `read`, or to whoever watches; when nobody wants it, it stays in the kernel and the socket leaves the pump, until
somebody does. What the bytes mean is left to others.
"""

import contextlib
import errno
import os
import socket

import outcome
import trio

from gateway.net.file_sending import UnreadableFileError, bring_in, is_in_memory
from gateway.net.http1.settings import DoorSettings
from gateway.net.http1.turns import Share
from gateway.net.pump import Owner, Pump
from gateway.net.socket_tasks import receive, send
from gateway.net.tls_socket import AnySocket, TlsSocket, break_off

FILE_PIECE_BYTES = 1024 * 1024
"""Of a file, given to a socket at once; then other tasks have their turn."""


class Wire:
    """Implements `gateway.net.pump.Owner`."""

    def __init__(self, sock: AnySocket, settings: DoorSettings, pump: Pump, share: Share | None = None) -> None:
        self._sock: AnySocket | None = sock
        self._settings = settings
        self._pump = pump
        self._share = share
        self._in_pump = False
        self._reader: trio.lowlevel.Task | None = None
        self._received: bytes | None = None  # kept here: whoever is cancelled before its turn loses nothing
        self._watcher: Owner | None = None

    @property
    def is_open(self) -> bool:
        return self._sock is not None

    def _live(self) -> AnySocket:
        if self._sock is None:
            raise OSError(errno.ECONNABORTED, "the connection has ended or has been given away")
        return self._sock

    # ---- reading ----------------------------------------------------------------------------------------------------

    async def read(self) -> bytes:
        """What there is, at most `read_bytes_max`; nothing when the peer will send no more or is gone."""
        if self._received is None:
            if not self._in_pump:
                await trio.lowlevel.checkpoint_if_cancelled()  # when all are, the pump may have ended before us
            self._want()
            self._reader = task = trio.lowlevel.current_task()

            def give_up(_: object) -> trio.lowlevel.Abort:
                self._reader = None
                if self._share is not None:
                    self._share.step_out(task)
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(give_up)
        data, self._received = self._received, None
        assert data is not None  # an interrupt or a crash has raised
        return data

    def read_now(self) -> bytes | None:
        """As `read`, without waiting; None when there is nothing yet."""
        if self._received is not None:
            data, self._received = self._received, None
            return data
        try:
            data = self._live().recv(self._settings.read_bytes_max)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self._leave_pump()  # such a socket stays readable for ever
        return data

    def interrupt(self) -> None:
        """Whoever waits in `read` gets a `trio.ClosedResourceError`, though nothing is closed yet."""
        self._fail_reader(trio.ClosedResourceError())

    def watch(self, owner: Owner) -> None:
        """Tell the owner whenever there is something to read, until `unwatch`; nobody may wait in `read` meanwhile."""
        self._want()
        self._watcher = owner

    def unwatch(self) -> None:
        self._watcher = None

    def on_readable(self) -> None:
        if self._watcher is not None:
            self._watcher.on_readable()
        elif self._reader is None:
            self._leave_pump()
        elif (data := self.read_now()) is not None:
            self._give(data)

    def _give(self, data: bytes) -> None:
        if self._reader is not None:
            self._received = data
            task, self._reader = self._reader, None
            if self._share is None:
                trio.lowlevel.reschedule(task)
            else:
                self._share.reschedule(task)

    def crash(self, exc: Exception) -> None:
        self._in_pump = False
        if self._watcher is not None:
            self._watcher.crash(exc)
        self._fail_reader(exc)

    def _fail_reader(self, exc: Exception) -> None:
        if self._reader is not None:
            task, self._reader = self._reader, None
            trio.lowlevel.reschedule(task, outcome.Error(exc))

    def _want(self) -> None:
        sock = self._live()
        if not self._in_pump:
            self._pump.register(sock, self)
            self._in_pump = True

    def _leave_pump(self) -> None:
        if self._in_pump and self._sock is not None:
            self._pump.unregister(self._sock)
        self._in_pump = False

    # ---- writing ----------------------------------------------------------------------------------------------------

    async def write(self, data: bytes) -> None:
        if left := self.write_now(data):
            await self.write_slowly(left)

    def write_now(self, data: bytes) -> memoryview | None:
        """What the socket did not take at once, if anything; that goes to `write_slowly`."""
        try:
            sent = _send(self._live(), data)
        except OSError:
            self.abort()
            raise
        return memoryview(data)[sent:] if sent < len(data) else None

    async def write_slowly(self, left: memoryview) -> None:
        """All of it, as fast as the peer takes it; one that takes nothing for too long is reset. So is one whose writer
        is cancelled meanwhile: whatever came next would be read as the rest of this."""
        sock = self._live()
        try:
            while left:
                await self._until_writable(sock)
                left = left[_send(sock, left) :]
        except (OSError, trio.Cancelled):
            self.abort()
            raise

    async def write_file(self, head: bytes, fd: int, start: int, count: int) -> None:
        """`head`, then so many bytes of the file, without their passing through here; as patiently as `write_slowly`.

        In the clear only. Raises UnreadableFileError, and has written less.
        """
        sock = self._live()
        assert not isinstance(sock, TlsSocket)
        at, end = start, start + count
        try:
            if head and (sent := _send(sock, head, socket.MSG_MORE)) < len(head):  # in one packet with what follows
                await self.write_slowly(memoryview(head)[sent:])
            while at < end:
                piece_end = min(at + FILE_PIECE_BYTES, end)
                if not is_in_memory(fd, at, piece_end - at):
                    await bring_in(fd, at, piece_end - at)
                while at < piece_end:
                    sent = _send_file(sock, fd, at, piece_end - at)
                    at += sent
                    if at < piece_end:
                        await self._until_writable(sock)
                if at < end:
                    await trio.lowlevel.checkpoint()
        except OSError:
            self.abort()
            raise

    async def _until_writable(self, sock: AnySocket) -> None:
        with trio.move_on_after(self._settings.write_s_max) as patience:
            await trio.lowlevel.wait_writable(sock)
        if patience.cancelled_caught:
            raise OSError(errno.ETIMEDOUT, "the peer does not read")

    # ---- ending -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._leave_pump()
        if self._sock is not None:
            self._sock.close()
            self._sock = None
            self._give(b"")  # to an application that waits in `receive`, when what it sends finds nobody

    def abort(self) -> None:
        """Reset: the peer must not take what it got for whole."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                break_off(self._sock)
        self.close()

    async def linger(self) -> None:
        """Close after the peer has read our last words: closing with unread input would reset, and take them back."""
        if self._sock is None:
            return
        with contextlib.suppress(OSError), trio.move_on_after(self._settings.linger_s_max):
            self._sock.shutdown(socket.SHUT_WR)
            while await self.read():
                pass
        self.close()

    def detach(self) -> AnySocket:
        """The socket itself, no longer ours: nothing here touches it again."""
        sock = self._live()
        self._leave_pump()
        self._sock = None
        return sock


def _send(sock: AnySocket, data: bytes | memoryview, flags: int = 0) -> int:
    try:
        return sock.send(data, flags)
    except BlockingIOError:
        return 0


def _send_file(sock: socket.socket, fd: int, at: int, count: int) -> int:
    try:
        sent = os.sendfile(sock.fileno(), fd, at, count)
    except BlockingIOError:
        return 0
    except OSError as error:
        if error.errno == errno.EIO:  # the disk's; a socket has others
            raise UnreadableFileError from error
        raise
    if not sent:
        raise UnreadableFileError  # it ends before it should
    return sent


UNSENT_BYTES = 16 * 1024
"""Of HTTP/2, in the kernel and not on their way; then it takes no more. What waits before it, its streams know of."""


class ReplayedStream(trio.abc.HalfCloseableStream):
    """A connection for another server to read from its beginning: what we have read comes first."""

    def __init__(self, sock: AnySocket, replay: bytes, settings: DoorSettings, share: Share) -> None:
        self._sock = sock
        self._replay = replay
        self._share = share
        self._read_bytes_max = settings.passed_on_bytes_max
        self._write_s_max = settings.write_s_max
        self._patience: trio.CancelScope | None = None
        with contextlib.suppress(OSError):  # not over a unix socket
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)

    @property
    def socket(self) -> AnySocket:
        return self._sock

    @property
    def replay(self) -> bytes:
        """What is read again before anything new."""
        return self._replay

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        size = min(max_bytes or self._read_bytes_max, self._read_bytes_max)
        await self._share.let_others()
        if not self._replay:
            self._check_open()
            self._replay = await receive(self._sock, size)
        data, self._replay = self._replay[:size], self._replay[size:]
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        # hypercorn shields its sends from cancellation and gives them no deadline: this is where a stalled peer ends.
        left = memoryview(data)
        while left:
            self._check_open()
            with trio.move_on_after(self._write_s_max) as self._patience:
                left = left[await send(self._sock, left) :]
            if self._patience.cancelled_caught:
                self.abort()
                raise trio.BrokenResourceError("the peer does not read")

    def _check_open(self) -> None:
        if self._sock.fileno() < 0:
            raise trio.ClosedResourceError

    def abort(self) -> None:
        """Reset: the peer must not take what it got for whole."""
        with contextlib.suppress(OSError):
            break_off(self._sock)
        self._close()

    def hurry(self, write_s_max: float) -> None:
        """From now on the peer has no longer than this to take any byte."""
        self._write_s_max = min(write_s_max, self._write_s_max)
        if self._patience is not None:
            self._patience.deadline = min(self._patience.deadline, trio.current_time() + write_s_max)

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.wait_writable(self._sock)

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()
        with contextlib.suppress(OSError):  # it went just now
            self._sock.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        self._close()
        await trio.lowlevel.checkpoint()

    def _close(self) -> None:
        if self._sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()


class TlsStream(ReplayedStream):
    """The same over TLS, after its handshake, as hypercorn asks for one."""

    def __init__(self, sock: TlsSocket, replay: bytes, settings: DoorSettings, share: Share) -> None:
        super().__init__(sock, replay, settings, share)
        self._protocol = sock.protocol

    async def do_handshake(self) -> None:
        await trio.lowlevel.checkpoint()

    def selected_alpn_protocol(self) -> str | None:
        return self._protocol

    @property
    def transport_stream(self) -> ReplayedStream:
        return self
