"""What a task does with a connection's socket, in the clear or over TLS, that is not the pump's: it waits for it."""

import trio

from gateway.net.tls_socket import AnySocket, TlsSocket


async def shake_hands(sock: TlsSocket) -> None:
    """Raises trio.BrokenResourceError when the peer speaks no TLS, or none that we do, or is gone."""
    try:
        while not sock.shake():
            await _until_heard(sock)
        while not sock.flush():
            await trio.lowlevel.wait_writable(sock)
    except OSError as exc:
        raise trio.BrokenResourceError from exc


async def _until_heard(sock: TlsSocket) -> None:
    while True:
        await trio.lowlevel.wait_readable(sock)
        try:
            sock.hear()
        except BlockingIOError:
            continue
        return


async def receive(sock: AnySocket, size: int) -> bytes:
    """What there is; none when the peer sends no more. Over TLS it may be more than was asked for, by a record.

    Raises trio.BrokenResourceError.
    """
    await trio.lowlevel.checkpoint()
    while True:
        try:
            return sock.recv(size)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(sock)
        except OSError as exc:
            raise trio.BrokenResourceError from exc


async def send(sock: AnySocket, data: bytes | memoryview) -> int:
    """How much was taken, of data that is not empty. Raises trio.BrokenResourceError."""
    await trio.lowlevel.checkpoint()
    while True:
        try:
            if sent := sock.send(data):
                return sent
        except BlockingIOError:
            pass
        except OSError as exc:
            raise trio.BrokenResourceError from exc
        await trio.lowlevel.wait_writable(sock)


async def send_all(sock: AnySocket, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[await send(sock, left) :]
