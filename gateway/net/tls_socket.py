"""TLS on a non-blocking socket, as a thing that is used like that socket: the owners of connections need not know.

Plaintext goes in and out; sealing and opening is an `ssl.SSLObject` between two buffers. What an owner relies on is the
same as in the clear:
- `recv` takes at most so many bytes from the kernel and opens all that they complete, up to one record more than was
  asked for: nothing that was opened is left behind, where no readiness of the socket would tell of it. What may be left
  behind is the end, and what came with the handshake; then the pump is asked for another call (`has_input`).
- `send` says how much was taken. While the kernel has not taken all its ciphertext, the last byte of it counts as not
  taken: so its owner waits until the socket is writable and comes back with the rest, as it would in the clear.
- `outstanding` is ciphertext that the peer's TCP has not acknowledged, wherever it waits.

Early data is never accepted, and a peer's request for a new handshake is refused. What a peer makes us say without
reading it is bounded, and so is what it may send that says nothing to the owner. Waiting, also for the handshake, is
`socket_tasks.py`'s, certificates are `tls.py`'s.
"""

import contextlib
import fcntl
import socket
import ssl
import struct
import termios
from array import array
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

SEALED_AT_ONCE = 64 * 1024  # plaintext; its ciphertext may wait here
RECORD_BYTES_MAX = 16 * 1024  # of plaintext
OPENED_AT_ONCE = RECORD_BYTES_MAX
UNREAD_ANSWERS_BYTES_MAX = 16 * 1024  # alerts and the like that a peer provokes and does not read; then it is cut off
# Of ciphertext in a row that says nothing, as KeyUpdates: no owner counts it. More than any one record, padded or not.
SILENT_BYTES_MAX = 64 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_outq = array("i", [0])  # one for all: it is read before anybody else can run


