"""Sites at their hosts: the files of a project and nothing else, for GET and HEAD, whatever the path.

A host under the suffix is an application of its own (`gateway/net/applications.py`), so no route, limit or form of the
main one is ever asked here: no API, no CORS, no challenge, no upgrade, no cookie. What is refused is plain text, the
same for everybody, with nothing of the request in it.

Between the moment an object is looked up and the one its content is open, it may have been replaced and its content
removed. Then it is looked up again: the answer is the new file, or that there is none, never half of either.
"""

import errno
import sys
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import TypeVar
from urllib.parse import quote

import structlog

from actors.project.site import SiteDirectory, SiteObject
from gateway.net.applications import Application, NoSite
from gateway.net.asgi import AsgiScope, Receive, Send
from gateway.net.byte_range_rules import ByteRange
from gateway.net.exchange import CORRELATION_ID
from gateway.net.file_sending import UnreadableFileError, send_file
from gateway.net.http1.connection import UPGRADE
from gateway.net.refusal_form import Refused
from gateway.projects.site_content_rules import Answer, Header, answer, answers_of, wanted_path
from gateway.projects.site_contents import SMALL_BYTES_MAX, SiteContents
from gateway.projects.site_host_rules import SiteHosts
from schemas.echo.site_paths import quoted_path

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

T = TypeVar("T")

HOSTS_MAX = 1024  # remembered; then the one asked for least recently is read again when it comes
HOST_BYTES_MAX = 262  # of one that is remembered: the longest name there is, its final dot and a port
LOOKS_MAX = 8  # for a file whose content goes as often while it is being opened; then 500
OWN_404 = "404.html"
_TEXTS = {
    308: b"It is a folder.\n",
    400: b"Bad request.\n",
    404: b"Not found.\n",
    405: b"Method not allowed.\n",
    408: b"The request took too long.\n",
    412: b"Precondition failed.\n",
    413: b"The request is too large.\n",
    416: b"Range not satisfiable.\n",
    431: b"The headers of the request are too large.\n",
    500: b"Internal error.\n",
    503: b"Too many requests at a time.\n",
}
_TEXT: tuple[Header, ...] = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_ALLOW: Header = (b"allow", b"GET, HEAD")
_URL_CHARACTERS = "".join(map(chr, range(0x21, 0x7F)))  # that stay as they are in a query


class SiteRoutes:
    def __init__(self, directory: SiteDirectory, contents: SiteContents, hosts: SiteHosts) -> None:
        self._directory = directory
        self._contents = contents
        self._hosts = hosts
        self._remembered = lru_cache(HOSTS_MAX)(self._read)

    def at(self, host: bytes) -> Application | NoSite:
        """Whose requests to this host are; satisfies `SitesAt`."""
        return self._remembered(host) if len(host) <= HOST_BYTES_MAX else self._read(host)

    def _read(self, host: bytes) -> Application | NoSite:
        label = self._hosts.label(host)
        if isinstance(label, NoSite):
            return label
        # Bodies are not read, so none is too long: what is wrong is the method, and the connection ends after it.
        return Application(partial(self._serve, label), lambda _: sys.maxsize, lambda _: True, lambda _: text_form)

    async def _serve(self, label: str, scope: AsgiScope, _: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await _refuse_websocket(send)
        elif UPGRADE in scope["extensions"]:
            await _say(404, scope, send)
        elif scope["method"] not in ("GET", "HEAD"):
            is_there = self._directory.site(label) is not None
            await (_say(405, scope, send, _ALLOW) if is_there else _say(404, scope, send))
        else:
            await self._answer(label, scope, send)

    async def _answer(self, label: str, scope: AsgiScope, send: Send) -> None:
        raw_path: bytes = scope["raw_path"]
        path = wanted_path(raw_path)
        for _ in range(LOOKS_MAX):
            site = self._directory.site(label)
            if site is None:
                await _say(404, scope, send)
                return
            file = None if path is None else site.object(path)
            if file is None and path is not None and not raw_path.endswith(b"/") and site.has_folder(path):
                await _say(308, scope, send, (b"location", _with_slash(path, scope["query_string"])))
                return
            if file is not None:
                given = answer(file, scope["headers"], scope["method"])
            else:
                file = site.object(OWN_404)
                if file is None:
                    await _say(404, scope, send)
                    return
                given = answers_of(file).in_place
            if given.part is None and given.status != 304:
                await _say(given.status, scope, send, *given.headers)
                return
            if given.part is None or scope["method"] == "HEAD":
                await _send(given, b"", send)
                return
            if await self._send_content(label, file, given, given.part, scope, send):
                return
        raise UnreadableFileError

    async def _send_content(
        self, label: str, file: SiteObject, given: Answer, part: ByteRange, scope: AsgiScope, send: Send
    ) -> bool:
        """Whether it was there to be sent; else look again."""
        if file.size <= SMALL_BYTES_MAX:
            content = self._contents.known(file.sha256)
            if content is None:
                content = await self._got(label, file, self._contents.read)
            if content is None:
                return False
            await _send(given, content[part.start : part.start + part.length], send)
            return True
        opened = await self._got(label, file, self._contents.take)
        if opened is None:
            return False
        try:
            await send({"type": "http.response.start", "status": given.status, "headers": given.headers})
            await send_file(scope, send, opened.descriptor, part.start, part.length)
        finally:
            self._contents.give_back(opened)
        return True

    async def _got(self, label: str, file: SiteObject, get: Callable[[SiteObject], Awaitable[T]]) -> T | None:
        """None: meanwhile it is no longer what its path means."""
        try:
            return await get(file)
        except (OSError, UnreadableFileError) as error:
            if isinstance(error, OSError) and error.errno in _EXHAUSTED:
                raise  # of descriptors or memory: nothing is wrong with this file
            site = self._directory.site(label)
            if site is None or site.object(file.path) != file:
                return None
            log.error("site_content_unreadable", project_id=site.project_id, sha256=file.sha256)
            raise


def text_form(status: int, correlation_id: str) -> Refused:
    """How what the server refuses at a site's host is said."""
    return Refused(status, (*_TEXT, (CORRELATION_ID, correlation_id.encode())), _TEXTS[status])


def _with_slash(path: str, query: bytes) -> bytes:
    """The folder at this path, on this host whatever the path: a slash, and no other, comes first."""
    location = f"/{quoted_path(path)}/"
    return (f"{location}?{quote(query, safe=_URL_CHARACTERS)}" if query else location).encode()


async def _say(status: int, scope: AsgiScope, send: Send, *more: Header) -> None:
    body = _TEXTS[status]
    given = Answer(status, ((b"content-length", b"%d" % len(body)), *_TEXT, *more))
    await _send(given, b"" if scope["method"] == "HEAD" else body, send)


async def _send(given: Answer, body: bytes, send: Send) -> None:
    await send({"type": "http.response.start", "status": given.status, "headers": given.headers})
    await send({"type": "http.response.body", "body": body})


async def _refuse_websocket(send: Send) -> None:
    body = _TEXTS[404]
    fields = ((b"content-length", b"%d" % len(body)), *_TEXT)
    await send({"type": "websocket.http.response.start", "status": 404, "headers": fields})
    await send({"type": "websocket.http.response.body", "body": body})
