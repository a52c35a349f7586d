"""The connections of many streams at once: one `map` over their descriptors, and Python runs for none of them.

Two thirds of what a frame cost a stream beside its system call was the interpreter's way there.
"""

import fcntl
import os
import sys
import termios
from collections.abc import Sequence
from itertools import islice, repeat

_NONE = bytes(4)  # of the kernel's int


class SocketLines:
    """Implements `actors.stream.slice.Lines`."""

    def write(self, descriptors: Sequence[int], event: bytes) -> list[tuple[int, int | None]]:
        size = len(event)
        written: list[int] = []
        short: list[tuple[int, int | None]] = []
        while len(written) < len(descriptors):
            try:
                written.extend(map(os.write, islice(descriptors, len(written), None), repeat(event)))
            except OSError as error:  # of the first that has no place in `written` yet
                short.append((len(written), 0 if isinstance(error, BlockingIOError) else None))
                written.append(size)
        if written.count(size) != len(written):
            short += [(place, sent) for place, sent in enumerate(written) if sent != size]
        return short

    def outstanding(self, descriptors: Sequence[int]) -> list[tuple[int, int]]:
        counts = list(map(fcntl.ioctl, descriptors, repeat(termios.TIOCOUTQ), repeat(_NONE)))
        if counts.count(_NONE) == len(counts):
            return []
        return [(place, int.from_bytes(count, sys.byteorder)) for place, count in enumerate(counts) if count != _NONE]
