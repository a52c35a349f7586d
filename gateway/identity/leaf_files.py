"""Nodes' certificates on the disk and in memory: kept before they count, gone when they are over.

Files are written in a thread, a few at a time, so that neither the event loop nor a stop waits for a long list. One
that cannot be removed is removed at the next start: whoever says that a certificate is over says it then too.
"""

from collections.abc import Sequence
from contextlib import suppress

import trio

from gateway.main.data_folder import DataFolder
from schemas.certificates import Leaf

BATCH = 32  # files that are written before anybody may stop it


class LeafFiles:
    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder

    async def keep(self, leafs: Sequence[Leaf]) -> None:
        """On the disk, for certain. Raises OSError; whoever is cancelled, or fails, drops them."""
        for first in range(0, len(leafs), BATCH):
            await trio.to_thread.run_sync(self._folder.keep, leafs[first : first + BATCH])

    def learn(self, leafs: Sequence[Leaf]) -> None:
        """From now on they count."""
        for leaf in leafs:
            self._folder.certificates.learn(leaf)

    async def find(self, kid: str) -> Leaf | None:
        """All of them are known."""
        await trio.lowlevel.checkpoint()
        return self._folder.certificates.resolve(kid)

    async def drop(self, leafs: Sequence[Leaf]) -> None:
        """They count no more, and their files go. Not cancelled: half of it would be left."""
        for leaf in leafs:
            self._folder.certificates.forget(leaf)
        with trio.CancelScope(shield=True):
            for first in range(0, len(leafs), BATCH):
                await trio.to_thread.run_sync(self._remove, leafs[first : first + BATCH])

    def _remove(self, leafs: Sequence[Leaf]) -> None:
        for leaf in leafs:
            with suppress(OSError):
                self._folder.drop(leaf)
