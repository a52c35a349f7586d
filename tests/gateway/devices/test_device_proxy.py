"""Nodes that dial in through a reverse proxy: whose connection counts for whom, and whose word about it counts."""

from contextlib import AsyncExitStack, suppress
from ipaddress import ip_network

import pytest
import trio

from gateway.devices.listener import ListenerSettings
from tests.gateway.devices.site import Site, dial, open_site
from tests.gateway.devices.test_device_listener import until, upgrade

PROXIES = (ip_network("127.0.0.0/8"), ip_network("10.0.0.0/8"))
ONE_EACH = ListenerSettings(strangers_per_address_max=1, turned_away_max=1)


def forwarded(*values: str) -> bytes:
    """An upgrade request with these as its X-Forwarded-For headers."""
    lines = "".join(f"X-Forwarded-For: {value}\r\n" for value in values)
    return upgrade().replace(b"\r\n\r\n", b"\r\n" + lines.encode("latin-1") + b"\r\n")


class Proxy:
    """Connections that stay open, each with one request on it."""

    def __init__(self, site: Site, stack: AsyncExitStack) -> None:
        self._site = site
        self._stack = stack

    async def ask(self, request: bytes) -> int | None:
        """The status of the answer; None when there is none."""
        stream = await trio.open_tcp_stream("127.0.0.1", self._site.port)
        await self._stack.enter_async_context(stream)
        await stream.send_all(request)
        with suppress(trio.BrokenResourceError):
            if head := await stream.receive_some():
                return int(head.split()[1])
        return None


async def test_nodes_behind_a_trusted_proxy_are_counted_one_by_one() -> None:
    async with open_site(ONE_EACH, trusted_proxies=PROXIES) as site:
        async with AsyncExitStack() as stack:
            proxy = Proxy(site, stack)
            assert await proxy.ask(forwarded("192.0.2.1")) == 101
            assert await proxy.ask(forwarded("192.0.2.2")) == 101
            assert await proxy.ask(forwarded("192.0.2.1")) == 503
            assert await proxy.ask(forwarded("192.0.2.1")) is None  # over the limit of those who are told
            assert await proxy.ask(forwarded("192.0.2.3")) == 101
        await until(lambda: site.listener.strangers == 0)
        assert site.listener._addresses.count == 0  # noqa: SLF001


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["192.0.2.1"], ["6.6.6.6, 192.0.2.1"]),
        (["6.6.6.6", "192.0.2.1"], ["7.7.7.7", "192.0.2.1, 10.0.0.7"]),
        (["10.0.0.9, 192.0.2.1"], ["192.0.2.1"]),
        (["2001:db8::1"], ["2001:db8::2"]),
        (["::ffff:192.0.2.1"], ["192.0.2.1"]),
        ([], []),
        ([], [""]),
        (["unknown"], ["192.0.2.1, unknown"]),
        (["192.0.2.1:443"], ["\xff"]),
    ],
)
async def test_nobody_is_counted_as_somebody_else(first: list[str], second: list[str]) -> None:
    """By what the client wrote before the proxy did, by another address of its network, or by no address at all."""
    async with open_site(ONE_EACH, trusted_proxies=PROXIES) as site, AsyncExitStack() as stack:
        proxy = Proxy(site, stack)
        assert await proxy.ask(forwarded(*first)) == 101
        assert await proxy.ask(forwarded(*second)) == 503
        assert await proxy.ask(forwarded("198.51.100.9")) == 101


async def test_forwarded_address_of_a_peer_that_is_no_proxy_is_not_believed() -> None:
    proxies = (ip_network("10.0.0.0/8"),)
    async with open_site(ONE_EACH, trusted_proxies=proxies) as site, AsyncExitStack() as stack:
        proxy = Proxy(site, stack)
        assert await proxy.ask(forwarded("192.0.2.1")) == 101
        assert await proxy.ask(forwarded("192.0.2.2")) == 503


async def test_silent_connections_of_a_proxy_lock_no_node_out_and_are_bounded_in_all() -> None:
    settings = ListenerSettings(strangers_per_address_max=1, strangers_max=5, turned_away_max=0)
    async with open_site(settings, trusted_proxies=PROXIES) as site, AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", site.port))
        await until(lambda: site.listener.strangers == 4)
        async with dial(site) as node:
            await node.go_live(site)
            proxy = Proxy(site, stack)
            assert await proxy.ask(forwarded("192.0.2.1")) == 101
            assert await proxy.ask(forwarded("192.0.2.2")) is None
            assert site.listener.strangers == 5
