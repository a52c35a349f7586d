"""How a published file is answered for: its path out of a target, its headers, and what a condition or range leaves of
it. Pure.

Preconditions and ranges are those of RFC 9110 §13 and §14, evaluated in its order. Which file a path means, and sending
its bytes, is left to others.
"""

from calendar import timegm
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate, parsedate_tz
from functools import lru_cache
from typing import TypeAlias

from actors.project.site import SiteObject
from gateway.net.byte_range_rules import ByteRange, Unsatisfiable, byte_range
from schemas.echo.site_paths import PATH_BYTES_MAX, decoded_path

Header: TypeAlias = tuple[bytes, bytes]

INDEX = b"index.html"
TARGET_BYTES_MAX = 3 * PATH_BYTES_MAX + 1  # a path with every byte escaped; behind a longer one lies no file
REMEMBERED_MAX = 1024  # targets and headers of files; then those asked for least recently are made anew
OPAQUE = "application/octet-stream"
_UTF8 = "; charset=utf-8"
_TYPES: Mapping[str, str] = {
    "apng": "image/apng",
    "atom": f"application/atom+xml{_UTF8}",
    "avif": "image/avif",
    "bmp": "image/bmp",
    "css": f"text/css{_UTF8}",
    "csv": f"text/csv{_UTF8}",
    "gif": "image/gif",
    "glb": "model/gltf-binary",
    "gltf": "model/gltf+json",
    "gz": "application/gzip",
    "htm": f"text/html{_UTF8}",
    "html": f"text/html{_UTF8}",
    "ico": "image/x-icon",
    "ics": f"text/calendar{_UTF8}",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "js": f"text/javascript{_UTF8}",
    "json": "application/json",
    "jsonld": "application/ld+json",
    "m4a": "audio/mp4",
    "map": "application/json",
    "md": f"text/markdown{_UTF8}",
    "mjs": f"text/javascript{_UTF8}",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "oga": "audio/ogg",
    "ogg": "audio/ogg",
    "ogv": "video/ogg",
    "opus": "audio/ogg",
    "otf": "font/otf",
    "pdf": "application/pdf",
    "png": "image/png",
    "rss": f"application/rss+xml{_UTF8}",
    "svg": f"image/svg+xml{_UTF8}",
    "tsv": f"text/tab-separated-values{_UTF8}",
    "ttf": "font/ttf",
    "txt": f"text/plain{_UTF8}",
    "vtt": f"text/vtt{_UTF8}",
    "wasm": "application/wasm",
    "wav": "audio/wav",
    "weba": "audio/webm",
    "webm": "video/webm",
    "webmanifest": "application/manifest+json",
    "webp": "image/webp",
    "woff": "font/woff",
    "woff2": "font/woff2",
    "xhtml": f"application/xhtml+xml{_UTF8}",
    "xml": f"text/xml{_UTF8}",
    "zip": "application/zip",
}
_NO_SNIFF: Header = (b"x-content-type-options", b"nosniff")
_PAGES = frozenset({"text/html", "application/xhtml+xml"})


# ---- what a target means ---------------------------------------------------------------------------------------------


@lru_cache(REMEMBERED_MAX)
def _wanted_path(raw_path: bytes) -> str | None:
    return decoded_path(raw_path[1:] + (INDEX if raw_path.endswith(b"/") else b""))


def wanted_path(raw_path: bytes) -> str | None:
    """Of the file that a target means, decoded once, a folder's index for a folder; None: no file can have it."""
    is_one = raw_path.startswith(b"/") and len(raw_path) <= TARGET_BYTES_MAX
    return _wanted_path(raw_path) if is_one else None


# ---- headers ---------------------------------------------------------------------------------------------------------


def type_of(file: SiteObject) -> str:
    """As it was uploaded; else as its name ends, in the table above."""
    name, dot, ending = file.path.rpartition("/")[2].rpartition(".")
    return file.content_type or (_TYPES.get(ending.lower(), OPAQUE) if name and dot else OPAQUE)


