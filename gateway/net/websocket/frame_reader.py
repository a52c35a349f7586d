"""WebSocket frames out of a client's bytes: whole frames of its usual kind here, everything else by websockets.

Nearly all that a client sends are short, unfragmented frames of one kind (text, or binary where protobuf is spoken),
several of which may come with one read. Taking those apart here costs a fraction of what a general parser in Python
does (docs/adr/0010). Whatever is not plainly such a frame, or a ping or pong, goes to the library; after anything that
could leave it in the middle of something (a fragment, a frame of the other kind, an oversized one, a close, a wrong
bit) all further bytes do. Pongs and closes are the library's.
"""

from websockets.frames import Frame
from websockets.server import ServerProtocol
from websockets.speedups import apply_mask

_TEXT, _BINARY, _PING, _PONG = 0x81, 0x82, 0x89, 0x8A
_MASKED = 0x80
_TWO_BYTE_LENGTH, _EIGHT_BYTE_LENGTH = 126, 127  # the latter is for the library: no frame of ours is that long


class FrameReader:
    """`protocol` must be open, with nothing of a frame received yet."""

    __slots__ = ("_is_for_library", "_pending", "_protocol", "_usual", "asked_library")

    def __init__(self, protocol: ServerProtocol, *, is_text: bool = True) -> None:
        self._protocol = protocol
        self._usual = _TEXT if is_text else _BINARY
        self._pending = b""
        self._is_for_library = False
        self.asked_library = False
        """In the last `read`. If not, there is no news of `protocol`: no close, and nothing wrong."""

    def read(self, data: bytes) -> list[bytes | Frame]:
        """What these bytes complete, in order: usual frames as their payload, everything else as the library's."""
        self.asked_library = False
        if self._is_for_library:
            return self._by_library(data)
        messages: list[bytes | Frame] = []
        if self._pending:
            data = self._pending + data
        usual, position, end_of_data = self._usual, 0, len(data)
        while end_of_data - position >= 2:
            head, length = data[position], data[position + 1] - _MASKED
            if (head != usual and head not in (_PING, _PONG)) or not 0 <= length < _EIGHT_BYTE_LENGTH:
                self._is_for_library = True
                self._pending = b""
                messages += self._by_library(data[position:])
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

    def _by_library(self, data: bytes) -> list[bytes | Frame]:
        self.asked_library = True
        self._protocol.receive_data(data)
        return [event for event in self._protocol.events_received() if isinstance(event, Frame)]
