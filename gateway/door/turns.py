"""Whose turn it is: of one address's connections only a few go on in each pass of the event loop, if there are others.

trio lets every task that can run do so once a pass. An address that keeps hundreds of connections busy would make each
pass long, and somebody else's call, which takes dozens of them, miss its deadline. What is done in a turn, and who is
counted, is the business of others.
"""

from dataclasses import dataclass

import trio

from gateway.door.addresses import Addresses

ALONE_TIMES = 4
"""An address that is alone has so many times as many connections before they take turns."""


class Turns:
    def __init__(self, addresses: Addresses, per_address_max: int) -> None:
        self._addresses = addresses
        self._per_address_max = per_address_max
        self._waiting: dict[str, trio.lowlevel.ParkingLot] = {}
        self._idle = trio.lowlevel.ParkingLot()

    def of(self, address: str) -> "Share":
        return Share(self, address)

    def must_wait(self, address: str) -> bool:
        """Taking turns costs a request a sixth more: an address that is alone does it for whoever comes next only."""
        connections = self._addresses.open_of(address)
        free = self._per_address_max * (ALONE_TIMES if self._addresses.count == 1 else 1)
        return connections > free

    async def wait(self, address: str) -> None:
        """Until it is the caller's turn; those of one address take theirs in the order they came."""
        lot = self._waiting.setdefault(address, trio.lowlevel.ParkingLot())
        self._idle.unpark()
        await lot.park()

    async def run(self) -> None:
        """Give turns, once a pass."""
        while True:
            while not self._waiting:
                await self._idle.park()
            await trio.lowlevel.checkpoint()
            for address, lot in list(self._waiting.items()):
                lot.unpark(count=self._per_address_max)
                if not lot:
                    del self._waiting[address]


@dataclass(frozen=True, slots=True)
class Share:
    """One address's part in the turns."""

    turns: Turns
    address: str

    async def let_others(self) -> None:
        """Give way, for as long as is fair."""
        if self.turns.must_wait(self.address):
            await self.turns.wait(self.address)
        else:
            await trio.lowlevel.checkpoint()

    async def wait_if_crowding(self) -> None:
        """Give way, if this address takes too much; no checkpoint otherwise."""
        if self.turns.must_wait(self.address):
            await self.turns.wait(self.address)
