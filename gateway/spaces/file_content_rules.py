"""Names and types of files: what of a stranger's upload may be shown again, and how. Pure.

Whatever was uploaded is served as an attachment, never as a page of ours. Of types, only those are repeated that a
browser shows without running anything.
"""

import re
import unicodedata
from urllib.parse import quote

NAME_CHARS_MAX = 200  # more is cut off
DEFAULT_NAME = "file"
OPAQUE = "application/octet-stream"
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,62}/[a-z0-9][a-z0-9!#$&^_.+-]{0,62}")
_SHOWN = frozenset({"application/pdf", "application/json", "text/plain"})
_SHOWN_KINDS = ("image/", "audio/", "video/")
_UNSEEN = ("C", "Zl", "Zp")  # categories: control, format, surrogates and the like; line and paragraph separators


def file_name(claimed: str) -> str:
    """The last segment of a path of any system, without what cannot be seen."""
    last = re.split(r"[/\\]", claimed)[-1]
    shown = "".join(char for char in last if not unicodedata.category(char).startswith(_UNSEEN))
    name = shown.strip()[:NAME_CHARS_MAX].strip()
    return name if name.strip(".") else DEFAULT_NAME


def stored_type(claimed: str | None) -> str:
    """Without parameters; what is no media type is bytes."""
    essence = (claimed or "").partition(";")[0].strip().lower()
    return essence if _TYPE.fullmatch(essence) else OPAQUE


def served_type(stored: str) -> str:
    is_shown = stored in _SHOWN or (stored.startswith(_SHOWN_KINDS) and "svg" not in stored and "xml" not in stored)
    return stored if is_shown else OPAQUE


def disposition(name: str) -> str:
    """RFC 6266, with the name in the one form that every character survives."""
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"