class TlsSocket:
    """As much of a `socket.socket` as is needed of one that was accepted."""

    __slots__ = (
        "_call_soon",
        "_has_early",
        "_incoming",
        "_is_broken",
        "_is_ended",
        "_is_shaken",
        "_outgoing",
        "_silent_bytes",
        "_sock",
        "_ssl",
        "_unread_answers_bytes",
        "_unsent",
        "owes",
        "sealed_bytes",
    )

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.sealed_bytes = 0
        """Ciphertext so far, whatever it was for."""
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent = b""  # ciphertext that the kernel has not taken
        self.owes = False
        """The last byte of a `send` counts as not taken, though it was sealed: nothing else may come instead of it."""
        self._silent_bytes = 0
        self._unread_answers_bytes = 0
        self._has_early = False  # with the handshake's last bytes others may have come
        self._is_shaken = False
        self._is_ended = False  # nothing more comes
        self._is_broken = False  # nothing more goes, not even a goodbye
        self._call_soon: Callable[[TlsSocket], None] | None = None

    # ---- the handshake ----------------------------------------------------------------------------------------------

    def shake(self) -> bool:
        """Go on with the handshake, as far as what was heard goes; whether it is over. Raises OSError."""
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self.flush()
            return False
        except OSError:
            self._is_broken = True
            with contextlib.suppress(OSError):
                self.flush()  # the alert that says why
            raise
        self._is_shaken = self._has_early = True
        self.flush()
        return True

    def hear(self) -> None:
        """Take of what has come for the handshake. Raises BlockingIOError, and OSError when the peer is gone."""
        data = self._sock.recv(OPENED_AT_ONCE)
        if not data:
            self._is_broken = True
            raise ConnectionResetError
        self._incoming.write(data)

    @property
    def protocol(self) -> str | None:
        """As ALPN names it, if it was spoken of."""
        return self._ssl.selected_alpn_protocol()

    # ---- in ---------------------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        """What is there; nothing when the peer has said goodbye, or hung up. Raises OSError as a socket does."""
        data = b""
        if self._has_early:
            self._has_early = False
            data = self._open()
        if not data and not self._is_ended:
            sealed = self._sock.recv(size)
            if sealed:
                self._incoming.write(sealed)
                data = self._open()
                self._silent_bytes = 0 if data else self._silent_bytes + len(sealed)
                if self._silent_bytes > SILENT_BYTES_MAX:
                    raise ConnectionResetError
                if not data and not self._is_ended:
                    raise BlockingIOError
            else:
                self._is_ended = True
        if data and self._is_ended and self._call_soon is not None:
            self._call_soon(self)
        return data

    def _open(self) -> bytes:
        """All that can be opened."""
        incoming, opened = self._incoming, self._ssl
        parts: list[bytes] = []
        try:
            while True:
                part = opened.read(OPENED_AT_ONCE)
                if not part:
                    self._is_ended = True
                    break
                parts.append(part)
                if not incoming.pending:  # and OpenSSL has read no further than that
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # the peer's goodbye, when it answers ours
            self._is_ended = True
        except OSError:
            self._is_ended = self._is_broken = True
            with contextlib.suppress(OSError):
                self.flush()  # the alert that says why
            raise
        if self._outgoing.pending:
            self._answer()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _answer(self) -> None:
        self._unread_answers_bytes += self._outgoing.pending
        if self.flush():
            self._unread_answers_bytes = 0
        elif self._unread_answers_bytes > UNREAD_ANSWERS_BYTES_MAX:
            raise ConnectionResetError

    @property
    def has_input(self) -> bool:
        """Whether there may be something to read of which the socket's readiness does not tell."""
        return self._has_early or self._is_ended

    def attend(self, call_soon: Callable[["TlsSocket"], None]) -> None:
        """Whom to ask for a call of the owner when there is such input."""
        self._call_soon = call_soon

    # ---- out --------------------------------------------------------------------------------------------------------

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        """Raises OSError as a socket does. After a short one, come back with the rest and nothing else before it."""
        del flags
        if self._unsent and not self.flush():
            raise BlockingIOError
        sent, self.owes = int(self.owes), False
        while sent < len(data):
            piece = data[sent : sent + SEALED_AT_ONCE] if sent or len(data) > SEALED_AT_ONCE else data
            self._seal(piece)
            sent += len(piece)
            if not self.flush():
                self.owes = True
                return sent - 1
        return sent

    def sendmsg(self, buffers: Sequence[bytes | memoryview]) -> int:
        """As `send`, of several; not of more than are sealed at once."""
        taken: list[bytes | memoryview] = []
        room = SEALED_AT_ONCE
        for buffer in buffers:
            taken.append(buffer[:room])
            room -= len(taken[-1])
            if not room:
                break
        return self.send(b"".join(taken))

    def put(self, data: bytes) -> bool:
        """Take it all, now; whether the kernel has. Raises OSError."""
        self._seal(data)
        if self._unsent:
            return self.flush()
        # As `flush` would, and quicker: this is what a frame costs each of thousands of streams.
        sealed = self._take_sealed()
        try:
            sent = self._sock.send(sealed)
        except BlockingIOError:
            sent = 0
        self._unsent = sealed[sent:]
        return not self._unsent

    def _seal(self, data: bytes | memoryview) -> None:
        if self._is_broken:
            raise BrokenPipeError
        if len(data) <= RECORD_BYTES_MAX:
            self._ssl.write(data)
            return
        # A record at a time: the buffer would keep the size of the most that it ever held, for as long as it lives.
        view, records = memoryview(data), [self._unsent, self._take_sealed()]
        for start in range(0, len(data), RECORD_BYTES_MAX):
            self._ssl.write(view[start : start + RECORD_BYTES_MAX])
            records.append(self._take_sealed())
        self._unsent = b"".join(records)

    def _take_sealed(self) -> bytes:
        sealed = self._outgoing.read()
        self.sealed_bytes += len(sealed)
        return sealed

    def flush(self) -> bool:
        """Give the kernel what waits; whether nothing does any more. Raises OSError."""
        if self._outgoing.pending:
            sealed = self._take_sealed()
            if not self._unsent:
                self._unsent = sealed
            else:
                self._unsent += sealed
        if self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = self._unsent[sent:]
        return not self._unsent

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def outstanding(self) -> int:
        """Ciphertext that is not acknowledged."""
        fcntl.ioctl(self._sock.fileno(), termios.TIOCOUTQ, _outq)
        return _outq[0] + len(self._unsent)

    # ---- ending -----------------------------------------------------------------------------------------------------

    def shutdown(self, how: int) -> None:
        """For the side that sends: a goodbye (close_notify), then the end of it. Raises OSError."""
        assert how == socket.SHUT_WR
        self.say_goodbye()
        self._sock.shutdown(how)

    def say_goodbye(self) -> None:
        """Once, and not after half a record: what comes without it was cut off."""
        if self._is_broken or not self._is_shaken or self._unsent:
            return
        self._is_broken = True
        # Python looks for the peer's goodbye, and OpenSSL breaks off if what it finds is something else.
        unheard = self._incoming.read()
        with contextlib.suppress(OSError):  # the peer's goodbye, which is not waited for
            self._ssl.unwrap()
        self._incoming.write(unheard)
        with contextlib.suppress(OSError):
            self.flush()

    def break_off(self) -> None:
        """Reset when it is closed, and no goodbye: the peer must not take what it got for whole."""
        self._is_broken = True
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self.say_goodbye()
        self._sock.close()

    # ---- the socket's own --------------------------------------------------------------------------------------------

    @property
    def family(self) -> int:
        return self._sock.family

    def fileno(self) -> int:
        return self._sock.fileno()

    def getblocking(self) -> bool:
        return self._sock.getblocking()

    def getsockname(self) -> Any:
        return self._sock.getsockname()

    def getpeername(self) -> Any:
        return self._sock.getpeername()

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self._sock.setsockopt(level, name, value)

    def getsockopt(self, level: int, name: int, size: int = 0) -> Any:
        return self._sock.getsockopt(level, name, size)


AnySocket: TypeAlias = socket.socket | TlsSocket
"""Of a connection, non-blocking; in the clear it is the socket itself."""


def break_off(sock: AnySocket) -> None:
    """Reset when it is closed: the peer must not take what it got for whole. Raises OSError."""
    if isinstance(sock, TlsSocket):
        sock.break_off()
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
