"""Whose request it is: the peer's, or whoever a trusted proxy vouches for; and how much each of them has open. Pure."""

import ipaddress
from collections import Counter
from collections.abc import Iterable

from gateway.net.http1.settings import Network


class Addresses:
    """Counts by address, so that one cannot take the place of all others."""

    def __init__(self, trusted_proxies: tuple[Network, ...], per_address_max: int) -> None:
        self._trusted_proxies = trusted_proxies
        self._per_address_max = per_address_max
        self._open: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Addresses that have something open."""
        return len(self._open)

    def open_of(self, address: str) -> int:
        return self._open[address]

    def enter(self, address: str) -> bool:
        """Count one more, unless this address has its share already."""
        if self._open[address] >= self._per_address_max:
            return False
        self._open[address] += 1
        return True

    def leave(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

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
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        return any(parsed in network for network in self._trusted_proxies)
