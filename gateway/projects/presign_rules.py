"""What somebody wants to upload, and what of published files they want listed, held to their forms. Pure."""

import re
from dataclasses import dataclass
from typing import Any

from actors.project.settings import ProjectSettings
from schemas.echo.errors import EchoError
from schemas.echo.site_paths import is_site_path, is_site_prefix

CONTENT_TYPE_CHARS_MAX = 127
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_CONTENT_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}(?: ?;[\x20-\x7e]*[\x21-\x7e])?")
_MEMBERS = frozenset({"path", "content_type", "size"})


@dataclass(frozen=True, slots=True)
class UploadWish:
    path: str
    content_type: str | None
    size: int | None


@dataclass(frozen=True, slots=True)
class ListWish:
    """Files whose path begins so, in the order of their paths, from behind `after` on."""

    prefix: str
    after: str
    limit: int


def is_content_type(text: str) -> bool:
    """Whether it can be signed, kept and sent: a media type of printable ASCII, with parameters or without."""
    return len(text) <= CONTENT_TYPE_CHARS_MAX and _CONTENT_TYPE.fullmatch(text) is not None


def upload_wish(body: Any, settings: ProjectSettings) -> UploadWish | EchoError:
    """Of the decoded body of `…/static/presign`."""
    if not isinstance(body, dict) or not body.keys() <= _MEMBERS:
        return EchoError.INVALID_PAYLOAD
    path, content_type, size = body.get("path"), body.get("content_type"), body.get("size")
    is_typed = content_type is None or (isinstance(content_type, str) and is_content_type(content_type))
    is_sized = size is None or (isinstance(size, int) and not isinstance(size, bool) and size >= 0)
    if not isinstance(path, str) or not is_typed or not is_sized:
        return EchoError.INVALID_PAYLOAD
    if not is_site_path(path):
        return EchoError.INVALID_PATH
    if size is not None and size > settings.object_bytes_max:
        return EchoError.PAYLOAD_TOO_LARGE
    return UploadWish(path, content_type, size)


def list_wish(
    prefix: str | None, cursor: str | None, limit: int | None, settings: ProjectSettings
) -> ListWish | EchoError:
    """A cursor is the last path of the page before. Who asks for more than there may be gets that many."""
    count = settings.list_objects_max if limit is None else min(limit, settings.list_objects_max)
    if not is_site_prefix(prefix or ""):
        return EchoError.INVALID_PATH
    if count < 1 or (cursor is not None and not is_site_path(cursor)):
        return EchoError.INVALID_PAYLOAD
    return ListWish(prefix or "", cursor or "", count)
