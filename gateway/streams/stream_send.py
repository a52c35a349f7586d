"""A stream over ASGI `send`, where there is no socket to adopt: HTTP/2 (hypercorn).

The rules are the same. What is weaker is the knowledge: a frame is pending until the server has taken it for the
client's flow control, which is not yet an acknowledgement. And hypercorn cannot be stopped while it writes to a client
that does not read: then the connection's own write deadline and `TCP_USER_TIMEOUT` end it.
"""

from collections import deque
from collections.abc import Iterable

import trio

from actors.stream.actor import StreamActor
from gateway.net.exchange import Receive, Send

_END = {"type": "http.response.body", "body": b"", "more_body": False}


class StreamSend:
    """Implements `actors.stream.actor.Outlet`; `serve` is run by the request's own task."""

    ends_its_request = False  # which passes the stream's bytes on

    _actor: StreamActor

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._headers = list(headers)
        self._events: deque[bytes] = deque()
        self._outstanding_bytes = 0
        self._more = trio.Event()
        self._finishing = False
        self._started = False
        self._cut_off = False
        self._done = trio.Event()
        self._serving = trio.CancelScope()

    def add_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Before it is served."""
        self._headers += headers

    def belongs_to(self, actor: StreamActor) -> None:
        self._actor = actor

    @property
    def descriptor(self) -> None:
        return None  # of a connection that is not this stream's alone

    def keep(self, data: bytes) -> None:
        self.write(data)

    def lose(self) -> None:
        self._actor.client_gone()

    def write(self, data: bytes) -> bool:
        if not self._done.is_set():
            self._events.append(data)
            self._outstanding_bytes += len(data)
            self._more.set()
        return True

    def outstanding(self) -> int:
        return self._outstanding_bytes

    async def flush(self) -> None:
        await trio.sleep_forever()

    async def finish(self) -> None:
        self._finishing = True
        self._more.set()
        await self._done.wait()

    def close(self) -> None:
        self._cut_off = True
        self._serving.cancel()

    async def serve(self, receive: Receive, send: Send) -> None:
        """Pass on what is written, until the stream is over or the client is gone."""
        try:
            with self._serving:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch, receive)
                    await self._pass_on(send)
                    nursery.cancel_scope.cancel()
            if self._cut_off and self._started:
                # An HTTP/2 stream that is only left stays open to its client. No time for it: noting it takes none.
                with trio.CancelScope(deadline=trio.current_time()):
                    await send(_END)
        finally:
            self._done.set()
            self._actor.client_gone()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._serving.cancel()

    async def _pass_on(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        self._started = True
        while True:
            while self._events:
                await send({"type": "http.response.body", "body": self._events[0], "more_body": True})
                self._outstanding_bytes -= len(self._events.popleft())
            if self._finishing:
                await send(_END)
                return
            self._more = trio.Event()
            await self._more.wait()
