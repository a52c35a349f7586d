"""One TLS connection's life: a handshake with a deadline, then hypercorn's.

Accepting, counting connections and stopping all of them are the door's; what is said on it is the bridge's.
"""

import socket
import ssl

import trio

from gateway.net.http1.service import Service
from gateway.net.http1.wire import ReplayedStream
from gateway.net.hypercorn.bridge import HypercornBridge
from gateway.net.hypercorn.life import ConnectionLife

ALPN = ("h2", "http/1.1")


class TlsConnection:
    def __init__(
        self,
        service: Service,
        bridge: HypercornBridge,
        sock: socket.socket,
        address: str,
        context: ssl.SSLContext,
    ) -> None:
        self._settings = settings = service.settings
        self._bridge = bridge
        self._transport = ReplayedStream(sock, b"", settings, service.turns.of(address))
        self._stream = trio.SSLStream(self._transport, context, server_side=True, https_compatible=True)
        self._handshake = trio.CancelScope()
        self._life = ConnectionLife(settings.linger_s_max, service.calls)

    def ask_stop(self) -> None:
        """The requests under way are answered; a handshake or an idle connection is ended."""
        self._handshake.cancel()
        self._life.ask_stop()
        self._transport.hurry(self._settings.stopping_write_s_max)

    def expire(self, now_s: float) -> None:
        """Its deadlines are its own: the handshake's is here, the others hypercorn keeps."""

    def end(self, crash: Exception | None) -> None:
        del crash
        self._transport.socket.close()

    async def run(self) -> None:
        self._handshake.deadline = trio.current_time() + self._settings.handshake_s_max
        with self._handshake:
            try:
                await self._stream.do_handshake()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return  # it speaks no TLS, or none that we do, or is gone
        if not self._handshake.cancelled_caught:
            await self._bridge.serve(self._stream, self._life)
