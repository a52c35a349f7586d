"""HTTP/1.1 requests without a body to one origin, over connections that are kept for the next: h11 and nothing else.

No redirect is followed, no proxy is used, a head has a bound, and a body is read only for whoever takes it, piece by
piece. Deadlines are the caller's: a request that is cancelled closes its connection.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeAlias

import h11
import trio

from schemas.echo.errors import EchoError

HEAD_BYTES_MAX = 16 * 1024  # of an answer; then it is none
_HEADS_MAX = 4  # informational ones, before the one that counts
_READ_BYTES = 64 * 1024
_LOST = (OSError, ssl.SSLError, trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError)

Take: TypeAlias = Callable[[bytes], Awaitable[EchoError | None]]  # what there is against this piece of a body


class LostError(Exception):
    """The other side cannot be reached, hung up, or what it says is no HTTP."""


@dataclass(frozen=True, slots=True)
class Head:
    status: int
    length: int | None  # of the body, as far as it says so


class OriginClient:
    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, idle_max: int) -> None:
        """`idle_max`: connections that wait for the next request; one more is closed."""
        self._host = host
        self._port = port
        self._tls = tls
        self._idle_max = idle_max
        self._idle: list[_Connection] = []

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], take: Take | None = None
    ) -> Head | EchoError:
        """The head of the answer, once `take` has had all of its body if the status is 200; or what `take` has against
        it. Raises LostError: whether the request was done, nobody knows.
        """
        request = h11.Request(method=method, target=target, headers=list(headers.items()))
        while True:
            is_kept = bool(self._idle)
            connection = self._idle.pop() if is_kept else await self._connect()
            try:
                return await self._ask_on(connection, request, take)
            except _LOST as error:
                # One that waited may have been closed meanwhile, and what is asked here may be asked twice.
                if not is_kept or connection.is_answering:
                    raise LostError from error

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop().aclose()

    async def _connect(self) -> "_Connection":
        try:
            plain = await trio.open_tcp_stream(self._host, self._port)
        except OSError as error:
            raise LostError from error
        if self._tls is None:
            return _Connection(plain)
        return _Connection(trio.SSLStream(plain, self._tls, server_hostname=self._host, https_compatible=True))

    async def _ask_on(self, connection: "_Connection", request: h11.Request, take: Take | None) -> Head | EchoError:
        is_reusable = False
        try:
            head = await connection.head_for(request)
            if take is not None and head.status == HTTPStatus.OK:
                fault = await connection.give_body(take)
                if fault is not None:
                    return fault
            is_reusable = connection.begin_anew() and len(self._idle) < self._idle_max
        finally:
            if is_reusable:
                self._idle.append(connection)
            else:
                await connection.aclose()
        return head


class _Connection:
    def __init__(self, stream: trio.abc.Stream) -> None:
        self.is_answering = False
        """Whether a byte of the answer has come."""
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, HEAD_BYTES_MAX)

    async def head_for(self, request: h11.Request) -> Head:
        self.is_answering = False
        data = (self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b"")
        await self._stream.send_all(data)
        for _ in range(_HEADS_MAX):
            event = await self._next_event()
            if isinstance(event, h11.Response):
                length = dict(event.headers).get(b"content-length")
                return Head(event.status_code, None if length is None else int(length))
        raise h11.RemoteProtocolError("no answer comes of it")

    async def give_body(self, take: Take) -> EchoError | None:
        while isinstance(event := await self._next_event(), h11.Data):
            fault = await take(bytes(event.data))
            if fault is not None:
                return fault
        return None

    def begin_anew(self) -> bool:
        """Whether the next request may follow: the answer is over, without waiting for any more of it."""
        http = self._http
        if http.their_state is h11.SEND_BODY:
            http.next_event()
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return False
        http.start_next_cycle()
        return True

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = bytes(await self._stream.receive_some(_READ_BYTES))
            self.is_answering |= bool(data)
            self._http.receive_data(data)
        return event

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)
