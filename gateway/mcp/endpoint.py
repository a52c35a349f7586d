"""A view of `/mcp`: who is asking, then the lane that serves those; and its document for clients without a token.

Whoever comes with a credential that a kind of session claims is that kind's (`kinds.py`); everybody else is an agent.
"""

from collections.abc import Callable, Sequence

from actors.supervision.supervisor import Supervisor
from gateway.identity.authenticator import Authenticator, NotAdmitted, RouteKind
from gateway.identity.oauth.documents import resource_base, resource_document, serve_document
from gateway.identity.scopes import TOOL_SCOPES
from gateway.identity.tokens import Principal, Scope, TokenClass, TokenFault, Verifier
from gateway.main.clock import now
from gateway.main.feature import Feature
from gateway.main.session_kind import SessionKind
from gateway.mcp.binding import Binding
from gateway.mcp.forward import Forwards
from gateway.mcp.kinds import KindEndpoint
from gateway.mcp.lane import SESSION_ID, Lane, LaneFault, Transport
from gateway.mcp.operations import view_operations
from gateway.mcp.origins import EXPOSED, answer_preflight, security
from gateway.mcp.request_log import logged, note
from gateway.mcp.sessions import Sessions
from gateway.mcp.settings import McpSettings
from gateway.mcp.watch import Watches
from gateway.net.exchange import BODY_BYTES_MAX, Exchange
from gateway.net.router import ANY
from schemas.errors import Code

DEVICE = "device"  # the kind of agents' sessions, in the log


