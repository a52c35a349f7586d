"""A count of what is under way, and waiting until it is nothing: calls in flight, children of a stage.

Ending what is under way, and bounding the wait, are left to whoever waits.
"""

from types import TracebackType

import trio


class InFlight:
    """`with in_flight: ...` around each piece of work; synchronous, so that it costs a call path next to nothing."""

    def __init__(self) -> None:
        self._count = 0
        self._lot = trio.lowlevel.ParkingLot()

    @property
    def count(self) -> int:
        return self._count

    def enter(self) -> None:
        self._count += 1

    def leave(self) -> None:
        if self._count == 0:
            raise RuntimeError("left more often than entered")
        self._count -= 1
        if self._count == 0:
            self._lot.unpark_all()

    def __enter__(self) -> None:
        self.enter()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.leave()

    async def wait_idle(self) -> None:
        await trio.lowlevel.checkpoint()
        while self._count:
            await self._lot.park()
