"""Which host a request names: a site's, or another. Pure; that there is such a site, it does not know.

A host is compared in lower case, without its port and without one final dot. `<label>.<suffix>` is the site of that
label, also of one that nobody has: what lies under the suffix never meets the main application. BASE's own host is
compared first, for it may lie under the suffix too. Everything else is the main application's: the suffix itself, as
`localhost` is by default, addresses of either family, names that somebody else's DNS has for us.

What two readers along the way could take for different hosts is neither: one with an escape, which some decode, and one
with an empty label, where some drop every final dot and others one.
"""

from gateway.net.applications import NoSite
from gateway.net.authority_rules import is_authority


class SiteHosts:
    def __init__(self, suffix: str, base_host: str) -> None:
        """`base_host` is BASE's, as a URL has it; IPv6 without its brackets."""
        self._below = f".{suffix}"
        self._base_host = base_host.lower().removesuffix(".")

    def label(self, host: bytes) -> str | NoSite:
        """Of the site that this Host names. It may be one that no site can have: `a.b`, `xn--p1ai`, `_x`."""
        if not is_authority(host):
            return NoSite.UNCLEAR
        if host.startswith(b"["):
            return NoSite.MAIN
        name = host.partition(b":")[0].decode("ascii").lower().removesuffix(".")
        if "%" in name or not all(name.split(".")):
            return NoSite.UNCLEAR
        if name == self._base_host or not name.endswith(self._below):
            return NoSite.MAIN
        return name.removesuffix(self._below)
