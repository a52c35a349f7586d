"""Which `resource` (RFC 8707) a token may be for: our MCP endpoint and its views, by the addresses that are ours. Pure.

That check is what keeps another server, which names us as its authorization server, from collecting our tokens.
"""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

MCP = "/mcp"
VIEWS = frozenset({"/mcp/flat", "/mcp/fleet"})  # for members of fleets alone
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_LOOPBACK_HOST = re.compile(rf"(?:{'|'.join(map(re.escape, _LOOPBACK))})(?::[0-9]{{1,5}})?")


@dataclass(frozen=True, slots=True)
class Resources:
    base: str
    """How clients reach this gateway, without a slash at its end."""
    local: str
    """The same on this very machine, such as http://localhost:8420."""

    def path_of(self, resource: str | None) -> str | None:
        """The endpoint's path; `/mcp` when none is named. None when it is none of ours."""
        if resource is None:
            return MCP
        local = urlsplit(self.local)
        port = "" if local.port is None else f":{local.port}"
        bases = (self.base, *(f"{local.scheme}://{host}{port}" for host in _LOOPBACK))
        paths = (MCP, *VIEWS)
        return next((path for base in bases for path in paths if resource == base + path), None)


def is_loopback_host(host: str | None) -> bool:
    """Of a `Host` header: on such a one a document speaks of the resource by that very name."""
    return host is not None and _LOOPBACK_HOST.fullmatch(host) is not None
