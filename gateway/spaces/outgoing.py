"""What waits to be written to one client of a room, and how much of it there is.

The bytes of a frame are shared by everybody who gets it; only their order is kept here. Waiting until the socket takes
more, and what follows when too much waits, is the socket's and the room's.
"""

import socket
from itertools import islice

BUFFERS_MAX = 64
"""Given to the kernel at once. What is left takes another call."""


class Outgoing:
    __slots__ = ("_bytes", "_chunks", "_opening_bytes", "_sent_of_first")

    def __init__(self, opening: bytes) -> None:
        """With what comes before everything else, the answer to the upgrade."""
        self._chunks = [opening]
        self._bytes = self._opening_bytes = len(opening)
        self._sent_of_first = 0

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, frames: bytes) -> None:
        self._chunks.append(frames)
        self._bytes += len(frames)

    def add_to_opening(self, frames: bytes) -> None:
        """As the first frames at all, before anything is written. They never count."""
        assert self._bytes == self._opening_bytes
        if self._chunks:
            self._chunks[0] += frames
        else:  # the answer to the upgrade has gone out already
            self._chunks.append(frames)
        self._opening_bytes += len(frames)
        self._bytes += len(frames)

    def exceeds(self, frames_max: int, bytes_max: int) -> bool:
        """Whether so many frames or bytes wait, apart from the opening."""
        frames = len(self._chunks) - (1 if self._opening_bytes else 0)
        return frames >= frames_max or self._bytes - self._opening_bytes >= bytes_max

    def write(self, sock: socket.socket) -> None:
        """As much as the socket takes. Raises OSError when it is broken."""
        chunks = self._chunks
        try:
            while chunks:
                if len(chunks) == 1 and not self._sent_of_first:
                    sent = sock.send(chunks[0])
                    if sent == self._bytes:  # as nearly always
                        chunks.clear()
                        self._bytes = self._opening_bytes = 0
                        return
                    self._written(sent)
                else:
                    first = memoryview(chunks[0])[self._sent_of_first :]
                    self._written(sock.sendmsg([first, *islice(chunks, 1, BUFFERS_MAX)]))
        except BlockingIOError:
            return

    def _written(self, sent: int) -> None:
        self._bytes -= sent
        self._opening_bytes = max(0, self._opening_bytes - sent)
        if not self._bytes:
            self._chunks.clear()
            self._sent_of_first = 0
            return
        sent += self._sent_of_first
        whole = 0
        for chunk in self._chunks:
            if sent < len(chunk):
                break
            sent -= len(chunk)
            whole += 1
        del self._chunks[:whole]
        self._sent_of_first = sent

    def forget_frames(self) -> None:
        """Nothing more of them, but for the rest of what has begun: a client must not take half a frame for one."""
        begun = self._opening_bytes or self._sent_of_first
        del self._chunks[1 if begun else 0 :]
        self._bytes = sum(map(len, self._chunks)) - self._sent_of_first

    def clear(self) -> None:
        self._chunks.clear()
        self._bytes = self._opening_bytes = self._sent_of_first = 0
