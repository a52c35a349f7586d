"""Labels of the hostnames of projects: which a project may have, which are reserved, and one made from a name. Pure.

A site is at `<label>.<suffix>`. Random characters come from the caller; that a label is taken is not known here.
"""

import re
import unicodedata

SLUG_CHARS_MAX = 40  # of a name, before the random characters
RANDOM_BYTES = 4  # of the caller, for as many characters as below
_RANDOM_CHARS = 6
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_UNNAMED = "site"
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_SUFFIX_CHARS_MAX = 253 - 1 - 63  # so that every hostname under it fits
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")

RESERVED = frozenset({
    "abuse", "account", "accounts", "admin", "administrator", "api", "assets", "auth", "autoconfig", "autodiscover",
    "billing", "cdn", "console", "dashboard", "dns", "ftp", "healthz", "hostmaster", "imap", "isatap", "localhost",
    "login", "logout", "mail", "mcp", "metrics", "mx", "ns", "ns1", "ns2", "oauth", "operator", "passkey", "pop",
    "postmaster", "projects", "push", "root", "service", "signin", "signup", "smtp", "spaces", "sso", "upload",
    "webmail", "webmaster", "wpad", "ws", "wss", "www",
})  # fmt: skip
"""What people take for the service itself, or machines for one of its parts."""


def is_label(text: str) -> bool:
    """Whether a hostname may begin with it. Those with `--` in the third place mean something else (`xn--`)."""
    return _LABEL.fullmatch(text) is not None and text[2:4] != "--"


def is_suffix(text: str) -> bool:
    """Whether hostnames may end with it."""
    return len(text) <= _SUFFIX_CHARS_MAX and all(_LABEL.fullmatch(label) for label in text.split("."))


def label_of(domain: str, suffix: str) -> str | None:
    """What somebody means by a label or a whole hostname; None: neither of these, or reserved."""
    label = domain.removesuffix(f".{suffix}")
    return label if is_label(label) and label not in RESERVED else None


def label_under(host: str, suffix: str) -> str | None:
    """The label that this host takes of those under the suffix; None: it is not under it."""
    begin = host.removesuffix(f".{suffix}")
    return None if begin == host else begin.rpartition(".")[2]


def label_from(name: str, random: bytes) -> str:
    """As much of the name as a label may have, and six random characters."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = _NOT_IN_SLUG.sub("-", plain).strip("-")[:SLUG_CHARS_MAX].rstrip("-")
    bits = int.from_bytes(random[:RANDOM_BYTES])
    end = "".join(_DIGITS[bits >> 5 * place & 31] for place in range(_RANDOM_CHARS))
    return f"{slug or _UNNAMED}-{end}"
