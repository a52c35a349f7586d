"""Values that were read or written lately, of all spaces, within a number of bytes. What is true is in the database.

Each counts with an overhead, so that many empty ones are bounded too.
"""

from collections import OrderedDict

from actors.space.store import VALUE_OVERHEAD_BYTES, Entry


class ValueCache:
    """The least recently used goes first. An entry larger than the whole is not kept."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: OrderedDict[tuple[str, str], Entry] = OrderedDict()

    def get(self, space_id: str, key: str) -> Entry | None:
        entry = self._entries.get((space_id, key))
        if entry is not None:
            self._entries.move_to_end((space_id, key))
        return entry

    def put(self, space_id: str, entry: Entry) -> None:
        self.drop(space_id, entry.key)
        self._entries[space_id, entry.key] = entry
        self._bytes += _size(entry)
        while self._bytes > self._bytes_max:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= _size(oldest)

    def drop(self, space_id: str, key: str) -> None:
        entry = self._entries.pop((space_id, key), None)
        if entry is not None:
            self._bytes -= _size(entry)


def _size(entry: Entry) -> int:
    return len(entry.value) + VALUE_OVERHEAD_BYTES
