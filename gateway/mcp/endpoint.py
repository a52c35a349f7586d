"""A view of `/mcp` as ASGI: who is asking, then the SDK's Streamable HTTP transport; and the lives of sessions.

A request runs no longer than its token is good: one that has not begun to answer by then is told 401, a stream ends. A
session belongs to the token that opened it, and ends by DELETE, by idleness, or with its token. Clients of the modern
era have none.
"""

import math
from collections.abc import Mapping, MutableMapping
from functools import lru_cache, partial
from typing import Any

import trio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from actors.supervision.child import ChildSpec, Kind
from actors.supervision.in_flight import InFlight
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.identity.authenticator import Authenticator, NotAdmitted, RouteKind
from gateway.identity.scopes import TOOL_SCOPES
from gateway.identity.tokens import Principal, Scope, TokenClass, TokenFault, Verifier
from gateway.main.clock import now
from gateway.main.feature import Feature
from gateway.mcp.answer_once import answer_once
from gateway.mcp.binding import PRINCIPAL, Binding
from gateway.mcp.sessions import McpSession, Sessions
from gateway.mcp.settings import McpSettings
from gateway.mcp.watch import Watches
from gateway.net.exchange import BODY_BYTES_MAX, AsgiScope, Exchange, Receive, Send
from gateway.net.router import ANY
from schemas.errors import Code

