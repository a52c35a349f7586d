"""Who is asking: one check for every route, and one place where whoever may not is told so and the log learns why.

What a kind of route asks of its callers is a `RouteKind`. Callers say who they are by a token. For operators a session
may speak instead: whoever keeps sessions puts that beside the request (`SPEAKER`), as no client can. A check does not
wait, so whatever had to wait (for a body, for the disk) checks again before it acts: a token may end meanwhile. What a
caller may do once it is in is for others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from actors.node.moment import Moment
from gateway.identity.scopes import scopes_of
from gateway.identity.tokens import AnyScope, Principal, TokenClass, TokenFault, Verifier
from gateway.net.exchange import Exchange
from schemas.errors import Code, Word, envelope, unauthenticated


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """Why not. The caller learns only that it needs a valid token, or which scope it lacks."""

    fault: TokenFault | None  # None: the token is good
    scope: AnyScope | None = None  # that a better token would have

    @property
    def reason(self) -> str:
        return "scope" if self.fault is None else self.fault.value


SPEAKER = "heliograph.speaker"
"""By this extension of a request, a session says for whom it speaks."""
Speaker: TypeAlias = Callable[[], Principal | TokenFault]
"""For whom, now."""

Challenge: TypeAlias = Callable[[Exchange, NotAdmitted], str]
"""What `WWW-Authenticate` says."""


def realm(_: Exchange, refusal: NotAdmitted) -> str:
    lacks = "" if refusal.scope is None else f', error="insufficient_scope", scope="{refusal.scope}"'
    return f'Bearer realm="heliograph"{lacks}'


@dataclass(frozen=True, slots=True)
class RouteKind:
    token_class: TokenClass
    scopes: tuple[AnyScope, ...] = ()  # one of these is needed, and the first is what to ask for; empty: none is
    scopes_of: Callable[[Principal, int], frozenset[str]] = scopes_of  # those that a principal has, now
    message: str | None = None  # of a 401; None: as for agents
    suggested_fix: str | None = None
    challenge: Challenge = realm
    takes_sessions: bool = False


FOR_AGENTS = RouteKind(TokenClass.AGENT_RUNTIME)
FOR_OPERATORS = RouteKind(
    TokenClass.OPERATOR,
    message="A valid operator token is needed.",
    suggested_fix="Send the header Authorization: Bearer TOKEN with an operator token, neither expired nor revoked.",
    takes_sessions=True,
)


def judge(verifier: Verifier, token: str | None, kind: RouteKind, now_ms: int) -> Principal | NotAdmitted:
    """Whom a token speaks for, if it is good and opens this kind of route."""
    return admitted(verifier.verify(token, kind.token_class, now_ms), kind, now_ms)


def admitted(principal: Principal | TokenFault, kind: RouteKind, now_ms: int) -> Principal | NotAdmitted:
    """Whether somebody who is known has what this kind of route needs."""
    if isinstance(principal, TokenFault):
        return NotAdmitted(principal)
    if kind.scopes and kind.scopes_of(principal, now_ms).isdisjoint(kind.scopes):
        return NotAdmitted(None, kind.scopes[0])
    return principal


class Authenticator:
    """For one kind of route."""

    def __init__(self, verifier: Verifier, now: Callable[[], Moment], kind: RouteKind) -> None:
        self._verifier = verifier
        self._now = now
        self._kind = kind

    def check(self, exchange: Exchange) -> Principal | NotAdmitted:
        """Who asks, now."""
        kind, now_ms = self._kind, self._now().wall_ms
        speaker: Speaker | None = exchange.extension(SPEAKER) if kind.takes_sessions else None
        if speaker is None:
            return judge(self._verifier, exchange.bearer(), kind, now_ms)
        principal = speaker()
        if isinstance(principal, Principal) and principal.token_class is not kind.token_class:
            principal = TokenFault.WRONG_CLASS
        return admitted(principal, kind, now_ms)

    async def admit(self, exchange: Exchange) -> Principal | None:
        """Who asks; None when it may not, and has been told."""
        checked = self.check(exchange)
        if isinstance(checked, NotAdmitted):
            await self.refuse(exchange, checked)
            return None
        return checked

    async def admit_with_body(self, exchange: Exchange) -> tuple[Principal, bytes] | None:
        """The same with the body, for whose end the token has to be good still."""
        principal = self.check(exchange)
        if isinstance(principal, Principal):
            body = exchange.body_now()
            if body is not None:
                return principal, body
            body = await exchange.body()
            principal = self.check(exchange)
            if isinstance(principal, Principal):
                return principal, body
        await self.refuse(exchange, principal)
        return None

    async def refuse(self, exchange: Exchange, refusal: NotAdmitted) -> None:
        status = 401 if refusal.fault is not None else 403
        why = {"reason": refusal.reason} | ({} if refusal.scope is None else {"scope": refusal.scope.value})
        correlation_id = exchange.logged_id(status, **why)
        if refusal.scope is None:
            error = unauthenticated(correlation_id, self._kind.message, self._kind.suggested_fix)
        else:
            needed = f"This route needs the scope {refusal.scope}."
            fix = f"Ask an operator for a token with the scope {refusal.scope}."
            details = {"code": Word.UNAUTHORIZED.value}
            error = envelope(Code.SAFETY_DENIED, needed, fix, correlation_id=correlation_id, details=details)
        challenge = self._kind.challenge(exchange, refusal)
        await exchange.error(error, status, {b"www-authenticate": challenge.encode()})
