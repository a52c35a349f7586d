"""Which bytes of a file a `Range` asks for (RFC 9110 §14). Pure. One range at a time: of several, the whole file."""

import re
from dataclasses import dataclass

_RANGE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII | re.IGNORECASE)
_DIGITS_MAX = 19  # read of a number; one that has more lies beyond every file, and so do these of it


@dataclass(frozen=True, slots=True)
class ByteRange:
    start: int
    length: int

    def content_range(self, size: int) -> bytes:
        """The header that says so, of a file of this size."""
        return b"bytes %d-%d/%d" % (self.start, self.start + self.length - 1, size)


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """Nothing of the file lies in the range."""


def byte_range(header: str | None, size: int) -> ByteRange | Unsatisfiable | None:
    """None, the whole file, also for several ranges and what is none."""
    found = None if header is None else _RANGE.fullmatch(header.strip())
    first, last = (None, None) if found is None else map(_number, found.groups())
    if first is None:
        if last is None:
            return None
        length = min(last, size)
        return ByteRange(size - length, length) if length else Unsatisfiable()
    if last is not None and last < first:
        return None  # malformed
    end = size - 1 if last is None else min(last, size - 1)
    return ByteRange(first, end - first + 1) if first < size else Unsatisfiable()


def _number(digits: str) -> int | None:
    return int(digits.lstrip("0")[:_DIGITS_MAX] or "0") if digits else None
