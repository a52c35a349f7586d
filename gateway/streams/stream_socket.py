"""A stream on a socket of its own, adopted from the door: frames go straight to it, acknowledgements are read from it.

What the peer's TCP has acknowledged is what was written less what the kernel still holds (`SIOCOUTQ`). Over TLS both
are ciphertext: each stream seals its frames at once, and tells its rules how much longer that made them. The pump tells
when the client sends something, which is dropped, or half-closes. When to write and what is left to `actors.stream`.
"""

import contextlib
import fcntl
import socket
import termios
from array import array

import trio

from actors.stream.actor import StreamActor
from gateway.net.pump import Pump
from gateway.net.tls_socket import AnySocket, TlsSocket
from schemas.closes import StreamClose

READ_BYTES_MAX = 4096  # dropped in one go; what is left brings the next call
# Between looks for the last acknowledgement, doubling: no event tells of it.
LOOK_AGAIN_S, LOOK_AGAIN_S_MAX = 0.005, 0.5

_TCP_CLOSE = 7  # of the kernel's states, the first byte of TCP_INFO
_outq = array("i", [0])  # one for all: it is read before anybody else can run


class StreamSocket:
    """Implements `actors.stream.actor.Outlet` and `gateway.net.pump.Owner`."""

    ends_its_request = True

    __slots__ = ("_actor", "_gone", "_input_bytes_left", "_pump", "_sock", "_unsent")

    def __init__(self, sock: AnySocket, pump: Pump, input_bytes_max: int) -> None:
        self._sock = sock
        self._pump = pump
        self._input_bytes_left = input_bytes_max
        self._unsent = b""
        self._gone = False
        self._actor: StreamActor | None = None

    def belongs_to(self, actor: StreamActor) -> None:
        self._actor = actor
        self._pump.register(self._sock, self)

    # ---- out --------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> bool:
        if self._unsent:
            self._unsent += data
            return False
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._lose()
            return True
        if sent == len(data):
            return True
        self._unsent = data[sent:]
        return False

    @property
    def descriptor(self) -> int | None:
        return None if self._unsent or self._gone else self._sock.fileno()

    def keep(self, data: bytes) -> None:
        self._unsent += data

    def lose(self) -> None:
        self._lose()

    def outstanding(self) -> int:
        if self._gone:
            return 0  # its descriptor may be another's by now
        fcntl.ioctl(self._sock.fileno(), termios.TIOCOUTQ, _outq)
        return _outq[0] + len(self._unsent)

    async def flush(self) -> None:
        await self._flush()
        await trio.sleep_forever()

    async def _flush(self) -> None:
        while self._unsent and not self._gone:
            await trio.lowlevel.wait_writable(self._sock)
            unsent, self._unsent = self._unsent, b""
            self.write(unsent)

    async def finish(self) -> None:
        await self._flush()
        if self._gone:
            return
        with contextlib.suppress(OSError):  # it went just now
            self._sock.shutdown(socket.SHUT_WR)
        pause_s = LOOK_AGAIN_S
        while self.outstanding() and not self._is_closed():
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_AGAIN_S_MAX)

    def _is_closed(self) -> bool:
        """Whether the client is gone. Asked of TCP: a client that closes for good says so as one that half-closes does,
        is no longer read from, and answers the close event with a reset, after which its bytes stay outstanding."""
        return self._gone or self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE

    def close(self) -> None:
        """What the kernel holds, it goes on sending; unless the client has sent more than we read: then it resets."""
        self._gone = True
        self._pump.unregister(self._sock)
        self._sock.close()
        self._actor = None  # it leads back here, and what has ended is to be freed now, not by a search for cycles

    # ---- in ---------------------------------------------------------------------------------------------------------

    def on_readable(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            self._lose()
            return
        self._input_bytes_left -= len(data)
        if not data or self._input_bytes_left < 0:
            # Half-closed, or talking without end. Either way nothing more is read.
            assert self._actor is not None
            self._pump.unregister(self._sock)
            self._actor.close(StreamClose.NORMAL)

    def crash(self, exc: Exception) -> None:
        assert self._actor is not None
        self._actor.crash(exc)

    def _lose(self) -> None:
        if self._gone:
            return
        assert self._actor is not None
        self._gone = True
        self._unsent = b""
        self._pump.unregister(self._sock)
        self._actor.client_gone()


class TlsStreamSocket(StreamSocket):
    """What waits for the client is ciphertext, and the connection's own (`TlsSocket`)."""

    __slots__ = ("_tls", "_told_bytes")

    def __init__(self, sock: TlsSocket, pump: Pump, input_bytes_max: int) -> None:
        super().__init__(sock, pump, input_bytes_max)
        self._tls = sock
        self._told_bytes = sock.sealed_bytes  # up to the end of what the rules know of

    def write(self, data: bytes) -> bool:
        if self._gone:
            return True
        tls, told_bytes = self._tls, self._told_bytes
        try:
            is_taken = tls.put(data)
        except OSError:
            self._lose()
            return True
        self._told_bytes = tls.sealed_bytes
        if self._actor is not None:
            # With whatever TLS had to say by itself in between: that comes before these, and is acknowledged before.
            self._actor.sealed(self._told_bytes - told_bytes - len(data))
        return is_taken

    @property
    def descriptor(self) -> None:
        return None  # what is written to it is not the frame

    def outstanding(self) -> int:
        if self._gone:
            return 0
        # Less what TLS has said by itself since.
        return max(0, self._tls.outstanding() - (self._tls.sealed_bytes - self._told_bytes))

    async def _flush(self) -> None:
        while self._tls.has_unsent and not self._gone:
            await trio.lowlevel.wait_writable(self._tls)
            try:
                self._tls.flush()
            except OSError:
                self._lose()

    async def finish(self) -> None:
        await self._flush()
        if not self._gone:
            self._tls.say_goodbye()
            self._told_bytes = self._tls.sealed_bytes
        await super().finish()


def stream_socket(sock: AnySocket, pump: Pump, input_bytes_max: int) -> StreamSocket:
    if isinstance(sock, TlsSocket):
        return TlsStreamSocket(sock, pump, input_bytes_max)
    return StreamSocket(sock, pump, input_bytes_max)
