"""Whole WebSocket frames of a server: unmasked and in one piece (RFC 6455 §5.2), so that one may go to many peers."""

from collections.abc import Iterator

PING_OPCODE = 9

PING = b"\x89\x00"  # without a payload: whoever answers it is heard, and that is all it is for


def text_frame(data: bytes) -> bytes:
    return _frame(0x81, data)


def binary_frame(data: bytes) -> bytes:
    return _frame(0x82, data)


def pong_frame(data: bytes) -> bytes:
    """With what the ping had."""
    return _frame(0x8A, data)


def _frame(head: int, data: bytes) -> bytes:
    length = len(data)
    if length < 126:
        return b"%c%c%b" % (head, length, data)
    if length < 1 << 16:
        return b"%c\x7e%b%b" % (head, length.to_bytes(2), data)
    return b"%c\x7f%b%b" % (head, length.to_bytes(8), data)


def split_frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Opcode and payload of each of these whole frames of ours."""
    at = 0
    while at < len(data):
        opcode, length = data[at] & 0x0F, data[at + 1]
        start = at + 2
        if length == 126:
            start, length = at + 4, int.from_bytes(data[at + 2 : at + 4])
        elif length == 127:
            start, length = at + 10, int.from_bytes(data[at + 2 : at + 10])
        at = start + length
        yield opcode, data[start:at]
