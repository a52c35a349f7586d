"""Requests of one kind of caller at one path: the SDK's Streamable HTTP transport, and the lives of its sessions.

A request runs no longer than its credential is good: one that has not begun to answer by then is refused, a stream
ends. A session belongs to the credential that opened it, and ends by DELETE, by idleness, or with its credential.
Clients of the modern era have none. Who a caller is, and how a refusal is said, is for whoever has let it in.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache, partial
from typing import Any

import msgspec
import pydantic_core
import trio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import JSONRPCRequest, jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from actors.supervision.child import ChildSpec, Kind
from actors.supervision.in_flight import InFlight
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.main.clock import now
from gateway.main.session_kind import Caller
from gateway.mcp.answer_once import answer_once
from gateway.mcp.sessions import McpSession, Sessions
from gateway.net.exchange import AsgiScope, Exchange, Receive, Send

CALLER = "heliograph.principal"  # in the ASGI scope that the SDK hands to methods
SESSION_ID = b"mcp-session-id"
VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"  # the SDK refuses a request whose body says otherwise
USERS_REMEMBERED_MAX = 1024  # as the SDK wants them; one more, and the one not seen for longest is made again


class LaneFault(Enum):
    """Why a request is not served; nothing has been answered yet."""

    DOUBLED_HEADER = auto()  # the SDK would take the first; it must mean the same to both of us
    DOUBLED_ID = auto()  # of a request under way in the session, which the SDK would then never answer
    STOPPING = auto()
    TOO_MANY_SESSIONS = auto()


@dataclass(frozen=True, slots=True)
class Transport:
    """What the SDK is told."""

    security: TransportSecuritySettings
    body_bytes_max: int
    sessions_max: int
    sweep_s: float
    streams_answers: bool = False
    any_origin: bool = False


class Lane:
    def __init__(
        self,
        name: str,
        path: str,
        make_server: Callable[[], Server[Any]],
        sessions: Sessions,
        transport: Transport,
        on_stop: Callable[[], None] = lambda: None,
        ends_at_ms: Callable[[Caller], int] = lambda caller: caller.expires_at_ms,
        opened: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`name` is the supervised task's. `ends_at_ms`: until when a caller's session may last, as things are now.
        `opened`: told of each session before its client is."""
        self.sessions = sessions
        self._name = name
        self._path = path
        self._make_server = make_server
        self._transport = transport
        self._on_stop = on_stop
        self._ends_at_ms = ends_at_ms
        self._opened = opened
        self._manager: StreamableHTTPSessionManager | None = None
        self._requests: dict[trio.CancelScope, str] = {}  # under way, with the id of their credential
        self._in_flight = InFlight()
        self._stopping = False
        self._news = trio.Event()

    @property
    def requests_under_way(self) -> int:
        return self._in_flight.count

    # ---- its life ---------------------------------------------------------------------------------------------------

    def start(self, supervisor: Supervisor) -> None:
        supervisor.start(
            ChildSpec(
                name=self._name,
                run=self._run,
                kind=Kind.PERMANENT,
                stage=Stage.STREAMS,
                ask_stop=self._ask_stop,
            )
        )

    async def _run(self) -> None:
        transport = self._transport
        manager = StreamableHTTPSessionManager(
            self._make_server(),
            json_response=not transport.streams_answers,
            security_settings=transport.security,
            max_request_body_size=transport.body_bytes_max,
            max_sessions=transport.sessions_max,
            session_idle_timeout=None,  # idleness is seen here, together with the session's other ends
        )
        try:
            async with manager.run():
                self._manager = manager
                while not self._stopping:
                    with trio.move_on_after(transport.sweep_s):
                        await self._news.wait()
                    self._news = trio.Event()
                    self.sessions.prolong(trio.current_time(), self._until_s, self._path)
                    for session in self.sessions.due(trio.current_time(), self._path):
                        await self._end(session)
                for session in self.sessions.of(self._path):
                    await self._end(session)
                await self._in_flight.wait_idle()
        finally:
            self._manager = None
            for session in self.sessions.of(self._path):
                self.sessions.end(session)

    def _until_s(self, caller: Caller) -> float:
        present = now()
        return present.mono_s + (self._ends_at_ms(caller) - present.wall_ms) / 1000

    def _ask_stop(self) -> None:
        """Streams end; requests under way are answered."""
        self._stopping = True
        self._on_stop()
        self._news.set()

    def revoke(self, credential_id: str) -> None:
        """The credential has ended: its requests and sessions end."""
        self.sessions.revoke(credential_id)
        for scope, owner in list(self._requests.items()):
            if owner == credential_id:
                scope.cancel()
        self._news.set()

    def end_all(self) -> None:
        """Sessions and streams end; what is answered at once is answered."""
        self.sessions.revoke_all()
        self._on_stop()
        self._news.set()

    async def _end(self, session: McpSession) -> None:
        """In the SDK as a DELETE of the client would: streams end, the id is unknown from now on."""
        self.sessions.end(session)
        scope = {
            "type": "http",
            "method": "DELETE",
            "path": self._path,
            "query_string": b"",
            "headers": [(SESSION_ID, session.id.encode()), (b"host", b"localhost")],
            "user": _user(session.owner.credential_id),
        }

        async def nothing() -> MutableMapping[str, Any]:
            await trio.lowlevel.checkpoint()
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_: Mapping[str, Any]) -> None:
            await trio.lowlevel.checkpoint()

        if self._manager is not None:
            await self._manager.handle_request(scope, nothing, send)

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def serve(
        self,
        exchange: Exchange,
        caller: Caller,
        body: bytes | None,
        refuse_ended: Callable[[Exchange], Awaitable[None]],
        more: Mapping[str, Any] = {},
    ) -> LaneFault | None:
        """None: it is answered. `refuse_ended` says that the credential has ended before there was an answer; `more` is
        for methods, in the ASGI scope."""
        if exchange.has_several(SESSION_ID) or exchange.has_several(VERSION):
            return LaneFault.DOUBLED_HEADER
        if self._manager is None or self._stopping:
            return LaneFault.STOPPING
        session = self.sessions.find(exchange.header(SESSION_ID), caller, self._path)
        request_ids: set[str] = set() if session is None else session.request_ids
        request_id = None if session is None or body is None else _request_id(body)
        if request_id in request_ids:
            return LaneFault.DOUBLED_ID
        opens_session = _opens_session(exchange)
        if opens_session and not self.sessions.admit(caller):
            return LaneFault.TOO_MANY_SESSIONS
        serve = partial(self._serve, exchange, caller, body, opens_session, refuse_ended, more)
        if request_id is not None:
            request_ids.add(request_id)
        try:
            await exchange.hand_over(partial(answer_once, serve))
        finally:
            if request_id is not None:
                request_ids.discard(request_id)
        return None

    async def _serve(
        self,
        exchange: Exchange,
        caller: Caller,
        body: bytes | None,
        opens_session: bool,
        refuse_ended: Callable[[Exchange], Awaitable[None]],
        more: Mapping[str, Any],
        receive: Receive,
        send: Send,
    ) -> None:
        assert self._manager is not None
        session = self.sessions.find(exchange.header(SESSION_ID), caller, self._path)
        status: int | None = None
        cut_off = finished = False

        async def watched_send(message: Any) -> None:
            nonlocal session, status, cut_off
            if message["type"] == "http.response.start":
                await trio.lowlevel.checkpoint_if_cancelled()  # then nothing is said, and a refusal instead
                status, headers = message["status"], dict(message["headers"])
                if b"content-length" in headers:  # all of it follows: the end of the credential does not cut it off
                    self._requests.pop(patience, None)
                    patience.deadline = math.inf
                if opens_session and status >= 400:  # the SDK names one all the same, which is gone already
                    kept = [header for header in message["headers"] if header[0] != SESSION_ID]
                    message = {**message, "headers": kept}
                elif opens_session and SESSION_ID in headers:
                    session_id = headers[SESSION_ID].decode()
                    session = self.sessions.begin(session_id, caller, expires_s, arrived.mono_s, self._path)
                    session.requests += 1
                    if self._opened is not None:
                        await self._opened(session_id)
                    version = (VERSION, _negotiated(body).encode())
                    message = {**message, "headers": [*message["headers"], version]}
            cut_off = True
            await send(message)
            cut_off = False

        arrived = now()
        expires_s = arrived.mono_s + (caller.expires_at_ms - arrived.wall_ms) / 1000
        scope: AsgiScope = {**exchange.scope, **more, CALLER: caller, "user": _user(caller.credential_id)}
        if self._transport.any_origin:  # the SDK has no word for that; the host it still checks
            scope["headers"] = [header for header in scope["headers"] if header[0] != b"origin"]
        if session is not None:
            session.requests += 1
            session.expires_s = expires_s  # a credential's end may move
        if body is not None:
            receive = _body_first(body, receive)
        with self._in_flight, trio.CancelScope(deadline=expires_s) as patience:
            self._requests[patience] = caller.credential_id
            try:
                request = partial(self._manager.handle_request, scope, receive, watched_send)
                if self._ends_when_gone(exchange):
                    await exchange.unless_gone(request, lambda: status is not None)
                else:
                    await request()
                finished = True
            finally:
                self._requests.pop(patience, None)
                if session is None:
                    if opens_session:
                        self.sessions.give_up(caller)
                else:
                    session.requests -= 1
                    session.idle_since_s = trio.current_time()
                    if opens_session and not finished:  # to the SDK it has not begun
                        self.sessions.end(session)
        if session is not None and exchange.method == "DELETE" and status == 200:
            self.sessions.end(session)
        if patience.cancelled_caught and status is None:
            await refuse_ended(exchange)
        elif patience.cancelled_caught and not cut_off:  # else what was cut off cannot be ended, only be left
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _ends_when_gone(self, exchange: Exchange) -> bool:
        """A client that hangs up needs no answer. In the modern era that cancels its call too; in the handshake era the
        call is the session's. Where the answer is a stream, the SDK itself looks out for it."""
        is_listen = exchange.header(METHOD) == "subscriptions/listen" and not _is_handshake_era(exchange)
        return exchange.method == "POST" and not self._transport.streams_answers and not is_listen


