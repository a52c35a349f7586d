"""One TLS connection's life: a handshake with a deadline, then what any connection has, or hypercorn's HTTP/2.

Accepting, counting connections and stopping all of them are the door's; what is said on it is `connection.py`'s or the
bridge's. How many handshakes are under way, and which is broken off, is `handshakes.py`'s.
"""

import socket
import ssl

import trio

from gateway.net.http1.connection import Connection
from gateway.net.http1.service import Service
from gateway.net.http1.wire import TlsStream
from gateway.net.hypercorn.bridge import HypercornBridge
from gateway.net.hypercorn.life import ConnectionLife
from gateway.net.socket_tasks import shake_hands
from gateway.net.tls_socket import TlsSocket

ALPN = ("h2", "http/1.1")


class TlsConnection:
    def __init__(
        self,
        service: Service,
        bridge: HypercornBridge,
        sock: socket.socket,
        peer: tuple[str, int],
        context: ssl.SSLContext,
    ) -> None:
        self._service = service
        self._bridge = bridge
        self._raw = sock
        self._peer = peer
        self._context = context
        self._share = service.turns.of(peer[0])
        self._handshake = trio.CancelScope()
        self._life = ConnectionLife(service.settings.linger_s_max, service.calls)
        self._connection: Connection | None = None
        self._passed_on: TlsStream | None = None

    def ask_stop(self) -> None:
        """The requests under way are answered; a handshake or an idle connection is ended."""
        self._handshake.cancel()
        if self._connection is not None:
            self._connection.ask_stop()
        elif self._passed_on is not None:
            self._life.ask_stop()
            self._passed_on.hurry(self._service.settings.stopping_write_s_max)

    def expire(self, now_s: float) -> None:
        """Of its deadlines, the handshake's is here; those of HTTP/2 hypercorn keeps."""
        if self._connection is not None:
            self._connection.expire(now_s)

    def end(self, crash: Exception | None) -> None:
        if self._connection is not None:
            self._connection.end(crash)
        elif self._passed_on is not None:
            self._passed_on.abort()
        else:
            self._raw.close()

    async def run(self) -> None:
        sock = None
        handshake_s_max = self._service.settings.handshake_s_max
        with self._handshake, self._service.handshakes.one(self._peer[0], handshake_s_max):
            await self._share.let_others()  # it costs what dozens of requests do
            sock = await shaken(self._raw, self._context)
        if sock is None or self._handshake.cancel_called:
            return
        if sock.protocol == "h2":
            self._passed_on = TlsStream(sock, b"", self._service.settings, self._share)
            async with self._passed_on:
                await self._bridge.serve(self._passed_on, self._life)
        else:
            self._connection = Connection(self._service, self._bridge, sock, self._peer)
            await self._connection.run()


async def shaken(sock: socket.socket, context: ssl.SSLContext) -> TlsSocket | None:
    """After its handshake. None: it speaks no TLS, or none that we do, or is gone."""
    tls = TlsSocket(sock, context)
    try:
        await shake_hands(tls)
    except trio.BrokenResourceError:
        return None
    return tls
