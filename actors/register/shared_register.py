"""The register where several processes share a log: what one of them records is decided on what all have recorded.

The stream of all members has an event for each change here: the member as it is from then on. It is appended at the
version that this process knows, so whoever was slower reads on and decides again, on what is true now. Hence a name is
nobody else's, whichever processes are asked for it at once. The others read on when they are told (`actors.engine`).
"""

from collections.abc import Callable

import msgspec
import trio

from actors.bus.directory import OwnersDirectory
from actors.log.store import Appended, Conflict, Loaded, LogStore, OpenItem, Part, UnreadableError
from actors.register.events import Event
from actors.register.register import STREAM, Register
from actors.register.register_rules import Decide, Refusal, Trouble


class _Change(msgspec.Struct, frozen=True):
    node_id: str
    member: msgspec.Raw


_decoder = msgspec.json.Decoder(_Change)


class SharedRegister(Register):
    def __init__(
        self, store: LogStore, directory: OwnersDirectory, tries_max: int, grew: Callable[[str], None] = lambda _: None
    ) -> None:
        """`grew` tells the others that this stream has. Of more than `tries_max` tries the last one is refused."""
        super().__init__(store, directory)
        self._tries_max = tries_max
        self._grew = grew
        self._version = 0

    async def record(self, decide: Decide, at_ms: int) -> tuple[Event, ...] | Refusal:
        async with self._turn:
            for _ in range(self._tries_max):
                decided = self._decided(decide)
                if isinstance(decided, Refusal) or not decided:
                    return decided
                with trio.CancelScope(shield=True):  # else the next one would decide on what is no longer true
                    answer = await self._write(decided, at_ms)
                if isinstance(answer, Appended):
                    self._version = answer.version
                    self._grew(STREAM)
                    return decided
                if not isinstance(answer, Conflict):
                    break
                try:
                    await self._read_on()
                except UnreadableError:
                    break
        return Refusal(Trouble.NOT_WRITTEN)

    async def read_on(self) -> None:
        """Learn what others have recorded. Raises `UnreadableError`."""
        async with self._turn:
            await self._read_on()

    async def _read_on(self) -> None:
        while True:
            events = await self._store.read(STREAM, self._version)
            if not events:
                return
            if events[0].version != self._version + 1:  # what lies between was cut
                self._take(await self._store.load(STREAM))
                return
            for recorded in events:
                try:
                    change = _decoder.decode(recorded.data)
                except msgspec.MsgspecError:  # damaged, or of a newer version: nobody knows whose
                    raise UnreadableError("change") from None
                self._learn(change.node_id, bytes(change.member))
                self._version = recorded.version

    def _take(self, loaded: Loaded) -> None:
        super()._take(loaded)
        self._version = loaded.version

    def _learn(self, node_id: str, data: bytes) -> None:
        before = self.roll.find(node_id)
        super()._learn(node_id, data)
        now = self.roll.find(node_id)
        if now is not None and now != before:
            self.on_others(before, now)

    def _of_all(self, opened: tuple[OpenItem, ...], at_ms: int) -> Part:
        changes = tuple(msgspec.json.encode(_Change(item.key, msgspec.Raw(item.data))) for item in opened)
        return Part(STREAM, self._version, at_ms, changes, opened=opened)
