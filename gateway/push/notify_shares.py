"""How many notifications may be under way, of one space or project and in all. Pure.

Each is up to `sends_max` connections for up to `notify_s_max`, so these bounds are what the whole of push can cost.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.net.echo_answers import Refusal
from gateway.push.settings import PushSettings
from schemas.echo.errors import EchoError

AGAIN_MS = 1_000  # until another attempt makes sense, of an owner that has its share under way


class NotifyShares:
    """One for the process."""

    def __init__(self, settings: PushSettings) -> None:
        self._settings = settings
        self._of_owners: Counter[str] = Counter()

    @contextmanager
    def take(self, owner_id: str) -> Iterator[Refusal | None]:
        """A place for as long as the block lasts; or why there is none."""
        refusal = None
        if self._of_owners[owner_id] >= self._settings.notifies_per_owner_max:
            refusal = Refusal(EchoError.RATE_LIMITED, AGAIN_MS)
        elif self._of_owners.total() >= self._settings.notifies_max:
            refusal = Refusal(EchoError.OVERLOADED)
        self._of_owners[owner_id] += refusal is None
        try:
            yield refusal
        finally:
            self._of_owners[owner_id] -= refusal is None
            if not self._of_owners[owner_id]:
                del self._of_owners[owner_id]
