"""A device's manifest for whoever debugs on the device: `GET /.well-known/mcp.json` on 127.0.0.1 (RFC-0001 §1).

It listens on the loopback address and nowhere else, and takes only requests that name it: a page in a browser on the
device whose name was pointed at 127.0.0.1 gets 421. One request a connection. What the manifest says is the agent's.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

import h11
import msgspec
import trio

from actors.device.manifest_life import SignedManifest
from schemas.errors import Code, envelope

ADDRESS = "127.0.0.1"
PATH = "/.well-known/mcp.json"
NAMES = (ADDRESS, "localhost", "[::1]")  # what a request may call us, with our port
HEAD_BYTES_MAX = 8 * 1024  # of a request; a longer one is 400
CONNECTIONS_MAX = 16  # at once; further ones are closed without a response
CONNECTION_S_MAX = 5.0  # from its opening to its end; then it is closed
READ_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    status: HTTPStatus
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def encoded(self, *, with_body: bool = True) -> bytes:
        """Without its body it is the answer to a HEAD."""
        fields = {
            "content-type": "application/json",
            "content-length": str(len(self.body)),
            "cache-control": "no-cache",
            "x-content-type-options": "nosniff",
            "connection": "close",
            **self.headers,
        }
        lines = [f"{name}: {value}" for name, value in fields.items()]
        head = "\r\n".join([f"HTTP/1.1 {self.status.value} {self.status.phrase}", *lines, "", ""])
        return head.encode("ascii") + (self.body if with_body else b"")


def _error(status: HTTPStatus, code: Code, message: str, suggested_fix: str, **headers: str) -> Answer:
    return Answer(status, msgspec.json.encode(envelope(code, message, suggested_fix)), headers)


_ASK_SO = f"Ask for GET {PATH} at http://{ADDRESS} and the port of --local."
_NOT_HTTP = _error(HTTPStatus.BAD_REQUEST, Code.MANIFEST_INVALID, "The request is not HTTP/1.1.", _ASK_SO)
_NOT_US = _error(
    HTTPStatus.MISDIRECTED_REQUEST, Code.MANIFEST_INVALID, "The Host header names another server.", _ASK_SO
)
_NO_SUCH_PAGE = _error(HTTPStatus.NOT_FOUND, Code.MANIFEST_NOT_FOUND, "There is no such page here.", _ASK_SO)
_ONLY_GET = _error(
    HTTPStatus.METHOD_NOT_ALLOWED, Code.VERB_UNSUPPORTED, "This page can only be read.", _ASK_SO, allow="GET"
)
_NO_MANIFEST = _error(
    HTTPStatus.SERVICE_UNAVAILABLE,
    Code.NODE_OFFLINE,
    "The node has signed no manifest yet: it has not reached its gateway.",
    "Wait until the node is connected, then ask again.",
)


def answer_to(request: h11.Request | None, port: int, signed: SignedManifest | None) -> Answer:
    """What a request gets; None is one that is no HTTP."""
    if request is None:
        return _NOT_HTTP
    hosts = [value.decode("latin-1").lower() for name, value in request.headers if name == b"host"]
    if len(hosts) != 1 or hosts[0] not in {f"{name}:{port}" for name in NAMES}:
        return _NOT_US
    if request.target.partition(b"?")[0] != PATH.encode():
        return _NO_SUCH_PAGE
    if request.method != b"GET":
        return _ONLY_GET
    if signed is None:
        return _NO_MANIFEST
    etag = f'"{signed.etag}"'
    if (b"if-none-match", etag.encode()) in [(bytes(name), bytes(value)) for name, value in request.headers]:
        return Answer(HTTPStatus.NOT_MODIFIED, headers={"etag": etag})
    return Answer(HTTPStatus.OK, msgspec.json.encode(signed.manifest), {"etag": etag})


class LocalPage:
    """Made by `open`, so that a port that is taken is found out at once. `manifest` gives the last one signed."""

    def __init__(self, listener: trio.SocketListener, manifest: Callable[[], SignedManifest | None]) -> None:
        self._listener = listener
        self._manifest = manifest
        self._open = 0
        self.port: int = listener.socket.getsockname()[1]

    @classmethod
    async def open(cls, port: int, manifest: Callable[[], SignedManifest | None]) -> "LocalPage":
        """Raises OSError if the port cannot be had."""
        (listener,) = await trio.open_tcp_listeners(port, host=ADDRESS, backlog=CONNECTIONS_MAX)
        return cls(listener, manifest)

    async def run(self) -> None:
        """Until it is cancelled."""
        await trio.serve_listeners(self._converse, [self._listener])

    async def _converse(self, stream: trio.SocketStream) -> None:
        if self._open >= CONNECTIONS_MAX:
            return
        self._open += 1
        try:
            with trio.move_on_after(CONNECTION_S_MAX), contextlib.suppress(trio.BrokenResourceError):
                request = await _request(stream)
                answer = answer_to(request, self.port, self._manifest())
                await stream.send_all(answer.encoded(with_body=request is None or request.method != b"HEAD"))
                await stream.send_eof()
                while await stream.receive_some(READ_BYTES):
                    pass  # closing with unread input would take the answer back
        finally:
            self._open -= 1


async def _request(stream: trio.SocketStream) -> h11.Request | None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
    try:
        while True:
            event = connection.next_event()
            if event is not h11.NEED_DATA:
                return event if isinstance(event, h11.Request) else None
            connection.receive_data(bytes(await stream.receive_some(READ_BYTES)))
    except h11.RemoteProtocolError:
        return None
