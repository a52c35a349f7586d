"""Which spaces have their index in memory, within a number of spaces and one of entries: the least recently used go.

What an index is, and whether it may be let go of, is the store's business.
"""

from collections import OrderedDict

from actors.space.settings import SpaceSettings
from actors.space.store import SpaceStore

TRIES_MAX = 16  # indexes that one use tries to let go of; the next use goes on


class OpenIndexes:
    def __init__(self, store: SpaceStore, settings: SpaceSettings) -> None:
        self._store = store
        self._settings = settings
        self._entries_of: OrderedDict[str, int] = OrderedDict()  # when they were last used, the latest last
        self._entries = 0

    def use(self, space_id: str) -> None:
        """Of one that is open. It stays so at least until somebody uses another."""
        usage = self._store.usage(space_id)
        self.forget(space_id)
        self._entries_of[space_id] = usage.keys + usage.files
        self._entries += usage.keys + usage.files
        for _ in range(min(TRIES_MAX, len(self._entries_of) - 1)):
            if not self._is_over:
                break
            oldest = next(iter(self._entries_of))
            self._entries_of.move_to_end(oldest)  # something may be under way there; then its turn comes again
            if oldest != space_id and self._store.release(oldest):
                self.forget(oldest)

    def forget(self, space_id: str) -> None:
        """It is not open any more, or over."""
        self._entries -= self._entries_of.pop(space_id, 0)

    @property
    def _is_over(self) -> bool:
        settings = self._settings
        return len(self._entries_of) > settings.open_spaces_max or self._entries > settings.open_entries_max
