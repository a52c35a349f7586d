"""Which handshake is broken off when there are too many."""

import trio
import trio.testing
from trio.testing import MockClock

from gateway.net.http1.handshakes import Handshakes


async def test_the_oldest_of_the_address_that_has_most_gives_way(autojump_clock: MockClock) -> None:
    handshakes = Handshakes(4)
    over: list[tuple[str, int, float]] = []

    async def shake(address: str, number: int) -> None:
        with handshakes.one(address, 10):
            await trio.sleep_forever()
        over.append((address, number, trio.current_time() - began_s))

    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for at, (address, number) in enumerate([("one", 0), ("other", 0), ("one", 1), ("one", 2)]):
            nursery.start_soon(shake, address, number)
            await trio.sleep(1)
            assert len(handshakes) == at + 1
        for number in range(3):
            nursery.start_soon(shake, "new", number)
            await trio.sleep(1)
            assert len(handshakes) == 4
    assert over == [
        ("one", 0, 4),  # it has three
        ("one", 1, 5),  # it has two
        ("new", 0, 6),  # as many as "new" has, and it came first among those
        ("other", 0, 11),  # the only one of its address, and so its time was all its own
        ("one", 2, 13),
        ("new", 1, 15),
        ("new", 2, 16),
    ]
    assert len(handshakes) == 0


async def test_a_handshake_that_is_over_gives_its_place_back_however_it_ended(autojump_clock: MockClock) -> None:
    handshakes = Handshakes(1)
    for ends_by_cancel in (True, False, True):
        with trio.CancelScope() as scope, handshakes.one("one", 10):
            assert len(handshakes) == 1
            if ends_by_cancel:
                scope.cancel()
                await trio.sleep_forever()
        assert len(handshakes) == 0


async def test_network_of_ipv6_is_one_address_whatever_its_hosts(autojump_clock: MockClock) -> None:
    handshakes = Handshakes(5)
    over: list[str] = []

    async def shake(address: str) -> None:
        with handshakes.one(address, 10):
            await trio.sleep_forever()
        over.append(address)

    async with trio.open_nursery() as nursery:
        addresses = ["192.0.2.1", "192.0.2.1", "2001:db8::1", "2001:db8::2", "2001:db8::3", "198.51.100.1"]
        for address in addresses:
            nursery.start_soon(shake, address)
            await trio.sleep(1)
        assert over == ["2001:db8::1"]
        nursery.cancel_scope.cancel()
