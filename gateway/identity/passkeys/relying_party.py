"""For whom passkeys are made: the host of BASE, and the one origin on which they may be used. Pure."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_HOST_CHARS_MAX = 253
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_DOMAIN = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # a host that ends in one is an IPv4 address to a browser
_PORTS = {"https": 443, "http": 80}


class UnfitBaseError(ValueError):
    """BASE cannot have passkeys. Its text is for the operator."""


@dataclass(frozen=True, slots=True)
class RelyingParty:
    id: str
    """`rp.id`: subdomains of it may name it too, so that only `origin` keeps them out."""
    origin: str
    """As browsers write it, and as `clientDataJSON` must have it."""
    name: str = "Heliograph"

    @classmethod
    def of(cls, base: str) -> "RelyingParty":
        """Raises UnfitBaseError, rather than let every ceremony fail on a spelling that no browser uses."""
        try:
            url = urlsplit(base)
            port = url.port
        except ValueError:
            raise UnfitBaseError("http.public_url is not a URL") from None
        host = url.hostname or ""
        if len(host) > _HOST_CHARS_MAX or not _DOMAIN.fullmatch(host) or _NUMBER.fullmatch(host.rpartition(".")[2]):
            raise UnfitBaseError(
                "passkeys need a domain in http.public_url, not an IP address; on this machine, localhost"
            )
        is_local = host == "localhost" or host.endswith(".localhost")
        if url.scheme != "https" and not (url.scheme == "http" and is_local):
            raise UnfitBaseError("passkeys need https in http.public_url, except on localhost")
        origin = f"{url.scheme}://{host}" + ("" if port in (None, _PORTS[url.scheme]) else f":{port}")
        if base != origin:
            raise UnfitBaseError(f"passkeys need http.public_url as browsers write it: {origin}")
        return cls(host, origin)
