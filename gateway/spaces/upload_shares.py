"""How many uploads an address and a space may have under way, so that neither takes the places of all others. Pure.

How many there may be in all is the store's bound (`SpaceStoreLimits.uploads_max`).
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.spaces.settings import EchoSettings

SHARE_AGAIN_MS = 1_000  # until another attempt makes sense of who has too many uploads under way


class UploadShares:
    def __init__(self, settings: EchoSettings) -> None:
        self._settings = settings
        self._of_addresses: Counter[str] = Counter()
        self._of_spaces: Counter[str] = Counter()

    @contextmanager
    def take(self, address: str, space_id: str) -> Iterator[bool]:
        """A place for as long as the block lasts; False where the address or the space has its share already."""
        is_free = (
            self._of_addresses[address] < self._settings.uploads_per_address_max
            and self._of_spaces[space_id] < self._settings.uploads_per_space_max
        )
        self._of_addresses[address] += is_free
        self._of_spaces[space_id] += is_free
        try:
            yield is_free
        finally:
            for counts, who in ((self._of_addresses, address), (self._of_spaces, space_id)):
                counts[who] -= is_free
                if not counts[who]:
                    del counts[who]
