"""A `subscribe` call that asks for an event stream: from request to stream (RFC-0009 §3).

On the door the stream gets the connection's socket and this request's task ends; elsewhere (HTTP/2) the task stays
and passes the stream's bytes to ASGI `send`.
"""

from collections.abc import Iterable
from functools import lru_cache

from actors.stream.actor import StreamActor
from actors.supervision.errors import SupervisorStoppingError
from gateway.calls.audit import Origin
from gateway.calls.flat_names import target_of
from gateway.calls.tool_calls import Refused
from gateway.governance.spend.rate_headers import rate_headers
from gateway.identity.tokens import Principal
from gateway.main.feature import Feature
from gateway.net.exchange import CORRELATION_ID, Exchange
from gateway.net.http1.connection import ADOPT
from gateway.net.http1.responses import date_line
from gateway.net.pump import Pump
from gateway.streams.stream_send import StreamSend
from gateway.streams.stream_socket import stream_socket
from gateway.streams.subscriptions import Opening, Subscriptions
from schemas.closes import StreamClose
from schemas.projection import ToolName

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_HEAD = b"".join((b"HTTP/1.1 200 OK\r\n", *(b"%b: %b\r\n" % header for header in HEADERS), b"connection: close\r\n"))


@lru_cache(64)  # a client sends the same again and again
def asks_for_events(accept: str | None) -> bool:
    """Whether `Accept` names text/event-stream; a wildcard does not."""
    for item in (accept or "").lower().split(","):
        media_type, *parameters = (part.strip() for part in item.split(";"))
        if media_type == "text/event-stream":
            return not any(q.removeprefix("q=").strip("0.") == "" for q in parameters if q.startswith("q="))
    return False


class Subscribe:
    """What `POST /mcp/tools/call` passes on. Its streams end with their token."""

    def __init__(self, subscriptions: Subscriptions, pump: Pump) -> None:
        self._subscriptions = subscriptions
        self._pump = pump

    @property
    def feature(self) -> Feature:
        streams = self._subscriptions.streams
        return Feature(
            start=lambda _: streams.start(),
            revoke=streams.revoke,
            end_all=lambda: streams.end_all(StreamClose.DEVICE_OFFLINE),
        )

    def wants(self, exchange: Exchange, tool: str) -> bool:
        """Whether this call is to be answered with a stream."""
        return _is_subscribe(tool) and asks_for_events(exchange.header(b"accept"))

    async def open(
        self, exchange: Exchange, principal: Principal, name: str, arguments: object, origin: Origin
    ) -> Refused | None:
        """None when there was a stream, or still is; or when we stop, and the connection has been closed."""
        try:
            return await self._open(exchange, principal, name, arguments, origin)
        except SupervisorStoppingError:
            return None

    async def _open(
        self, exchange: Exchange, principal: Principal, name: str, arguments: object, origin: Origin
    ) -> Refused | None:
        adopt = exchange.extension(ADOPT)
        if adopt is not None:
            input_bytes_max = self._subscriptions.streams.settings.input_bytes_max
            opened = await self._subscriptions.open(
                principal,
                name,
                arguments,
                _head,
                lambda: stream_socket(adopt(), self._pump, input_bytes_max),
                origin,
            )
            return opened if isinstance(opened, Refused) else None
        outlet = StreamSend(HEADERS)

        def head(opening: Opening) -> bytes:
            outlet.add_headers(_of(opening))
            return b""

        answer = await self._subscriptions.open(principal, name, arguments, head, lambda: outlet, origin)
        if isinstance(answer, StreamActor):
            await exchange.hand_over(outlet.serve)
            return None
        return answer


def _head(opening: Opening) -> bytes:
    own = b"%b: %b\r\n" % (CORRELATION_ID, opening.correlation_id.encode())
    if opening.rates:
        own += b"".join([b"%b: %b\r\n" % one for one in rate_headers(opening.rates).items()])
    return _HEAD + own + date_line()


def _of(opening: Opening) -> Iterable[tuple[bytes, bytes]]:
    """The headers that this stream alone has."""
    return {CORRELATION_ID: opening.correlation_id.encode(), **rate_headers(opening.rates)}.items()


def _is_subscribe(name: str) -> bool:
    target = target_of(name)
    return isinstance(target, ToolName) and target.verb == "subscribe"
