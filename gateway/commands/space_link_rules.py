"""Which space a person means, and where it is: read from a link, a URL of its API, or a token and an address. Pure.

A link is a credential: none of what is wrong with one is said with a part of it.
"""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from schemas.echo.names import is_ulid

WHAT_A_LINK_IS = (
    "a space is named by its link, such as https://HOST/s/TOKEN, or by its token and --url; "
    "put it into HELIOGRAPH_SPACE to leave it out"
)
WHAT_A_BASE_IS = "--url is the address of the service, such as https://HOST or http://HOST:PORT"

_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_TOKEN = re.compile(r"[A-Za-z0-9_-]{8,256}")  # of any instance: how long ours are is not a matter of the protocol
_PATH = re.compile(r"(.*?)/(?:api/s|ws/s|s)/([A-Za-z0-9_-]{8,256})(?:/.*)?")
_CLAIM = re.compile(r"claim=([A-Za-z0-9_-]{8,256})")


@dataclass(frozen=True, slots=True)
class SpaceLink:
    base: str  # without a slash at its end
    token: str
    claim: str | None = None  # of a link that the creator got

    @property
    def api(self) -> str:
        return f"/api/s/{self.token}"

    @property
    def page(self) -> str:
        return f"{self.base}/s/{self.token}"

    @property
    def websocket(self) -> str:
        return f"ws{self.base.removeprefix('http')}/ws/s/{self.token}"


def read_base(text: str) -> str | None:
    """The address of a service, without a slash at its end; None: it is none."""
    try:
        parts = urlsplit(text)
        is_whole = bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:  # a port that is none
        return None
    if not is_whole or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        return None
    return text.rstrip("/") if re.fullmatch("[!-~]+", text) else None


def read_link(text: str, url: str | None) -> SpaceLink | None:
    """None: it is neither a link nor a token, or a token without an address."""
    if _TOKEN.fullmatch(text) and not is_ulid(text):
        base = None if url is None else read_base(url)
        return None if base is None else SpaceLink(base, text)
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    path = _PATH.fullmatch(parts.path)
    if path is None or parts.scheme not in _SCHEMES:
        return None
    base = read_base(urlunsplit((_SCHEMES[parts.scheme], parts.netloc, path[1], "", "")))
    claim = _CLAIM.fullmatch(parts.fragment)
    return None if base is None else SpaceLink(base, path[2], None if claim is None else claim[1])
