"""One request and its response: the application's `receive` and `send`, and what the door offers it beyond ASGI.

That is `body_now`, `pace_body`, `when_gone`, `send_file`, `adopt` and, for a WebSocket, `adopt_with_input`. A
disconnect is noticed by reading on when the application calls `receive` after the body, or has asked for it by
`when_gone`; no task watches for it. What is read then belongs to the next request. Calling the application, and what
follows its end, is the connection's.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

import trio

from gateway.net.asgi import App as App
from gateway.net.asgi import AsgiScope as AsgiScope
from gateway.net.asgi import Message as Message
from gateway.net.asgi import Receive as Receive
from gateway.net.asgi import Send as Send
from gateway.net.body_pace_rules import BodyPace, BodyWait
from gateway.net.http1.heads import Head
from gateway.net.http1.requests import Refusal, RequestReader
from gateway.net.http1.responses import CONTINUE, BadResponseError, Response
from gateway.net.http1.settings import DoorSettings
from gateway.net.http1.wire import Wire
from gateway.net.refusal_form import RefusalForm
from gateway.net.tls_socket import AnySocket


class AppCall:
    def __init__(
        self,
        head: Head,
        reader: RequestReader,
        wire: Wire,
        settings: DoorSettings,
        is_stopping: Callable[[], bool],
        tell: Callable[[HTTPStatus, RefusalForm | None], Awaitable[None]],
        cancel: Callable[[], None],
    ) -> None:
        self.response = Response(head.method, head.version, keep_alive=head.keep_alive)
        self.adopted = False
        self.ended_early = False
        """The body broke off, or was refused: nothing can follow on this connection."""
        self.refused = False
        self.hung_up = False
        """The application was told that the peer sends no more, and may take it for gone: it owes no response."""
        self._reader = reader
        self._wire = wire
        self._settings = settings
        self._is_stopping = is_stopping
        self._tell = tell
        self._cancel = cancel
        self._asked = head
        self._continue_wanted = head.expects_continue
        self._body_given = False
        self._body_wait: BodyWait | None = None  # once it is waited for: most bodies come with their heads
        self._form: RefusalForm | None = None  # None: as its path has it
        self._receiving = False
        self._head = b""
        self._watch: trio.CancelScope | None = None
        self._then: Callable[[], None] | None = None
        self.watch_crash: Exception | None = None
        """A bug of ours while looking for a disconnect; whoever asked to be told of one has been."""

    # ---- receive ----------------------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        if self._receiving or self._then is not None:
            raise RuntimeError("another task waits in receive(), or when_gone() was called")
        self._receiving = True
        try:
            if self.adopted or self.ended_early or self.response.complete:
                await trio.lowlevel.checkpoint()
            elif self._body_given:
                await self._wait_for_disconnect()
            else:
                body = self._reader.next_body()
                if not isinstance(body, bytes):
                    body = await self._wait_for_body(body)
                if body is not None:
                    self._body_given = self._reader.body_complete
                    return {"type": "http.request", "body": body, "more_body": not self._body_given}
        except OSError:
            self.ended_early = True
        finally:
            self._receiving = False
        return {"type": "http.disconnect"}

    async def _wait_for_body(self, body: Refusal | bytes | None) -> bytes | None:
        """Some of it, once it comes; None when it is refused or breaks off."""
        if body is None and self._continue_wanted and not self.response.started:
            self._continue_wanted = False
            await self._wire.write(CONTINUE)
        if self._body_wait is None:
            self._body_wait = BodyWait(BodyPace(self._settings.body_s_max))
        while body is None:
            began_s = trio.current_time()
            data: bytes | None = None
            with trio.move_on_after(self._body_wait.left_s()):
                data = await self._wire.read()
            self._body_wait.waited(trio.current_time() - began_s, len(data or b""))
            if data:
                self._reader.receive_data(data)
                body = self._reader.next_body()
            elif data is None:
                body = Refusal(HTTPStatus.REQUEST_TIMEOUT)
            else:
                self.ended_early = True
                return None
        if isinstance(body, bytes):
            return body
        self.ended_early = True
        if not self.response.started:
            self.refused = True
            await self._tell(body.status, self._form or self._asked.refusal_form)
        return None

    async def _wait_for_disconnect(self) -> None:
        with trio.CancelScope() as self._watch:
            while self._has_room():
                data = await self._wire.read()
                if not data:
                    self.hung_up = True
                    return
                self._reader.receive_data(data)
            await trio.sleep_forever()
        self._watch = None

    def pace_body(self, pace: BodyPace, form: RefusalForm | None = None) -> None:
        """What the body is held to from now on, instead of `body_s_max`; `form`: how it is said if it is not."""
        self._form = form
        if self._body_wait is None:
            self._body_wait = BodyWait(pace)
        self._body_wait.pace = pace

    def body_now(self) -> bytes | None:
        """What `receive` has not given of the body, if all of it is here; None: it must be waited for, in `receive`."""
        if self._receiving or self._body_given or self.adopted or self.ended_early or not self._reader.body_is_here:
            return None
        body = self._reader.next_body()
        self._body_given = self._reader.body_complete
        return body if isinstance(body, bytes) else None

    def when_gone(self, then: Callable[[], None] | None = None) -> None:
        """Call `then` if the peer hangs up before its response is whole. For after the body; no `receive` may follow.

        What `receive` in a task of its own would tell, for a fraction of what that task costs. Without `then` it is the
        request that is cancelled, its connection with it, if the peer hangs up before its response begins.
        """
        if not self._body_given or self._receiving or self._then is not None or self.adopted or self.ended_early:
            raise RuntimeError("when_gone() is for once after the body, with no receive() pending")
        self._then = then or self._cancel
        if self._has_room():
            self._wire.watch(self)

    def on_readable(self) -> None:
        """The pump says so, while the application works."""
        data = self._wire.read_now()
        if data == b"":
            self.hung_up = True
            self._wire.unwatch()
            self._tell_gone()
        elif data is not None:
            self._reader.receive_data(data)
            if not self._has_room():
                self._wire.unwatch()

    def crash(self, exc: Exception) -> None:
        self.watch_crash = exc
        self._wire.unwatch()
        if self._then is not self._cancel:  # a cancelled request would end without a report
            self._tell_gone()

    def _tell_gone(self) -> None:
        if self._then is not None:
            self._then()

    def end(self) -> None:
        """The application has returned: nobody is to be told anything any more."""
        self._wire.unwatch()

    def _has_room(self) -> bool:
        """Whether more may be read; else the peer sends too far ahead, and the kernel keeps the rest."""
        return self._reader.pending_bytes < self._settings.ahead_bytes_max

    # ---- send -------------------------------------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        if self.adopted:
            raise RuntimeError("the connection has been adopted")
        if self.ended_early and not self.response.started:
            await trio.lowlevel.checkpoint()
            return  # it was refused, or nobody is there; the application may not have noticed yet
        kind = message["type"]
        if kind == "http.response.start":
            if self._then is self._cancel:
                self._wire.unwatch()
            self.response.keep_alive &= self._reader.body_is_here and not self._is_stopping()
            head = self.response.head(message["status"], message.get("headers", ()))
            if self.response.length_follows:
                self._head = head  # goes with the body, in one packet
            else:
                await self._wire.write(head)  # of a stream, whose first bytes may be long in coming
        elif kind == "http.response.body":
            more = message.get("more_body", False)
            if data := self._head + self.response.body(message.get("body", b""), more=more):
                self._head = b""
                if left := self._wire.write_now(data):
                    await self._wire.write_slowly(left)
            if more:
                await trio.lowlevel.checkpoint()  # writing seldom waits, and the others want their turn
            else:
                self._ended()
        else:
            raise BadResponseError("no such message")

    async def send_file(self, fd: int, start: int, count: int) -> None:
        """The whole body, straight from an open file, instead of `http.response.body`; for after a start with exactly
        this length. Raises UnreadableFileError; the connection is lost then, as its peer must notice."""
        if self.adopted:
            raise RuntimeError("the connection has been adopted")
        if self.ended_early and not self.response.started:
            await trio.lowlevel.checkpoint()
            return
        is_wanted = self.response.takes_file(count)
        head, self._head = self._head, b""
        if is_wanted:
            await self._wire.write_file(head, fd, start, count)
        self.response.complete = True
        self._ended()

    def _ended(self) -> None:
        """The response is whole: nobody waits for a disconnect any more."""
        self._wire.unwatch()
        if self._watch is not None:
            self._watch.cancel()

    # ---- adopt ------------------------------------------------------------------------------------------------------

    def adopt(self) -> AnySocket:
        """Take the socket, non-blocking, for good; what was read past the request is dropped."""
        if self.adopted or self.ended_early or self.response.started or self._receiving:
            raise RuntimeError("adopt() is for a request before its response, with no receive() pending")
        sock = self._wire.detach()
        self.adopted = True
        return sock

    def adopt_with_input(self) -> tuple[AnySocket, bytes]:
        """As `adopt`, with what was read past the request."""
        return self.adopt(), self._reader.take_pending()
