"""What waits to be written to one client of a room, and how much of it there is.

The bytes of a frame are shared by everybody who gets it; only their order is kept here. Waiting until the socket takes
more, and what follows when too much waits, is the socket's and the room's.
"""

import socket
from collections.abc import Callable
from itertools import islice

BUFFERS_MAX = 64
"""Given to the kernel at once. What is left takes another call."""


class Outgoing:
    __slots__ = ("_chunks", "_is_behind", "_opening_bytes", "_sent_of_first", "add")

    def __init__(self, opening: bytes) -> None:
        """With what comes before everything else, the answer to the upgrade."""
        self._chunks = [opening]
        self._opening_bytes = len(opening)
        self._sent_of_first = 0
        self._is_behind = False  # the socket did not take everything at once
        self.add: Callable[[bytes], None] = self._chunks.append
        """A frame to be written: called for each delivery, so there is nothing in between."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add_to_opening(self, frames: bytes) -> None:
        """As the first frames at all, before anything is written. They never count."""
        assert len(self._chunks) == 1
        self._chunks[0] += frames
        self._opening_bytes += len(frames)

    def exceeds(self, frames_max: int, bytes_max: int) -> bool:
        """Whether so many frames or bytes wait, apart from the opening."""
        frames = len(self._chunks) - (1 if self._opening_bytes else 0)
        return frames >= frames_max or self._bytes - self._opening_bytes >= bytes_max

    @property
    def _bytes(self) -> int:
        return sum(map(len, self._chunks)) - self._sent_of_first

    def write(self, sock: socket.socket) -> bool:
        """As much as the socket takes; whether that was all. Raises OSError when it is broken."""
        chunks = self._chunks
        try:
            if chunks and not self._is_behind:
                data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
                sent = sock.send(data)
                if sent == len(data):  # as nearly always
                    chunks.clear()
                    self._opening_bytes = 0
                    return True
                self._is_behind = True
                self._written(sent)
            while chunks:
                # What waits may be much: it is not joined again and again for a socket that takes little of it.
                first = memoryview(chunks[0])[self._sent_of_first :]
                self._written(sock.sendmsg([first, *islice(chunks, 1, BUFFERS_MAX)]))
        except BlockingIOError:
            self._is_behind = True
            return False
        self._is_behind = False
        return True

    def _written(self, sent: int) -> None:
        self._opening_bytes = max(0, self._opening_bytes - sent)
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

    def clear(self) -> None:
        self._chunks.clear()
        self._opening_bytes = self._sent_of_first = 0
