"""Names of files on their way between a space and a disk, and which file a person means. Pure.

A name that a service sends is somebody else's: it names no folder, hides nothing, and is no path.
"""

import re
from typing import Any

NAME_BYTES_MAX = 200
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")


def local_name(name: str) -> str:
    """What a file from elsewhere is called here."""
    last = re.split(r"[/\\]", name)[-1]
    kept = "".join(character for character in last if character.isprintable()).strip().lstrip(".-~").strip()
    return kept.encode("utf-8", "ignore")[:NAME_BYTES_MAX].decode(errors="ignore") or "file"


def is_media_type(text: str) -> bool:
    return _TYPE.fullmatch(text) is not None


def part_head(boundary: str, name: str, content_type: str) -> bytes:
    """Before the content, as browsers write it."""
    escaped = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    return (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{escaped}"\r\n'
        f"Content-Type: {content_type}\r\n\r\n"
    ).encode("utf-8", "replace")


def part_end(boundary: str) -> bytes:
    return f"\r\n--{boundary}--\r\n".encode()


def which(files: list[dict[str, Any]], wanted: str) -> list[dict[str, Any]]:
    """Those with this id, else those with this name."""
    known = [file for file in files if isinstance(file.get("file_id"), str) and file["file_id"].isascii()]
    by_id = [file for file in known if file["file_id"] == wanted]
    return by_id or [file for file in known if file.get("name") == wanted]
