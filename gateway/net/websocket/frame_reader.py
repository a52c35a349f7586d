"""WebSocket frames out of a client's bytes: whole frames of its usual kind here, everything else by websockets.

Nearly all that a client sends are short, unfragmented frames of one kind (text, or binary where protobuf is spoken),
several of which may come with one read. Taking those apart here costs a fraction of what a general parser in Python
does (docs/adr/0010). Whatever is not plainly such a frame, or a ping or pong, goes to the library; after anything that
could leave it in the middle of something (a fragment, a frame of the other kind, an oversized one, a close, a wrong
bit) all further bytes do, one frame at a time. Pongs and closes are the library's.

A read may hold a frame for every six of its bytes. Who has a limit says how many to look at; the rest waits here.
"""

import sys

from websockets.frames import Frame
from websockets.server import ServerProtocol
from websockets.speedups import apply_mask

_TEXT, _BINARY, _PING, _PONG = 0x81, 0x82, 0x89, 0x8A
_MASKED = 0x80
_TWO_BYTE_LENGTH, _EIGHT_BYTE_LENGTH = 126, 127  # the latter is for the library: no frame of ours is that long
_HEAD_BYTES_MAX = 10  # but for the mask


class FrameReader:
    """`protocol` must be open, with nothing of a frame received yet."""

    __slots__ = (
        "_head",
        "_is_for_library",
        "_left_of_frame",
        "_pending",
        "_protocol",
        "_usual",
        "asked_library",
        "has_more",
    )

    def __init__(self, protocol: ServerProtocol, *, is_text: bool = True) -> None:
        self._protocol = protocol
        self._usual = _TEXT if is_text else _BINARY
        self._pending = b""
        self._is_for_library = False
        self._head = b""  # what the library has of a head whose end has not come
        self._left_of_frame = 0  # of one that the library has begun
        self.asked_library = False
        """In the last `read`. If not, there is no news of `protocol`: no close, and nothing wrong."""
        self.has_more = False
        """The last `read` came to its `frames_max` before the end of the bytes."""

    def read(self, data: bytes, frames_max: int = sys.maxsize) -> list[bytes | Frame]:
        """What these bytes complete, in order: usual frames as their payload, everything else as the library's.

        After `frames_max` of them the rest of the bytes is left for the next call, which may bring no new ones.
        """
        self.asked_library = self.has_more = False
        if self._pending:
            data = self._pending + data
        messages: list[bytes | Frame] = []
        if self._is_for_library:
            self._read_by_library(data, messages, frames_max)
            return messages
        usual, position, end_of_data = self._usual, 0, len(data)
        while end_of_data - position >= 2:
            if len(messages) >= frames_max:
                self.has_more = True
                break
            head, length = data[position], data[position + 1] - _MASKED
            if (head != usual and head not in (_PING, _PONG)) or not 0 <= length < _EIGHT_BYTE_LENGTH:
                self._is_for_library = True
                self._read_by_library(data[position:], messages, frames_max)
                return messages
            start = position + 6
            if length == _TWO_BYTE_LENGTH:
                start += 2
                length = int.from_bytes(data[position + 2 : position + 4])
            end = start + length
            if end > end_of_data:
                break
            if head == usual:
                messages.append(apply_mask(data[start:end], data[start - 4 : start]))
            else:
                messages += self._by_library(data[position:end])
            position = end
        self._pending = data[position:]
        return messages

    def keep(self, data: bytes) -> None:
        """For the next `read`."""
        self._pending += data
        self.has_more = True

    def _read_by_library(self, data: bytes, messages: list[bytes | Frame], frames_max: int) -> None:
        protocol, position, end_of_data = self._protocol, 0, len(data)
        while position < end_of_data:
            if len(messages) >= frames_max:
                self.has_more = True
                break
            end = self._end_of_frame(data, position)
            messages += self._by_library(data[position:end])
            position = end
            if protocol.parser_exc is not None or protocol.close_rcvd is not None:
                position = end_of_data  # nothing after it means anything
        self._pending = data[position:]

    def _end_of_frame(self, data: bytes, position: int) -> int:
        """Where the frame ends that begins or goes on there; or the data, if they end before it does."""
        if not self._left_of_frame:
            head = self._head + data[position : position + _HEAD_BYTES_MAX]
            frame_bytes = _frame_bytes(head)
            if frame_bytes is None:
                self._head = head
                return len(data)
            self._left_of_frame = frame_bytes - len(self._head)
            self._head = b""
        end = min(position + self._left_of_frame, len(data))
        self._left_of_frame -= end - position
        return end

    def _by_library(self, data: bytes) -> list[bytes | Frame]:
        self.asked_library = True
        self._protocol.receive_data(data)
        return [event for event in self._protocol.events_received() if isinstance(event, Frame)]


def _frame_bytes(head: bytes) -> int | None:
    """How long a frame is that begins so, masked as it has to be; None: its length has not come."""
    if len(head) < 2:
        return None
    length, start = head[1] & ~_MASKED, 2
    if length >= _TWO_BYTE_LENGTH:
        start += 2 if length == _TWO_BYTE_LENGTH else 8
        if len(head) < start:
            return None
        length = int.from_bytes(head[2:start])
    return start + 4 + length
