"""Names to living actors: how a caller finds the node, stream or ledger it wants, without waiting.

The supervisor alone adds an entry (when the actor starts) and removes it (when its task has ended); actors only look
up. Ending the actor that a newer one has replaced is left to whoever started the newer one.
"""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")


class Entry(msgspec.Struct, Generic[K, A], frozen=True, eq=False):
    """One actor under one name, as given to the supervisor. Compared by identity: two are never the same."""

    registry: "Registry[K, A]"
    key: K
    actor: A


class Registry(Generic[K, A]):
    """The newest actor of each name. When it ends, the name is free, even if one that it replaced still winds down."""

    def __init__(self) -> None:
        self._entries: dict[K, Entry[K, A]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[A]:
        """The actors as of now: a snapshot, because a loop over them may well end or start some."""
        return iter([entry.actor for entry in self._entries.values()])

    def items(self) -> list[tuple[K, A]]:
        """The same with their names."""
        return [(key, entry.actor) for key, entry in self._entries.items()]

    def find(self, key: K) -> A | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.actor

    def entry(self, key: K, actor: A) -> Entry[K, A]:
        """Name an actor for `ChildSpec.entry`. Nothing is listed until the supervisor has started it."""
        return Entry(self, key, actor)

    def add(self, entry: Entry[K, A]) -> None:
        """For the supervisor: list the entry, in place of an older one of the same name."""
        self._entries[entry.key] = entry

    def remove(self, entry: Entry[K, A]) -> None:
        """For the supervisor: the entry's task has ended. Does nothing when a newer one holds the name."""
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
