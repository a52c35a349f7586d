"""One of several processes does what nobody else does: it settles what was left by those that are gone.

Who that is, a key says that ends unless it is put again. It decides nothing that matters: whoever sweeps or compacts
writes compare-and-set, so two janitors for a moment are harmless, and none for a while means that things wait.
"""

from collections.abc import Awaitable, Callable

import trio

from actors.engine.kv import Entry, Kv
from actors.engine.settings import PresenceSettings
from actors.log.store import UnreadableError

KEY = "janitor"
_SAYS_SO = 3  # times in `janitor_s`


class Janitor:
    def __init__(
        self, kv: Kv, process: str, settings: PresenceSettings, settle_lost: Callable[[], Awaitable[None]]
    ) -> None:
        """`settle_lost` is called again and again by the one that it is."""
        self._kv, self._process, self._settings, self._settle_lost = kv, process, settings, settle_lost
        self._until_s = 0.0

    def is_here(self) -> bool:
        """Whether it is this process, as far as it knows."""
        return trio.current_time() < self._until_s

    async def run(self) -> None:
        while True:
            await self._try()
            if self.is_here():
                await self._settle_lost()
            await trio.sleep(self._settings.janitor_s / _SAYS_SO)

    async def _try(self) -> None:
        began_s = trio.current_time()
        try:
            found = await self._kv.get(KEY)
        except UnreadableError:
            return
        if found is not None and not self._is_mine(found):
            self._until_s = 0.0
            return
        expected = 0 if found is None else found.revision
        put = await self._kv.put(KEY, self._process.encode(), expected=expected, ttl_s=self._settings.janitor_s)
        self._until_s = began_s + self._settings.janitor_s if isinstance(put, int) else 0.0

    def _is_mine(self, found: Entry) -> bool:
        return found.data == self._process.encode()