SESSION_ID = b"mcp-session-id"
VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"  # the SDK refuses a request whose body says otherwise
USERS_REMEMBERED_MAX = 1024  # as the SDK wants them; one more, and the one not seen for longest is made again
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class McpEndpoint:
    def __init__(
        self,
        binding: Binding,
        verifier: Verifier,
        sessions: Sessions,
        watches: Watches,
        settings: McpSettings,
        public_url: str | None = None,
    ) -> None:
        self._binding = binding
        self.view = binding.view
        self.sessions = sessions
        self.watches = watches
        self._settings = settings
        self._public_url = public_url
        kind = RouteKind(TokenClass.AGENT_RUNTIME, (Scope.READ_ONLY, *TOOL_SCOPES), challenge=self._challenge)
        self._agents = Authenticator(verifier, now, kind)
        self._security = security(public_url)
        self._manager: StreamableHTTPSessionManager | None = None
        self._requests: dict[trio.CancelScope, str] = {}  # under way, with the id of their token
        self._in_flight = InFlight()
        self._stopping = False
        self._news = trio.Event()

    @property
    def requests_under_way(self) -> int:
        return self._in_flight.count

    @property
    def feature(self) -> Feature:
        routes = {self.view.path: (ANY, self.handle), self.view.metadata_path: ("GET", self.metadata)}
        return Feature(routes, self.start, self.revoke)

    # ---- its life ---------------------------------------------------------------------------------------------------

    def start(self, supervisor: Supervisor) -> None:
        supervisor.start(
            ChildSpec(
                name=self.view.path[1:].replace("/", "_"),
                run=self._run,
                kind=Kind.PERMANENT,
                stage=Stage.STREAMS,
                ask_stop=self._ask_stop,
            )
        )

    async def _run(self) -> None:
        manager = StreamableHTTPSessionManager(
            self._binding.make_server(),
            json_response=not self._binding.streams_answers,
            security_settings=self._security,
            max_request_body_size=BODY_BYTES_MAX,
            max_sessions=self._settings.sessions_max,
            session_idle_timeout=None,  # idleness is seen here, together with the session's other ends
        )
        try:
            async with manager.run():
                self._manager = manager
                while not self._stopping:
                    with trio.move_on_after(self._settings.sweep_s):
                        await self._news.wait()
                    self._news = trio.Event()
                    for session in self.sessions.due(trio.current_time(), self.view.path):
                        await self._end(session)
                for session in self.sessions.of(self.view.path):
                    await self._end(session)
                await self._in_flight.wait_idle()
        finally:
            self._manager = None
            for session in self.sessions.of(self.view.path):
                self.sessions.end(session)

    def _ask_stop(self) -> None:
        """Streams end; requests under way are answered."""
        self._stopping = True
        self.watches.close_all()
        self._news.set()

    def revoke(self, token_id: str) -> None:
        """The token was revoked: its requests and sessions end."""
        self.sessions.revoke(token_id)
        for scope, owner in list(self._requests.items()):
            if owner == token_id:
                scope.cancel()
        self._news.set()

    async def _end(self, session: McpSession) -> None:
        """In the SDK as a DELETE of the client would: streams end, the id is unknown from now on."""
        self.sessions.end(session)
        scope = {
            "type": "http",
            "method": "DELETE",
            "path": self.view.path,
            "query_string": b"",
            "headers": [(SESSION_ID, session.id.encode()), (b"host", b"localhost")],
            "user": _user(session.principal.sub, session.principal.jti),
        }

        async def nothing() -> MutableMapping[str, Any]:
            await trio.lowlevel.checkpoint()
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_: Mapping[str, Any]) -> None:
            await trio.lowlevel.checkpoint()

        if self._manager is not None:
            await self._manager.handle_request(scope, nothing, send)

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def handle(self, exchange: Exchange) -> None:
        body: bytes | None = None
        if exchange.method == "POST":
            admitted = await self._agents.admit_with_body(exchange)
            if admitted is None:
                return
            principal, body = admitted
        elif (caller := await self._agents.admit(exchange)) is None:
            return
        else:
            principal = caller
        opens_session = _opens_session(exchange)
        if exchange.has_several(SESSION_ID) or exchange.has_several(VERSION):
            # The SDK would take the first. Which session is meant, and of which era, must mean the same to both of us.
            message = "Mcp-Session-Id or MCP-Protocol-Version appears more than once."
            await exchange.refuse(Code.MANIFEST_INVALID, message, "Send each of them at most once.")
        elif self._manager is None or self._stopping:
            await exchange.refuse_status(503, "The gateway cannot serve now.", "Try again in a while.")
        elif opens_session and not self.sessions.admit(principal):
            await exchange.refuse_status(503, "Too many sessions are open.", "End sessions that you no longer need.")
        else:
            serve = partial(self._serve, exchange, principal, body, opens_session)
            await exchange.hand_over(partial(answer_once, serve))

    async def _serve(
        self,
        exchange: Exchange,
        principal: Principal,
        body: bytes | None,
        opens_session: bool,
        receive: Receive,
        send: Send,
    ) -> None:
        assert self._manager is not None
        session = self.sessions.find(exchange.header(SESSION_ID), principal, self.view.path)
        status: int | None = None
        cut_off = finished = False

        async def watched_send(message: Any) -> None:
            nonlocal session, status, cut_off
            if message["type"] == "http.response.start":
                await trio.lowlevel.checkpoint_if_cancelled()  # then nothing is said, and 401 instead
                status, headers = message["status"], dict(message["headers"])
                if b"content-length" in headers:  # all of it follows: the end of the token does not cut it off
                    self._requests.pop(patience, None)
                    patience.deadline = math.inf
                if opens_session and SESSION_ID in headers and message["status"] < 400:
                    session_id = headers[SESSION_ID].decode()
                    session = self.sessions.begin(session_id, principal, expires_s, arrived.mono_s, self.view.path)
                    session.requests += 1
            cut_off = True
            await send(message)
            cut_off = False

        arrived = now()
        expires_s = arrived.mono_s + (principal.expires_at_ms - arrived.wall_ms) / 1000
        scope: AsgiScope = {**exchange.scope, PRINCIPAL: principal, "user": _user(principal.sub, principal.jti)}
        if session is not None:
            session.requests += 1
        if body is not None:
            receive = _body_first(body, receive)
        with self._in_flight, trio.CancelScope(deadline=expires_s) as patience:
            self._requests[patience] = principal.jti
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
                        self.sessions.give_up(principal)
                else:
                    session.requests -= 1
                    session.idle_since_s = trio.current_time()
                    if opens_session and not finished:  # to the SDK it has not begun
                        self.sessions.end(session)
        if session is not None and exchange.method == "DELETE" and status == 200:
            self.sessions.end(session)
        if patience.cancelled_caught and status is None:
            await self._refuse_ended(exchange)
        elif patience.cancelled_caught and not cut_off:  # else what was cut off cannot be ended, only be left
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _refuse_ended(self, exchange: Exchange) -> None:
        """Its token ended before it was answered. The clock that says so may differ from the other by a moment."""
        checked = self._agents.check(exchange)
        ended = checked if isinstance(checked, NotAdmitted) else NotAdmitted(TokenFault.EXPIRED)
        await self._agents.refuse(exchange, ended)

    def _ends_when_gone(self, exchange: Exchange) -> bool:
        """A client that hangs up needs no answer. In the modern era that cancels its call too; in the handshake era the
        call is the session's. Where the answer is a stream, the SDK itself looks out for it."""
        is_listen = exchange.header(METHOD) == "subscriptions/listen" and not _is_handshake_era(exchange)
        return exchange.method == "POST" and not self._binding.streams_answers and not is_listen

    def _challenge(self, exchange: Exchange, refusal: NotAdmitted) -> str:
        """RFC 9728: where to learn how to come back."""
        metadata = f'resource_metadata="{self._base_url(exchange)}{self.view.metadata_path}"'
        if refusal.scope is None:
            return f'Bearer {metadata}, scope="{Scope.READ_ONLY}"'
        return f'Bearer error="insufficient_scope", scope="{refusal.scope}", {metadata}'

    async def metadata(self, exchange: Exchange) -> None:
        """RFC 9728: what this resource is and which scopes it knows."""
        await exchange.json(
            {
                "resource": self._base_url(exchange) + self.view.path,
                "resource_name": "Heliograph",
                "scopes_supported": sorted(TOOL_SCOPES),
                "bearer_methods_supported": ["header"],
            },
            headers={b"cache-control": b"public, max-age=300"},
        )

    def _base_url(self, exchange: Exchange) -> str:
        """As the operator says; else where this very request was accepted, never what its Host header claims."""
        return self._public_url or exchange.local_url


