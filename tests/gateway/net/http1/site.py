"""A door on 127.0.0.1 with a small application, and clients that write bytes by hand."""

import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import trio
from structlog.testing import capture_logs
from structlog.typing import EventDict

from actors.supervision.stop_ladder import StopSettings
from actors.supervision.supervisor import Supervisor
from gateway.net.applications import SitesAt
from gateway.net.http1.app_call import App, AsgiScope, Receive, Send
from gateway.net.http1.door import Door
from gateway.net.http1.settings import DoorSettings
from gateway.net.refusal_form import FormOf, device_form_only
from tests import transport

PATIENCE_S = 20.0
BODY_BYTES_MAX = 1000
HOST = b"Host: test\r\n"


async def read_body(receive: Receive) -> bytes | None:
    """The whole body; None when the client went away before its end."""
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message["more_body"]:
            return body


async def answer(send: Send, body: bytes = b"ok", status: int = 200, *, length: bool = True) -> None:
    headers = [(b"content-length", str(len(body)).encode())] if length else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: AsgiScope, receive: Receive, send: Send) -> None:
    """Says what it got, as JSON; over a WebSocket, the same text."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        message = await receive()
        await send({"type": "websocket.send", "text": message["text"]})
        await send({"type": "websocket.close"})
        return
    body = await read_body(receive)
    if body is None:
        return
    said = {
        "method": scope["method"],
        "path": scope["path"],
        "query": scope["query_string"].decode(),
        "body": body.decode("latin-1"),
        "version": scope["http_version"],
        "client": scope["client"][0],
        "scheme": scope["scheme"],
    }
    await answer(send, json.dumps(said).encode())


@dataclass
class Response:
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def said(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.body)
        return said

    @property
    def code(self) -> str:
        """The error envelope's."""
        assert self.headers[b"connection"] == b"close"
        assert set(self.said) >= {"code", "message", "suggested_fix", "correlation_id"}
        return str(self.said["code"])


@dataclass
class Client:
    stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] | transport.TlsClientStream
    buffer: bytearray = field(default_factory=bytearray)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def _more(self) -> None:
        data = await self.stream.receive_some()
        if not data:
            raise EOFError(bytes(self.buffer))
        self.buffer += data

    async def _take(self, count: int) -> bytes:
        while len(self.buffer) < count:
            await self._more()
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        return data

    async def _line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            await self._more()
        return (await self._take(self.buffer.index(b"\r\n") + 2))[:-2]

    async def response(self, *, to_head: bool = False) -> Response:
        status = int((await self._line()).split()[1])
        headers = {}
        while line := await self._line():
            name, _, value = line.partition(b": ")
            headers[name] = value
        body = b""
        if to_head or status in (100, 204, 304):
            pass
        elif b"content-length" in headers:
            body = await self._take(int(headers[b"content-length"]))
        elif headers.get(b"transfer-encoding") == b"chunked":
            while size := int(await self._line(), 16):
                body += (await self._take(size + 2))[:-2]
            assert await self._line() == b""
        else:
            body = await self.rest()
        return Response(status, headers, body)

    async def ask(self, data: bytes) -> Response:
        await self.send(data)
        return await self.response()

    async def get(self, path: str = "/") -> Response:
        return await self.ask(b"GET %b HTTP/1.1\r\n%b\r\n" % (path.encode(), HOST))

    async def rest(self) -> bytes:
        """Everything until the end of the connection; raises BrokenResourceError when it was reset."""
        while data := await self.stream.receive_some():
            self.buffer += data
        data, self.buffer = bytes(self.buffer), bytearray()
        return data


@dataclass
class Site:
    door: Door
    port: int
    supervisor: Supervisor
    logged: list[EventDict]

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with await transport.open_stream(self.port) as stream:
            yield Client(stream)

    @contextlib.asynccontextmanager
    async def tls_client(self, trusts: ssl.SSLContext, *alpn: str) -> AsyncIterator[Client]:
        trusts.set_alpn_protocols(alpn or ["http/1.1"])
        raw = await trio.open_tcp_stream("127.0.0.1", self.port)
        stream = trio.SSLStream(raw, trusts, server_hostname="127.0.0.1", https_compatible=True)
        async with stream:
            await stream.do_handshake()
            yield Client(stream)

    async def idle(self) -> None:
        """Until the door holds no connection."""
        await until(lambda: self.door.connections == 0)


async def until(condition: Callable[[], bool]) -> None:
    """Let the others run until it holds: real sockets need real rounds of the loop, but no time of their own."""
    while not condition():
        await trio.lowlevel.checkpoint()


@contextlib.asynccontextmanager
async def site(
    app: App = echo,
    settings: DoorSettings | None = None,
    stop: StopSettings | None = None,
    tls: ssl.SSLContext | None = None,
    takes_upgrade: Callable[[str], bool] = lambda _: False,
    form_of: FormOf = device_form_only,
    sites: SitesAt | None = None,
) -> AsyncIterator[Site]:
    with trio.fail_after(PATIENCE_S), capture_logs() as logged:
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor(stop=stop)
            await nursery.start(supervisor.run)
            door = Door(
                supervisor,
                app,
                body_bytes_max=lambda path: 10 if path == "/small" else BODY_BYTES_MAX,
                settings=settings,
                tls=tls or transport.server(),
                takes_upgrade=takes_upgrade,
                form_of=form_of,
                sites=sites,
            )
            port = await door.listen("127.0.0.1", 0)
            yield Site(door, port, supervisor, logged)
            nursery.cancel_scope.cancel()
    # Whatever an application or a client does, no task of the door's fails.
    assert [entry for entry in logged if entry["event"] == "actor_crashed"] == []
