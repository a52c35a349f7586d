"""What waits to be written to one client of a room, and how much of it there is.

The bytes of a frame are shared by everybody who gets it; only their order is kept here. Waiting until the socket takes
more, and what follows when too much waits, is the socket's and the room's.
"""

from collections.abc import Sequence
from itertools import islice

from gateway.net.tls_socket import AnySocket, TlsSocket

BUFFERS_MAX = 64
"""Given to the kernel at once. What is left takes another call."""


class Outgoing:
    __slots__ = ("_is_behind", "_opening_frames", "_sent_of_first", "_waiting")

    def __init__(self, opening: bytes) -> None:
        """With what comes before everything else, the answer to the upgrade."""
        # Nearly always nothing waits but one frame, which is written as soon as it is there: a list only for more.
        self._waiting: bytes | list[bytes] | None = opening or None
        self._opening_frames = 1 if opening else 0  # that are left of it
        self._sent_of_first = 0
        self._is_behind = False  # the socket did not take everything at once; then there is a list

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, frame: bytes) -> None:
        waiting = self._waiting
        if waiting is None:
            self._waiting = frame
        elif isinstance(waiting, list):
            waiting.append(frame)
        else:
            self._waiting = [waiting, frame]

    def add_to_opening(self, frames: Sequence[bytes]) -> None:
        """As the first frames at all, if not the first bytes. They never count toward what `exceeds`."""
        self._waiting = [*self._chunks(), *frames]
        self._opening_frames += len(frames)

    @property
    def has_opening(self) -> bool:
        """Whether some of it is left."""
        return self._opening_frames > 0

    @property
    def unsent_bytes(self) -> int:
        """All that waits, with the opening."""
        return sum(map(len, self._chunks())) - self._sent_of_first

    def exceeds(self, frames_max: int, bytes_max: int) -> bool:
        """Whether so many frames or bytes wait, apart from the opening."""
        chunks, opening = self._chunks(), self._opening_frames
        size = sum(map(len, islice(chunks, opening, None))) - (0 if opening else self._sent_of_first)
        return len(chunks) - opening >= frames_max or size >= bytes_max

    def write(self, sock: AnySocket) -> bool:
        """As much as the socket takes; whether that was all. Raises OSError when it is broken."""
        waiting = self._waiting
        if waiting is None:
            return True
        try:
            if not self._is_behind:
                data = b"".join(waiting) if isinstance(waiting, list) else waiting
                sent = sock.send(data)
                if sent == len(data):
                    self._waiting = None
                    self._opening_frames = 0
                    return True
                self._written(sent)
            while self._waiting:
                # What waits may be much: it is not joined again and again for a socket that takes little of it.
                chunks = self._chunks()
                first = memoryview(chunks[0])[self._sent_of_first :]
                self._written(sock.sendmsg([first, *islice(chunks, 1, BUFFERS_MAX)]))
        except BlockingIOError:
            self._is_behind = True
            return False
        self._is_behind = False
        return True

    def _chunks(self) -> list[bytes]:
        if not isinstance(self._waiting, list):
            self._waiting = [] if self._waiting is None else [self._waiting]
        return self._waiting

    def _written(self, sent: int) -> None:
        chunks = self._chunks()
        sent += self._sent_of_first
        whole = 0
        for chunk in chunks:
            if sent < len(chunk):
                break
            sent -= len(chunk)
            whole += 1
        del chunks[:whole]
        self._opening_frames = max(0, self._opening_frames - whole)
        self._sent_of_first = sent
        if not chunks:
            self._waiting = None

    def forget_frames(self, sock: AnySocket) -> None:
        """Nothing more of them, but for the rest of what has begun: a client must not take half a frame for one."""
        # The opening begins with what is no frame. And of what a TLS socket owes, the first byte was sealed.
        has_begun = self._opening_frames or self._sent_of_first or (isinstance(sock, TlsSocket) and sock.owes)
        begun = 1 if has_begun else 0
        del self._chunks()[begun:]
        self._opening_frames = min(self._opening_frames, begun)

    def clear(self) -> None:
        self._waiting = None
        self._opening_frames = self._sent_of_first = 0
