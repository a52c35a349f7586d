"""Bytes to requests, strictly. Pure: no sockets, no clock; waiting and answering are the connection's.

llhttp (httptools) parses, without any of its leniencies. What it still takes, and a second reader along the way might
read differently, is refused here: more than one empty line before a request, a request line with other spaces,
versions or protocols than HTTP/1.0 and 1.1, codings other than `chunked`, a `Host` that is missing, doubled or no host.

llhttp does not tell where in its input a message ended, so it is never given a byte beyond that. A head and a chunked
body both end at an empty line: the input is cut after each (`_after_empty_line`). A body with a length is cut by count.
So whatever follows a request stays here as plain bytes, until that request has been answered or handed over.

A head that is known already (`heads.py`) does not go through llhttp, and neither does its body, which has a length:
llhttp does nothing with such a body but count it.
"""

from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

import httptools

from gateway.net.applications import Applications
from gateway.net.authority_rules import is_authority, of_absolute_form
from gateway.net.http1.heads import Claimed, Head, Headers, KnownHeads, claimed

H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CHUNK_FRAMING_BYTES_FREE = 16 * 1024
"""Chunk sizes, extensions and trailers may take this much, and eight bytes more for each byte of body; then 413."""

_EMPTY_LINE = b"\r\n\r\n"

_MEANT_FOR_US = frozenset({b"host", b"content-length", b"transfer-encoding", b"upgrade", b"expect"})


class Outside(Enum):
    """What is not for this server: the bytes read so far go, with the connection, to the other one."""

    HTTP2 = auto()
    WEBSOCKET = auto()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Answer with this status and close: where the next request would begin is no longer certain."""

    status: HTTPStatus


_BAD = Refusal(HTTPStatus.BAD_REQUEST)
_HEAD_TOO_LARGE = Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
_BODY_TOO_LARGE = Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


class _RefusedError(Exception):
    """Raised inside llhttp's callbacks only: it ends the parse."""


