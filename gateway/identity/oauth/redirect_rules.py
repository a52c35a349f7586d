"""Where a browser may be sent back to: a `redirect_uri`, taken only in a spelling that everybody reads alike. Pure.

RFC 3986 and browsers disagree about backslashes, tabs, user names, numbers as hosts, case and more, and attacks live in
between. So only what both read alike is a redirect URI here: printable ASCII, a scheme and a host in lower case, a host
of letters, digits, hyphens and dots or four plain numbers. There is no normalization, hence nothing to get wrong.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

URI_CHARS_MAX = 1_024
RESERVED_SCHEMES = frozenset(
    {"http", "https", "javascript", "data", "vbscript", "file", "blob", "about", "filesystem", "ftp", "ws", "wss"}
    | {"view-source", "intent", "mailto", "tel"}
)  # no application's own, whatever a setting says
_LOOPBACK = frozenset({"localhost", "127.0.0.1"})
# Ours are added to the query, and a client that finds two would have to choose.
_OURS = frozenset({"code", "state", "iss", "error", "error_description", "error_uri"})

_TEXT = re.compile(r"(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_WEB = re.compile(
    rf"(?P<scheme>https?)://(?P<host>{_LABEL}(?:\.{_LABEL})*)(?::(?P<port>[1-9][0-9]{{0,4}}))?(?P<rest>[/?].*)?"
)
_APP = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):(?://(?P<host>[a-z0-9._-]+))?(?P<rest>(?:/(?!/)[^?]*)?(?:\?.*)?)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # a host that ends in one is an IPv4 address to a browser
_BYTE = r"(?:0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])"
_IPV4 = re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}")
_HOST_CHARS_MAX = 253
_PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class RedirectUri:
    text: str
    """As it was sent, and as a browser is told it, with our parameters."""
    scheme: str
    host: str
    """Without port; of an application's own scheme it may be empty."""
    rest: str

    @property
    def is_loopback(self) -> bool:
        """On the device that the browser runs on."""
        return self.is_web and self.host in _LOOPBACK

    @property
    def is_web(self) -> bool:
        return self.scheme in ("http", "https")

    def fits(self, registered: "RedirectUri") -> bool:
        """RFC 8252 §7.3: a native application on loopback learns its port when it runs; all else is exact."""
        if self.scheme == "http" and self.is_loopback:
            return (self.scheme, self.host, self.rest) == (registered.scheme, registered.host, registered.rest)
        return self.text == registered.text

    def with_parameters(self, parameters: dict[str, str]) -> str:
        joint = "&" if "?" in self.text else "?"
        return f"{self.text}{joint}{urlencode(parameters)}"


def read_redirect_uri(text: str, schemes: Collection[str] = ()) -> RedirectUri | None:
    """`schemes` are those of applications that are taken beside the web's. None when it is not allowed."""
    if len(text) > URI_CHARS_MAX or not _TEXT.fullmatch(text):
        return None
    uri = _read_web(text) or _read_app(text, schemes)
    if uri is None or any(name in _OURS for name, _ in parse_qsl(uri.rest.partition("?")[2], keep_blank_values=True)):
        return None
    return uri


def _read_web(text: str) -> RedirectUri | None:
    found = _WEB.fullmatch(text)
    if found is None:
        return None
    scheme, host = found["scheme"], found["host"]
    if len(host) > _HOST_CHARS_MAX or (found["port"] is not None and int(found["port"]) > _PORT_MAX):
        return None
    if _NUMBER.fullmatch(host.rpartition(".")[2]) and not _IPV4.fullmatch(host):
        return None
    if scheme == "http" and host not in _LOOPBACK:
        return None
    return RedirectUri(text, scheme, host, found["rest"] or "")


def _read_app(text: str, schemes: Collection[str]) -> RedirectUri | None:
    found = _APP.fullmatch(text)
    if found is None or found["scheme"] not in schemes or found["scheme"] in RESERVED_SCHEMES:
        return None
    if not found["host"] and not found["rest"].startswith("/"):
        return None
    return RedirectUri(text, found["scheme"], found["host"] or "", found["rest"])