class McpEndpoint:
    def __init__(
        self,
        binding: Binding,
        verifier: Verifier,
        sessions: Sessions,
        watches: Watches,
        settings: McpSettings,
        public_url: str | None = None,
        kinds: Sequence[SessionKind] = (),
        *,
        sign_in_base: Callable[[], str] | None = None,
        logs: bool = False,
        forwards: Forwards | None = None,
    ) -> None:
        """`kinds` are asked in their order whose a credential is; `logs`: a line for every request; `forwards`: to
        other processes, where there are any.

        `sign_in_base`: BASE of the authorization server that issues credentials for this endpoint; None: there is none.
        """
        self.view = binding.view
        self.sessions = sessions
        self.watches = watches
        self._settings = settings
        self._public_url = public_url
        self._sign_in_base = sign_in_base
        self._scope = next(filter(None, (kind.scope for kind in kinds)), Scope.READ_ONLY.value)
        kind = RouteKind(TokenClass.AGENT_RUNTIME, (Scope.READ_ONLY, *TOOL_SCOPES), challenge=self._challenge)
        self._agents = Authenticator(verifier, now, kind)
        transport = Transport(
            security(public_url),
            BODY_BYTES_MAX,
            settings.sessions_max,
            settings.sweep_s,
            binding.streams_answers,
            settings.relax_origin,
        )
        name = self.view.path[1:].replace("/", "_")
        opened = None if forwards is None else forwards.homes.opened
        self._forwards = forwards
        self._lane = Lane(
            name, self.view.path, binding.make_server, sessions, transport, watches.close_all, opened=opened
        )
        self._kinds = [KindEndpoint(kind, self.view.path, transport, self._refuse_unknown) for kind in kinds]
        self._answer = logged(self._dispatch) if logs else self._dispatch

    @property
    def requests_under_way(self) -> int:
        return self._lane.requests_under_way

    @property
    def session_tables(self) -> list[Sessions]:
        """Of agents on all views, and of each kind."""
        return [self.sessions, *(kind.lane.sessions for kind in self._kinds)]

    @property
    def feature(self) -> Feature:
        routes = {self.view.path: (ANY, self.handle), self.view.metadata_path: (ANY, self.metadata)}
        operations = view_operations(self.view.path, self.view.metadata_path)
        return Feature(routes, operations, self.start, self.revoke, self.end_all)

    def start(self, supervisor: Supervisor) -> None:
        self._lane.start(supervisor)
        for kind in self._kinds:
            kind.lane.start(supervisor)

    def revoke(self, token_id: str) -> None:
        """An agent's token was revoked: its requests and sessions end."""
        self._lane.revoke(token_id)

    def end_all(self) -> None:
        self._lane.end_all()

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def handle(self, exchange: Exchange) -> None:
        if self._settings.relax_origin:
            exchange.add_to_answer(EXPOSED)
            if exchange.method == "OPTIONS":
                await answer_preflight(exchange)
                return
        await self._answer(exchange)

    async def _dispatch(self, exchange: Exchange) -> None:
        if self._kinds and (token := exchange.bearer()) is not None:
            for kind in self._kinds:
                if kind.claims(token):
                    await kind.handle(exchange, token)
                    return
        await self._handle_agent(exchange)

    async def _handle_agent(self, exchange: Exchange) -> None:
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
        note(exchange, DEVICE, body)
        if self._forwards is not None and not exchange.has_several(SESSION_ID):
            session_id = exchange.header(SESSION_ID)
            if not self.sessions.is_here(session_id) and await self._forwards.take(exchange, session_id, body):
                return
        match await self._lane.serve(exchange, principal, body, self._refuse_ended):
            case LaneFault.DOUBLED_HEADER:
                message = "Mcp-Session-Id or MCP-Protocol-Version appears more than once."
                await exchange.refuse(Code.MANIFEST_INVALID, message, "Send each of them at most once.")
            case LaneFault.DOUBLED_ID:
                message = "A request with this id is under way in this session."
                await exchange.refuse(Code.MANIFEST_INVALID, message, "Give each request an id of its own.")
            case LaneFault.STOPPING:
                await exchange.refuse_status(503, "The gateway cannot serve now.", "Try again in a while.")
            case LaneFault.TOO_MANY_SESSIONS:
                fix = "End sessions that you no longer need."
                await exchange.refuse_status(503, "Too many sessions are open.", fix)

    async def _refuse_ended(self, exchange: Exchange) -> None:
        """Its token ended before it was answered. The clock that says so may differ from the other by a moment."""
        checked = self._agents.check(exchange)
        ended = NotAdmitted(TokenFault.EXPIRED) if isinstance(checked, Principal) else checked
        await self._agents.refuse(exchange, ended)

    async def _refuse_unknown(self, exchange: Exchange) -> None:
        """A credential of some kind, and nobody's."""
        await self._agents.refuse(exchange, NotAdmitted(TokenFault.UNKNOWN))

    def _challenge(self, exchange: Exchange, refusal: NotAdmitted) -> str:
        """RFC 9728: where to learn how to come back."""
        base = resource_base(self._base_url(exchange), *_asked_at(exchange))
        metadata = f'resource_metadata="{base}{self.view.metadata_path}"'
        if refusal.scope is None:
            return f'Bearer {metadata}, scope="{self._scope}"'
        return f'Bearer error="insufficient_scope", scope="{refusal.scope}", {metadata}'

    async def metadata(self, exchange: Exchange) -> None:
        """RFC 9728: what this resource is, which scopes it knows, and where a client signs in."""
        has_server = self._sign_in_base is not None
        host, scheme = _asked_at(exchange)
        document = resource_document(self._base_url(exchange), host, scheme, self.view.path, has_server=has_server)
        if not (self._kinds or has_server):
            document["scopes_supported"] = sorted(TOOL_SCOPES)
        await serve_document(exchange, document)

    def _base_url(self, exchange: Exchange) -> str:
        """As the operator says; else where this very request was accepted, never what its Host header claims."""
        return self._sign_in_base() if self._sign_in_base is not None else self._public_url or exchange.local_url


def _asked_at(exchange: Exchange) -> tuple[str | None, str]:
    """The host and the scheme by which this client knows us; only those of this very machine are believed."""
    return exchange.header(b"host"), exchange.scope.get("scheme", "http")
