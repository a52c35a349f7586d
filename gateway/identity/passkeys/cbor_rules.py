"""Where an item of CBOR ends, if it is of the form that authenticators write (CTAP2). Pure, and reads no values.

Asked before any decoder is: numbers, bytes, text, arrays, maps, false, true and null, each with the shortest head; no
tags, no floats, no indefinite lengths; few items, hardly nested. So a decoder never meets what makes it allocate,
recurse or build objects, and what it has decoded has, encoded again, the same length.
"""

DEPTH_MAX = 4  # of arrays and maps, as CTAP2 has it
ITEMS_MAX = 256  # a key has 10, an attestation object fewer than 40
_NUMBER, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_FALSE, _TRUE, _NULL = 20, 21, 22
_HEADS = {24: 1, 25: 2, 26: 4, 27: 8}  # how many bytes follow; below 24 none


def item_end(data: bytes, start: int = 0) -> int | None:
    """None: it is not of this form, or not all there."""
    at = start
    open_: list[tuple[bool, int]] = [(False, 1)]  # for each level: whether it is a map, and how many items it lacks
    for _ in range(ITEMS_MAX):
        head = _read_head(data, at)
        if head is None:
            return None
        major, value, at = head
        is_map, left = open_[-1]
        if is_map and left % 2 == 0 and major not in (_NUMBER, _NEGATIVE, _TEXT):
            return None  # keys are numbers or names: `true` is 1 to Python
        open_[-1] = (is_map, left - 1)
        if major in (_BYTES, _TEXT):
            at += value
            if at > len(data):
                return None
        elif major in (_ARRAY, _MAP):
            if len(open_) > DEPTH_MAX:
                return None
            open_.append((major == _MAP, value * 2 if major == _MAP else value))
        elif major == _TAG or (major == _SIMPLE and value not in (_FALSE, _TRUE, _NULL)):
            return None
        while open_ and open_[-1][1] == 0:
            open_.pop()
        if not open_:
            return at
    return None


def is_item(data: bytes) -> bool:
    """It is one item, and nothing follows."""
    return item_end(data) == len(data)


def _read_head(data: bytes, at: int) -> tuple[int, int, int] | None:
    """Kind, value, and where the head ends."""
    if at >= len(data):
        return None
    major, value = data[at] >> 5, data[at] & 0x1F
    at += 1
    if value < 24:
        return major, value, at
    size = _HEADS.get(value)
    if size is None or major == _SIMPLE or at + size > len(data):
        return None
    value = int.from_bytes(data[at : at + size], "big")
    shortest = 24 if size == 1 else 1 << 4 * size  # what fits into half as many bytes is written with them
    return (major, value, at + size) if value >= shortest else None
