"""A response of `http.client` that has to come in time: that library bounds each wait, not how many there are.

A service that sends a byte now and then, or one `100 Continue` after another, is given up. What an answer says is left
to the client.
"""

import http.client
import io
import socket
import time
from typing import Any

ANSWER_S_MAX = 15.0  # without a byte from the other side, or without a byte that it takes
WHOLE_S_MAX = (
    60.0  # for a head and its JSON, from when all was sent; a slower service counts as one that does not answer
)
HEAD_BYTES_MAX = 256 * 1024  # with all interim responses before it; more is no answer of an echo service


class BoundedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self._source = _Source(self.fp.detach(), sock)
        self.fp = io.BufferedReader(self._source)

    def begin(self) -> None:
        self._source.bytes_left = HEAD_BYTES_MAX
        super().begin()
        self._source.bytes_left = None

    def allow(self, seconds: float) -> None:
        """Another time for the rest, from now on."""
        self._source.ends_s = time.monotonic() + seconds


class _Source(io.RawIOBase):
    """The socket's bytes, within a time and, for the head, a number. Raises TimeoutError, HTTPException."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        self._raw = raw
        self._sock = sock
        self.ends_s = time.monotonic() + WHOLE_S_MAX
        self.bytes_left: int | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self.ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer took too long")
        self._sock.settimeout(min(left_s, ANSWER_S_MAX))
        count = self._raw.readinto(buffer)
        if self.bytes_left is not None and count is not None:
            self.bytes_left -= count
            if self.bytes_left < 0:
                raise http.client.HTTPException("the head of the answer does not end")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
