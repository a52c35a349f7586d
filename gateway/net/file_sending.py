"""Files as bodies of responses: straight from the file where the server can, else in pieces; never whole in memory.

The door's connections in the clear are plain sockets, for which it offers `scope["extensions"][SEND_FILE]`: the kernel
moves the bytes (`sendfile`). Where that is missing (TLS, HTTP/2) pieces go the ordinary way, one at a time. Either
would hold up everybody while the disk is read, so what the page cache does not have is brought into it by a thread.

A file that cannot be read, or ends too soon, is an exception: whoever serves the connection ends it, for a response
that has begun must not pass for whole.
"""

import errno
import os

import trio

from gateway.net.asgi import AsgiScope, Send

SEND_FILE = "heliograph.send_file"
PIECE_BYTES = 64 * 1024  # read at once, where the kernel cannot send the file itself
STREAM_PIECE_BYTES = 16 * 1024  # the same over HTTP/2, where a client may have many waiting and grant no window to any
THREADS_MAX = 8  # that wait for the disk at a time, for all files; the next one waits for them
_NO_SUCH_QUESTION = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}

_threads = trio.CapacityLimiter(THREADS_MAX)
_byte = bytearray(1)


class UnreadableFileError(Exception):
    """The disk does not have what was published."""


async def send_file(scope: AsgiScope, send: Send, fd: int, start: int, count: int) -> None:
    """The whole body of a response whose start was sent, with this length; `count` is at least 1."""
    directly = scope.get("extensions", {}).get(SEND_FILE)
    if directly is not None:
        await directly(fd, start, count)
        return
    at, end = start, start + count
    bytes_max = STREAM_PIECE_BYTES if scope["http_version"] == "2" else PIECE_BYTES
    while at < end:
        piece = await read_piece(fd, at, min(bytes_max, end - at))
        at += len(piece)
        await send({"type": "http.response.body", "body": piece, "more_body": at < end})


async def read_piece(fd: int, at: int, count: int) -> bytes:
    """All of it."""
    if not is_in_memory(fd, at, count):
        await bring_in(fd, at, count)
    try:
        piece = os.pread(fd, count, at)
    except OSError as error:
        raise UnreadableFileError from error
    if len(piece) < count:
        raise UnreadableFileError
    return piece


def is_in_memory(fd: int, at: int, count: int) -> bool:
    """Whether reading waits for no disk, as far as both ends of this part tell: those between are seldom evicted alone.

    A file system that cannot answer is taken for one that needs no disk.
    """
    try:
        os.preadv(fd, (_byte,), at, os.RWF_NOWAIT)
        os.preadv(fd, (_byte,), at + count - 1, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        return error.errno in _NO_SUCH_QUESTION
    return True


async def bring_in(fd: int, at: int, count: int) -> None:
    """Have a thread read this part, so that the next to read it need not wait. The descriptor is in use until then."""
    await trio.to_thread.run_sync(_read_through, fd, at, count, limiter=_threads)


def _read_through(fd: int, at: int, count: int) -> None:
    for start in range(at, at + count, PIECE_BYTES):
        try:
            os.pread(fd, PIECE_BYTES, start)
        except OSError as error:
            raise UnreadableFileError from error
