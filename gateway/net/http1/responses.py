"""What an application sends to bytes on the wire, and never anything that the head did not promise. Pure.

A `Response` knows one response's framing: with a length, chunked, until close, or no body at all. Whatever breaks the
promise is the application's fault (`BadResponseError`); what becomes of the connection then is the connection's.
"""

import time
from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

import msgspec

from gateway.net.refusal_form import RefusalForm, Refused
from schemas.errors import CODE_OF_STATUS, Code, envelope

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
RETRY_AFTER_S = 1
_TOKEN = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_STATUS_LINES = {status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
_LINES_REMEMBERED_MAX = 256  # the headers of most responses are the same few; others are checked each time
_NO_CONTENT, _NOT_MODIFIED = HTTPStatus.NO_CONTENT.value, HTTPStatus.NOT_MODIFIED.value
_UPGRADE_REQUIRED = HTTPStatus.UPGRADE_REQUIRED.value
_date = (0, b"")


class BadResponseError(Exception):
    """The application sent what HTTP has no place for, or not what it had announced."""


class Response:
    """One response: `head` once, then `body` until it was told that no more follows."""

    def __init__(self, method: str, version: str, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.started = False
        self.complete = False
        self._is_head = method == "HEAD"
        self._version = version
        self._bodiless = False
        self._chunked = False
        self._left: int | None = None

    def head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        if self.started:
            raise BadResponseError("the response was started before")
        if not 200 <= status <= 999:
            raise BadResponseError("a final status is needed")
        self._bodiless = self._is_head or status in (_NO_CONTENT, _NOT_MODIFIED)
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        length: int | None = None
        has_date = False
        for name, value in headers:
            lower, line = _checked(name, value)
            match lower:
                case b"content-length":
                    if length is not None or not value.isdigit():
                        raise BadResponseError("Content-Length is malformed or given twice")
                    length = int(value)
                    if status == _NO_CONTENT:  # RFC 9110 §8.6
                        continue
                case b"connection":
                    if b"close" in value.lower():
                        self.keep_alive = False
                    continue
                case b"upgrade" if status == _UPGRADE_REQUIRED:  # RFC 9110 §15.5.22
                    line += b"connection: upgrade\r\n"
                case b"transfer-encoding" | b"keep-alive" | b"upgrade":
                    continue  # the connection is ours
                case b"date":
                    has_date = True
            lines.append(line)
        lines.append(self._framing(length))
        lines.append(b"\r\n" if has_date else date_line())
        self.started = True
        return b"".join(lines)

    def _framing(self, length: int | None) -> bytes:
        """The last headers, which say where the response ends; and what `body` will keep to."""
        line = b""
        if not self._bodiless:
            self._left = length
            if length is None and self._version == "1.1":
                self._chunked = True
                line = b"transfer-encoding: chunked\r\n"
            elif length is None:
                self.keep_alive = False
        if not self.keep_alive:
            return line + b"connection: close\r\n"
        return line if self._version == "1.1" else line + b"connection: keep-alive\r\n"

    @property
    def length_follows(self) -> bool:
        """Whether a body of known length follows the head, so that the two may go together."""
        return bool(self._left)

    def takes_file(self, count: int) -> bool:
        """Whether the body is now written as so many bytes of a file; not where the response has none."""
        if not self.started or self.complete:
            raise BadResponseError("the response has ended" if self.started else "the response was not started")
        if not self._bodiless and self._left != count:
            raise BadResponseError("the file is not as long as Content-Length says")
        return not self._bodiless

    def body(self, data: bytes, *, more: bool) -> bytes:
        if not self.started or self.complete:
            raise BadResponseError("the response has ended" if self.started else "the response was not started")
        if self._bodiless:
            data = b""
        elif self._left is not None:
            self._left -= len(data)
            if self._left < 0 or (self._left > 0 and not more):
                raise BadResponseError("the body is not as long as Content-Length says")
        elif self._chunked:
            if data:
                data = b"%x\r\n%b\r\n" % (len(data), data)
            if not more:
                data += b"0\r\n\r\n"
        self.complete = not more
        return data


@lru_cache(_LINES_REMEMBERED_MAX)
def _checked(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A header's name in lower case, and its line."""
    if not name or name.translate(None, _TOKEN) or b"\n" in value or b"\r" in value or b"\0" in value:
        raise BadResponseError("a header is malformed")
    return name.lower(), b"%b: %b\r\n" % (name, value)


def date_line() -> bytes:
    """The Date header and the end of the head, formatted once a second."""
    global _date
    now_s = int(time.time())
    if _date[0] != now_s:
        _date = (now_s, b"date: %b\r\n\r\n" % formatdate(now_s, usegmt=True).encode())
    return _date[1]


def device_form(status: int, correlation_id: str) -> Refused:
    """The error envelope of the device API."""
    code = CODE_OF_STATUS[status]
    retries = code is Code.RATE_LIMITED
    retry_after_ms = RETRY_AFTER_S * 1000 if retries else None
    body = msgspec.json.encode(envelope(code, retry_after_ms=retry_after_ms, correlation_id=correlation_id))
    known = ((b"content-type", b"application/json"), (b"x-correlation-id", correlation_id.encode()))
    return Refused(status, known + ((b"retry-after", b"%d" % RETRY_AFTER_S),) * retries, body)


def refusal(
    status: HTTPStatus, correlation_id: str, form: RefusalForm | None = None, *, with_body: bool = True
) -> bytes:
    """A whole response, after which the connection closes."""
    refused = (form or device_form)(status, correlation_id)
    fields = (*refused.headers, (b"content-length", b"%d" % len(refused.body)))
    lines = b"".join(b"%b: %b\r\n" % field for field in fields)
    head = b"%b%bconnection: close\r\n%b" % (_STATUS_LINES[refused.status], lines, date_line())
    return head + refused.body if with_body else head
