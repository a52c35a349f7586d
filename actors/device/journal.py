"""What a node must remember over a crash (device wire §7.3): the port, its records, and what they add up to.

A journal belongs to one command log and holds ids, ok, code and begun: never arguments or results. `append` returns
when the records are durable; they are durable together or not at all. Which records are written when is for
`execution_rules`; where they are kept for `file_journal` and `memory_journal`.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from schemas.errors import Code


class JournalFailedError(Exception):
    """The disk failed, and what it holds is unknown. Nothing may begin any more: the agent stops."""


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """The first record of a journal; `last_cmd` is set when an older form of the same journal was compacted."""

    log_id: str
    journal_id: str
    last_cmd: str | None = None


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    msg_id: str


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    msg_id: str
    ok: bool
    code: Code | None = None
    begun: bool = True


class Confirmed(msgspec.Struct, frozen=True, tag="confirmed"):
    """The gateway knows how everything up to this id ended."""

    through: str


class Forgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """More had ended than one `resume` may carry: these are reported no more, though nobody has confirmed them."""

    msg_ids: tuple[str, ...]


Record = Begun | Ended | Confirmed | Forgotten
AnyRecord = Opened | Record


class JournalState:
    """The fold over a journal's records. Without an `Opened` there is no journal yet: `log_id` is None."""

    def __init__(self, records: Iterable[AnyRecord] = ()) -> None:
        self.log_id: str | None = None
        self.journal_id: str | None = None
        self.last_cmd: str | None = None
        self.unfinished: dict[str, Begun] = {}  # after a restart: begun by a process that is gone
        self.ended: dict[str, Ended] = {}
        for record in records:
            self.apply(record)

    def apply(self, record: AnyRecord) -> None:
        match record:
            case Opened():
                self.log_id, self.journal_id, self.last_cmd = record.log_id, record.journal_id, record.last_cmd
                self.unfinished, self.ended = {}, {}
            case Begun():
                self.last_cmd = max(self.last_cmd or "", record.msg_id)
                self.unfinished[record.msg_id] = record
            case Ended():
                self.unfinished.pop(record.msg_id, None)
                self.ended[record.msg_id] = record
            case Confirmed():
                for kept in (self.unfinished, self.ended):
                    for msg_id in [msg_id for msg_id in kept if msg_id <= record.through]:
                        del kept[msg_id]
            case Forgotten():
                for msg_id in record.msg_ids:
                    self.unfinished.pop(msg_id, None)
                    self.ended.pop(msg_id, None)

    def snapshot(self) -> list[AnyRecord]:
        """The fewest records that add up to this state."""
        if self.log_id is None or self.journal_id is None:
            return []
        opened = Opened(self.log_id, self.journal_id, self.last_cmd)
        return [opened, *self.ended.values(), *self.unfinished.values()]


class Journal(Protocol):
    """One process's access to a node's journal. Calls do not overlap."""

    @property
    def state(self) -> JournalState:
        """What is durable. Read it when a process starts; it also moves with every call below."""

    async def append(self, records: Sequence[Record]) -> None:
        """Make the records durable. Raises JournalFailedError."""

    async def start(self, log_id: str, journal_id: str) -> None:
        """Replace the journal by a new, empty one. Raises JournalFailedError."""
