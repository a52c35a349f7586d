"""Whose turn it is: of one address's connections only a few go on in each pass of the event loop, if there are others.

trio lets every task that can run do so once a pass. An address that keeps hundreds of connections busy would make each
pass long, and somebody else's call, which takes dozens of them, miss its deadline. What is done in a turn, and who is
counted, is the business of others.
"""

from dataclasses import dataclass
from itertools import islice

import trio

from gateway.net.addresses import Addresses, network_of

ALONE_TIMES = 16
"""An address that is alone has so many times as many connections before they take turns: whoever comes next waits for
one pass of them, which is half a call's work for each."""


class Turns:
    def __init__(self, addresses: Addresses, per_address_max: int) -> None:
        self._addresses = addresses
        self._per_address_max = per_address_max
        self._lines: dict[str, dict[trio.lowlevel.Task, None]] = {}  # by address, in the order they came
        self._idle = trio.lowlevel.ParkingLot()

    def of(self, address: str) -> "Share":
        return Share(self, network_of(address))

    def must_wait(self, address: str) -> bool:
        """Taking turns costs a request a tenth more: an address that is alone does it for whoever comes next only."""
        connections = self._addresses.open_of(address)
        free = self._per_address_max * (ALONE_TIMES if self._addresses.count == 1 else 1)
        return connections > free

    def line_up(self, address: str, task: trio.lowlevel.Task) -> None:
        """Let this task, which waits to be rescheduled, go on when it is its turn; one that is cancelled steps out."""
        if not self._lines:
            self._idle.unpark()
        self._lines.setdefault(address, {})[task] = None

    def step_out(self, address: str, task: trio.lowlevel.Task) -> None:
        self._lines.get(address, {}).pop(task, None)

    async def wait(self, address: str) -> None:
        """Until it is the caller's turn; those of one address take theirs in the order they came."""
        task = trio.lowlevel.current_task()

        def step_out(_: object) -> trio.lowlevel.Abort:
            self.step_out(address, task)
            return trio.lowlevel.Abort.SUCCEEDED

        self.line_up(address, task)
        await trio.lowlevel.wait_task_rescheduled(step_out)

    async def run(self) -> None:
        """Give turns, once a pass."""
        while True:
            while not self._lines:
                await self._idle.park()
            await trio.lowlevel.checkpoint()
            for address, line in list(self._lines.items()):
                for task in list(islice(line, self._per_address_max)):
                    del line[task]
                    trio.lowlevel.reschedule(task)
                if not line:
                    del self._lines[address]


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

    def reschedule(self, task: trio.lowlevel.Task) -> None:
        """Let a task that has something to do go on: at once, or when it is its turn if this address takes too much."""
        if self.turns.must_wait(self.address):
            self.turns.line_up(self.address, task)
        else:
            trio.lowlevel.reschedule(task)

    def step_out(self, task: trio.lowlevel.Task) -> None:
        """It was cancelled and takes no turn."""
        self.turns.step_out(self.address, task)
