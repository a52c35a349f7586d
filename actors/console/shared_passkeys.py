"""Passkeys of operators where several processes share a log: written at the version that this process knows, and read
on when others have written."""

from collections.abc import Callable

import msgspec
import trio

from actors.console.operator_passkeys import STREAM, OperatorPasskeys
from actors.console.passkey_events import Passkeys, decode
from actors.console.passkey_rules import Decision, Trouble
from actors.log.store import Appended, Conflict, LogStore, UnreadableError


class SharedPasskeys(OperatorPasskeys):
    def __init__(
        self,
        store: LogStore,
        passkeys_max: int,
        wall_ms: Callable[[], int],
        tries_max: int,
        grew: Callable[[str], None] = lambda _: None,
    ) -> None:
        """As `OperatorPasskeys`. `grew` tells the others. Of more than `tries_max` tries the last one is refused."""
        super().__init__(store, passkeys_max, wall_ms)
        self.on_removed: Callable[[str], None] = lambda _passkey_id: None
        """Told of each passkey that another process has removed."""
        self._tries_max = tries_max
        self._grew = grew

    async def read_on(self) -> None:
        """Learn what others have written. Raises `UnreadableError`."""
        async with self._turn:
            await self._read_on()

    async def _read_on(self) -> None:
        before: Passkeys = self._passkeys
        recorded = await self._store.read(STREAM, self._version)
        if recorded and recorded[0].version != self._version + 1:  # what lies between was cut
            await self.load()
        elif recorded:
            try:
                self._apply([decode(one.data) for one in recorded], recorded[-1].version)
            except msgspec.MsgspecError:  # of a newer version
                raise UnreadableError("event") from None
        for passkey_id in before.keys() - self._passkeys.keys():
            self.on_removed(passkey_id)

    async def _record(self, decide: Callable[[int], Decision]) -> Trouble | None:
        async with self._turn:
            for _ in range(self._tries_max):
                decided = decide(self._wall_ms())
                if isinstance(decided, Trouble):
                    return decided
                if not self._is_readable:
                    break
                with trio.CancelScope(shield=True):  # else the next one would decide on what is no longer true
                    answer = await self._append(decided)
                if isinstance(answer, Appended):
                    self._grew(STREAM)
                    return None
                if not isinstance(answer, Conflict):
                    break
                try:
                    await self._read_on()
                except UnreadableError:
                    break
        return Trouble.NOT_WRITTEN

    @property
    def _expected(self) -> int | None:
        return self._version
