"""The push subscriptions of spaces, or of projects, in a `SpaceStore`: added, removed, and kept true to what sending
to them showed.

Changes of one owner's table are made one at a time, each on what is there then: an outcome of sending that comes late
neither brings back who has unsubscribed nor touches who has subscribed anew. Once begun a change is finished, whoever
still waits.
"""

from collections.abc import Callable, Mapping
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec
import trio

from actors.push.subscription_rules import Outcome, Subscriber, after, is_same, place_for
from actors.space.spaces import error_of
from actors.space.store import NOT_FOUND, Refused, SpaceStore, Subscription
from schemas.echo.errors import EchoError

ROW_BYTES = 1_024  # that a subscription takes besides its endpoint, about: where room of the disk is asked for


class Owners(Protocol):
    """Those whose tables these are."""

    store: SpaceStore
    gone: EchoError  # what there is to say of one that there is not

    async def opened(self, owner_id: str) -> bool:
        """Have its index in memory until the next wait; False: there is none, or nothing of it."""

    async def made(self, owner_id: str) -> EchoError | None:
        """As `opened`, for whoever writes: there is a place for the first one too."""

    def disk_fault(self, more_bytes: int = 0) -> EchoError | None:
        """Why as much as this may not be written at present."""

    def now_ms(self) -> int: ...


def nobody_is_over(_: Subscriber) -> bool:
    return False


class Subscriptions:
    def __init__(self, owners: Owners, count_max: int) -> None:
        self._owners = owners
        self._count_max = count_max
        self._turns: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    async def add(
        self,
        owner_id: str,
        new: Subscriber,
        is_over: Callable[[Subscriber], bool] = nobody_is_over,
        still_good: Callable[[], EchoError | None] = lambda: None,
    ) -> bool | EchoError:
        """In the place of the one with its endpoint; whether there was none.

        `is_over` is asked of those that are there: whether they are sent to no more. `still_good` is asked last,
        just before writing.
        """
        async with self._turn(owner_id):
            with trio.CancelScope(shield=True):
                added = await self._add(owner_id, new, is_over, still_good)
        return added

    async def _add(
        self,
        owner_id: str,
        new: Subscriber,
        is_over: Callable[[Subscriber], bool],
        still_good: Callable[[], EchoError | None],
    ) -> bool | EchoError:
        there = await self.all(owner_id)
        place = place_for(new.endpoint, there, self._count_max, is_over)
        if isinstance(place, EchoError):
            return place
        fault = self._owners.disk_fault(ROW_BYTES + len(new.endpoint)) or still_good()
        fault = fault or await self._owners.made(owner_id)
        if fault is not None:
            return fault
        put = await self._owners.store.put_subscription(owner_id, new.endpoint, _lying(new))
        if isinstance(put, Refused):
            return self._fault(put)
        if place.gives_up is not None:  # afterwards: nobody goes for one that was not kept
            await self._remove(owner_id, place.gives_up)
        return put

    async def remove(self, owner_id: str, endpoint: str) -> bool | EchoError:
        """Whether it was there."""
        async with self._turn(owner_id):
            with trio.CancelScope(shield=True):
                removed = await self._remove(owner_id, endpoint)
        return removed

    async def _remove(self, owner_id: str, endpoint: str) -> bool | EchoError:
        if not await self._owners.opened(owner_id):
            return False
        removed = await self._owners.store.delete_subscription(owner_id, endpoint)
        return self._fault(removed) if isinstance(removed, Refused) else removed

    async def all(self, owner_id: str) -> list[Subscriber]:
        """In the order of their endpoints; none where there is no such owner."""
        if not await self._owners.opened(owner_id):
            return []
        kept = await self._owners.store.subscriptions(owner_id)
        return [_read(one) for one in kept]

    async def settle(self, owner_id: str, outcomes: Mapping[Subscriber, Outcome]) -> set[Subscriber]:
        """Keep what sending showed. Those that were to be removed and are still there: the disk refused.

        That something of the rest is not kept does no harm: it is found again the next time.
        """
        unremoved: set[Subscriber] = set()
        async with self._turn(owner_id):
            with trio.CancelScope(shield=True):
                there = {one.endpoint: one for one in await self.all(owner_id)}
                now_ms = self._owners.now_ms()

                async def settle_one(one: Subscriber, outcome: Outcome) -> None:
                    now = there.get(one.endpoint)
                    if now is None or not is_same(now, one):
                        return
                    kept = after(now, outcome, now_ms)
                    if kept is None:
                        if isinstance(await self._remove(owner_id, now.endpoint), EchoError):
                            unremoved.add(one)
                    elif kept != now and await self._owners.opened(owner_id):
                        await self._owners.store.put_subscription(owner_id, now.endpoint, _lying(kept))

                async with trio.open_nursery() as nursery:  # together, so that they are committed together
                    for one, outcome in outcomes.items():
                        nursery.start_soon(settle_one, one, outcome)
        return unremoved

    def _fault(self, refused: Refused) -> EchoError:
        return self._owners.gone if refused == NOT_FOUND else error_of(refused)

    def _turn(self, owner_id: str) -> trio.Lock:
        """Kept for as long as somebody has it or waits for it."""
        return self._turns.setdefault(owner_id, trio.Lock())


def _lying(one: Subscriber) -> bytes:
    """As the store keeps it, beside its endpoint, which may be long."""
    return msgspec.msgpack.encode(msgspec.structs.replace(one, endpoint=""))


def _read(kept: Subscription) -> Subscriber:
    return msgspec.structs.replace(msgspec.msgpack.decode(kept.data, type=Subscriber), endpoint=kept.endpoint)
