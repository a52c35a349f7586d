"""Ports that processes share, and one that nobody else may have."""

import errno

import pytest
import trio

from gateway.net.listening import open_listeners, shared_sockets


async def test_those_that_share_listen_on_one_port_and_each_connection_reaches_one_of_them() -> None:
    reserved = await shared_sockets("127.0.0.1", 0)
    port = reserved[0].getsockname()[1]
    one, two = [await open_listeners("127.0.0.1", port, 16, shares=True) for _ in range(2)]
    taken = {"one": 0, "two": 0}

    async def count(name: str, listener: trio.SocketListener) -> None:
        while True:
            await (await listener.accept()).aclose()
            taken[name] += 1

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count, "one", one[0])
            nursery.start_soon(count, "two", two[0])
            for _ in range(64):
                await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
            while sum(taken.values()) < 64:  # noqa: ASYNC110  # those that hold a port without listening get none
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
    assert min(taken.values()) > 0
    for listener in (*one, *two):
        await listener.aclose()
    reserved[0].close()


async def test_a_port_of_somebody_who_does_not_share_cannot_be_had() -> None:
    (alone,) = await open_listeners("127.0.0.1", 0, 16, shares=False)
    port = alone.socket.getsockname()[1]
    with pytest.raises(OSError, match="in use") as refused:
        await open_listeners("127.0.0.1", port, 16, shares=True)
    assert refused.value.errno == errno.EADDRINUSE
    await alone.aclose()