@lru_cache(USERS_REMEMBERED_MAX)
def _user(credential_id: str) -> AuthenticatedUser:
    """What the SDK compares to bind a session to its credential."""
    return AuthenticatedUser(AccessToken(token="", client_id="", scopes=[], subject=credential_id))


def _body_first(body: bytes, receive: Receive) -> Receive:
    """A body that has been read, for the SDK to read; then what else there is."""
    waiting = [body]

    async def receive_body() -> MutableMapping[str, Any]:
        if not waiting:
            return await receive()
        await trio.lowlevel.checkpoint()
        return {"type": "http.request", "body": waiting.pop(), "more_body": False}

    return receive_body


def _request_id(body: bytes) -> str | None:
    """Read and kept as the SDK does: to it the number 1 and the text "1" are the same."""
    try:
        message = jsonrpc_message_adapter.validate_python(pydantic_core.from_json(body), by_name=False)
    except ValueError:
        return None
    return str(message.id) if isinstance(message, JSONRPCRequest) else None


class _Versioned(msgspec.Struct):
    protocolVersion: str  # noqa: N815


class _Initialize(msgspec.Struct):
    params: _Versioned


_initialize = msgspec.json.Decoder(_Initialize)


def _negotiated(body: bytes | None) -> str:
    """The version that the SDK's answer to this `initialize` names."""
    try:
        asked = _initialize.decode(body or b"").params.protocolVersion
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return LATEST_HANDSHAKE_VERSION
    return asked if asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION


def _is_handshake_era(exchange: Exchange) -> bool:
    version = exchange.header(VERSION)
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


def _opens_session(exchange: Exchange) -> bool:
    return exchange.method == "POST" and _is_handshake_era(exchange) and exchange.header(SESSION_ID) is None
