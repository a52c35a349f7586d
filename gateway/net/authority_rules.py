"""Whom a request is for, as HTTP writes it: the forms of a Host and of a target that has one of its own. Pure."""

import re

_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_ABSOLUTE = re.compile(rb"https?://([^/?]*)(.*)", re.IGNORECASE)


def is_authority(host: bytes) -> bool:
    """Whether it is a host with or without a port (RFC 3986 §3.2): no user before it, not nothing."""
    return _HOST.fullmatch(host) is not None


def of_absolute_form(target: bytes) -> tuple[bytes, bytes] | None:
    """The authority and the rest, which begins with a slash, of a target that is a whole URL (RFC 9112 §3.2.2).

    None: it is none, or names no authority that is good.
    """
    found = _ABSOLUTE.fullmatch(target)
    if found is None or not is_authority(found[1]):
        return None
    return found[1], found[2] if found[2].startswith(b"/") else b"/" + found[2]