class RequestReader:
    """Give it bytes with `receive_data`; take a head, then its body until `body_complete`, then the next head."""

    def __init__(self, head_bytes_max: int, applications: Applications, known: KnownHeads) -> None:
        """Where an application takes upgrades, one is a request like any other, not `Outside`."""
        self._head_bytes_max = head_bytes_max
        self._applications = applications
        self._known = known
        self._parser = httptools.HttpRequestParser(self)
        self._pending = b""
        self._is_first = True
        self._blank_seen = False
        self._remaining = 0  # bytes of a body with a length
        self._past_llhttp = False
        self.body_complete = True
        self._begin()

    def _begin(self) -> None:
        self._fed = 0  # bytes of the pending head that llhttp has
        self._url = b""
        self._headers: Headers = []
        self._head_complete = False
        self._host: bytes | None = None
        self._target_host: bytes | None = None
        self._length: int | None = None
        self._chunked = False
        self._upgrade = b""
        self._expects_continue = False
        self._keep_alive = False

    # ---- bytes ------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        self._pending = self._pending + data if self._pending else data

    @property
    def pending_bytes(self) -> int:
        """Bytes received and not yet part of anything that was taken."""
        return len(self._pending)

    def take_pending(self) -> bytes:
        """Everything received from the start of the head that was not taken, for whoever reads on."""
        pending, self._pending = self._pending, b""
        return pending

    def claimed(self) -> Claimed:
        """After a refusal: of the head that was refused, or of what there is of it."""
        return claimed(self._pending)

    @property
    def claims_to_be_head(self) -> bool:
        """After a refusal: whether a response has to be without a body, as far as can be seen."""
        return self._pending.startswith(b"HEAD ")

    # ---- heads ------------------------------------------------------------------------------------------------------

    def next_head(self) -> Head | Refusal | Outside | None:
        """None: more bytes are needed. After a refusal or `Outside` this reader is done."""
        if not self.body_complete:
            raise RuntimeError("the body of the request before is not complete")
        if self._head_complete:
            self._begin()
        if self._fed == 0:
            if self._is_first and self._pending and H2_PREFACE.startswith(self._pending[: len(H2_PREFACE)]):
                return Outside.HTTP2 if len(self._pending) >= len(H2_PREFACE) else None
            if not self._skip_blank():
                return None
        end = self._pending.find(_EMPTY_LINE, max(0, self._fed - 3))
        stop = end + 4 if end >= 0 else len(self._pending)
        if stop > self._head_bytes_max:
            return _HEAD_TOO_LARGE
        if self._fed == 0 and (known := self._known.find(self._pending[:stop])) is not None:
            return self._take_known(known, stop)
        upgrade = False
        try:
            self._parser.feed_data(self._pending[self._fed : stop])
        except httptools.HttpParserUpgrade:
            upgrade = True
        except httptools.HttpParserError:
            return _BAD
        self._fed = stop
        if self._head_complete is (end < 0):
            return _BAD  # llhttp and we disagree on where the head ends
        return self._finish_head(stop, upgrade) if self._head_complete else None

    def _skip_blank(self) -> bool:
        """Pass over the one empty line that old clients send after a body (RFC 9112 §2.2). False: need more bytes."""
        if not self._blank_seen and self._pending.startswith(b"\r"):
            if self._pending == b"\r":
                return False
            if self._pending.startswith(b"\r\n"):
                self._pending = self._pending[2:]
                self._blank_seen = True
        return bool(self._pending)

    def _finish_head(self, stop: int, upgrade: bool) -> Head | Refusal | Outside:
        method = self._parser.get_method()
        # Exactly so, and nothing else that llhttp would take for it.
        if self._pending.startswith(b"%b %b HTTP/1.1\r\n" % (method, self._url)):
            version = "1.1"
        elif self._pending.startswith(b"%b %b HTTP/1.0\r\n" % (method, self._url)):
            version = "1.0"
        else:
            return _BAD
        target = self._origin_form(method)
        if target is None or not self._host_is_good(version) or (self._chunked and version == "1.0"):
            return _BAD
        application = self._applications.at(self._target_host or self._host)
        if application is None:
            return _BAD
        has_body = self._chunked or bool(self._length)
        raw_path, _, query = target.partition(b"?")
        try:
            path = (unquote_to_bytes(raw_path) if b"%" in raw_path else raw_path).decode()
        except UnicodeDecodeError:
            return _BAD
        is_websocket = upgrade and version == "1.1" and method == b"GET" and not has_body
        is_websocket = is_websocket and self._upgrade == b"websocket"
        if is_websocket and not application.takes_upgrade(path):
            return Outside.WEBSOCKET
        head = Head(
            application=application,
            method=method.decode(),
            path=path,
            raw_path=raw_path,
            query=query,
            headers=self._headers,
            version=version,
            # After a refused upgrade frames may follow, and nobody is to read those as requests.
            keep_alive=self._keep_alive and not is_websocket,
            expects_continue=self._expects_continue and version == "1.1",
            length=self._length or 0,
            is_websocket=is_websocket,
        )
        self.body_complete = not has_body
        if has_body:
            self._body_bytes_max = application.body_bytes_max(path)
            if self._length is not None and self._length > self._body_bytes_max:
                return _BODY_TOO_LARGE
            self._begin_body()
        if upgrade:
            self._ignore_upgrade()
        elif not self._chunked:
            self._known.remember(self._pending[:stop], head)
        self._cut(stop)
        return head

    def _take_known(self, head: Head, stop: int) -> Head:
        self._remaining = head.length
        self._past_llhttp = True
        self.body_complete = not head.length
        self._cut(stop)
        return head

    def _cut(self, stop: int) -> None:
        """The head has been taken."""
        self._pending = self._pending[stop:]
        self._is_first = self._blank_seen = False

    def _origin_form(self, method: bytes) -> bytes | None:
        """The request target (RFC 9112 §3.2) as path and query; None for a form that we do not serve."""
        target = self._url
        if method == b"CONNECT" or b"#" in target:
            return None
        if target.startswith(b"/") or (target == b"*" and method == b"OPTIONS"):
            return target
        absolute = of_absolute_form(target)
        if absolute is None:
            return None
        # The target's own authority counts, whatever Host says (RFC 9112 §3.2.2).
        host, origin_form = absolute
        self._headers = [header for header in self._headers if header[0] != b"host"]
        self._headers.append((b"host", host))
        self._target_host = host
        return origin_form

    def _host_is_good(self, version: str) -> bool:
        """The header itself, also where a target has a host of its own."""
        if self._host is None:
            return version == "1.0"
        return is_authority(self._host)

    # ---- bodies -----------------------------------------------------------------------------------------------------

    def _begin_body(self) -> None:
        self._remaining = self._length or 0
        self._past_llhttp = False
        self._parts: list[bytes] = []
        self._body_bytes = self._raw_bytes = 0
        self._tail = b""  # the last bytes that llhttp got: an empty line may have begun in them

    def _ignore_upgrade(self) -> None:
        """As we may (RFC 9110 §7.8), with h2c say. But llhttp takes the request for over: a new one reads its body."""
        self._parser = httptools.HttpRequestParser(self)
        if not self.body_complete:
            framing = b"Transfer-Encoding: chunked" if self._chunked else b"Content-Length: %d" % self._remaining
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)

    def next_body(self) -> bytes | Refusal | None:
        """Some bytes of the body (none at its end: ask `body_complete`). None: more bytes are needed."""
        if self._past_llhttp:
            return self._next_counted()
        at, end = 0, len(self._pending)
        while at < end and not self.body_complete:
            stop = self._after_empty_line(at) if self._chunked else min(self._remaining, end)
            piece = self._pending[at:stop]
            at = stop
            self._remaining -= len(piece)
            self._raw_bytes += len(piece)
            self._tail = (self._tail + piece[-3:])[-3:]
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserError:
                return _BAD
            if self._body_bytes > self._body_bytes_max:
                return _BODY_TOO_LARGE
            if self._chunked and self._raw_bytes > CHUNK_FRAMING_BYTES_FREE + 9 * self._body_bytes:
                return _BODY_TOO_LARGE
        if at:
            self._pending = self._pending[at:]
            body = b"".join(self._parts)
            self._parts.clear()
            if body:
                return body
        return b"" if self.body_complete else None

    def _next_counted(self) -> bytes | None:
        body, self._pending = self._pending[: self._remaining], self._pending[self._remaining :]
        self._remaining -= len(body)
        self.body_complete = not self._remaining
        return body if body or self.body_complete else None

    def _after_empty_line(self, at: int) -> int:
        """Where the first empty line ends, of those that end after `at`; or the end of what there is."""
        if at == 0 and (across := (self._tail + self._pending[:3]).find(_EMPTY_LINE)) >= 0:
            return across + len(_EMPTY_LINE) - len(self._tail)
        begin = self._pending.find(_EMPTY_LINE, max(0, at - 3))
        return len(self._pending) if begin < 0 else begin + len(_EMPTY_LINE)

    @property
    def body_is_here(self) -> bool:
        """Whether the rest of the body can be passed over without waiting for more bytes."""
        return self.body_complete or (not self._chunked and len(self._pending) >= self._remaining)

    # ---- llhttp's callbacks -----------------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_complete:
            return  # a trailer: read and dropped
        name, value = name.lower(), value.rstrip(b" \t")
        self._headers.append((name, value))
        if name not in _MEANT_FOR_US:
            return
        match name:
            case b"host":
                if self._host is not None:
                    raise _RefusedError
                self._host = value
            case b"content-length":  # llhttp refuses a second one, one beside Transfer-Encoding, and what is no number
                self._length = int(value)
            case b"transfer-encoding":
                if value.lower() != b"chunked":
                    raise _RefusedError
                self._chunked = True
            case b"upgrade":
                self._upgrade += value.lower()  # two of them make no `websocket`
            case b"expect":
                self._expects_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        if not self._head_complete:
            self._head_complete = True
            self._keep_alive = self._parser.should_keep_alive()  # known only here: it is gone with the message

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        if self._head_complete:
            self.body_complete = True
