"""HTTP/2 and WebSocket connections that came to the door, served by hypercorn with the same application.

hypercorn's per-connection server is used as it is, on a stream that replays what the door has read and that bounds its
writes (it shields them from cancellation). Limits on bodies and messages over these protocols are hypercorn's
(`Config`) and the application's: the door's limit by path does not reach here.
"""

from collections.abc import Callable
from typing import Any

import structlog
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext

from actors.supervision.crash_report import report
from actors.supervision.in_flight import InFlight
from gateway.door.exchange import App, Receive, Scope, Send
from gateway.door.requests import H2_PREFACE
from gateway.door.wire import ReplayedStream

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class HypercornBridge:
    """`Door(pass_on=bridge.serve)`. `calls` counts requests under way, which a stop waits for; WebSockets are not."""

    def __init__(self, app: App, calls: InFlight, configure: Callable[[Config], None] = lambda _: None) -> None:
        self._app = app
        self._calls = calls
        self._context = WorkerContext(None)
        self._http2 = _config(configure)
        self._websocket = _config(configure)
        # A refused WebSocket closes its connection: what followed on it would not have come through the door.
        self._websocket.keep_alive_max_requests = 0

    async def serve(self, stream: ReplayedStream) -> None:
        config = self._http2 if stream.replay.startswith(H2_PREFACE) else self._websocket
        # hypercorn's annotation knows only its own kind of stream; it uses what ours has.
        server: Any = TCPServer(ASGIWrapper(self._serve_app), config, self._context, {}, stream)  # type: ignore[arg-type]
        try:
            await server.run()
        except Exception as exc:
            log.error("hypercorn_connection_failed", causes=report(exc))

    async def _serve_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http":
                with self._calls:
                    await self._app(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except Exception as exc:
            # Here, not in hypercorn, which would log the text of the exception, and that may be a device's.
            log.error("request_failed", causes=report(exc))


def _config(configure: Callable[[Config], None]) -> Config:
    config = Config()
    config.accesslog = config.errorlog = None
    config.include_server_header = False
    configure(config)
    return config
