"""The port to what gateways tell each other: keys with values, each at a revision, some with an end.

Everything here is about being fast, not about being safe: who owns a node or a ledger is decided by the log. Whoever
names a value's revision may overwrite it, and nobody else; a watcher hears of every key, sooner or later, and may miss
values in between.
"""

from collections.abc import Callable
from enum import Enum
from typing import Protocol, TypeAlias

import msgspec

KEY_PATTERN = r"[A-Za-z0-9=_/-]+(\.[A-Za-z0-9=_/-]+)*"
"""Of a key. Anything else has to be written in these letters first."""
TTL_S_MIN = 1.0
"""Of a value that ends. The engine counts in seconds; a shorter one is a ValueError."""


class Entry(msgspec.Struct, frozen=True):
    """What is there. Revisions of a key only grow, until a bucket in memory loses all its servers at once."""

    key: str
    data: bytes
    revision: int


class Gone(msgspec.Struct, frozen=True):
    """What was there is deleted, or has ended."""

    key: str
    revision: int


class Current(msgspec.Struct, frozen=True):
    """Everything that was there when the watcher began has been told; as often as it begins anew."""


Change: TypeAlias = Entry | Gone | Current


class NotPut(Enum):
    """Why nothing was changed, for certain but with UNREACHABLE."""

    MOVED = "moved"  # the key is at another revision
    FULL = "full"
    UNREACHABLE = "unreachable"  # nobody answers: it may have been changed, or may be yet


class Kv(Protocol):
    """A bucket. Keys that do not fit `KEY_PATTERN` are a ValueError."""

    async def get(self, key: str) -> Entry | None:
        """As the engine's leader has it. Raises `actors.log.store.UnreadableError` when nobody answers."""

    async def put(
        self, key: str, data: bytes, *, expected: int | None = None, ttl_s: float | None = None
    ) -> int | NotPut:
        """Returns the new revision. `expected` is the revision that is replaced: 0, none; None, any.

        A value with a `ttl_s` ends after it, unless it is put again. A cancelled caller only stops waiting.
        """

    async def delete(self, key: str, *, expected: int | None = None) -> NotPut | None:
        """None once it is gone. Of a key that is not there, too, if `expected` is None."""

    async def watch(self, heard: Callable[[Change], None]) -> None:
        """Tell of every key, then of every change; until cancelled, and across reconnects.

        `heard` is called between two steps of the event loop: it neither waits nor raises. It hears of the latest
        value of a key, and of each only once, unless it was changed; not of all values in between.
        """
