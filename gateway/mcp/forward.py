"""A request for a session that lives in another process, handed to it as it came, and its answer handed back.

The other process verifies the token again: nobody is believed for having come this way. Bytes go in both directions as
they come, so streams are streams; a client that does not read makes the other process wait, and one that hangs up ends
the request there. If the other process dies, what it had begun to answer ends, and the client comes back.
"""

from dataclasses import dataclass

import h11
import trio

from gateway.mcp.homes import Home, Homes
from gateway.net.exchange import Exchange, Send

VIA = b"heliograph-via"  # the client's address; a request that was handed over once is answered where it is
FORWARDS_MAX = 4_096  # at the same time; the next one is 503
CONNECT_S_MAX = 2.0  # then the session counts as gone
LOOK_S = 2.0  # between looks whether the other process lives
HEAD_BYTES_MAX = 64 * 1024  # of an answer
READ_BYTES = 64 * 1024
UNIX = "unix:"

_OF_THE_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"expect", b"upgrade", b"te", VIA)
)
_DROPPED = (b"connection", b"keep-alive", b"transfer-encoding", b"access-control-")
"""Of an answer; the last is added here to every answer, where it is wanted."""


@dataclass(slots=True)
class Forwards:
    """`host`: this machine's name, whose unix sockets can be reached."""

    homes: Homes
    host: str
    under_way: int = 0

    async def take(self, exchange: Exchange, session_id: str | None, body: bytes | None) -> bool:
        """Whether it was answered: not, if its session is here, or nowhere."""
        if exchange.header(VIA) is not None:
            return False
        home = await self.homes.find(session_id)
        return home is not None and await self.hand_over(exchange, home, body)

    async def hand_over(self, exchange: Exchange, home: Home, body: bytes | None) -> bool:
        """Whether it was answered; not, if that process cannot be reached. `body`: if it was read."""
        stream = await self._connect(home)
        if stream is None:
            return False
        async with stream:
            if self.under_way >= FORWARDS_MAX:
                message = "Too many requests of other gateways' sessions are under way."
                await exchange.refuse_status(503, message, "Try again in a while.")
                return True
            self.under_way += 1
            try:
                try:
                    answer = _Answer(stream, exchange, await exchange.body() if body is None else body)
                except h11.LocalProtocolError:  # such as HTTP/1.0 without a Host, or what HTTP/2 takes and 1.1 does not
                    message = "The request cannot be handed to the gateway that has what it is about."
                    await exchange.refuse_status(400, message, "Send a Host, and no control characters in headers.")
                    return True
                is_over = await exchange.while_there(lambda: self._while_alive(home, answer))
                if is_over and not answer.has_begun:
                    message = "The gateway that has this session broke off. Whether the request was done is not known."
                    await exchange.refuse_status(503, message, "Initialize anew, and look before you ask again.")
            finally:
                self.under_way -= 1
        return True

    async def _connect(self, home: Home) -> trio.SocketStream | None:
        with trio.move_on_after(CONNECT_S_MAX):
            try:
                if home.address.startswith(UNIX):
                    if home.host != self.host:
                        return None
                    return await trio.open_unix_socket(home.address.removeprefix(UNIX))
                host, _, port = home.address.rpartition(":")
                return await trio.open_tcp_stream(host.strip("[]"), int(port))
            except (OSError, ValueError):
                return None
        return None

    async def _while_alive(self, home: Home, answer: "_Answer") -> bool:
        """True, for whoever is told nothing when its client is gone."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cut_when_gone, home, nursery.cancel_scope)
            await answer.give()
            nursery.cancel_scope.cancel()
        return True

    async def _cut_when_gone(self, home: Home, scope: trio.CancelScope) -> None:
        while self.homes.is_alive(home):  # noqa: ASYNC110 (a process that hangs says nothing)
            await trio.sleep(LOOK_S)
        scope.cancel()


class _Answer:
    def __init__(self, stream: trio.SocketStream, exchange: Exchange, body: bytes) -> None:
        """Raises h11.LocalProtocolError: what came cannot be said again."""
        self.has_begun = False
        self._stream = stream
        self._exchange = exchange
        self._body = body
        self._http = h11.Connection(h11.CLIENT, HEAD_BYTES_MAX)
        self._asked = self._question()

    async def give(self) -> None:
        """As far as it comes."""
        try:
            await self._stream.send_all(self._asked)
            await self._exchange.hand_over(lambda _, send: self._hand_back(send))
        except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError):
            return

    def _question(self) -> bytes:
        scope = self._exchange.scope
        headers = [(name, value) for name, value in scope["headers"] if name not in _OF_THE_CONNECTION]
        client = (scope.get("client") or ("",))[0].encode("latin-1", "replace") or b"unknown"
        headers += [(VIA, client), (b"connection", b"close")]
        body = self._body
        if body:
            headers.append((b"content-length", b"%d" % len(body)))
        query: bytes = scope["query_string"]
        target = (scope.get("raw_path") or scope["path"].encode()) + (b"?" + query if query else b"")
        request = h11.Request(method=scope["method"], target=target, headers=headers)
        data = self._http.send(request) or b""
        if body:
            data += self._http.send(h11.Data(data=body)) or b""
        return data + (self._http.send(h11.EndOfMessage()) or b"")

    async def _hand_back(self, send: Send) -> None:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._stream.receive_some(READ_BYTES))
            elif isinstance(event, h11.Response):
                headers = [(name, value) for name, value in event.headers if not name.startswith(_DROPPED)]
                self.has_begun = True
                await send({"type": "http.response.start", "status": event.status_code, "headers": headers})
            elif isinstance(event, h11.Data):
                await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
            elif isinstance(event, h11.EndOfMessage):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            elif isinstance(event, h11.ConnectionClosed):
                return
