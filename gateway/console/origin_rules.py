"""Where the console is: its one origin, as browsers write it, or why there is no console. Pure.

It is where `/admin` is. A browser must be able to reach that, by a name that the gateway knows, and must take cookies
with `Secure` there.
"""

from enum import Enum
from urllib.parse import urlsplit

_PORTS = {"https": 443, "http": 80}


class ConsoleOff(Enum):
    """Why there is none: for the log, and for operators."""

    UNIX_SOCKET = "Operators come by a unix socket (admin.listen), which no browser reaches."
    NO_ORIGIN = "Nobody has said how browsers reach it: set admin.public_url, such as https://ops.example."
    NOT_SECURE = "Its cookie needs https, or http on localhost: see admin.public_url."

    @property
    def word(self) -> str:
        return self.name.lower()


def browser_origin(url: str) -> str | None:
    """What a browser sends as `Origin` for a page at this address; None: it is no address of a page."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    host = (parts.hostname or "").lower()
    if parts.scheme not in _PORTS or not host or not host.isascii() or parts.username is not None:
        return None
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}" + ("" if port in (None, _PORTS[parts.scheme]) else f":{port}")


def is_secure(origin: str) -> bool:
    """Whether browsers take cookies with `Secure` there."""
    parts = urlsplit(origin)
    host = parts.hostname or ""
    return parts.scheme == "https" or host == "localhost" or host.endswith(".localhost")
