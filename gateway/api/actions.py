"""What operators may ask a running gateway for, one by one: actions, which change something, looks, which do not, and
downloads, which are answered bit by bit.

Each names the one scope that it takes (None: any operator may; a download may take several), the method and who
answers. An action is authenticated, its body read and decoded; then it is performed and leaves one line in the log,
whatever became of it. Operators come with a token, or through the console with a session. Which there are, and under
which paths, is for the modules that bring them (`admin.py` serves them all).
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec
import trio

from actors.node.moment import Moment
from gateway.api.about import About
from gateway.calls.audit import Audit, Decision, Via
from gateway.identity.authenticator import SPEAKER, NotAdmitted
from gateway.identity.operators import Operators
from gateway.identity.tokens import OperatorScope, Principal
from gateway.net.exchange import BODY_BYTES_MAX, BodyTooLarge, Exchange, Receive, Send
from gateway.net.operation import JSON
from gateway.net.router import Handler
from schemas.errors import Code


@dataclass(frozen=True, slots=True)
class Done:
    answer: Mapping[str, Any]
    target: Mapping[str, Any]  # for the audit: to what, by ids that we made or checked


@dataclass(frozen=True, slots=True)
class Declined:
    reason: str  # for the audit
    message: str
    suggested_fix: str | None = None
    code: Code = Code.MANIFEST_INVALID


@dataclass(frozen=True, slots=True)
class Download:
    content_type: str
    next: Callable[[], Awaitable[bytes | None]]
    """The next bytes of it; None after the last. Raises BrokenOff."""
    target: Callable[[], Mapping[str, Any]]  # as of Done, once it is over


class BrokenOff(Exception):  # noqa: N818  # named for what happened
    """There is no more of a download, and it is not whole: its connection ends, so that nobody takes it for that."""


IN_A_SESSION = Declined(
    "session",
    "A session of the console takes no downloads: they would outlive it.",
    "Use an operator token, as heliograph backup does.",
    Code.SAFETY_DENIED,
)

Outcome: TypeAlias = Done | Declined
Act: TypeAlias = Callable[[Any, Principal], Outcome | Awaitable[Outcome]]
"""Performs an action: what was asked, decoded, and by whom."""
Remove: TypeAlias = Callable[[str], Awaitable[Outcome]]
"""Removes what has this name."""
Begin: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Download | Declined]]
"""Begins a download of what was asked for, decoded; the end of the block is its end."""
Look: TypeAlias = Callable[[Exchange], Awaitable[Mapping[str, Any] | None]]
"""What to answer; None when it has answered already."""


@dataclass(frozen=True, slots=True)
class OperatorRoute:
    """An entry of the table of routes: who may come, and who answers."""

    method: str
    scope: OperatorScope | None  # None: any operator
    handler: Handler
    about: About
    also: Sequence[OperatorScope] = ()  # what it takes besides
    shape: type[Any] | None = None  # of its body; None: it has none
    media_type: str = JSON  # of its answer


OperatorRoutes: TypeAlias = Mapping[str, OperatorRoute]  # by path, as a router takes it


class Actions:
    def __init__(self, operators: Operators, audit: Audit, now: Callable[[], Moment]) -> None:
        self._operators = operators
        self._audit = audit
        self._now = now

    def action(
        self,
        name: str,
        scope: OperatorScope | None,
        shape: type[Any],
        act: Act,
        about: About,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> OperatorRoute:
        """`shape` is what the body has to decode to."""
        handler = partial(self._perform, name, scope, shape, act, body_bytes_max)
        return OperatorRoute("POST", scope, handler, about, shape=shape)

    def removal(self, name: str, scope: OperatorScope, remove: Remove, about: About) -> OperatorRoute:
        """An action without a body, on what the path names; done, it is answered with 204."""
        return OperatorRoute("DELETE", scope, partial(self._remove, name, scope, remove), about)

    def look(self, scope: OperatorScope, look: Look, about: About) -> OperatorRoute:
        return OperatorRoute("GET", scope, partial(self._show, scope, look), about)

    def download(
        self,
        name: str,
        scopes: Sequence[OperatorScope],
        shape: type[Any],
        begin: Begin,
        seconds_max: Callable[[], float],
        about: About,
        media_type: str,
    ) -> OperatorRoute:
        """An action that takes all of these scopes, from its beginning to its end. One that takes longer breaks off."""
        first, *others = scopes
        handler = partial(self._download, name, scopes, shape, begin, seconds_max)
        return OperatorRoute("POST", first, handler, about, others, shape, media_type)

    async def _show(self, scope: OperatorScope, look: Look, exchange: Exchange) -> None:
        operators = self._operators.having(scope)
        if await operators.admit(exchange) is None:
            return
        seen = await look(exchange)
        # Once more: the disk may have been long in answering.
        if seen is not None and await operators.admit(exchange) is not None:
            await exchange.json(seen)

    async def _perform(
        self,
        name: str,
        scope: OperatorScope | None,
        shape: type[Any],
        act: Act,
        body_bytes_max: int,
        exchange: Exchange,
    ) -> None:
        async def outcome() -> Outcome | NotAdmitted:
            return await self._outcome(scope, shape, act, body_bytes_max, exchange)

        await self._audited(name, scope, outcome, lambda done: exchange.json(done.answer), exchange)

    async def _remove(self, name: str, scope: OperatorScope, remove: Remove, exchange: Exchange) -> None:
        async def outcome() -> Outcome | NotAdmitted:
            checked = self._operators.having(scope).check(exchange)
            return checked if isinstance(checked, NotAdmitted) else await remove(exchange.name)

        await self._audited(name, scope, outcome, lambda _: exchange.no_content(), exchange)

    async def _audited(
        self,
        name: str,
        scope: OperatorScope | None,
        perform: Callable[[], Awaitable[Outcome | NotAdmitted]],
        answer: Callable[[Done], Awaitable[None]],
        exchange: Exchange,
    ) -> None:
        arrived = self._now()
        operator = await self._operators.any.admit(exchange)
        if operator is None:
            return
        decision, code, reason, target = Decision.ABANDONED, None, None, None
        try:
            outcome = await perform()
            if isinstance(outcome, Done):
                decision, target = Decision.ANSWERED, outcome.target
                await answer(outcome)
                return
            decision, reason = Decision.REFUSED, outcome.reason
            if isinstance(outcome, NotAdmitted):
                code = Code.SAFETY_DENIED
                await self._operators.having(scope).refuse(exchange, outcome)
            else:
                code = outcome.code
                await exchange.refuse(code, outcome.message, outcome.suggested_fix)
        except BodyTooLarge:
            decision, code, reason = Decision.REFUSED, Code.MANIFEST_INVALID, "too_large"
            raise
        finally:
            took_ms = round((self._now().mono_s - arrived.mono_s) * 1000, 1)
            via = _via(exchange)
            self._audit.action(
                operator, name, decision, target=target, code=code, reason=reason, took_ms=took_ms, via=via
            )

    async def _download(
        self,
        name: str,
        scopes: Sequence[OperatorScope],
        shape: type[Any],
        begin: Begin,
        seconds_max: Callable[[], float],
        exchange: Exchange,
    ) -> None:
        arrived, via = self._now(), _via(exchange)
        operator = await self._operators.any.admit(exchange)
        if operator is None:
            return
        decision, code, reason, target = Decision.ABANDONED, None, None, None
        try:
            request = IN_A_SESSION if via is Via.CONSOLE else await self._asked(scopes, shape, exchange)
            refused: Declined | NotAdmitted | None = request if isinstance(request, Declined | NotAdmitted) else None
            async with AsyncExitStack() as stack:
                if refused is None:
                    begun = begin(request)
                    offered = await exchange.unless_gone(lambda: stack.enter_async_context(begun))
                    if offered is None:
                        return
                    refused = offered if isinstance(offered, Declined) else self._lacking(scopes, exchange)
                    if refused is None and isinstance(offered, Download):
                        is_whole = await self._hand_out(scopes, offered, seconds_max(), exchange)
                        decision, target = Decision.ANSWERED if is_whole else decision, offered.target()
                        return
                assert refused is not None
                decision, reason = Decision.REFUSED, refused.reason
                code = await self._refuse(scopes, refused, exchange)
        except BodyTooLarge:
            decision, code, reason = Decision.REFUSED, Code.MANIFEST_INVALID, "too_large"
            raise
        finally:
            took_ms = round((self._now().mono_s - arrived.mono_s) * 1000, 1)
            self._audit.action(
                operator, name, decision, target=target, code=code, reason=reason, took_ms=took_ms, via=via
            )

    async def _hand_out(
        self, scopes: Sequence[OperatorScope], download: Download, seconds_max: float, exchange: Exchange
    ) -> bool:
        """Whether all of it went out. If the token ends in between, or the time is up, the answer breaks off."""
        is_whole = False
        fields = [(b"content-type", download.content_type.encode()), (b"cache-control", b"no-store")]

        async def serve(_: Receive, send: Send) -> None:
            nonlocal is_whole
            await send({"type": "http.response.start", "status": 200, "headers": fields})
            while (piece := await download.next()) is not None:
                if self._lacking(scopes, exchange) is not None:
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            is_whole = True

        with trio.move_on_after(seconds_max):
            try:
                await exchange.hand_over(serve)
            except BrokenOff:
                return False
        return is_whole

    def _lacking(self, scopes: Sequence[OperatorScope], exchange: Exchange) -> NotAdmitted | None:
        checks = (self._operators.having(scope).check(exchange) for scope in scopes)
        return next((check for check in checks if isinstance(check, NotAdmitted)), None)

    async def _asked(self, scopes: Sequence[OperatorScope], shape: type[Any], exchange: Exchange) -> Any:
        """What was asked for, or why not."""
        lacking = self._lacking(scopes, exchange)
        if lacking is not None:
            return lacking
        body = await exchange.body()
        return self._lacking(scopes, exchange) or _decoded(body, shape)

    async def _refuse(
        self, scopes: Sequence[OperatorScope], refused: Declined | NotAdmitted, exchange: Exchange
    ) -> Code:
        if isinstance(refused, NotAdmitted):
            await self._operators.having(scopes[0]).refuse(exchange, refused)
            return Code.SAFETY_DENIED
        await exchange.refuse(refused.code, refused.message, refused.suggested_fix)
        return refused.code

    async def _outcome(
        self, scope: OperatorScope | None, shape: type[Any], act: Act, body_bytes_max: int, exchange: Exchange
    ) -> Outcome | NotAdmitted:
        operators = self._operators.having(scope)
        checked = operators.check(exchange)
        if isinstance(checked, NotAdmitted):
            return checked
        body = await exchange.body(body_bytes_max)
        checked = operators.check(exchange)  # once more: the body may have been long in coming
        if isinstance(checked, NotAdmitted):
            return checked
        request = _decoded(body, shape)
        if isinstance(request, Declined):
            return request
        outcome = act(request, checked)
        return await outcome if inspect.isawaitable(outcome) else outcome


def _via(exchange: Exchange) -> Via:
    return Via.HTTP if exchange.extension(SPEAKER) is None else Via.CONSOLE


def _decoded(body: bytes, shape: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Declined("malformed", "The body is not what this route takes.", "Compare it with the reference.")
