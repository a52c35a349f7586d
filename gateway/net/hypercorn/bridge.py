"""Connections that hypercorn serves with the same application: HTTP/2, and WebSockets that the door passes on.

hypercorn's per-connection server is used as it is, on a stream that bounds its writes (it shields them from
cancellation) and with each request held to the door's bounds (`foreign_exchange.py`). Here are the connections: what
hypercorn is told of our limits, and whose request it is; when one ends is in `life.py`.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import structlog
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext

from actors.supervision.crash_report import report
from gateway.net.applications import Application
from gateway.net.body_pace_rules import BODY_PACE
from gateway.net.http1.app_call import AsgiScope, Receive, Send
from gateway.net.http1.requests import H2_PREFACE
from gateway.net.http1.service import Service
from gateway.net.http1.settings import DoorSettings
from gateway.net.http1.wire import ReplayedStream
from gateway.net.hypercorn.fix import MendedConfig, mend_http2
from gateway.net.hypercorn.foreign_exchange import ForeignExchange, answer_with
from gateway.net.hypercorn.life import ConnectionLife
from gateway.net.hypercorn.raw_websocket import RAW_WEBSOCKET, offer_raw_websockets
from gateway.net.hypercorn.request_host import application_of, refusing_application

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class HypercornBridge:
    """Requests under way are counted as calls, which a stop waits for; WebSockets are not."""

    def __init__(self, service: Service) -> None:
        mend_http2()
        offer_raw_websockets()
        self._service = service
        self._context = WorkerContext(None)
        self._config = _config(service.settings)
        self._websocket = _config(service.settings)
        # A refused WebSocket closes its connection: what followed on it would not have come through the door.
        self._websocket.keep_alive_max_requests = 0

    async def serve(self, stream: ReplayedStream, life: ConnectionLife) -> None:
        """Returns when the connection is over."""
        upgrades = bool(stream.replay) and not stream.replay.startswith(H2_PREFACE)
        config = self._websocket if upgrades else self._config

        async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
            with life.request(is_call=scope["type"] == "http"):
                await self._serve_app(scope, receive, send, stream.abort)

        # hypercorn's annotation knows only its own kind of stream; it uses what ours has.
        watched: Any = _Watched(stream, life.peer_is_gone)
        with life.connection():
            try:
                await TCPServer(ASGIWrapper(app), config, self._context, {}, watched).run()  # type: ignore[arg-type]
            except Exception as exc:
                log.error("hypercorn_connection_failed", causes=report(exc))

    async def _serve_app(self, scope: AsgiScope, receive: Receive, send: Send, abort: Callable[[], None]) -> None:
        asked = application_of(scope, self._service.applications)
        application = asked or refusing_application(scope, self._service.applications)
        if scope["type"] == "http":
            exchange = ForeignExchange(self._service, application, scope, receive, send, abort)
            scope["extensions"] = {**scope.get("extensions", {}), BODY_PACE: exchange.pace_body}
            receive, send = exchange.receive, exchange.send
        else:
            # Over HTTP/2 other requests share the connection, and a cancel reaches what waits for flow control.
            may_abort = scope["http_version"] != "2"
            scope["extensions"][RAW_WEBSOCKET] = abort if may_abort else lambda: None
        refused: HTTPStatus | None = None
        # Over HTTP/2 hypercorn announces this limit and does not keep it.
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._service.settings.head_bytes_max:
            refused = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        elif asked is None:
            refused = HTTPStatus.BAD_REQUEST
        try:
            if refused is not None:
                # Of a request that nobody could place, nobody can tell where the next one begins; HTTP/2 always can.
                closes = refused is HTTPStatus.BAD_REQUEST and scope["http_version"] != "2"
                if closes and scope["type"] == "http":
                    await exchange.discard()  # h11 hangs up on what follows a last request, before its answer too
                await self._refuse(refused, application, scope, send, closes=closes)
            else:
                await self._for_client(application, scope, receive, send)
        except Exception as exc:
            # Here, not in hypercorn, which would log the text of the exception, and that may be a device's.
            log.error("request_failed", causes=report(exc))
            if scope["type"] == "http":
                await exchange.fail()

    async def _for_client(self, application: Application, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Call the application, for the client that a proxy vouches for if one does."""
        addresses = self._service.addresses
        peer: str | None = None if scope["client"] is None else scope["client"][0]  # None: over a unix socket
        if peer is None or not addresses.is_proxy(peer):
            await application.app(scope, receive, send)
            return
        client = addresses.vouched_for(peer, scope["headers"])
        if not addresses.enter(client):
            await self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, application, scope, send)
            return
        scope["client"] = (client, 0)
        try:
            await application.app(scope, receive, send)
        finally:
            addresses.leave(client)

    async def _refuse(
        self, status: HTTPStatus, application: Application, scope: AsgiScope, send: Send, *, closes: bool = False
    ) -> None:
        if scope["type"] == "http":
            form = application.form_of(scope["path"])
            await answer_with(status, self._service.correlation_id(), send, form, closes=closes)
        else:
            await send({"type": "websocket.close"})


class _Watched:
    """A stream that tells when nothing more can be read from it; all else is the stream's own."""

    def __init__(self, stream: ReplayedStream, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive_some(self, max_bytes: int) -> bytes:
        data = b""
        try:
            data = bytes(await self._stream.receive_some(max_bytes))
        finally:
            if not data:
                self._on_end()
        return data


def _config(settings: DoorSettings) -> Config:
    config = MendedConfig()
    config.accesslog = config.errorlog = None
    config.include_server_header = False
    config.h11_max_incomplete_size = settings.head_bytes_max
    config.h2_max_header_list_size = settings.head_bytes_max
    config.h2_max_concurrent_streams = settings.http2_streams_max
    config.h2_resets_per_s_max = settings.http2_resets_per_s_max
    config.websocket_max_message_size = settings.websocket_bytes_max
    config.websocket_ping_interval = settings.websocket_ping_s
    config.keep_alive_timeout = settings.idle_s_max  # for a head too: hypercorn starts no clock of its own for it
    config.keep_alive_max_requests = settings.hypercorn_requests_max
    return config
