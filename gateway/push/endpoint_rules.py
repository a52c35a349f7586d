"""Which endpoints are taken: how a push service's URL is read, and whether the operator trusts its host. Pure.

A URL is taken only in the spelling that browsers write and everybody reads alike: printable ASCII, `https`, a host of
letters, digits, hyphens and dots (or an address that the operator listed), port 443, a path. Nothing is normalized but
the case of the host, hence there is nothing to get wrong.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

ENDPOINT_CHARS_MAX = 2_048  # those of browsers have 200 to 600
VENDORS = (
    "fcm.googleapis.com",  # Chrome and most browsers that are made of it
    "*.push.services.mozilla.com",  # Firefox
    "*.push.apple.com",  # Safari
    "*.notify.windows.com",  # Edge
)
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_ENDPOINT = re.compile(
    r"https://(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::443)?(?P<target>/[A-Za-z0-9._~:/?@!$&'()*+,;=%-]*)"
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    """In lower case; an IPv6 address with its brackets."""
    target: str
    """Path and query, as they go into a request."""

    @property
    def origin(self) -> str:
        return f"https://{self.host}"

    @property
    def server_name(self) -> str:
        """As DNS and TLS have it."""
        return self.host.strip("[]")


class Trust(Enum):
    """By which entry of the list a host may be reached."""

    NONE = "none"
    VENDOR = "vendor"  # of a browser: on public addresses
    OPERATOR = "operator"  # added by whoever runs this gateway: wherever it is


def read_endpoint(text: str) -> Endpoint | None:
    """None when it has another form than browsers write. Whether its host is trusted is another question."""
    found = _ENDPOINT.fullmatch(text) if len(text) <= ENDPOINT_CHARS_MAX else None
    if found is None:
        return None
    host = found["host"].lower()
    return Endpoint(host, found["target"]) if _NAME.fullmatch(host) or is_address(host) else None


class PushHosts:
    """The hosts to which this gateway sends: exact, or `*.` and what follows a dot."""

    def __init__(self, listed: Sequence[str]) -> None:
        """Raises ValueError for an entry that can never fit."""
        if not all(map(is_entry, listed)):
            raise ValueError("an entry is a host in lower case without port, or *. and a domain")
        self._listed = tuple(listed)

    def trust_in(self, host: str) -> Trust:
        entries = {entry for entry in self._listed if _fits(host, entry)}
        if not entries:
            return Trust.NONE
        return Trust.VENDOR if entries <= set(VENDORS) else Trust.OPERATOR


def is_entry(entry: str) -> bool:
    """Whether it can be in the list."""
    if is_address(entry):
        return True
    name = entry.removeprefix("*.")
    # What ends in a number is an address to somebody, and an address has no domain.
    return _NAME.fullmatch(name) is not None and not name.rpartition(".")[2].isdigit()


def is_address(host: str) -> bool:
    """IPv6 in brackets, as in a URL."""
    try:
        return ipaddress.ip_address(host.strip("[]")).version == (6 if host.startswith("[") else 4)
    except ValueError:
        return False


def _fits(host: str, entry: str) -> bool:
    return host.endswith(entry[1:]) and len(host) >= len(entry) if entry.startswith("*.") else host == entry
