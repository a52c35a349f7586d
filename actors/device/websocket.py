"""The wire as a WebSocket (device wire §2.1, §2.2), over trio-websocket.

`WebSocketDialer` is a `Connect`: each call opens one connection, and keeps it in a task of its own so that a fault in
the library takes down that connection and nothing else. Everything that library raises is translated here, to
WireClosed. What the frames mean is for others.
"""

import ssl

import structlog
import trio
import trio_websocket

from actors.device.gateway_address import USER_AGENT, GatewayAddress, Stream
from actors.device.wire import ABNORMAL, Wire, WireClosed
from schemas.closes import NodeClose
from schemas.frames import FRAME_BYTES_MAX, SUBPROTOCOL

CONNECT_S_MAX = 10.0
CLOSE_S_MAX = 2.0
FRAMES_QUEUED_MAX = 64  # read ahead of the agent, which never lets them wait for long

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class WebSocketWire:
    def __init__(self, connection: trio_websocket.WebSocketConnection) -> None:
        self._connection = connection
        self.released = trio.Event()

    async def send(self, data: bytes) -> None:
        try:
            await self._connection.send_message(data.decode())
        except trio_websocket.ConnectionClosed as closed:
            raise _translated(closed) from closed

    async def receive(self) -> bytes:
        try:
            message = await self._connection.get_message()
        except trio_websocket.ConnectionClosed as closed:
            raise _translated(closed) from closed
        if isinstance(message, bytes):  # not a text frame: whoever sent this does not speak our protocol
            await self.aclose(NodeClose.BAD_FRAME.value.code, NodeClose.BAD_FRAME.value.reason)
            raise WireClosed(NodeClose.BAD_FRAME.value.code, "a binary frame")
        return message.encode()

    async def aclose(self, code: int, reason: str) -> None:
        try:
            with trio.move_on_after(CLOSE_S_MAX):
                await self._connection.aclose(code, reason)
        finally:
            self.released.set()


class WebSocketDialer:
    """Dials `url` (ws: or wss:). Connections live in `nursery`, which has to outlive every wire."""

    def __init__(self, nursery: trio.Nursery, url: str, *, tls: ssl.SSLContext | None = None) -> None:
        self._nursery = nursery
        self._address = GatewayAddress(url, tls=tls)

    async def __call__(self) -> Wire:
        wire: WebSocketWire = await self._nursery.start(self._hold)
        return wire

    async def _hold(self, *, task_status: trio.TaskStatus[WebSocketWire]) -> None:
        """Open a connection, hand it over, and keep it until it is released."""
        stream: Stream | None = None
        wire: WebSocketWire | None = None
        try:
            async with trio.open_nursery() as nursery:
                # Not open_websocket: when that times out it still waits for its reader, which nobody ends (0.12.2).
                with trio.fail_after(CONNECT_S_MAX):
                    stream = await self._address.open_stream()
                    connection = await self._shake_hands(nursery, stream)
                wire = WebSocketWire(connection)
                task_status.started(wire)
                await wire.released.wait()
                nursery.cancel_scope.cancel()
        except Exception as error:
            if wire is None:
                raise WireClosed(ABNORMAL, _why_not(error)) from error
            log.error("websocket_crashed", error=type(error).__name__)  # the agent notices that its wire is closed
        finally:
            if stream is not None:
                await trio.aclose_forcefully(stream)

    async def _shake_hands(self, nursery: trio.Nursery, stream: Stream) -> trio_websocket.WebSocketConnection:
        connection = await trio_websocket.wrap_client_stream(
            nursery,
            stream,
            self._address.host_header,
            self._address.resource,
            subprotocols=[SUBPROTOCOL],
            extra_headers=[(b"user-agent", USER_AGENT.encode())],
            message_queue_size=FRAMES_QUEUED_MAX,
            max_message_size=FRAME_BYTES_MAX,
        )
        if connection.subprotocol != SUBPROTOCOL:
            raise trio_websocket.HandshakeError
        return connection


def _translated(closed: trio_websocket.ConnectionClosed) -> WireClosed:
    reason = closed.reason
    return WireClosed(ABNORMAL, "broken") if reason is None else WireClosed(reason.code, reason.reason or "")


def _why_not(error: Exception) -> str:
    """In words of our own, for whoever runs the device."""
    if isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    match error:
        case trio_websocket.ConnectionRejected():
            return f"the gateway refused the upgrade with HTTP {error.status_code}"
        case trio_websocket.HandshakeError():
            return f"the other side does not speak {SUBPROTOCOL}"
        case trio.TooSlowError():
            return "the gateway did not answer in time"
        case _:
            return "the gateway cannot be reached"
