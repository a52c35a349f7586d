"""The wire: who gets what comes, that nothing is lost or read unasked, and that it leaves the pump in time."""

import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gateway.net.addresses import Addresses
from gateway.net.http1.settings import DoorSettings
from gateway.net.http1.turns import Share, Turns
from gateway.net.http1.wire import Wire
from gateway.net.pump import Pump

TEST_S_MAX = 20.0
SETTINGS = DoorSettings(read_bytes_max=8)


class Ends:
    """A wire on one end of a pair of sockets, and the peer's end."""

    def __init__(self, pump: Pump, share: Share | None) -> None:
        ours, self.peer = socket.socketpair()
        ours.setblocking(False)
        self.pump = pump
        self.wire = Wire(ours, SETTINGS, pump, share)
        self.outcomes: list[bytes | type[Exception]] = []

    async def read(self) -> None:
        try:
            self.outcomes.append(await self.wire.read())
        except Exception as exc:
            self.outcomes.append(type(exc))


@contextlib.asynccontextmanager
async def ends(share: Share | None = None) -> AsyncIterator[Ends]:
    pump = Pump()
    both = Ends(pump, share)
    with trio.fail_after(TEST_S_MAX):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump.run)
            yield both
            nursery.cancel_scope.cancel()
    both.wire.close()
    both.peer.close()
    assert pump.sockets == 0
    pump.close()


def crowded(turns: int) -> Turns:
    """An address that has one connection more than turns."""
    addresses = Addresses((), 10)
    assert addresses.enter("other")
    assert all(addresses.enter("crowd") for _ in range(turns + 1))
    return Turns(addresses, turns)


async def test_socket_stays_in_the_pump_between_reads() -> None:
    async with ends() as both:
        assert both.pump.sockets == 0
        for data in (b"one", b"two"):
            both.peer.send(data)
            assert await both.wire.read() == data
            assert both.pump.sockets == 1


async def test_what_is_too_much_for_one_read_is_left_for_the_next() -> None:
    async with ends() as both:
        both.peer.send(b"0123456789")
        assert await both.wire.read() == b"01234567"
        assert await both.wire.read() == b"89"


async def test_what_nobody_wants_stays_in_the_kernel_and_the_socket_leaves_the_pump() -> None:
    async with ends() as both:
        both.peer.send(b"wanted")
        assert await both.wire.read() == b"wanted"
        both.peer.send(b"early")
        await wait_all_tasks_blocked()
        assert both.pump.sockets == 0
        assert await both.wire.read() == b"early"
        assert both.pump.sockets == 1


async def test_reader_that_is_cancelled_takes_nothing_with_it() -> None:
    async with ends() as both:
        with trio.move_on_after(0):
            await both.wire.read()
        both.peer.send(b"next")
        assert await both.wire.read() == b"next"


async def test_reader_goes_on_when_it_is_its_turn() -> None:
    turns = crowded(1)
    async with ends(turns.of("crowd")) as both, trio.open_nursery() as nursery:
        nursery.start_soon(both.read)
        await wait_all_tasks_blocked()
        both.peer.send(b"data")
        await wait_all_tasks_blocked()
        both.wire.interrupt()  # it has something to do, and waits for nobody else
        await wait_all_tasks_blocked()
        assert both.outcomes == []
        nursery.start_soon(turns.run)
        await wait_all_tasks_blocked()
        assert both.outcomes == [b"data"]
        nursery.cancel_scope.cancel()


async def test_reader_that_is_cancelled_before_its_turn_leaves_what_came_for_it() -> None:
    turns = crowded(1)
    async with ends(turns.of("crowd")) as both:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(both.read)
            await wait_all_tasks_blocked()
            both.peer.send(b"kept")
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert both.outcomes == []
        assert await both.wire.read() == b"kept"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turns.run)  # nobody is in line any more
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


async def test_who_watches_gets_first_what_a_cancelled_reader_has_left() -> None:
    class Watcher:
        def __init__(self, wire: Wire) -> None:
            self.wire = wire
            self.got: list[bytes | None] = []

        def on_readable(self) -> None:
            self.got.append(self.wire.read_now())

        def crash(self, exc: Exception) -> None:
            raise exc

    async with ends(crowded(1).of("crowd")) as both:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(both.read)
            await wait_all_tasks_blocked()
            both.peer.send(b"first")
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        watcher = Watcher(both.wire)
        both.wire.watch(watcher)
        both.peer.send(b"second")
        await wait_all_tasks_blocked()
        assert watcher.got == [b"first", b"second"]


async def test_interrupted_reader_is_told_and_the_next_one_reads() -> None:
    async with ends() as both, trio.open_nursery() as nursery:
        both.wire.interrupt()
        nursery.start_soon(both.read)
        await wait_all_tasks_blocked()
        both.wire.interrupt()
        await wait_all_tasks_blocked()
        assert both.outcomes == [trio.ClosedResourceError]
        both.peer.send(b"next")
        assert await both.wire.read() == b"next"


async def test_end_of_file_leaves_the_pump_and_is_read_as_often_as_asked_for() -> None:
    async with ends() as both:
        both.peer.shutdown(socket.SHUT_WR)
        for _ in range(2):
            assert await both.wire.read() == b""
            assert both.pump.sockets == 0


async def test_bug_while_reading_is_the_readers() -> None:
    class Broken(Wire):
        def read_now(self) -> bytes | None:
            raise ZeroDivisionError

    async with ends() as both, trio.open_nursery() as nursery:
        both.wire = Broken(both.wire.detach(), SETTINGS, both.pump)
        nursery.start_soon(both.read)
        both.peer.send(b"x")
        await wait_all_tasks_blocked()
        assert both.outcomes == [ZeroDivisionError]
        assert both.pump.sockets == 0


async def test_reader_of_a_wire_that_another_task_closes_has_read_its_end() -> None:
    async with ends() as both, trio.open_nursery() as nursery:
        nursery.start_soon(both.read)
        await wait_all_tasks_blocked()
        both.wire.abort()
        await wait_all_tasks_blocked()
        assert both.outcomes == [b""]
        with pytest.raises(OSError, match="ended"):
            await both.wire.read()


async def test_socket_that_is_given_away_has_left_the_pump() -> None:
    async with ends() as both:
        both.peer.send(b"ours")
        assert await both.wire.read() == b"ours"
        with contextlib.closing(both.wire.detach()) as sock:
            assert both.pump.sockets == 0
            both.peer.send(b"theirs")
            await wait_all_tasks_blocked()
            assert sock.recv(16) == b"theirs"
