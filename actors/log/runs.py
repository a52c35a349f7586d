"""A run: what one commit added to one stream, events one behind the other, and marks that tell them apart.

`marks` are numbers, `[at_ms, size, at_ms, size]`: when each event was recorded, and how many bytes it has. Where a run
lies, and what lies beside it, is each store's own business.
"""

from collections.abc import Iterator, Sequence

from actors.log.store import Recorded


def split(version: int, marks: Sequence[int], data: bytes) -> Iterator[Recorded]:
    """The events of a run, the first of which has this version. Raises ValueError if these are no marks."""
    begin = 0
    numbers = iter(marks)
    for at_ms, size in zip(numbers, numbers, strict=True):
        yield Recorded(version, at_ms, data[begin : begin + size])
        version += 1
        begin += size
