"""The paths of published files: which there may be, and how they stand in a URL.

A path is text, without a slash at its beginning: segments between slashes. Out of a request's target it is decoded
once; what is still escaped then is part of a name. It leads to no file of a disk: bytes lie under their hash, and a
path is a key in the log. So these rules are for those along the way, who might read one path as another.
"""

import re
import unicodedata
from urllib.parse import quote, unquote_to_bytes

PATH_BYTES_MAX = 512  # in UTF-8, as sizes are bytes everywhere
WELL_KNOWN = ".well-known"  # the one name that may begin with a dot

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
# A slash that is still escaped once all is decoded: whoever decodes twice would take it for one.
_NOWHERE = re.compile(r"[\x00-\x1f\x7f-\x9f\\]|%2f", re.IGNORECASE)


def is_site_path(path: str) -> bool:
    """Whether a file may be published there."""
    return is_site_prefix(path) and all(map(_is_name, path.split("/")))


def is_site_prefix(text: str) -> bool:
    """Whether its characters, and how many there are, are such that a path could begin with it."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return False
    return size <= PATH_BYTES_MAX and _NOWHERE.search(text) is None and unicodedata.is_normalized("NFC", text)


def decoded_path(raw: bytes) -> str | None:
    """The path in what follows a route in a request's target; None: no file may be published there."""
    if _BAD_ESCAPE.search(raw) is not None or b"%2f" in raw.lower():
        return None
    try:
        path = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return None
    return path if is_site_path(path) else None


def quoted_path(path: str) -> str:
    """As it stands in a URL: `decoded_path` gives it back."""
    return quote(path, safe="/")


def _is_name(segment: str) -> bool:
    return bool(segment) and (not segment.startswith(".") or segment == WELL_KNOWN)
