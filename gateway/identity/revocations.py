"""Tokens that are refused from now on: in this gateway's folder, or in all gateways of a fleet.

A revocation counts where it was asked for, whatever becomes of it. That it is durable, and so counts everywhere and
after a restart, is what `revoke` answers. Where several gateways share a fleet, one that is told of it ends what the
token opened there too, within a moment; one that is told of nothing stops serving (`Facts.standing`), which bounds how
long a revoked token may live.

A key ends an hour after the token, where it is known when that is: by then no clock takes it for good. Whoever has only
an id cannot know; such a key stays.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from actors.engine.facts import Facts
from actors.engine.kv import Entry, Gone
from gateway.identity.tokens import Verifier
from gateway.main.data_folder import DataFolder

REVOKED = "revoked."
REST_S = 3600.0  # that a key outlives its token by


class Revocations(Protocol):
    NOT_DURABLE: str
    """What an operator is told where it is not."""
    REMEDY: str

    async def revoke(self, token_id: str) -> bool:
        """Whether it is durable. It counts here at once."""


class FolderRevocations:
    """Of a gateway that is alone."""

    NOT_DURABLE = (
        "The token is refused from now on, but that could not be written: it holds until the gateway restarts."
    )
    REMEDY = "Make room in the data folder, then revoke it again."

    def __init__(self, folder: DataFolder, end_opened: Callable[[str], None] = lambda _: None) -> None:
        self.end_opened = end_opened
        """Ends what a token opened."""
        self._folder = folder

    async def revoke(self, token_id: str) -> bool:
        try:
            self._folder.revoke(token_id)
        except OSError:
            return False
        finally:
            self.end_opened(token_id)
        return True


class SharedRevocations:
    NOT_DURABLE = "The token is refused by this gateway from now on; whether the others know of it, nobody could say."
    REMEDY = "See that NATS can be reached and has room, then revoke it again."

    def __init__(self, facts: Facts, verifier: Verifier, wall_ms: Callable[[], int]) -> None:
        self.end_opened: Callable[[str], None] = lambda _token_id: None
        """Ends what a token opened here."""
        self._kv = facts.kv
        self._verifier = verifier
        self._wall_ms = wall_ms
        self._told: set[str] = set()  # ids that all processes know of
        facts.follow(REVOKED, self._heard)

    async def revoke(self, token_id: str) -> bool:
        now_ms, ends_at_ms = self._wall_ms(), self._verifier.ends_at_ms(token_id)
        self._revoked(token_id)
        ttl_s = None if ends_at_ms is None else max(0.0, (ends_at_ms - now_ms) / 1000) + REST_S
        data = msgspec.json.encode({"at_ms": now_ms})
        return isinstance(await self._kv.put(REVOKED + token_id, data, ttl_s=ttl_s), int)

    async def carry_over(self, token_ids: Iterable[str]) -> bool:
        """At start, with those of a folder: so that what one gateway has revoked when it was alone counts in all.
        Whether all of them are there."""
        for token_id in token_ids:
            if token_id not in self._told and not await self.revoke(token_id):
                return False
        return True

    def ended(self, token_id: str) -> None:
        """Another process has ended this by some other way: what it opened here ends too."""
        self.end_opened(token_id)

    def _heard(self, change: Entry | Gone) -> None:
        """What has ended stays refused here: its token is over by itself."""
        if isinstance(change, Entry):
            token_id = change.key.removeprefix(REVOKED)
            self._told.add(token_id)
            self._revoked(token_id)

    def _revoked(self, token_id: str) -> None:
        if not self._verifier.is_revoked(token_id):
            self._verifier.revoke(token_id)
            self.end_opened(token_id)
