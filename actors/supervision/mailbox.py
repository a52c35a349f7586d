"""A bounded mailbox: whoever has something for an actor offers it and never waits; the actor alone receives.

A full mailbox refuses. What a refusal means (drop, close the peer, answer E_RATE_LIMITED) is left to whoever offered.
"""

from collections import deque
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Mailbox(Generic[T]):
    """First in, first out, `items_max` at most, one consumer.

    After `close()` nothing more is taken in; what is already there is still received, then `receive` raises
    `trio.EndOfChannel`. A cancelled `receive` loses nothing.
    """

    def __init__(self, items_max: int) -> None:
        if items_max < 1:
            raise ValueError("a mailbox holds at least one item")
        self._items_max = items_max
        self._items: deque[T] = deque()
        self._lot = trio.lowlevel.ParkingLot()
        self._receiving = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        return self._closed

    def offer(self, item: T) -> bool:
        """Take the item in, or say False: the mailbox is full, or closed (an expected race with the actor's end)."""
        if self._closed or len(self._items) >= self._items_max:
            return False
        self._items.append(item)
        self._lot.unpark()
        return True

    async def receive(self) -> T:
        if self._receiving:
            raise trio.BusyResourceError("a mailbox has one consumer")
        self._receiving = True
        try:
            if self._items or self._closed:
                # Before the item is taken, so that a cancellation here leaves it in the mailbox.
                await trio.lowlevel.checkpoint()
            else:
                await self._lot.park()
        finally:
            self._receiving = False
        if self._items:
            return self._items.popleft()
        raise trio.EndOfChannel

    def drain(self) -> list[T]:
        """Take out everything that waits: for a consumer that works in batches, or an owner that settles the rest."""
        if self._receiving:
            # The parked consumer may already have been woken for the item that would vanish under it.
            raise trio.BusyResourceError("a mailbox has one consumer")
        items = list(self._items)
        self._items.clear()
        return items

    def close(self) -> None:
        self._closed = True
        self._lot.unpark()
