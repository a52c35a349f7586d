"""How push services are reached: names become addresses, an address a connection. Nothing else goes out from here.

What may be connected to is decided before, with the very addresses that are connected to then: a name is never looked
up a second time in between. Proxies of the environment are not used, as they would look up the name themselves.
"""

import socket
import ssl
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import trio

from gateway.main.settings import SettingsError

PORT = 443
LOOKUPS_MAX = 8  # at a time; the next one waits. One that is given up holds its place until the system gives up too
ADDRESSES_MAX = 4  # of one name that are tried, one after the other
ADDRESS_S_MAX = 2.0  # for one of them to be connected to; then the next one is tried


class Network(Protocol):
    async def addresses(self, name: str) -> Sequence[str]:
        """All that the name has now. Raises OSError."""

    async def connect(self, address: str) -> trio.abc.Stream:
        """To that very address, port 443. Raises OSError."""


class Internet:
    def __init__(self) -> None:
        self._lookups = trio.CapacityLimiter(LOOKUPS_MAX)

    async def addresses(self, name: str) -> Sequence[str]:
        look_up = partial(socket.getaddrinfo, name, PORT, type=socket.SOCK_STREAM)
        found = await trio.to_thread.run_sync(look_up, abandon_on_cancel=True, limiter=self._lookups)
        return list(dict.fromkeys(str(where[0]) for *_, where in found))

    async def connect(self, address: str) -> trio.abc.Stream:
        return await trio.open_tcp_stream(address, PORT)


def tls_contexts(ca_certificates: str | None) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For hosts of vendors, and for those that the operator added. Raises SettingsError."""
    vendors, operators = ssl.create_default_context(), ssl.create_default_context()
    if ca_certificates is not None:
        try:
            operators.load_verify_locations(ca_certificates)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                f"push.ca_certificates: {ca_certificates} is not a PEM file of certificates that can be read "
                f"({error.strerror})"
            ) from error
    for context in (vendors, operators):
        context.set_alpn_protocols(["http/1.1"])
    return vendors, operators
