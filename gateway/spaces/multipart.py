"""A multipart body with one part `file`, piece by piece, in constant memory. The content is for the caller."""

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

PART_HEADERS_MAX = 8  # one more is malformed
PART_HEADER_BYTES_MAX = 32 * 1024  # of one of them, so that a long name is cut by its rule; more is malformed
OVERHEAD_BYTES_MAX = 64 * 1024  # of a body beyond its file: boundaries, headers, what stands before and behind
_BOUNDARY_BYTES_MAX = 70  # RFC 2046 §5.1.1
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_EXTENDED_NAME = re.compile(rb";\s*filename\*\s*=\s*utf-8'[^']*'([^;\s]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PartHead:
    """As the client claims it."""

    name: str
    content_type: str | None


def boundary_of(content_type: str) -> bytes | None:
    """None: there is none, or it is not one that RFC 2046 allows."""
    _, options = parse_options_header(content_type.encode("latin-1"))
    boundary = options.get(b"boundary", b"")
    return boundary if 0 < len(boundary) <= _BOUNDARY_BYTES_MAX else None


class MultipartFile:
    """`feed` it the body; `head` is there before the first byte of content is."""

    def __init__(self, boundary: bytes) -> None:
        self.head: PartHead | None = None
        self.is_complete = False
        self._is_bad = False
        self._delimiter = b"\r\n--" + boundary
        self._before: bytes | None = b"\r\n"  # what may be the beginning of the first delimiter; None: it has come
        self._preamble_bytes = 0
        self._content: list[bytes] = []
        self._field = self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._add_to_field,
                "on_header_value": self._add_to_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._add_content,
                "on_end": self._end,
            },
            max_header_count=PART_HEADERS_MAX,
            max_header_size=PART_HEADER_BYTES_MAX,
        )

    def feed(self, data: bytes) -> bytes | None:
        """The content in these bytes; None: the body is not what it should be, and there is no use in going on."""
        try:
            self._parser.write(self._past_preamble(data))
        except MultipartParseError:
            self._is_bad = True
        content = b"".join(self._content)
        self._content.clear()
        return None if self._is_bad else content

    def _past_preamble(self, data: bytes) -> bytes:
        """RFC 2046 §5.1.1 allows text before the first boundary; the parser does not know it."""
        if self._before is None:
            return data
        seen = self._before + data
        at = seen.find(self._delimiter)
        passed = len(seen) - len(self._delimiter) + 1 if at < 0 else at
        self._preamble_bytes += max(0, passed)
        self._is_bad |= self._preamble_bytes > OVERHEAD_BYTES_MAX
        if at < 0:
            self._before = seen[max(0, passed) :]
            return b""
        self._before = None
        return seen[at + 2 :]

    def _begin_part(self) -> None:
        self._is_bad |= self.head is not None  # a second one

    def _add_to_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _add_to_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        name = self._field.lower()
        self._is_bad |= name in self._headers
        self._headers[name] = self._value
        self._field = self._value = b""

    def _end_headers(self) -> None:
        disposition = self._headers.get(b"content-disposition", b"")
        kind, options = parse_options_header(disposition)
        if kind != b"form-data" or options.get(b"name") != b"file":
            self._is_bad = True
            return
        content_type = self._headers.get(b"content-type")
        self.head = PartHead(
            (options.get(b"filename") or _extended_name(disposition)).decode("utf-8", "replace"),
            None if content_type is None else content_type.decode("latin-1"),
        )

    def _add_content(self, data: bytes, start: int, end: int) -> None:
        self._content.append(data[start:end])

    def _end(self) -> None:
        self.is_complete = self.head is not None


def _extended_name(disposition: bytes) -> bytes:
    """`filename*=UTF-8''…` (RFC 8187), which forms should not have (RFC 7578) and some clients send alone."""
    found = _EXTENDED_NAME.search(_QUOTED.sub(b'""', disposition))
    return b"" if found is None else unquote_to_bytes(found[1])