def is_page(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() in _PAGES


def etag_of(file: SiteObject) -> str:
    """Strong: other bytes have another one."""
    return f'"{file.sha256}"'


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Sequence[Header]
    part: ByteRange | None = None
    """Of the file; None: the answer has nothing of it, and what it says instead is not for here."""


@dataclass(frozen=True, slots=True)
class FileAnswers:
    """Those that one file has for whoever asks for it."""

    whole: Answer
    not_modified: Answer
    in_place: Answer
    """Of the file that stands for another, which is missing: with nothing by which it could be asked for again."""


@lru_cache(REMEMBERED_MAX)
def answers_of(file: SiteObject) -> FileAnswers:
    content_type = type_of(file)
    validators = (
        (b"etag", etag_of(file).encode()),
        (b"last-modified", formatdate(file.updated_at_ms // 1000, usegmt=True).encode()),
        (b"cache-control", b"no-cache" if is_page(content_type) else b"public, max-age=300"),
        _NO_SNIFF,
    )
    kind, length = (b"content-type", content_type.encode("latin-1")), (b"content-length", b"%d" % file.size)
    everything = ByteRange(0, file.size)
    return FileAnswers(
        Answer(200, (kind, length, (b"accept-ranges", b"bytes"), *validators), everything),
        Answer(304, validators),
        Answer(404, (kind, length, (b"cache-control", b"no-cache"), _NO_SNIFF), everything),
    )


# ---- conditions and ranges -------------------------------------------------------------------------------------------

_CONDITIONS = frozenset({
    b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"if-range", b"range",
})  # fmt: skip


def answer(file: SiteObject, request: Iterable[Header], method: str) -> Answer:
    """To a request for this file with these headers, in the order of RFC 9110 §13.2.2."""
    found = answers_of(file)
    asked = _conditions(request)
    if not asked:
        return found.whole
    if _is_failed(asked, file):
        return Answer(412, ())
    if _is_unmodified(asked, file):
        return found.not_modified
    # By a date nobody resumes: two files of one second would have the same, and every file has a tag.
    if method != "GET" or asked.get(b"if-range", etag_of(file)) != etag_of(file):
        return found.whole
    match byte_range(asked.get(b"range"), file.size):
        case None:
            return found.whole
        case ByteRange(length=length) as part:
            headers = [field for field in found.whole.headers if field[0] != b"content-length"]
            of_it = ((b"content-length", b"%d" % length), (b"content-range", part.content_range(file.size)))
            return Answer(206, (*headers, *of_it), part)
        case Unsatisfiable():
            return Answer(416, ((b"content-range", b"bytes */%d" % file.size),))


def _conditions(headers: Iterable[Header]) -> dict[bytes, str]:
    """Nearly always none. Of what is there several times, a list."""
    found: dict[bytes, str] = {}
    for name, value in headers:
        if name in _CONDITIONS:
            text = value.decode("latin-1")
            found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def _is_failed(asked: Mapping[bytes, str], file: SiteObject) -> bool:
    if (tags := asked.get(b"if-match")) is not None:
        return not _lists(tags, file, weakly=False)
    since_s = _seconds(asked.get(b"if-unmodified-since"))
    return since_s is not None and file.updated_at_ms // 1000 > since_s


def _is_unmodified(asked: Mapping[bytes, str], file: SiteObject) -> bool:
    if (tags := asked.get(b"if-none-match")) is not None:
        return _lists(tags, file, weakly=True)
    since_s = _seconds(asked.get(b"if-modified-since"))
    return since_s is not None and file.updated_at_ms // 1000 <= since_s


def _lists(tags: str, file: SiteObject, *, weakly: bool) -> bool:
    """Whether a list of entity tags has the file's. No tag of ours has a comma or a quote in it."""
    tag = etag_of(file)
    found = [one.strip() for one in tags.split(",")]
    return tag in found or tags.strip() == "*" or (weakly and f"W/{tag}" in found)


def _seconds(date: str | None) -> int | None:
    """Of an HTTP date in any of its three forms; None: there is none, or it is no date."""
    parsed = None if date is None else parsedate_tz(date)
    if parsed is None:
        return None
    try:
        return timegm(parsed[:9]) - (parsed[9] or 0)
    except (ValueError, OverflowError):
        return None
