"""The journal's port in memory, for simulations and tests: no thread, nothing random, and a disk that can be harmed.

`JournalDisk` is what survives a process; `MemoryJournal` is one process's access to it. A checkpoint lies before each
write and another between the write and its answer, so that a simulation can let anything happen in between. Hooks:

  - `journal.crash()`: this process is gone; what it had not written never will be;
  - `disk.lose()`: the device comes back with an empty disk;
  - `disk.roll_back(writes)`: it comes back with an old copy;
  - `disk.fails`: the next write raises JournalFailedError;
  - `before_write`, `before_answer`: what happens instead of the two checkpoints (a sleep on a mock clock, say).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import trio

from actors.device.journal import AnyRecord, JournalFailedError, JournalState, Opened, Record


@dataclass(slots=True)
class JournalDisk:
    writes: list[tuple[AnyRecord, ...]] = field(default_factory=list)
    fails: bool = False

    def lose(self) -> None:
        self.writes.clear()

    def roll_back(self, writes: int) -> None:
        """Undo the last writes, the one that began the journal too if they reach that far."""
        del self.writes[max(0, len(self.writes) - writes) :]


class MemoryJournal:
    def __init__(
        self,
        disk: JournalDisk,
        *,
        before_write: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
        before_answer: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        self._disk = disk
        self._before_write = before_write
        self._before_answer = before_answer
        self._crashed = False
        self.state = JournalState(record for write in disk.writes for record in write)

    def crash(self) -> None:
        self._crashed = True

    async def append(self, records: Sequence[Record]) -> None:
        await self._write(tuple(records))

    async def start(self, log_id: str, journal_id: str) -> None:
        await self._write((Opened(log_id, journal_id),))

    async def _write(self, records: tuple[AnyRecord, ...]) -> None:
        await self._before_write()
        if self._crashed:
            await trio.sleep_forever()  # nobody is there to hear an answer; whoever waits is about to be cancelled
        if self._disk.fails:
            raise JournalFailedError("the disk failed")
        self._disk.writes.append(records)
        for record in records:
            self.state.apply(record)
        await self._before_answer()
