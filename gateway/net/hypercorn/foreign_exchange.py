"""One request that hypercorn serves, held to the door's bounds: `receive` and `send` between it and the application.

hypercorn bounds neither a body nor the time that a peer takes for it. Nor does it survive a response that ends before
its request: over HTTP/2 the next piece of body is a KeyError that ends every stream of the connection, and with ten
pieces queued its tasks wait for each other for ever. So the end of a response is held back until the body is over, its
rest discarded; the peer of a body that does not end loses its connection (`abort`). Whose request it is, and what
becomes of the connection, is the bridge's.
"""

from collections.abc import Callable
from http import HTTPStatus

import structlog
import trio

from gateway.net.applications import Application
from gateway.net.body_pace_rules import BodyPace, BodyWait
from gateway.net.http1.app_call import AsgiScope, Message, Receive, Send
from gateway.net.http1.responses import device_form
from gateway.net.http1.service import Service
from gateway.net.refusal_form import RefusalForm

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

PIECE_BYTES = 16 * 1024
"""Of a response over HTTP/2. Flow control may hold a piece for `write_s_max`: in a larger one a slow peer's progress
would not be seen."""


class ForeignExchange:
    def __init__(
        self,
        service: Service,
        application: Application,
        scope: AsgiScope,
        receive: Receive,
        send: Send,
        abort: Callable[[], None],
    ) -> None:
        self._service = service
        self._settings = service.settings
        self._receive = receive
        self._send = send
        self._abort = abort
        self._is_head: bool = scope["method"] == "HEAD"
        self._is_http2: bool = scope["http_version"] == "2"
        self._body_bytes_left = application.body_bytes_max(scope["path"])
        self._body_wait = BodyWait(BodyPace(self._settings.body_s_max))
        self._form = application.form_of(scope["path"])
        self._body_over = False
        self._taking = trio.Lock()
        self._started = False
        self._ended = False
        self._refused = False

    # ---- receive ----------------------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        if not (self._body_over or self._refused):
            taken = await self._take_in_time()
            if isinstance(taken, HTTPStatus):
                await self._refuse(taken)
            elif taken is not None:
                return taken
        if self._refused:
            await trio.lowlevel.checkpoint()
            return {"type": "http.disconnect"}
        return await self._receive()

    def pace_body(self, pace: BodyPace, form: RefusalForm | None = None) -> None:
        """What the body is held to from now on, instead of `body_s_max`; `form`: how it is said if it is not."""
        self._body_wait.pace = pace
        self._form = form or self._form

    async def _take_in_time(self) -> Message | HTTPStatus | None:
        began_s, message = trio.current_time(), None
        with trio.move_on_after(self._body_wait.left_s()) as patience:
            message = await self._take()
        self._body_wait.waited(trio.current_time() - began_s, len((message or {}).get("body", b"")))
        if patience.cancelled_caught:
            return HTTPStatus.REQUEST_TIMEOUT
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE if self._body_bytes_left < 0 else message

    async def _take(self) -> Message | None:
        """The next of the body; None when it was over before our turn: the application may read while we discard."""
        async with self._taking:
            if self._body_over:
                return None
            message = await self._receive()
            self._body_bytes_left -= len(message.get("body", b""))
            self._body_over = not message.get("more_body", False)  # or the peer is gone
            return message

    async def _discard(self) -> None:
        """The rest of the body; a peer that does not end it has its connection ended, and that ends it too."""
        with trio.move_on_after(self._settings.linger_s_max) as patience:
            while not self._body_over:
                await self._take()
        if patience.cancelled_caught:
            self._abort()
            while not self._body_over:
                await self._take()

    # ---- send -------------------------------------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        if self._refused:
            await trio.lowlevel.checkpoint()
            return  # it was answered for the application, which may not have noticed yet
        self._started = True
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        more: bool = message.get("more_body", False)
        held_back = not (more or self._body_over)
        await self._send_body(message.get("body", b""), more=more or held_back)
        if held_back:
            await self._discard()
            await self._send_body(b"", more=False)
        self._ended = not more

    async def _send_body(self, body: bytes, *, more: bool) -> None:
        if not self._is_http2:
            await self._send({"type": "http.response.body", "body": body, "more_body": more})
            return
        for start in range(0, max(len(body), 1), PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            more_pieces = more or start + PIECE_BYTES < len(body)
            with trio.move_on_after(self._settings.write_s_max) as patience:
                await self._send({"type": "http.response.body", "body": piece, "more_body": more_pieces})
            if patience.cancelled_caught:
                self._abort()
                return

    async def fail(self) -> None:
        """The application did. A response that it has begun must not pass for whole; of HTTP/2, `fix.py` sees to it."""
        if not (self._started or self._refused):
            await self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR)
        elif not (self._ended or self._is_http2):
            self._abort()

    async def _refuse(self, status: HTTPStatus) -> None:
        """Answer for the application; if it has begun to answer, all that is left is to end the connection."""
        self._refused = True
        if self._started:
            self._abort()
            await self._discard()
            return
        with_body = not self._is_head
        correlation_id = self._service.correlation_id()
        await answer_with(status, correlation_id, self._send, self._form, more=True, with_body=with_body)
        await self._discard()
        await self._send({"type": "http.response.body"})


async def answer_with(
    status: HTTPStatus,
    correlation_id: str,
    send: Send,
    form: RefusalForm | None,
    *,
    more: bool = False,
    with_body: bool = True,
) -> None:
    """A refusal in the words that the door has for it."""
    log.info("request_refused", status=status.value, correlation_id=correlation_id)
    refused = (form or device_form)(status, correlation_id)
    headers = [*refused.headers, (b"content-length", b"%d" % len(refused.body))]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": refused.body if with_body else b"", "more_body": more})
