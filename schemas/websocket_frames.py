"""Whole WebSocket frames of a server: unmasked and in one piece (RFC 6455 §5.2), so that one may go to many peers."""

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
