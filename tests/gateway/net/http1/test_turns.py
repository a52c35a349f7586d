"""Turns: an address with many busy connections gets few of them in a pass of the event loop, and nobody else waits."""

from collections import Counter

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gateway.net.addresses import Addresses
from gateway.net.http1.app_call import AsgiScope, Receive, Send
from gateway.net.http1.settings import DoorSettings
from gateway.net.http1.turns import ALONE_TIMES, Turns
from tests.gateway.net.http1.site import HOST, answer, site

CONNECTIONS, TURNS = 40, 2
PASSES = 10


def addresses(**open_: int) -> Addresses:
    made = Addresses((), 1000)
    for address, count in open_.items():
        assert all(made.enter(address) for _ in range(count))
    return made


@pytest.mark.parametrize(
    ("open_", "must_wait"),
    [
        ({"crowd": TURNS, "other": 1}, False),
        ({"crowd": TURNS + 1, "other": 1}, True),
        ({"crowd": ALONE_TIMES * TURNS}, False),
        ({"crowd": ALONE_TIMES * TURNS + 1}, True),
    ],
)
def test_address_takes_turns_when_it_has_more_connections_than_turns(open_: dict[str, int], must_wait: bool) -> None:
    assert Turns(addresses(**open_), TURNS).must_wait("crowd") is must_wait


def test_addresses_of_one_ipv6_network_take_turns_together() -> None:
    turns = Turns(addresses(**{f"2001:db8::{n}": 1 for n in range(1, TURNS + 2)}, other=1), TURNS)
    assert turns.must_wait("2001:db8::1")
    assert turns.of("2001:db8::1") == turns.of("2001:db8::2")
    assert not turns.must_wait("2001:db8:0:1::1")


class Passes(trio.abc.Instrument):
    """Counts the passes of the event loop: the order of tasks within one is chance."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        del timeout
        self.count += 1


async def test_those_who_wait_go_on_a_few_in_each_pass(nursery: trio.Nursery) -> None:
    turns = Turns(addresses(crowd=7, other=1), 3)
    nursery.start_soon(turns.run)
    passes = Passes()
    trio.lowlevel.add_instrument(passes)
    went: list[int] = []

    async def take() -> None:
        await turns.of("crowd").wait_if_crowding()
        went.append(passes.count)

    async with trio.open_nursery() as crowd:
        for _ in range(7):
            crowd.start_soon(take)
    trio.lowlevel.remove_instrument(passes)
    assert sorted(Counter(went).values()) == [1, 3, 3]


async def test_one_that_is_cancelled_while_it_waits_costs_nobody_a_turn(nursery: trio.Nursery) -> None:
    turns = Turns(addresses(crowd=9, other=1), 1)
    nursery.start_soon(turns.run)
    with trio.move_on_after(0):
        await turns.wait("crowd")
    with trio.fail_after(5):
        await turns.wait("crowd")
    await wait_all_tasks_blocked()  # no usher spins on


async def test_pipelined_flood_gets_its_turns_and_no_more_while_another_is_served() -> None:
    flooded = 0
    during = -1

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        nonlocal flooded, during
        if scope["client"][0] == "127.0.0.2":
            flooded += 1
        else:
            before = flooded
            for _ in range(PASSES):
                await trio.lowlevel.checkpoint()
            during = flooded - before
        await answer(send)

    async def flood(port: int) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port, local_address="127.0.0.2") as stream:

            async def ask() -> None:
                while True:
                    await stream.send_all(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")

            async with trio.open_nursery() as both:
                both.start_soon(ask)
                while await stream.receive_some():
                    pass

    settings = DoorSettings(turns_per_address_max=TURNS)
    async with site(app, settings) as here, trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS):
            nursery.start_soon(flood, here.port)
        while flooded < 10 * CONNECTIONS:  # all of them are at it
            await trio.lowlevel.checkpoint()
        async with here.client() as other:
            assert (await other.ask(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")).status == 200
        nursery.cancel_scope.cancel()
    assert 0 < during <= TURNS * (PASSES + 1)
