"""Whose connection or request it is, and how many each has open: for every listener, so that limits mean one thing.

The client is the peer, or whoever a trusted proxy vouches for. What is counted is its network (`network_of`); what is
logged or passed on is the address itself. Pure.
"""

import functools
import ipaddress
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

IPV6_PREFIX_BITS = 64
"""The least that a provider gives to one customer: one machine has 2^64 addresses to come from."""
NETWORKS_REMEMBERED = 4096


@functools.lru_cache(NETWORKS_REMEMBERED)
def network_of(address: str) -> str:
    """What an address counts as: an IPv4 address itself, also as IPv6, else its /64. What is no address, as it is."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        host_bits = parsed.max_prefixlen - IPV6_PREFIX_BITS
        return f"{ipaddress.IPv6Address(int(parsed) >> host_bits << host_bits)}/{IPV6_PREFIX_BITS}"
    return address if parsed is None else str(parsed)


class Addresses:
    """Counts by network, so that one client cannot take the place of all others."""

    def __init__(self, trusted_proxies: tuple[Network, ...], per_address_max: int) -> None:
        self._trusted_proxies = trusted_proxies
        self._per_address_max = per_address_max
        self._open: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Networks that have something open."""
        return len(self._open)

    def open_of(self, address: str) -> int:
        return self._open[network_of(address)]

    def enter(self, address: str) -> bool:
        """Count one more, unless this address has its share already."""
        network = network_of(address)
        if self._open[network] >= self._per_address_max:
            return False
        self._open[network] += 1
        return True

    def leave(self, address: str) -> None:
        network = network_of(address)
        self._open[network] -= 1
        if not self._open[network]:
            del self._open[network]

    def is_proxy(self, address: str) -> bool:
        return bool(self._trusted_proxies) and self._is_trusted(address)

    def vouched_for(self, proxy: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The last address of X-Forwarded-For that is no proxy of ours: whatever stands before it, anyone may write."""
        claimed = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
        vouched = proxy
        for address in reversed([part.strip() for part in claimed.split(",")]):
            try:
                vouched = str(ipaddress.ip_address(address))
            except ValueError:
                break  # not an address: the proxy that wrote it is the last one known
            if not self._is_trusted(vouched):
                break
        return vouched

    def _is_trusted(self, address: str) -> bool:
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._trusted_proxies)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """IPv4 that came as IPv6, as on a socket for both, is IPv4."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped
    return parsed