def security(public_url: str | None) -> TransportSecuritySettings:
    """Hosts and origins by which a browser may reach this endpoint: the public one, and this machine's own."""
    hosts, origins = list(_LOOPBACK), [f"http://{host}" for host in _LOOPBACK]
    if public_url is not None:
        hosts.append(public_url.split("://", 1)[1])
        origins.append(public_url)
    return TransportSecuritySettings(
        allowed_hosts=[*hosts, *(f"{host}:*" for host in _LOOPBACK)],
        allowed_origins=[*origins, *(f"http://{host}:*" for host in _LOOPBACK)],
    )


@lru_cache(USERS_REMEMBERED_MAX)
def _user(sub: str, jti: str) -> AuthenticatedUser:
    """What the SDK compares to bind a session to its credential."""
    return AuthenticatedUser(AccessToken(token="", client_id=sub, scopes=[], subject=jti))


def _body_first(body: bytes, receive: Receive) -> Receive:
    """A body that has been read, for the SDK to read; then what else there is."""
    waiting = [body]

    async def receive_body() -> MutableMapping[str, Any]:
        if not waiting:
            return await receive()
        await trio.lowlevel.checkpoint()
        return {"type": "http.request", "body": waiting.pop(), "more_body": False}

    return receive_body


def _is_handshake_era(exchange: Exchange) -> bool:
    version = exchange.header(VERSION)
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


def _opens_session(exchange: Exchange) -> bool:
    return exchange.method == "POST" and _is_handshake_era(exchange) and exchange.header(SESSION_ID) is None
