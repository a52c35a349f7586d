"""`/mcp` as ASGI: who is asking, then the SDK's Streamable HTTP transport; and the lives of sessions.

A request runs no longer than its token is good. A session belongs to the token that opened it, and ends by DELETE, by
idleness, or with its token. Clients of the modern era have none.
"""

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
from gateway.identity.scopes import TOOL_SCOPES, scopes_of
from gateway.identity.tokens import Principal, Scope, TokenClass, TokenFault, Verifier
from gateway.main.clock import now
from gateway.mcp.answer_once import answer_once
from gateway.mcp.binding import PRINCIPAL, Binding
from gateway.mcp.sessions import McpSession, Sessions
from gateway.mcp.settings import McpSettings
from gateway.mcp.watch import Watches
from gateway.net.exchange import BODY_BYTES_MAX, Exchange, Receive, Send
from gateway.net.exchange import AsgiScope as AsgiScope
from schemas.errors import Code, envelope, unauthenticated

PATH = "/mcp"
METADATA_PATH = "/.well-known/oauth-protected-resource/mcp"
SESSION_ID = b"mcp-session-id"
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
        self._verifier = verifier
        self.sessions = sessions
        self.watches = watches
        self._settings = settings
        self._public_url = public_url
        self._security = security(public_url)
        self._manager: StreamableHTTPSessionManager | None = None
        self._requests: dict[trio.CancelScope, str] = {}  # under way, with the id of their token
        self._in_flight = InFlight()
        self._stopping = False
        self._news = trio.Event()

    @property
    def requests_under_way(self) -> int:
        return self._in_flight.count

    # ---- its life ---------------------------------------------------------------------------------------------------

    def start(self, supervisor: Supervisor) -> None:
        supervisor.start(
            ChildSpec(name="mcp", run=self._run, kind=Kind.PERMANENT, stage=Stage.STREAMS, ask_stop=self._ask_stop)
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
                    for session in self.sessions.due(trio.current_time()):
                        await self._end(session)
                for session in self.sessions:
                    await self._end(session)
                await self._in_flight.wait_idle()
        finally:
            self._manager = None
            for session in self.sessions:
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
            "path": PATH,
            "query_string": b"",
            "headers": [(SESSION_ID, session.id.encode()), (b"host", b"localhost")],
            "user": _user(session.principal.sub, session.principal.jti),
        }

        async def send(_: Mapping[str, Any]) -> None:
            await trio.lowlevel.checkpoint()

        if self._manager is not None:
            await self._manager.handle_request(scope, _again(b""), send)

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def handle(self, exchange: Exchange) -> None:
        wall_ms = now().wall_ms
        principal = self._verifier.verify(exchange.bearer(), TokenClass.AGENT_RUNTIME, wall_ms)
        if isinstance(principal, TokenFault):
            challenge = f'Bearer resource_metadata="{self._metadata_url(exchange)}", scope="{Scope.READ_ONLY}"'
            await exchange.error(unauthenticated(exchange.new_id()), 401, {b"www-authenticate": challenge.encode()})
        elif not scopes_of(principal, wall_ms) & TOOL_SCOPES:
            await self._refuse_scope(exchange)
        elif self._manager is None or self._stopping:
            await exchange.refuse_status(503, "The gateway cannot serve now.", "Try again in a while.")
        elif _opens_session(exchange) and not self.sessions.has_room_for(principal):
            await exchange.refuse_status(503, "Too many sessions are open.", "End sessions that you no longer need.")
        else:
            expires_s = trio.current_time() + (principal.expires_at_ms - wall_ms) / 1000
            serve = partial(self._serve, exchange, principal, expires_s)
            await exchange.hand_over(partial(answer_once, serve))

    async def _serve(
        self, exchange: Exchange, principal: Principal, expires_s: float, receive: Receive, send: Send
    ) -> None:
        assert self._manager is not None
        session = self.sessions.find(exchange.header(SESSION_ID), principal)

        async def watched_send(message: Any) -> None:
            nonlocal session
            if message["type"] == "http.response.start":
                opened = dict(message["headers"]).get(SESSION_ID)
                if session is None and opened is not None and message["status"] < 400:
                    session = self.sessions.begin(opened.decode(), principal, expires_s, trio.current_time())
                    session.requests += 1
            await send(message)

        scope: AsgiScope = {**exchange.scope, PRINCIPAL: principal, "user": _user(principal.sub, principal.jti)}
        if session is not None:
            session.requests += 1
        with self._in_flight, trio.CancelScope(deadline=expires_s) as patience:
            self._requests[patience] = principal.jti
            try:
                if self._is_cancelled_by_hang_up(exchange):
                    receive = _again(await exchange.body())
                    await exchange.unless_gone(partial(self._manager.handle_request, scope, receive, watched_send))
                else:
                    await self._manager.handle_request(scope, receive, watched_send)
            finally:
                del self._requests[patience]
                if session is not None:
                    session.requests -= 1
                    session.idle_since_s = trio.current_time()
        if session is not None and exchange.method == "DELETE":
            self.sessions.end(session)

    def _is_cancelled_by_hang_up(self, exchange: Exchange) -> bool:
        """A client of the modern era cancels so. Where answers are streams, the SDK itself looks out for it."""
        is_stream = self._binding.streams_answers or exchange.header(METHOD) == "subscriptions/listen"
        return exchange.method == "POST" and not _is_handshake_era(exchange) and not is_stream

    async def _refuse_scope(self, exchange: Exchange) -> None:
        needed = f"This endpoint needs the scope {Scope.READ_ONLY}."
        fix = f"Ask an operator for a token with the scope {Scope.READ_ONLY}."
        challenge = (
            f'Bearer error="insufficient_scope", scope="{Scope.READ_ONLY}", '
            f'resource_metadata="{self._metadata_url(exchange)}"'
        )
        error = envelope(Code.SAFETY_DENIED, needed, fix, correlation_id=exchange.new_id())
        await exchange.error(error, 403, {b"www-authenticate": challenge.encode()})

    async def metadata(self, exchange: Exchange) -> None:
        """RFC 9728: what this resource is and which scopes it knows."""
        await exchange.json(
            {
                "resource": self._base_url(exchange) + PATH,
                "resource_name": "Heliograph",
                "scopes_supported": sorted(TOOL_SCOPES),
                "bearer_methods_supported": ["header"],
            },
            headers={b"cache-control": b"public, max-age=300"},
        )

    def _metadata_url(self, exchange: Exchange) -> str:
        return self._base_url(exchange) + METADATA_PATH

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


def _again(body: bytes) -> Receive:
    """A body that has been read, for the SDK to read."""

    async def receive() -> MutableMapping[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _is_handshake_era(exchange: Exchange) -> bool:
    version = exchange.header(b"mcp-protocol-version")
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


def _opens_session(exchange: Exchange) -> bool:
    return exchange.method == "POST" and _is_handshake_era(exchange) and exchange.header(SESSION_ID) is None
