"""How many bytes wait for the clients of all rooms together, and who is closed when they are too many.

Only clients that did not take at once what was written to them are known here: for most there is nothing to count.
"""

from typing import Protocol


class Reader(Protocol):
    def give_up(self) -> None:
        """Close it, soon; what waits for it is not counted any more."""


class Unsent:
    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._by_reader: dict[Reader, int] = {}

    def count(self, reader: Reader, unsent_bytes: int) -> None:
        """So many wait for this one now. Above the limit, those for whom most waits are given up."""
        self.bytes += unsent_bytes - self._by_reader.pop(reader, 0)
        if unsent_bytes:
            self._by_reader[reader] = unsent_bytes
        while self.bytes > self._bytes_max:
            slowest = max(self._by_reader, key=self._by_reader.__getitem__)
            self.bytes -= self._by_reader.pop(slowest)
            slowest.give_up()
