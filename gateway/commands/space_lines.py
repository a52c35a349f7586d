"""Lines from standard input as they come, beside whatever else a command does."""

import os
from collections.abc import AsyncGenerator

import trio

LINE_BYTES_MAX = 256 * 1024  # a longer one is given in pieces; no room takes as much
_READ_BYTES = 16 * 1024


async def lines(descriptor: int) -> AsyncGenerator[bytes, None]:
    """Without their ends, until the input's. A thread that waits for a terminal could not be ended; this can be."""
    rest = bytearray()
    while True:
        try:
            await trio.lowlevel.wait_readable(descriptor)
        except PermissionError:  # a file, which is always readable
            await trio.lowlevel.checkpoint()
        piece = os.read(descriptor, _READ_BYTES)
        rest += piece
        *whole, last = rest.split(b"\n")
        for line in whole:
            yield bytes(line)
        rest = last
        if len(rest) > LINE_BYTES_MAX or (rest and not piece):
            yield bytes(rest)
            rest = bytearray()
        if not piece:
            return
