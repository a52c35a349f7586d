"""Whether the sites of the wire tests speak TLS, and clients for either way.

A test that is to hold over both uses the fixture `transport` (in `conftest.py`); its site and its clients ask here.
A TLS client takes an end of the connection without a goodbye (close_notify) for an error: so every clean end in every
such test shows that there was one.
"""

import contextlib
import os
import socket
import ssl
from typing import Any

import trio

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]  # the server's, the client's
_contexts: Contexts | None = None


def use(contexts: Contexts | None) -> None:
    global _contexts
    _contexts = contexts


def server() -> ssl.SSLContext | None:
    """For a listener; None: in the clear."""
    return None if _contexts is None else _contexts[0]


def client() -> ssl.SSLContext | None:
    return None if _contexts is None else _contexts[1]


class TlsClientSocket:
    """As much of a `trio.socket` as clients in tests use, over TLS. It reads only when it is told to."""

    def __init__(self, sock: trio.socket.SocketType, context: ssl.SSLContext) -> None:
        self.raw = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")

    async def do_handshake(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self.flush()
                if not await self._hear():
                    raise ConnectionResetError from None
        await self.flush()

    async def flush(self) -> None:
        data = self.outgoing.read()
        while data:
            data = data[await self.raw.send(data) :]

    async def _hear(self) -> bool:
        data = await self.raw.recv(65536)
        self.incoming.write(data)
        return bool(data)

    async def send(self, data: bytes | bytearray | memoryview) -> int:
        taken = self.tls.write(data)
        await self.flush()
        return taken

    async def recv(self, size: int) -> bytes:
        while True:
            try:
                return self.tls.read(size)
            except ssl.SSLWantReadError:
                if not await self._hear():
                    raise ssl.SSLEOFError("no goodbye") from None
            except ssl.SSLZeroReturnError:
                return b""

    def shutdown(self, how: int) -> None:
        self.goodbye()
        self.raw.shutdown(how)

    def goodbye(self) -> None:
        """Only that of TLS: TCP stays as it is."""
        with contextlib.suppress(OSError):
            self.tls.unwrap()
        self.flush_now()

    def send_now(self, data: bytes) -> None:
        self.tls.write(data)
        self.flush_now()

    def flush_now(self) -> None:
        if data := self.outgoing.read():
            assert os.write(self.raw.fileno(), data) == len(data)

    def setsockopt(self, *option: Any) -> None:
        self.raw.setsockopt(*option)

    def getsockopt(self, *option: Any) -> Any:
        return self.raw.getsockopt(*option)

    def fileno(self) -> int:
        return self.raw.fileno()

    def close(self) -> None:
        self.raw.close()


class TlsClientStream(trio.abc.HalfCloseableStream):
    """As much of a `trio.SocketStream` as clients in tests use."""

    def __init__(self, sock: TlsClientSocket) -> None:
        self.socket = sock

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        try:
            while data:
                data = data[await self.socket.send(data) :]
        except OSError as exc:
            raise trio.BrokenResourceError from exc

    async def receive_some(self, size: int | None = None) -> bytes:
        try:
            return await self.socket.recv(size or 65536)
        except OSError as exc:
            raise trio.BrokenResourceError from exc

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()
        self.socket.shutdown(socket.SHUT_WR)

    def setsockopt(self, *option: Any) -> None:
        self.socket.setsockopt(*option)

    async def aclose(self) -> None:
        self.socket.close()
        await trio.lowlevel.checkpoint()


async def secured(sock: trio.socket.SocketType) -> "trio.socket.SocketType | TlsClientSocket":
    """A connected socket, spoken to as the site wants it."""
    context = client()
    if context is None:
        return sock
    tls = TlsClientSocket(sock, context)
    await tls.do_handshake()
    return tls


async def over(sock: trio.socket.SocketType) -> trio.SocketStream | TlsClientStream:
    try:
        tls = await secured(sock)
    except OSError:
        sock.close()
        raise
    return TlsClientStream(tls) if isinstance(tls, TlsClientSocket) else trio.SocketStream(sock)


async def open_stream(port: int) -> trio.SocketStream | TlsClientStream:
    return await over((await trio.open_tcp_stream("127.0.0.1", port)).socket)


def send_now(stream: Any, data: bytes) -> None:
    """Without waiting: nobody else runs meanwhile."""
    if isinstance(stream, TlsClientStream):
        stream.socket.send_now(data)
    else:
        assert os.write(stream.socket.fileno(), data) == len(data)
