"""`POST /console/api/NAME`: whose request it is, whether it may, and what becomes of the answer.

Every call is a POST with a JSON body, reads too, so that browsers send `Origin` with each: it has to be the console's
own, exactly. The cookie names the session; the session's operator needs the scope of the call. Errors are envelopes,
and nothing that somebody sent is in them. Whatever had to wait (for the body, for the answer) asks again whether the
session stands. Each action leaves one line in the audit, refused ones too (`action_lines.py`).

`act` is none of the table: it is answered by the very route that operators have under `/admin`, for the session's
operator, with its checks and its line in the audit.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from actors.node.moment import Moment
from gateway.calls.audit import Audit
from gateway.console.access import ConsoleAccess
from gateway.console.action_lines import SESSION_ENDED, ActionLine
from gateway.console.answers import (
    NO_STORE,
    refuse_body,
    refuse_csrf,
    refuse_rate,
    refuse_scope,
    refuse_session,
    refuse_type,
)
from gateway.console.api import ConsoleCall, NoAnswer, Streamed
from gateway.console.cookies import SESSION, cookie_of
from gateway.console.feeds import Feeds
from gateway.console.operations import SESSION_CREDENTIAL, call_operation
from gateway.console.session_rules import Session
from gateway.console.settings import ConsoleSettings
from gateway.console.sign_in import CredentialShown, LinkShown, Nothing, PasskeyNamed, SignIn
from gateway.identity.authenticator import SPEAKER
from gateway.identity.tokens import OperatorScope, Principal, TokenFault
from gateway.net.echo_answers import media_type
from gateway.net.exchange import BODY_BYTES_MAX, BodyTooLarge, Exchange
from gateway.net.operation import Operations
from gateway.net.rates import Rate, address_of
from gateway.net.router import ANY, Handler, Routes
from schemas.errors import Code

API = "/console/api/"
ADMIN_PATH_CHARS_MAX = 256  # of `act`; a longer one is refused
FEEDS_FULL_RETRY_MS = 5_000


class ActWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, msgspec.Meta(pattern="^/admin/", max_length=ADMIN_PATH_CHARS_MAX)]
    method: Literal["POST", "DELETE"]
    body: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


OpenHandler: TypeAlias = Callable[[Exchange, Any], Awaitable[None]]
SessionHandler: TypeAlias = Callable[[Exchange, Any, Session, ActionLine], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _InSession:
    shape: type[Any]
    handle: SessionHandler
    action: str | None = None  # as the audit calls it; None: it is a read
    scope: OperatorScope | None = None
    is_rated: bool = False  # as an attempt to sign in


class ConsoleApi:
    def __init__(
        self,
        access: ConsoleAccess,
        sign_in: SignIn,
        feeds: Feeds,
        calls: Iterable[ConsoleCall],
        act: Handler,
        audit: Audit,
        settings: ConsoleSettings,
        origin: Callable[[], str],
        now: Callable[[], Moment],
    ) -> None:
        """`act` answers a request under `/admin`."""
        self._access = access
        self._feeds = feeds
        self._act_on = act
        self._audit = audit
        self._origin = origin
        self._now = now
        self._attempts = Rate(settings.sign_ins_burst, settings.sign_ins_per_min / 60)
        self._open: Mapping[str, tuple[type[Any], OpenHandler]] = {
            "session": (LinkShown, sign_in.by_link),
            "sign-in/options": (Nothing, sign_in.begin_sign_in),
            "sign-in": (CredentialShown, sign_in.by_passkey),
        }
        self._in_session: dict[str, _InSession] = {
            "session/end": _InSession(Nothing, sign_in.end, "console_sign_out"),
            "whoami": _InSession(Nothing, sign_in.whoami),
            "passkey/options": _InSession(Nothing, sign_in.begin_passkey, "console_passkey_add", is_rated=True),
            "passkey": _InSession(CredentialShown, sign_in.finish_passkey, "console_passkey_add"),
            "passkeys": _InSession(Nothing, sign_in.passkeys),
            "passkey/remove": _InSession(PasskeyNamed, sign_in.remove, "console_passkey_remove"),
            "act": _InSession(ActWish, self._act, "console_act"),
        }
        for call in calls:
            if call.name in self._in_session or call.name in self._open:
                raise ValueError(f"two calls of the console have the name {call.name}")
            self._in_session[call.name] = _InSession(call.shape, partial(self._answer, call), call.action, call.scope)
        self.routes: Routes = {f"{API}*": (ANY, self._handle)}
        self.operations: Operations = {
            **{f"POST {API}{name}": call_operation(shape) for name, (shape, _) in self._open.items()},
            **{
                f"POST {API}{name}": call_operation(call.shape, (SESSION_CREDENTIAL,))
                for name, call in self._in_session.items()
            },
        }

    async def _handle(self, exchange: Exchange) -> None:
        if exchange.method != "POST":
            await exchange.refuse_method("POST")
        elif exchange.header(b"origin") != self._origin():
            await refuse_csrf(exchange)
        elif media_type(exchange.header(b"content-type")) != "application/json":
            await refuse_type(exchange)
        else:
            await self._dispatch(exchange, exchange.path.removeprefix(API))

    async def _dispatch(self, exchange: Exchange, name: str) -> None:
        if name in self._open:
            shape, handle = self._open[name]
            if await self._may_try(exchange):
                request = await self._read(exchange, shape)
                if request is not None:
                    await handle(exchange, request)
            return
        session = await self._session(exchange)
        if session is None:
            return
        call = self._in_session.get(name)
        if call is None:  # only now: nobody else learns which calls there are
            fix = "Compare the name with the console's reference."
            await exchange.refuse(Code.MANIFEST_NOT_FOUND, "The console has no such call.", fix)
        else:
            with ActionLine(self._audit, session.principal, call.action, self._now) as line:
                await self._call(call, exchange, session, line)

    async def _call(self, call: _InSession, exchange: Exchange, session: Session, line: ActionLine) -> None:
        if call.scope is not None and call.scope not in (session.principal.scopes or ()):
            line.refused(Code.SAFETY_DENIED, "scope")
            await refuse_scope(exchange, call.scope)
            return
        if call.is_rated and not await self._may_try(exchange):
            line.refused(Code.RATE_LIMITED, "rate")
            return
        try:
            request = await self._read(exchange, call.shape)
        except BodyTooLarge:
            line.refused(Code.MANIFEST_INVALID, "too_large")
            raise
        if request is None:
            line.refused(Code.MANIFEST_INVALID, "malformed")
        elif not await self._still(exchange, session):
            line.refused(Code.SAFETY_DENIED, SESSION_ENDED)
        else:
            await call.handle(exchange, request, session, line)

    # ---- who asks, and for what --------------------------------------------------------------------------------------

    async def _session(self, exchange: Exchange) -> Session | None:
        """None when there is none, and that has been said."""
        secret = cookie_of(exchange, SESSION)
        session = None if secret is None else self._access.find(secret)
        if session is None:
            await refuse_session(exchange)
        return session

    async def _still(self, exchange: Exchange, session: Session) -> bool:
        if self._access.stands(session):
            return True
        await refuse_session(exchange)
        return False

    async def _may_try(self, exchange: Exchange) -> bool:
        wait_ms = self._attempts.take(address_of(exchange), self._now().mono_s)
        if wait_ms is not None:
            await refuse_rate(exchange, wait_ms)
        return wait_ms is None

    async def _read(self, exchange: Exchange, shape: type[Any]) -> Any | None:
        """None when it is not of this shape, and that has been said."""
        try:
            return msgspec.json.decode(await exchange.body(BODY_BYTES_MAX), type=shape)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            await refuse_body(exchange)
            return None

    # ---- answers -----------------------------------------------------------------------------------------------------

    async def _answer(
        self, call: ConsoleCall, exchange: Exchange, request: Any, session: Session, line: ActionLine
    ) -> None:
        line.left_elsewhere()
        found = await exchange.while_there(partial(self._ask, call, exchange, request, session))
        if isinstance(found, NoAnswer):
            line.refused(found.code, found.reason)
        if found is None or not await self._still(exchange, session):
            return
        if isinstance(found, NoAnswer):
            await exchange.refuse(found.code, found.message, found.suggested_fix)
        else:
            await exchange.json(found, headers=NO_STORE)

    async def _ask(
        self, call: ConsoleCall, exchange: Exchange, request: Any, session: Session
    ) -> Mapping[str, Any] | NoAnswer | None:
        """None when it has been answered, bit by bit."""
        answer = call.answer(request, session.principal)
        found = await answer if inspect.isawaitable(answer) else answer
        if not isinstance(found, Streamed):
            return found
        if not await self._still(exchange, session):
            return None
        if not self._feeds.has_room(session):
            message, fix = "Too many live views are open.", "Close a page of the console, then try again."
            await exchange.refuse(Code.RATE_LIMITED, message, fix, retry_after_ms=FEEDS_FULL_RETRY_MS)
            return None
        await self._feeds.serve(exchange, session, found)
        return None

    async def _act(self, exchange: Exchange, request: ActWish, session: Session, line: ActionLine) -> None:
        line.left_elsewhere()

        def speaker() -> Principal | TokenFault:
            return session.principal if self._access.stands(session) else TokenFault.REVOKED

        exchange.add_to_answer({b"x-content-type-options": b"nosniff"})
        stand_in = exchange.stand_in(request.method, request.path, bytes(request.body), {SPEAKER: speaker})
        await self._act_on(stand_in)
